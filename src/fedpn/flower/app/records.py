"""Messages: what a server tells nodes and what they answer, as Flower's records and back."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedpn.core.errors import UserError
from fedpn.core.trees import Slots, flatten, unflatten
from fedpn.data.recipe import Recipe, read_recipe
from fedpn.flower.app.packed import from_bytes, to_bytes
from fedpn.nn.blueprint import Blueprint, read_blueprint
from fedpn.runs.config import Config, resolve

# The kinds of messages, as Flower names them.
INTRODUCE = "query.introduce"
TRAIN = "train"
SUM = "train.sum"
PERSONALISE = "train.personalise"
LATEST = 10**7  # rounds of a run
# The records of a message.
ORDER, REPORT, TENSORS = "order", "report", "tensors"
LARGE = 10 * 2**20  # bytes of tensors


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
    version: str = ""  # of the server's fedpn


@dataclass(frozen=True)
class Report:
    """What a node says of itself; never rows, labels or personal parameters."""

    name: str
    error: str = ""  # why it could not do what it was told
    loss: float = 0.0
    weight: float = 1.0  # of what it uploads, in sums after the rounds
    facts: str = ""  # more, as JSON


def pack_order(order: Order, slots: Slots | None = None) -> RecordDict:
    return _pack(ORDER, asdict(order), slots)


def pack_report(report: Report, slots: Slots | None = None) -> RecordDict:
    return _pack(REPORT, asdict(report), slots)


def _pack(name: str, values: dict[str, Any], slots: Slots | None) -> RecordDict:
    """Values and tensors in one record: Flower sends each record, and each array, by itself.

    Many megabytes go as an array, which it sends in pieces.
    """
    content = RecordDict()
    if slots is not None:
        packed = to_bytes(flatten(slots))
        if len(packed) > LARGE:
            content[TENSORS] = ArrayRecord({TENSORS: Array(packed)})
        else:
            values = values | {TENSORS: packed.tobytes()}
    content[name] = ConfigRecord(values)
    return content


def read_order(content: RecordDict) -> Order:
    """Reads what a server says; what only a newer one would say is passed over."""
    if ORDER not in content.config_records:
        raise UserError("the server's message holds no order")
    told: dict[str, Any] = dict(content.config_records[ORDER])
    order = Order(**{f.name: told[f.name] for f in fields(Order) if f.name in told})
    for field in fields(Order):
        if type(getattr(order, field.name)) is not field.type:
            raise UserError(f"the server's order has {field.name} of another kind than it must be")
    if not (0 <= order.round < LATEST and 0 <= order.base < LATEST):
        raise UserError(f"the server's order has the round {order.round}, after {order.base}")
    return order


def read_report(content: RecordDict) -> Report:
    """Reads what a node says; a value of another kind is a TypeError."""
    told: dict[str, Any] = dict(content.config_records[REPORT])
    told.pop(TENSORS, None)
    report = Report(**told)
    for field in fields(Report):
        value = getattr(report, field.name)
        if type(value) is not field.type:
            raise TypeError(f"{field.name} is {value!r}")
    return report


def has_tensors(content: RecordDict) -> bool:
    told = content.config_records.values()
    return TENSORS in content.array_records or any(TENSORS in record for record in told)


def unpack(content: RecordDict, roles: Sequence[str]) -> Slots:
    """A message's tensors as slots; roles may be empty. What cannot be read is a ValueError."""
    records = [content.config_records[n] for n in (ORDER, REPORT) if n in content.config_records]
    packed: Any = next((record[TENSORS] for record in records if TENSORS in record), None)
    try:
        if packed is None:
            packed = content.array_records[TENSORS][TENSORS].numpy()
    except Exception as error:  # NumPy reads what another made, be it cut short or a bomb
        raise ValueError(f"it holds no tensors: {error!r}"[:300]) from None
    return unflatten(from_bytes(packed), roles)


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
