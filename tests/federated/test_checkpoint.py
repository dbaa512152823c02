"""Checkpoints: damage is noticed and named, nothing is lost by it, nothing is written in vain."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import fedpn
from fedpn.algorithms import ALGORITHMS
from fedpn.cli.main import main
from fedpn.core.errors import UserError
from fedpn.core.store import Damaged, read_tensors, write_tensors
from fedpn.core.trees import flatten
from fedpn.data.sources.datasets import load as load_dataset
from fedpn.federated.checkpoint import BEFORE, HISTORY, STATE, read_state
from fedpn.federated.listener import Listener
from settings import SIZES, Kept, play, setting

ROUNDS = 7
SAME = {"data": "these"}
SMALL = [
    "--dataset",
    "digits",
    "--algorithm",
    "fedpn",
    "--rounds",
    "2",
    "--clients",
    "4",
    "--set",
    "train.steps=1",
]
SMALL += ["--set", "method.adapt_epochs=0", "--set", "method.adapt_steps=1"]


class KilledError(Exception):
    pass


class Killing(Listener):
    """Ends a run without warning, in the middle of a round's end."""

    def __init__(self, round_):
        self.round_ = round_

    def progress(self, stage, done, of, **facts):
        if done == self.round_:
            raise KilledError


def go(method, out, about=SAME, listener=None, every=2, count=ROUNDS):
    """Plays to the end, or on from where the directory stands; tells what was said."""
    said, setup = [], setting(method.network)
    out.mkdir(exist_ok=True)
    journal = Kept(out, about, every, said.append)
    path = out / "memories.bin"
    played = play(method, setup, journal=journal, path=path, listener=listener, count=count)
    return played, said


def killed(method, out, round_=5):
    """A run with checkpoints of rounds 2 and 4 that was killed in the fifth."""
    with pytest.raises(KilledError):
        go(method, out, listener=Killing(round_))
    assert read_state(out / STATE)[1]["round"] == "4"
    assert read_state(out / BEFORE)[1]["round"] == "2"


def flip(path, place, bit=1):
    content = bytearray(path.read_bytes())
    content[place] ^= bit
    path.write_bytes(bytes(content))


def files(out):
    return {p.name: p.read_bytes() for p in out.iterdir()}


def told(out):
    lines = [json.loads(line) for line in (out / HISTORY).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def assert_same_bits(one, other):
    assert list(one.server) == list(other.server)
    pairs = [(one.memories[c], other.memories[c]) for c in range(len(SIZES))]
    for a, b in [(one.server, other.server), *pairs]:
        a, b = flatten(a), flatten(b)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[n], b[n]) for n in a)


@pytest.fixture(params=["ditto", "scaffold", "fedpn"])
def method(request):
    return ALGORITHMS[request.param]()


@pytest.fixture
def ditto():
    return ALGORITHMS["ditto"]()


@pytest.mark.parametrize("place", [3, 200, -1], ids=["length", "header", "tensors"])
def test_after_a_flipped_bit_the_checkpoint_before_leads_to_the_same_end(method, place, tmp_path):
    whole, _ = go(method, tmp_path / "whole")
    out = tmp_path / "cut"
    killed(method, out)
    flip(out / STATE, place)
    found, said = go(method, out)
    (line,) = said
    assert str(out / STATE) in line
    assert "damaged" in line
    assert "of round 2" in line
    assert_same_bits(whole, found)
    assert told(out) == told(tmp_path / "whole")


def test_a_killed_run_needs_no_words(method, tmp_path):
    whole, _ = go(method, tmp_path / "whole")
    killed(method, tmp_path / "cut")
    found, said = go(method, tmp_path / "cut")
    assert said == []
    assert_same_bits(whole, found)
    assert told(tmp_path / "cut") == told(tmp_path / "whole")


def test_a_run_killed_between_the_two_names_of_a_checkpoint_goes_on(method, tmp_path):
    """The old one has its new name, and the new one none yet."""
    whole, _ = go(method, tmp_path / "whole")
    out = tmp_path / "cut"
    killed(method, out)
    (out / STATE).replace(out / BEFORE)
    found, said = go(method, out)
    assert said == []
    assert_same_bits(whole, found)


