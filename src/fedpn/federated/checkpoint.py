"""Where a federation stands between two rounds, on disk: history, and two generations of state.

A checkpoint carries a checksum of all that it holds. Where the last one is damaged, it is named
and the one before is used; nothing is written before what is there has been read.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.trees import Params, Slots, flatten, unflatten

STATE, BEFORE, HISTORY = "state.safetensors", "state.before.safetensors", "history.jsonl"
SECONDS = 30.0  # between checkpoints, where no number of rounds is set
FORMAT = "3"
KEPT = "kept."  # marks what a transport keeps among the tensors


@dataclass(frozen=True)
class State:
    """A federation between two rounds."""

    server: Slots
    round: int = 0  # rounds done
    counted: bool = False  # whether any of them had a valid upload


@dataclass
class Journal:
    """Keeps what happened, and the way back."""

    out: Path | None  # None keeps nothing
    about: Mapping[str, str] = field(default_factory=dict)  # what a run must agree with to go on
    every: int | None = None  # rounds between checkpoints; None goes by time
    say: Callable[[str], None] = lambda text: None
    _saved: float = field(default_factory=time.perf_counter)
    _spoilt: bool = False  # whether the last checkpoint is damaged, and the one before is used

    def load(self, first: State, restore: Callable[[Params, Mapping[str, str]], None]) -> State:
        """Goes back to the last checkpoint that is whole, or begins."""
        found = self._find(first, restore)
        if self.out is not None:
            lines = self._history(found.round)
            store.write_text(self.out / HISTORY, "".join(lines))
        return found

    def check(self) -> None:
        """Refuses to go on with a run that was another; nothing is changed by that."""
        for name in (STATE, BEFORE):
            if self.out is not None and (self.out / name).exists():
                try:
                    self._compare(name, read_state(self.out / name)[1])
                except store.Damaged:
                    continue
                return

    def _find(self, first: State, restore: Callable[[Params, Mapping[str, str]], None]) -> State:
        names = [n for n in (STATE, BEFORE) if self.out is not None and (self.out / n).exists()]
        damage: UserError | None = None
        for name in names:
            assert self.out is not None
            try:
                tensors, about = read_state(self.out / name)
                self._compare(name, about)
                kept = {n.removeprefix(KEPT): t for n, t in tensors.items() if n.startswith(KEPT)}
                restore(kept, about)
            except store.Damaged as error:
                damage = error
                continue
            if damage is not None:
                self._spoilt = True
                self.say(f"{damage}; the checkpoint before it is used, of round {about['round']}")
            # Files sort their names; sums over entries depend on their order in the last bits.
            ordered = {key: tensors[key] for key in json.loads(about["names"])}
            server = unflatten(ordered, json.loads(about["roles"]))
            return State(server, int(about["round"]), about["counted"] == "True")
        if damage is not None:
            raise damage
        return first

    def _compare(self, name: str, about: Mapping[str, str]) -> None:
        if odd := differences(about, self.about):
            raise UserError(f"--resume: {self.out}/{name} is of another run: {odd}")

    def _history(self, rounds: int) -> list[str]:
        """The lines of the rounds of a checkpoint; damage is told before any round is played."""
        assert self.out is not None
        path = self.out / HISTORY
        lines = store.read_text(path).splitlines(keepends=True)[:rounds] if path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                whole = json.loads(line)["round"] == number
            except (ValueError, KeyError, TypeError):
                whole = False
            if not whole:
                raise store.Damaged(f"{path} is damaged in line {number}")
        if len(lines) < rounds:
            raise store.Damaged(f"{path} is damaged: it has {len(lines)} of {rounds} rounds")
        return lines

    def write(self, line: Mapping[str, Any]) -> None:
        """Adds a round to the history."""
        if self.out is not None:
            store.append_text(self.out / HISTORY, json.dumps(line) + "\n")

    def is_due(self, round_: int) -> bool:
        """Tells whether it is time for a checkpoint."""
        if self.every:
            return round_ % self.every == 0
        return time.perf_counter() - self._saved > SECONDS

    def save(self, state: State, kept: Params, about: Mapping[str, str]) -> None:
        """Writes a checkpoint; the one before stays."""
        if self.out is None:
            return
        self._saved = time.perf_counter()
        server = flatten(state.server)
        known = {
            "format": FORMAT,
            "round": str(state.round),
            "counted": str(state.counted),
            "names": json.dumps(list(server)),
            "roles": json.dumps(list(state.server)),
        }
        tensors = server | {f"{KEPT}{name}": t for name, t in kept.items()}
        known = {**known, **self.about, **about}
        path = self.out / STATE
        store.sync(self.out / HISTORY)
        store.write_tensors(self.out / f".{STATE}", tensors, **known, checksum=_sum(tensors, known))
        if path.exists() and not self._spoilt:  # a damaged one must not take a whole one's place
            path.replace(self.out / BEFORE)
        self._spoilt = False
        (self.out / f".{STATE}").replace(path)
        store.sync(self.out)


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """In what a run differs from what it was, in words; "" where it is the same.

    >>> differences({"settings": '{"seed": 1}'}, {"settings": '{"seed": 2}'})
    'seed was 1 and is now 2'
    """
    told = []
    for key, value in now.items():
        if before.get(key) == value:
            continue
        if key == "data":
            told.append("the data are not those with which the run began")
        elif key == "engine":
            told.append(f"this is a run of {before.get(key)}, not of {value}")
        elif key in ("code", "settings"):
            old, new = json.loads(before.get(key, "{}")), json.loads(value)
            names = [name for name in old | new if old.get(name) != new.get(name)]
            if key == "code":
                told.append(f"{', '.join(names)}: edited since the run began")
            else:
                told += [f"{n} was {old.get(n)!r} and is now {new.get(n)!r}" for n in names]
        elif not told:
            told.append(f"{key} has changed")
    return "; ".join(told)


def adopt(out: Path, about: Mapping[str, str]) -> None:
    """Makes a checkpoint that was copied here that of another run whose rounds are the same."""
    tensors, known = read_state(out / STATE)
    known |= about
    store.write_tensors(out / STATE, tensors, **known, checksum=_sum(tensors, known))


def rounds_done(out: Path) -> int:
    """How many rounds a directory's last whole checkpoint has behind it."""
    for name in (STATE, BEFORE):
        if (out / name).exists():
            try:
                return int(read_state(out / name)[1]["round"])
            except store.Damaged:
                continue
    return 0


def read_state(path: Path) -> tuple[Params, dict[str, str]]:
    """Reads a checkpoint, or says that it is damaged or of another version."""
    tensors, about = store.read_tensors(path)
    told = about.pop("checksum", "")
    sound = told == _sum(tensors, about)
    if about.get("format") != FORMAT and (sound or not told):
        raise UserError(
            f"{path} was written by another version of fedpn: finish the run with that one, or "
            "begin anew with another --out"
        )
    if not sound:
        raise store.Damaged(f"{path} is damaged: its checksum does not match")
    try:
        names, roles = json.loads(about["names"]), json.loads(about["roles"])
        whole = (
            set(names) <= tensors.keys() and isinstance(roles, list) and int(about["round"]) >= 0
        )
    except (KeyError, TypeError, ValueError, RecursionError):
        whole = False
    if not whole:
        raise store.Damaged(f"{path} is damaged: it does not say what it holds")
    return tensors, about


def _sum(tensors: Params, about: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(about.items())).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())  # whatever its type
    return digest.hexdigest()
