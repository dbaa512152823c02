"""The server's side between two rounds, on disk: what a run that goes on begins with."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.trees import Slots, flatten, unflatten

FILE = "state.safetensors"


@dataclass
class Book:
    """Where a run stands."""

    run: str  # under this name nodes keep what is theirs
    model: str  # the network, as JSON
    server: Slots
    round: int = 0  # rounds done
    bases: dict[str, int] = field(default_factory=dict)  # each node's last round that counted
    names: list[str] = field(default_factory=list)  # of the nodes, by their numbers

    def save(self, out: Path) -> None:
        store.write_tensors(
            out / FILE,
            flatten(self.server),
            run=self.run,
            model=self.model,
            round=str(self.round),
            bases=json.dumps(self.bases),
            nodes=json.dumps(self.names),
            names=json.dumps(list(flatten(self.server))),
            roles=json.dumps(list(self.server)),
        )


def open_book(out: Path) -> Book | None:
    """Reads the last checkpoint, where there is one."""
    if not (out / FILE).exists():
        return None
    tensors, about = store.read_tensors(out / FILE)
    if "run" not in about:
        raise UserError(f"--resume: {out} is a run of the simulator, not of Flower")
    # Files sort their names; sums over entries depend on their order in the last bits.
    ordered = {name: tensors[name] for name in json.loads(about["names"])}
    return Book(
        about["run"],
        about["model"],
        unflatten(ordered, json.loads(about["roles"])),
        int(about["round"]),
        json.loads(about["bases"]),
        json.loads(about["nodes"]),
    )