def test_a_memory_that_only_the_last_checkpoint_names_may_be_lost(ditto, tmp_path):
    """Records are looked at when a checkpoint is read: one that lacks a memory is damaged."""
    whole, _ = go(ditto, tmp_path / "whole")
    out = tmp_path / "cut"
    killed(ditto, out)
    clients, records = len(SIZES), read_state(out / STATE)[0]["kept.memories"].tolist()
    size = (out / "memories.bin").stat().st_size // (3 * clients)
    flip(out / "memories.bin", (records[2] * clients + 2) * size + 5)
    found, said = go(ditto, out)
    assert "what client 2 remembers is lost" in said[0]
    assert "of round 2" in said[0]
    assert_same_bits(whole, found)


def test_a_damaged_checkpoint_does_not_take_the_place_of_a_whole_one(ditto, tmp_path):
    out = tmp_path / "cut"
    killed(ditto, out)
    flip(out / STATE, -1)
    with pytest.raises(KilledError):
        go(ditto, out, listener=Killing(5))  # writes the checkpoint of round 4 anew
    assert read_state(out / STATE)[1]["round"] == "4"
    assert read_state(out / BEFORE)[1]["round"] == "2"


def test_two_damaged_checkpoints_are_an_error_and_nothing_is_written(ditto, tmp_path):
    out = tmp_path / "cut"
    killed(ditto, out)
    flip(out / STATE, -1)
    flip(out / BEFORE, -1)
    before = files(out)
    with pytest.raises(Damaged, match="its checksum does not match"):
        go(ditto, out)
    assert files(out) == before


def test_any_flipped_bit_of_a_checkpoint_is_damage(ditto, tmp_path):
    """Every byte of the header, names and numbers included, and some of the tensors'."""
    killed(ditto, tmp_path / "cut")
    path = tmp_path / "cut" / STATE
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    rng = np.random.default_rng(0)
    places = [*range(header), *rng.integers(header, len(content), 100), len(content) - 1]
    for place in places:
        flip(path, place, 1 << int(rng.integers(8)))
        with pytest.raises(Damaged):
            read_state(path)
        path.write_bytes(content)
    read_state(path)
    path.write_bytes(content[:-1])
    with pytest.raises(Damaged):
        read_state(path)


def test_a_checkpoint_of_another_version_is_told_from_a_damaged_one(ditto, tmp_path):
    out = tmp_path / "cut"
    killed(ditto, out)
    tensors, about = read_tensors(out / STATE)
    older = {"round": about["round"], "data": about["data"]}  # as the first version wrote them
    write_tensors(out / STATE, tensors, **older)
    before = files(out)
    with pytest.raises(UserError, match="another version of fedpn"):
        go(ditto, out)
    assert files(out) == before


def test_other_data_are_refused_and_every_file_stays_as_it_was(ditto, tmp_path):
    out = tmp_path / "cut"
    killed(ditto, out)
    before = files(out)
    assert before["memories.bin"]
    with pytest.raises(UserError, match="not those with which the run began"):
        go(ditto, out, about={"data": "others"})
    assert files(out) == before


def test_a_run_is_not_finished_by_another_engine(ditto, tmp_path):
    go(ditto, tmp_path / "run", about={"engine": "the simulator"}, count=2)
    with pytest.raises(UserError, match="a run of the simulator, not of Flower"):
        go(ditto, tmp_path / "run", about={"engine": "Flower"})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda lines: [lines[0], b"{", *lines[2:]], "damaged in line 2"),
        (lambda lines: [lines[0], lines[0], *lines[2:]], "damaged in line 2"),
        (lambda lines: [b"[]", *lines[1:]], "damaged in line 1"),
        (lambda lines: [b"{}", *lines[1:]], "damaged in line 1"),
        (lambda lines: [*lines[:3], b"\xff\xfe", *lines[4:]], "damaged"),
        (lambda lines: lines[:3], "it has 3 of 4 rounds"),
        (lambda lines: [], "it has 0 of 4 rounds"),
    ],
)
def test_a_damaged_history_is_refused_before_any_round(spoil, words, ditto, tmp_path):
    out = tmp_path / "cut"
    killed(ditto, out)
    lines = (out / HISTORY).read_bytes().splitlines()
    (out / HISTORY).write_bytes(b"".join(line + b"\n" for line in spoil(lines)))
    before = files(out)
    with pytest.raises(Damaged, match=words):
        go(ditto, out, listener=Killing(5))  # which would be another error
    assert files(out) == before


