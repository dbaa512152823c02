"""Real processes, killed at random or short of disk: nothing is lost, and the bits are the same.

A short form for every day; `make soak` has sixty kills and twenty full disks.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedpn.cli.main import main
from fedpn.data.sources.datasets import load as load_dataset
from fedpn.serving.bundle import FILES

KILLS = int(os.environ.get("FEDPN_KILLS", "1"))  # of each algorithm
FULL = int(os.environ.get("FEDPN_FULL", "1"))
FEDPN = [sys.executable, "-m", "fedpn.cli.main"]
ALGORITHMS = {
    "fedpn": ["--set", "method.adapt_steps=20", "--set", "method.adapt_epochs=0"],
    "ditto": ["--router", "gaussian"],
    "analytic": ["--set", "head.filters=10", "--risk", "0.2"],
}
MODELS = [name for name in FILES if name.endswith(".safetensors")]


@dataclass
class Work:
    """From data to answers in four commands, each of which may be killed and tried again."""

    place: Path
    algorithm: str
    inputs: Path

    @property
    def run(self):
        return self.place / "run"

    def steps(self):
        """What is left to do, each with what it leaves behind."""
        rounds = ["--rounds", "12", "--clients", "4", "--algorithm", self.algorithm]
        new = [*rounds, "--set", "train.steps=2", *ALGORITHMS[self.algorithm]]
        resumed = (self.run / "config.toml").exists()
        start = ["run", "--checkpoint-every", "2", "--out", str(self.run)]
        folder, answers = self.place / "folder", self.place / "answers.csv"
        yield self.run / "manifest.json", [*start, *(["--resume"] if resumed else new)]
        page = self.place / "page.html"
        yield page, ["report", str(self.run), "--out", str(page)]
        yield folder, ["export", str(self.run), "--client", "1", "--out", str(folder)]
        yield answers, ["predict", str(folder), str(self.inputs), "--out", str(answers)]

    def next(self):
        """The first command whose outcome is not there."""
        return next((words for outcome, words in self.steps() if not outcome.exists()), None)

    def outcome(self):
        """All bits that must not depend on what happened on the way."""
        facts = {name: (self.run / name).read_bytes() for name in MODELS}
        facts |= {f"folder/{name}": (self.place / "folder" / name).read_bytes() for name in MODELS}
        facts["answers"] = (self.place / "answers.csv").read_bytes()
        facts["metrics"] = (self.run / "metrics.json").read_bytes()
        lines = (self.run / "history.jsonl").read_text().splitlines()
        facts["history"] = [{**json.loads(line), "seconds": 0} for line in lines]
        return facts


def start(words):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*FEDPN, *words], env=environment, **pipes)


def finish(work):
    """Plays what is left, in this process."""
    while (words := work.next()) is not None:
        assert main(words) == 0, words


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    path = tmp_path_factory.mktemp("inputs") / "inputs.npz"
    np.savez(path, images=load_dataset("digits").x[:50, 0])
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory, inputs):
    """What comes of each algorithm's work where nothing happens."""
    found = {}

    def of(algorithm):
        if algorithm not in found:
            work = Work(tmp_path_factory.mktemp(algorithm), algorithm, inputs)
            finish(work)
            found[algorithm] = work.outcome()
        return found[algorithm]

    return of


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_kill_minus_nine(tmp_path, algorithm, inputs, whole):
    """Killed again and again without warning, the work ends as if it had been left alone."""
    expected = whole(algorithm)
    work, rng = Work(tmp_path, algorithm, inputs), np.random.default_rng()
    kills, patience = 0, 6.0
    while kills < KILLS and (words := work.next()) is not None:
        process = start(words)
        try:
            said, _ = process.communicate(timeout=rng.uniform(0, patience))
            assert process.returncode == 0, said
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills, patience = kills + 1, 1.1 * patience  # or nothing would ever be done
        if work.next() is None and kills < KILLS:  # all is done before all kills are: once more
            _forget(work, rng)
    finish(work)
    assert work.outcome() == expected
    assert not [p for p in work.run.iterdir() if re.fullmatch(r"\..*\.\d+", p.name)]


def _forget(work, rng):
    """Takes some of the outcomes away."""
    (work.place / "answers.csv").unlink()
    if rng.random() < 0.7:
        shutil.rmtree(work.place / "folder")
        (work.place / "page.html").unlink()
    if rng.random() < 0.5:
        shutil.rmtree(work.run)


@pytest.fixture
def small_disk(tmp_path):
    """A place whose size can be set; only the administrator may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True
    )
    if made.returncode:
        pytest.skip("a small disk is made by `mount`, which needs an administrator")

    def resize(size):
        subprocess.run(["mount", "-o", f"remount,size={size}", place], check=True)

    yield place, resize
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("number", range(FULL))
def test_a_full_disk_is_told_and_the_work_goes_on_once_there_is_room(
    small_disk, number, inputs, whole
):
    place, resize = small_disk
    algorithm = list(ALGORITHMS)[number % len(ALGORITHMS)]
    expected = whole(algorithm)
    work, rng = Work(place, algorithm, inputs), np.random.default_rng()
    sizes = np.sort(rng.integers(8, sum(map(len, expected.values())) // 1024 * 3, 3))
    for size in sizes:
        resize(f"{size}k")
        while (words := work.next()) is not None:
            process = start(words)
            said, _ = process.communicate()
            if process.returncode:
                assert process.returncode in (1, 2), said  # a sentence, not a signal
                assert "No space left on device" in said and "Traceback" not in said
                break
    resize("200m")
    finish(work)
    assert work.outcome() == expected
