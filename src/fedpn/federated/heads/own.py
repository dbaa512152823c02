"""A client's own head and what its inputs look like, in closed form: no message but the total.

With the federation's sums G, B and its own G_k, B_k a client solves (G + ωG_k + λI)·R_k = B + ωB_k;
ω is that under which its calibration rows are likeliest, and 0 unless that is beyond doubt. Where
a client has rows of every class, classes do not tell its inputs from others': then the regression
of "mine" on φ does, a = (G + λI)⁻¹·Σ_own w·φ, as far as a·φ of own and other rows lie apart.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedpn.core.trees import Params, Slots
from fedpn.federated.heads.base import SLOT
from fedpn.federated.heads.features import Features
from fedpn.federated.heads.sums import gram_of, solve, spread_out, unpack
from fedpn.federated.phase import SUMS, Phase, Reply
from fedpn.federated.site import Site

OMEGAS = (1.0, 4.0, 16.0)  # how often a client's own rows count beside once
APART = 0.8  # AUROC of own against other rows, from which on likeness is gone by
SURE = 2.0  # standard errors by which calibration rows must be likelier under an own head
FEW = 20  # calibration rows below which nothing is learned from them


@dataclass(frozen=True)
class OwnHead(Phase):
    """Learns a client's slot `head`: its matrix and temperature, and how alike inputs are.

    Only where the client has no other model of its own.
    """

    features: Features
    temperatures: tuple[float, ...]

    name: ClassVar[str] = "own head"
    sums: ClassVar[bool] = False

    @torch.no_grad()
    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        state, rows = sent[SLOT], spread_out(site.calibration, len(site.counts))
        if len(rows) < FEW or memory["own"]:  # one who has trained a model of its own has enough
            return Reply(memory)
        total = unpack(sent[SUMS]["gram"]), sent[SUMS]["cross"]
        mine = gram_of(self.features, site, state)
        counts = site.counts
        seen = site.observer.see(rows)
        found = self._matrix(state, total, mine, seen, site.setup.labels(rows), counts)
        if (counts > 0).all():
            found |= likeness(total[0], mine[0], seen.cpu(), float(state["ridge"]))
        return Reply(memory | {"head": found} if found else memory)

    def _matrix(
        self,
        state: Params,
        total: tuple[Tensor, Tensor],
        mine: tuple[Tensor, Tensor],
        seen: Tensor,
        labels: Tensor,
        counts: Tensor,
    ) -> Params:
        """The best ω, climbing as long as it helps; nothing where none beats the federation's."""
        prior = (counts.double() / counts.sum()).log().to(seen.device)

        def fit(matrix: Tensor) -> tuple[Tensor, float]:
            """Each row's loss at the best temperature."""
            scores = (seen @ matrix).double()
            losses = [
                cross_entropy(scores / heat + prior, labels, reduction="none")
                for heat in self.temperatures
            ]
            best = min(range(len(losses)), key=lambda i: float(losses[i].mean()))
            return losses[best], self.temperatures[best]

        plain, _ = fit(state["matrix"])
        best: Tensor = plain
        kept: Params = {}
        for omega in OMEGAS:
            gram, cross = (t + omega * own for t, own in zip(total, mine, strict=True))
            matrix = solve(gram, cross, float(state["ridge"])).float().to(seen.device)
            loss, heat = fit(matrix)
            if loss.mean() >= best.mean():
                break
            best = loss
            kept = {"matrix": matrix, "temperature": torch.tensor(heat, dtype=torch.float64)}
            kept["omega"] = torch.tensor(omega, dtype=torch.float64)
        gain = plain - best
        doubt = float(gain.std()) / len(gain) ** 0.5
        return kept if float(gain.mean()) > SURE * doubt else {}


def likeness(gram: Tensor, mine: Tensor, seen: Tensor, ridge: float) -> Params:
    """What tells a client's inputs from others' where classes do not; nothing where nothing does.

    Of other clients' rows the sums tell the mean and the spread of a·φ; of its own, held-out rows.
    """
    direction = solve(gram, mine[-1][:, None], ridge)[:, 0]
    others = gram - mine
    rows = others[-1, -1]
    if rows <= 0:
        return {}
    theirs = others[-1] @ direction / rows
    spread = (direction @ others @ direction / rows - theirs.square()).clamp(min=1e-12).sqrt()
    own = seen.double() @ direction
    normal = torch.stack([own.mean(), own.std().clamp(min=1e-6), theirs, spread])
    apart = (own.mean() - theirs) / torch.hypot(normal[1], spread)
    if torch.special.ndtr(apart) < APART:
        return {}
    return {"direction": direction.float(), "normal": normal}


def log_odds(seen: Tensor, state: Params) -> Tensor | None:  # [B, F] -> [B]
    """How much likelier an input looks than others', by two normal distributions."""
    if "direction" not in state:
        return None
    place = (seen @ state["direction"]).double()
    own, spread, theirs, wide = state["normal"].to(place).unbind()
    place = torch.minimum(place, own)  # what lies beyond the client's mean is no less its own
    return (
        0.5 * ((place - theirs) / wide).square()
        - 0.5 * ((place - own) / spread).square()
        + (wide / spread).log()
    )
