"""What a node keeps to itself: a secret that its draws come from, a record of what it was asked.

With rows that are split by the node's own secret, a server cannot ask for sums over one choice of
rows after the other and learn each from their differences; and it gets no second answer to another
question of the same kind.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.trees import Slots, flatten
from fedpn.flower.app.packed import raw
from fedpn.flower.app.policy import Policy
from fedpn.flower.app.records import read_config
from fedpn.flower.app.told import Told
from fedpn.flower.place import write_whole
from fedpn.runs.config import to_tree

SECRET, DIARY, SETTINGS, OPENED = "secret", "asked.json", "settings.json", "opened.json"
MAY_CHANGE = ("rounds", "clients", "engine", "faults")  # settings that may change within a run
LENGTH = 32  # bytes of the secret
DAY = 86_400.0
OTHERWISE = 3  # questions of one kind in one run, where a server that was killed goes on
SLACK = 10  # rounds that are played again in such a case


def own_seed(state: Path, purpose: str) -> int:
    """A seed that the node alone knows, the same from run to run."""
    return int.from_bytes(own_key(state, purpose)[:8]) >> 1


def own_key(state: Path, purpose: str) -> bytes:
    """32 bytes that the node alone knows, the same from run to run."""
    path = state / SECRET
    if not path.exists():
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, secrets.token_bytes(LENGTH), 0o600)
    secret = path.read_bytes()
    if len(secret) != LENGTH:
        raise UserError(f"{path} is damaged: it must hold {LENGTH} bytes; restore it from a backup")
    return hashlib.sha256(secret + purpose.encode()).digest()


class Asked:
    """What a node was asked: how often on a day, and what in a run."""

    def __init__(self, state: Path, policy: Policy) -> None:
        self.path, self.policy = state / DIARY, policy

    def note(self, run: str) -> None:
        """Counts a message; refuses those of too many, or of too many runs."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        now, kept = time.time(), self._read()
        kept["messages"] = [m for m in kept["messages"] if now - m[0] < DAY]
        kept["runs"] = {name: t for name, t in kept["runs"].items() if now - t < DAY}
        if run not in kept["runs"] and len(kept["runs"]) >= self.policy.runs_a_day:
            raise Told(
                f"this node's policy: at most {self.policy.runs_a_day} runs a day (runs_a_day)"
            )
        if sum(count for _, count in kept["messages"]) >= self.policy.messages_a_day:
            raise Told(f"this node's policy: at most {self.policy.messages_a_day} messages a day")
        kept["runs"].setdefault(run, now)
        hour = now // 3600 * 3600
        if not kept["messages"] or kept["messages"][-1][0] != hour:
            kept["messages"].append([hour, 0])
        kept["messages"][-1][1] += 1
        store.write_json(self.path, kept)

    def _read(self) -> dict[str, Any]:
        try:
            kept: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
            assert isinstance(kept["messages"], list) and isinstance(kept["runs"], dict)
        except FileNotFoundError:
            kept = {"messages": [], "runs": {}}
        except (OSError, ValueError, KeyError, AssertionError, TypeError):
            raise UserError(f"{self.path} is damaged; take it away") from None
        return kept


def refuse_other_settings(place: Path, config: str) -> None:
    """A run is held to the settings that it began with: others would be other questions.

    It may get more rounds or fewer, and other clients, where it goes on after a stop; how this
    machine works is no server's affair.
    """
    path = place / SETTINGS
    if not path.exists():
        store.write_text(path, config)
    elif _held(path.read_text(encoding="utf-8")) != _held(config):
        raise Told("this run's settings are not those that it began with")


def _held(config: str) -> dict[str, Any]:
    """Settings that stay, whole: another fedpn may have written fewer of them."""
    tree = to_tree(read_config(config))
    return {key: value for key, value in tree.items() if key not in MAY_CHANGE}


def refuse_other_nodes(place: Path, mark: str, nodes: Sequence[int]) -> None:
    """The mask of a question comes off for one list of nodes, not for all of them but one."""
    path = place / OPENED
    digest = hashlib.sha256(json.dumps(sorted(nodes)).encode()).hexdigest()[:16]
    opened: dict[str, str] = {}
    if path.exists():
        opened = json.loads(path.read_text(encoding="utf-8"))
    if mark not in opened:
        store.write_json(path, opened | {mark: digest})
    elif opened[mark] != digest:
        raise Told(
            "its mask of this question came off for other nodes already; a run that was stopped "
            "there goes on with the same nodes, or begin a new one"
        )


def question(phase: str, slots: Slots, *more: object) -> str:
    """Tells questions apart."""
    digest = hashlib.sha256(json.dumps([phase, *map(str, more)]).encode())
    for name, tensor in sorted(flatten(slots).items()):
        digest.update(name.encode() + str(tensor.dtype).encode())
        digest.update(raw(tensor))
    return digest.hexdigest()[:16]


def refuse_others(path: Path, phase: str, mark: str, most: int) -> None:
    """Refuses to answer too many different questions of one kind in one run."""
    asked: dict[str, list[str]] = {}
    if path.exists():
        asked = json.loads(path.read_text(encoding="utf-8"))
    known = asked.setdefault(phase, [])
    if mark in known:
        return
    if len(known) >= most:
        raise Told(
            f"this node has answered {most} different questions for {phase!r} in this run, and "
            "answers no more of them"
        )
    known.append(mark)
    store.write_json(path, asked)
