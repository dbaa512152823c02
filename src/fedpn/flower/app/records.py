"""Messages: what a server tells nodes and what they answer, as Flower's records and back."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedpn.core.errors import UserError
from fedpn.core.trees import Slots, flatten, unflatten
from fedpn.data.recipe import Recipe, read_recipe
from fedpn.nn.blueprint import Blueprint, read_blueprint
from fedpn.runs.config import Config, resolve

# The kinds of messages, as Flower names them.
INTRODUCE = "query.introduce"
TRAIN = "train"
SUM = "train.sum"
PERSONALISE = "train.personalise"


@dataclass(frozen=True)
class Order:
    """What a server says to a node, beside arrays."""

    run: str  # the name under which a node keeps what belongs to this run
    config: str  # the settings, as JSON
    model: str = ""  # the network, and what becomes of columns, as JSON
    roles: str = ""  # of the slots that come with it, by commas
    phase: str = ""  # what to do, by the name of a phase
    round: int = 0  # rounds done before this one
    base: int = 0  # the node's last round that counted: what it remembers of later ones is void


@dataclass(frozen=True)
class Report:
    """What a node says of itself; never rows, labels or personal parameters."""

    name: str
    error: str = ""  # why it could not do what it was told
    loss: float = 0.0
    weight: float = 1.0  # of what it uploads, in sums after the rounds
    facts: str = ""  # more, as JSON


def pack_order(order: Order, slots: Slots | None = None) -> RecordDict:
    content = RecordDict({"order": ConfigRecord(asdict(order))})
    if slots is not None:
        content["slots"] = pack(slots)
    return content


def pack_report(report: Report, slots: Slots | None = None) -> RecordDict:
    content = RecordDict({"report": ConfigRecord(asdict(report))})
    if slots is not None:
        content["slots"] = pack(slots)
    return content


def read_order(content: RecordDict) -> Order:
    return Order(**_values(content, "order"))


def read_report(content: RecordDict) -> Report:
    """Reads what a node says; a value of another kind is a TypeError."""
    report = Report(**_values(content, "report"))
    for field in fields(Report):
        value = getattr(report, field.name)
        if type(value) is not field.type:
            raise TypeError(f"{field.name} is {value!r}")
    return report


def _values(content: RecordDict, name: str) -> dict[str, Any]:
    return dict(content.config_records[name])


def pack(slots: Slots) -> ArrayRecord:
    """Slots as arrays named `role/name`."""
    return ArrayRecord({name: Array(t.cpu().numpy()) for name, t in flatten(slots).items()})


def unpack(content: RecordDict, roles: Sequence[str]) -> Slots:
    """Arrays as slots; roles may be empty."""
    record = content.array_records["slots"]
    return unflatten(
        {name: torch.from_numpy(a.numpy().copy()) for name, a in record.items()}, roles
    )


class Agreed(NamedTuple):
    """What a federation has agreed on before its first round."""

    blueprint: Blueprint | None  # None where only the columns are settled yet
    recipe: Recipe | None  # of tables whose cells are not all numbers


def write_agreed(agreed: Agreed) -> str:
    """The same as JSON."""
    parts = agreed._asdict().items()
    return json.dumps({name: None if part is None else asdict(part) for name, part in parts})


def read_agreed(text: str) -> Agreed:
    """Reads from JSON what a federation has agreed on."""
    try:
        tree = json.loads(text)
        network, columns = tree["blueprint"], tree["recipe"]
        return Agreed(
            None if network is None else read_blueprint(network),
            None if columns is None else read_recipe(columns),
        )
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise UserError(f"the network that came with the run cannot be read: {error}") from None


def read_config(text: str) -> Config:
    """Reads settings from JSON."""
    try:
        return resolve([json.loads(text)])
    except (ValueError, RecursionError) as error:
        raise UserError(f"the settings that came with the run cannot be read: {error}") from None