def test_what_follows_the_checkpoint_in_the_history_may_be_anything(ditto, tmp_path):
    """A run that is killed may leave half a line."""
    whole, _ = go(ditto, tmp_path / "whole")
    out = tmp_path / "cut"
    killed(ditto, out)
    with (out / HISTORY).open("a") as file:
        file.write('{"round": 6, "lo')
    found, _ = go(ditto, out)
    assert_same_bits(whole, found)
    assert told(out) == told(tmp_path / "whole")


def test_an_undamaged_end_is_reached_by_the_command_line_too(tmp_path, capsys):
    """A whole run: flipped, named on the terminal, and the same figures."""
    every = ["--checkpoint-every", "1", "--algorithm", "ditto"]
    out, whole = tmp_path / "run", tmp_path / "whole"
    for path in (out, whole):
        assert main(["run", *SMALL, *every, "--out", str(path)]) == 0
    flip(out / STATE, -1)
    capsys.readouterr()
    resume = ["--resume", "--rounds", "3"]
    assert main(["run", *resume, "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert f"{out / STATE} is damaged" in said
    assert "the checkpoint before it is used, of round 1" in said
    assert main(["run", *resume, "--out", str(whole)]) == 0
    for name in ("metrics.json", "shared.safetensors", "clients.safetensors"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    flip(out / STATE, -1)
    flip(out / BEFORE, -1)
    capsys.readouterr()
    assert main(["run", "--resume", "--rounds", "4", "--out", str(out)]) == 2
    assert "its checksum does not match" in capsys.readouterr().err


def test_a_refused_run_leaves_what_clients_remember(tmp_path, capsys):
    digits = load_dataset("digits")
    path, out = tmp_path / "mine.npz", tmp_path / "run"
    np.savez(path, images=digits.x[:, 0], labels=digits.y)
    data = ["--dataset", str(path), "--algorithm", "ditto"]
    assert main(["run", *SMALL, *data, "--out", str(out)]) == 0
    np.savez(path, images=digits.x[:, 0] // 2, labels=digits.y)
    names = ["memories.bin", STATE, HISTORY, "metrics.json", "clients.safetensors"]
    before = [(out / name).read_bytes() for name in names]
    capsys.readouterr()
    assert main(["run", "--resume", "--rounds", "4", "--out", str(out)]) == 2
    assert "not those with which the run began" in capsys.readouterr().err
    assert [(out / name).read_bytes() for name in names] == before


HOLD = """
import sys
from pathlib import Path
from fedpn.core import store
with store.claimed(Path(sys.argv[1]), resume=True):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_directory_is_one_processs(tmp_path, capsys):
    """The second is told whose it is; once the first has ended, however it ended, it may go on."""
    out = tmp_path / "run"
    assert main(["run", *SMALL, "--out", str(out)]) == 0
    capsys.readouterr()
    command = [sys.executable, "-c", HOLD, str(out)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as holder:
        assert holder.stdout.readline() == "held\n"
        before = [(out / name).read_bytes() for name in ("memories.bin", STATE, HISTORY)]
        assert main(["run", "--resume", "--out", str(out)]) == 2
        assert f"{out} is in use by process {holder.pid}; wait" in capsys.readouterr().err
        assert [(out / n).read_bytes() for n in ("memories.bin", STATE, HISTORY)] == before
        holder.kill()
    assert main(["run", "--resume", "--out", str(out)]) == 0
    assert fedpn.load(out, 0)
