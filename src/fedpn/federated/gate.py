"""The gate for strangers: inputs like nothing that the federation has seen are answered by nobody.

Three turns of sums, among them counts by class (docs/leaks.md has what sums tell): moments of
training rows, the spread of held-out rows' statistics, and a histogram of their distances
(`nn.familiar`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpn.core.products import is_product
from fedpn.core.trees import Params, Slots
from fedpn.data.dataset import Array
from fedpn.federated.gather import Total
from fedpn.federated.phase import Phase, Reply, without_sums
from fedpn.federated.site import Site
from fedpn.nn import familiar

SLOT = "gate"  # of the server's state, and its file of a bundle
SEED = 0  # of the sketch of wide tables


class Turn(Phase):
    """One turn; what the server makes of it is added to the slot."""

    def reads(self, server: Slots) -> Slots:
        return without_sums(server)

    def part(self, x: Tensor, y: Tensor, classes: int, gate: Params) -> Params:
        """A client's sums."""
        raise NotImplementedError

    def learn(self, total: Params) -> Params:
        """What the server makes of all clients' sums."""
        raise NotImplementedError

    def rows(self, site: Site) -> Array:
        return site.calibration

    @torch.no_grad()
    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        setup, rows = site.setup, self.rows(site)
        x = setup.data.x[torch.from_numpy(rows).to(setup.device)].cpu()
        y = setup.labels(rows).cpu()
        found = self.part(x, y, setup.blueprint.classes, sent.get(SLOT, {}))
        return Reply(memory, {SLOT: found})

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        found = statistics[SLOT]
        counts = [found[name] for name in ("rows", "counts") if name in found]
        sound = all((t >= 0).all() and (t == t.round()).all() for t in counts)
        if rows is not None:  # held-out rows are fewer, but of the smallest clients
            sound &= all(float(t.sum()) <= rows + 1 for t in counts)
        sound &= all(is_product(t) for name, t in found.items() if name.endswith("outer"))
        if sound and "outer" in found:  # by class, around each one's mean
            mean = found["total"] / found["rows"].clamp(min=1)[:, None]
            sound &= is_product(
                found["outer"]
                - torch.einsum("c,cs,ct->cst", found["rows"], mean, mean)
                + 1e-6 * torch.diag_embed(found["outer"].diagonal(dim1=-2, dim2=-1))
            )
        return "" if sound else "its counts or squares are none"

    def server(self, server: Slots, total: Total) -> Slots:
        return server | {SLOT: server.get(SLOT, {}) | self.learn(total.sum[SLOT])}


@dataclass(frozen=True)
class LookAtRows(Turn):
    """Moments of training rows."""

    name: ClassVar[str] = "look at rows"

    def rows(self, site: Site) -> Array:
        return site.train

    def part(self, x: Tensor, y: Tensor, classes: int, gate: Params) -> Params:
        return familiar.moments(x, y, classes, SEED)

    def learn(self, total: Params) -> Params:
        return _named("view", familiar.settle(total, SEED))


@dataclass(frozen=True)
class SpreadOfRows(Turn):
    """How held-out rows' statistics are spread, by class."""

    name: ClassVar[str] = "spread of rows"

    def part(self, x: Tensor, y: Tensor, classes: int, gate: Params) -> Params:
        return familiar.spread(familiar.statistics(x, _part("view", gate)), y, classes)

    def learn(self, total: Params) -> Params:
        return _named("fitted", familiar.fit(total))


@dataclass(frozen=True)
class LimitOfRows(Turn):
    """How far the farthest known rows are; a share of them is given up."""

    share: float

    name: ClassVar[str] = "limit of rows"

    def part(self, x: Tensor, y: Tensor, classes: int, gate: Params) -> Params:
        seen = familiar.statistics(x, _part("view", gate))
        away = familiar.distance(seen, _part("fitted", gate), own=y)
        return {"counts": familiar.counts(away).double()}

    def learn(self, total: Params) -> Params:
        limit = familiar.threshold(total["counts"], 1 - self.share)
        return {"limit": torch.tensor(limit, dtype=torch.float64)}


def gate_phases(share: float) -> Sequence[Phase]:
    """The turns that lead to a gate, where one is asked for."""
    return [LookAtRows(), SpreadOfRows(), LimitOfRows(share)] if share else []


@torch.no_grad()
def strangers(x: Tensor, gate: Params, own: Tensor | None = None) -> Tensor:  # [B], bool
    """Which inputs are like nothing that the federation has seen; none where it has no gate.

    `own`: the labels of rows that the gate was fitted on.
    """
    if not gate:
        return torch.zeros(len(x), dtype=torch.bool)
    seen = familiar.statistics(x.cpu(), _part("view", gate))
    return familiar.distance(seen, _part("fitted", gate), own) > gate["limit"]


def _named(kind: str, params: Params) -> Params:
    return {f"{kind}/{name}": t for name, t in params.items()}


def _part(kind: str, gate: Params) -> Params:
    mark = f"{kind}/"
    return {n.removeprefix(mark): t for n, t in gate.items() if n.startswith(mark)}
