"""Several phases in one turn, so that clients are asked once: messages cost more than numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch

from fedpn.core.trees import Slots
from fedpn.federated.gather import Total
from fedpn.federated.phase import Phase, Reply
from fedpn.federated.plausible import may_weigh
from fedpn.federated.site import Site

MARK, WEIGHT = ":", "weight"  # what a part sends is in slots `0:sums`, `1:gate`, …


@dataclass(frozen=True)
class Together(Phase):
    """Phases whose sums do not need each other: their statistics travel side by side."""

    parts: tuple[Phase, ...]
    name: str  # type: ignore[misc]

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        statistics: Slots = {}
        for i, part in enumerate(self.parts):
            reply = part.client(site, sent, memory)
            # Each part has a weight of its own: it travels with what it weighs.
            weight = torch.tensor(reply.weight, dtype=torch.float64)
            statistics[f"{i}{MARK}{WEIGHT}"] = {WEIGHT: weight}
            for slot, params in reply.statistics.items():
                statistics[f"{i}{MARK}{slot}"] = {n: t * reply.weight for n, t in params.items()}
        return Reply(memory, statistics)

    def reads(self, server: Slots) -> Slots:
        return {role: p for part in self.parts for role, p in part.reads(server).items()}

    def server(self, server: Slots, total: Total) -> Slots:
        for i, part in enumerate(self.parts):
            mine = _of_part(total.sum, i)
            weight = float(mine.pop(WEIGHT)[WEIGHT])
            server = part.server(server, Total(mine, weight, total.share))
        return server

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        parts = [_of_part(statistics, i) for i in range(len(self.parts))]
        weights = [float(mine.pop(WEIGHT)[WEIGHT]) for mine in parts]
        if rows is not None and not all(may_weigh(weight, rows) for weight in weights):
            return f"its parts weigh {', '.join(f'{weight:g}' for weight in weights)}"
        pairs = zip(self.parts, parts, strict=True)
        return next(filter(None, (part.objection(mine, rows) for part, mine in pairs)), "")


def _of_part(slots: Slots, number: int) -> Slots:
    mark = f"{number}{MARK}"
    return {n.removeprefix(mark): params for n, params in slots.items() if n.startswith(mark)}


def side_by_side(*chains: Sequence[Phase]) -> list[Phase]:
    """Chains of phases, each in its order, the first ones of all in one turn, and so on."""
    turns = [[phase for phase in turn if phase is not None] for turn in zip_longest(*chains)]
    return [
        turn[0] if len(turn) == 1 else Together(tuple(turn), " + ".join(p.name for p in turn))
        for turn in turns
    ]
