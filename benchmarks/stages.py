"""Where a whole run spends its time."""

import argparse
import json
import tempfile
from pathlib import Path

import fedpn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    settings = {"dataset": options.dataset}
    if options.rounds is not None:
        settings["rounds"] = options.rounds
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        fedpn.run(out, **settings)
        timings = json.loads((out / "timings.json").read_text())
    for stage, seconds in timings.items():
        share = seconds / timings["total"]
        print(f"{stage:<12} {seconds:8.1f} s  {100 * share:5.1f} %  {'█' * round(40 * share)}")
    if options.json:
        options.json.write_text(json.dumps(timings, indent=1))


if __name__ == "__main__":
    main()
