"""The phases before a table's network: clients learn together what to do with their columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import torch

from fedpn.core.trees import Params, Slots
from fedpn.data.census import (
    Census,
    Plan,
    Values,
    count_values,
    finish_recipe,
    is_sound,
    make_recipe,
    plan,
    split_values,
    take_census,
)
from fedpn.data.prepared import cells_of
from fedpn.data.recipe import Recipe
from fedpn.federated.gather import Total
from fedpn.federated.phase import Phase, Reply
from fedpn.federated.site import Site

CENSUS, VALUES, PARTS = "census", "values", "parts"
T = TypeVar("T", Census, Values)


@dataclass(frozen=True)
class TakeCensus(Phase):
    """Counts of what cells look like, and sums of their numbers, by column."""

    name: ClassVar[str] = "columns"
    open: ClassVar[bool] = True
    wide: ClassVar[bool] = True
    reach: ClassVar[float] = 1e9

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        cells = cells_of(site.setup.dataset)[site.train]
        return Reply(memory, {CENSUS: _tensors(take_census(cells))})

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        found = _arrays(Census, statistics[CENSUS])
        as_told = rows is None or bool((found.kinds.sum(1) == rows).all())
        return "" if is_sound(found) and as_told else "its counts are none of cells"

    def server(self, server: Slots, total: Total) -> Slots:
        return server | total.sum


@dataclass(frozen=True)
class CountValues(Phase):
    """Counts of the values of categories, and of numbers by bins."""

    names: tuple[str, ...]
    categories: tuple[str, ...] = ()

    name: ClassVar[str] = "values"
    open: ClassVar[bool] = True

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        cells = cells_of(site.setup.dataset)[site.train]
        known = plan_of(sent, self.names, self.categories)
        return Reply(memory, {VALUES: _tensors(count_values(cells, known))})

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        return _not_counts(statistics[VALUES], rows)

    def server(self, server: Slots, total: Total) -> Slots:
        found = server | total.sum
        _coarse(found, self.names, self.categories)  # refuses a table that has no column of use
        return found


@dataclass(frozen=True)
class SplitValues(Phase):
    """Counts of values by parts of their buckets: two that share one are told apart."""

    names: tuple[str, ...]
    categories: tuple[str, ...] = ()

    name: ClassVar[str] = "parts of values"
    open: ClassVar[bool] = True

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        cells = cells_of(site.setup.dataset)[site.train]
        counts = split_values(cells, self.names, _coarse(sent, self.names, self.categories))
        return Reply(memory, {PARTS: {"counts": torch.from_numpy(counts)}})

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        return _not_counts(statistics[PARTS], rows)

    def server(self, server: Slots, total: Total) -> Slots:
        return server | total.sum


def column_phases(names: Sequence[str], categories: Sequence[str]) -> list[Phase]:
    """What is asked of all clients before a recipe is known."""
    known = (tuple(names), tuple(categories))
    return [TakeCensus(), CountValues(*known), SplitValues(*known)]


def plan_of(server: Slots, names: Sequence[str], categories: Sequence[str]) -> Plan:
    return plan(_arrays(Census, server[CENSUS]), names, categories)


def read_columns(server: Slots, names: Sequence[str], categories: Sequence[str]) -> Recipe:
    """The recipe that the sums of all clients give."""
    return finish_recipe(_coarse(server, names, categories), server[PARTS]["counts"].numpy())


def _coarse(server: Slots, names: Sequence[str], categories: Sequence[str]) -> Recipe:
    """The recipe of the first two turns, whose values may share buckets."""
    census, values = _arrays(Census, server[CENSUS]), _arrays(Values, server[VALUES])
    return make_recipe(names, census, plan(census, names, categories), values)


def _not_counts(params: Params, rows: int | None) -> str:
    """What is wrong with counts of a client that has so many rows."""
    most = float("inf") if rows is None else rows
    sound = all(((counts >= 0) & (counts <= most)).all() for counts in params.values())
    return "" if sound else "its counts are none of values"


def _tensors(sums: NamedTuple) -> Params:
    return {name: torch.from_numpy(array) for name, array in sums._asdict().items()}


def _arrays(kind: type[T], params: Params) -> T:
    return kind(**{name: tensor.numpy() for name, tensor in params.items()})
