"""What is trained where no method is named, by the kind of data.

Chosen on tuning rows (a fifth of the training rows, held out from them): on tables `analytic` is
ahead of FedPN's small network, on images a head in closed form is ahead of the trained one
(docs/measured.md has the figures).
"""

from collections.abc import Sequence
from typing import NamedTuple

from fedpn.core.settings import Tree
from fedpn.data.dataset import Dataset
from fedpn.data.sources.own import holds_table


class Default(NamedTuple):
    """Settings below all others, and the sentence that says so."""

    settings: Tree
    remark: str


TABLES = Default(
    {"algorithm": "analytic"},
    "analytic (a closed form, without rounds) is the default for tables; "
    "--algorithm fedpn trains networks",
)
IMAGES = Default(
    {"algorithm": "fedpn", "head": {"kind": "ridge"}},
    "fedpn with a head in closed form is the default for images; "
    "--algorithm fedpn alone trains the head",
)
NONE = Default({}, "")


def default_for(layers: Sequence[Tree], dataset: str, given: Dataset | None = None) -> Default:
    """The default for these data; none where the layers of settings name a method or a head."""
    if any(key in layer for layer in layers for key in ("algorithm", "head", "aggregation")):
        return NONE
    is_table = holds_table(dataset) if given is None else given.x.ndim < 4
    return TABLES if is_table else IMAGES
