"""Where a run on Flower stands between two rounds, as its checkpoint tells it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedpn.core.errors import UserError
from fedpn.core.store import Damaged
from fedpn.core.trees import Slots, unflatten
from fedpn.federated.checkpoint import BEFORE, STATE, read_state

ENGINE, CHANGED = "Flower", "Flower with --base"


@dataclass(frozen=True)
class Standing:
    """Where a run stands."""

    run: str  # under this name nodes keep what is theirs
    model: str  # the network, as JSON
    server: Slots
    round: int  # rounds done
    bases: dict[str, int]  # each node's last round that counted
    names: list[str]  # of the nodes, by their numbers


def read_standing(out: Path) -> Standing | None:
    """Reads the last checkpoint that is whole, where there is one."""
    for name in (STATE, BEFORE):
        if not (out / name).exists():
            continue
        try:
            tensors, about = read_state(out / name)
        except Damaged:
            if name == STATE and (out / BEFORE).exists():
                continue
            raise
        if about.get("engine") != ENGINE:
            raise UserError(f"--resume: {out} is a run of the simulator, not of Flower")
        ordered = {key: tensors[key] for key in json.loads(about["names"])}
        return Standing(
            about["run"],
            about["model"],
            unflatten(ordered, json.loads(about["roles"])),
            int(about["round"]),
            *read_nodes(about),
        )
    return None


def read_nodes(about: Mapping[str, str]) -> tuple[dict[str, int], list[str]]:
    """Each node's last round that counted, and the nodes' names."""
    return json.loads(about["bases"]), json.loads(about["nodes"])
