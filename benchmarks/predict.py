"""Many inputs from the command line: CPU seconds and memory, beside the encoder's pass alone.

python benchmarks/predict.py [--rows 1000000]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import fedpn
from fedpn.serving.inputs import input_parts


def watch(command: list[str]) -> int:
    """Runs a command; returns the most megabytes that it held."""
    held = 0
    with subprocess.Popen(command, env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin"}) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            if "VmHWM:" in status:
                held = int(status.split("VmHWM:")[1].split()[0]) // 1024
            time.sleep(0.2)
    return held


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=1_000_000)
    rows = options.parse_args().rows
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        fedpn.run(place / "run", dataset="digits", clients=4, routing__strangers=0.02)
        images = fedpn.open_dataset("digits").x
        picked = np.random.default_rng(0).integers(0, len(images), rows)
        np.savez(place / "many.npz", images=images[picked])
        model = fedpn.load(place / "run", "0")
        began = time.process_time()
        with torch.no_grad():
            for part in input_parts(place / "many.npz", (1, 28, 28)):
                for x in torch.split(torch.from_numpy(part.rows), 512):
                    model.model.embed(model.bundle.predictor, x)
        encoder = time.process_time() - began
        command = [sys.executable, "-m", "fedpn.cli.main", "predict", str(place / "run")]
        command += [str(place / "many.npz"), "--client", "0", "--out", str(place / "a.csv")]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        held = watch(command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{rows} rows: the encoder's pass {encoder:.1f} CPU s")
        print(f"fedpn predict: {spent:.1f} CPU s ({spent / encoder:.2f} ×)")
        print(f"{held} MB at most")


if __name__ == "__main__":
    main()
