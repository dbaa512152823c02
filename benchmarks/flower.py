"""A round on Flower, of two checkouts of fedpn by turns: seconds, processor seconds and bytes.

    python benchmarks/flower.py OTHER_CHECKOUT [TURNS]

Each turn is a whole `fedpn flower demo` (three nodes, three rounds of FedPN on digits, TLS and node
keys on loopback). Rounds are read from `history.jsonl`, the first left out, for it warms up.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[1]
DEMO = "import sys; from fedpn.cli.main import main; sys.exit(main())"


def demo(checkout: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "demo"
        variables = os.environ | {"PYTHONPATH": str(checkout / "src")}
        words = [sys.executable, "-c", DEMO, "flower", "demo", "--keep", str(place)]
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, env=variables, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = [json.loads(x) for x in (place / "run/history.jsonl").read_text().splitlines()]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    passed = [line["sent"] + line["received"] for line in lines if "sent" in line]
    return {
        "round": median(line["seconds"] for line in lines[1:]),
        "demo": time.monotonic() - began,
        "processor": used,
        "bytes": median(passed) if passed else float("nan"),
    }


def main() -> None:
    checkouts = {"this": HERE, "other": Path(sys.argv[1]).resolve()}
    for turn in range(int(sys.argv[2]) if len(sys.argv) > 2 else 2):
        for name, checkout in checkouts.items():
            found = demo(checkout)
            told = ", ".join(f"{what} {value:.1f}" for what, value in found.items())
            print(f"turn {turn + 1}, {name}: {told}", flush=True)


if __name__ == "__main__":
    main()
