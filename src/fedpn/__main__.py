"""`python -m fedpn` is `fedpn`."""

import sys

from fedpn.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
