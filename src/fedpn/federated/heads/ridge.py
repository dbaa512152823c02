"""A ridge regression from sums: equal to the centralised one, whatever the partition.

Clients send Σ w·φφᵀ and Σ w·φyᵀ, each class weighing the same in all; the server standardises φ in
algebra, since φ holds a 1, and solves (G + λI)·R = B. λ and the softmax's temperature are those
under which calibration rows are likeliest, each class weighing the same, again by sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpn.core import metrics
from fedpn.core.errors import UserError
from fedpn.core.trees import Params, Slots, zip_with
from fedpn.federated.gather import Total
from fedpn.federated.heads.base import SLOT, Head, Seen
from fedpn.federated.heads.change import Change
from fedpn.federated.heads.features import Features, chunks
from fedpn.federated.heads.noise import (
    LOSS,
    choose_lengths,
    gram_lengths,
    nearest_psd,
    noisy,
    survey_lengths,
)
from fedpn.federated.heads.own import OwnHead, log_odds
from fedpn.federated.heads.sums import (
    gram_of,
    not_counts,
    not_products,
    pack,
    seen_at,
    solve_each,
    spread_out,
    unpack,
)
from fedpn.federated.phase import SUMS, Phase, Reply, without_sums
from fedpn.federated.site import Site

RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4)  # λ
TEMPERATURES = tuple(10 ** (-2.5 + 3 * i / 49) for i in range(50))


@dataclass(frozen=True)
class Survey(Phase):
    """Class counts, and the moments that φ is built from."""

    features: Features

    name: ClassVar[str] = "survey"

    @torch.no_grad()
    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        found: Slots = {}
        for part in chunks(seen_at(site, site.train)):
            new = self.features.sums(part)
            found = {r: zip_with(torch.add, found[r], new[r]) for r in new} if found else new
        counts = torch.bincount(
            site.setup.labels(site.train), minlength=site.setup.blueprint.classes
        )
        return Reply(memory, found | {"classes": {"counts": counts.double()}})

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        return not_counts(statistics["classes"]["counts"], rows)

    def server(self, server: Slots, total: Total) -> Slots:
        counts = total.sum["classes"]["counts"].clamp(min=0)
        rows = float(counts.sum())
        # Each class weighs the same, whoever has how many rows of it; a class that nobody has yet
        # may come with a newcomer, whose rows of it weigh as the average row does.
        even = rows / (counts > 0).sum()
        weights = torch.where(counts > 0, even / counts.clamp(min=1), 1)
        if self.features.clip:  # under noise no row may weigh more than 1
            weights = weights / weights.max().clamp(min=1e-12)
        state = self.features.settle(total.sum, rows)
        return server | {SLOT: state | {"weights": weights, "counts": counts}}


@dataclass(frozen=True)
class Gram(Phase):
    """G = Σ w·φφᵀ, of which the triangle travels, and B = Σ w·φyᵀ."""

    features: Features

    name: ClassVar[str] = "gram"

    @torch.no_grad()
    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        gram, cross = gram_of(self.features, site, sent[SLOT])
        return Reply(memory, {"sums": {"gram": pack(gram), "cross": cross}})

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        return not_products(statistics["sums"])

    def server(self, server: Slots, total: Total) -> Slots:
        sums = total.sum["sums"]
        gram, cross = unpack(sums["gram"]), sums["cross"]
        if self.features.clip:
            gram = nearest_psd(gram)
            sums = {"gram": pack(gram), "cross": cross}
        candidates = solve_each(gram, cross, RIDGES)
        return server | {SLOT: server[SLOT] | {"candidates": candidates.float()}, SUMS: sums}


@dataclass(frozen=True)
class Choose(Phase):
    """Under which λ and temperature calibration rows are likeliest."""

    features: Features

    name: ClassVar[str] = "choose"

    def reads(self, server: Slots) -> Slots:
        return without_sums(server)

    @torch.no_grad()
    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        state, classes = sent[SLOT], site.setup.blueprint.classes
        rows = spread_out(site.calibration, classes)
        labels = site.setup.labels(rows)
        candidates = state["candidates"]
        loss = torch.zeros(len(candidates), len(TEMPERATURES), dtype=torch.float64)
        start = 0
        for part in chunks(seen_at(site, rows)):
            truth = labels[start : start + len(part.x)]
            start += len(part.x)
            scores = torch.einsum("bf,lfk->lbk", self.features(part, state), candidates).double()
            logs = metrics.tempered(scores, truth, TEMPERATURES)  # [λ, B, T]
            bounded = logs.clamp(min=-LOSS) if self.features.clip else logs
            loss -= torch.einsum("lbt,b->lt", bounded, state["weights"][truth].double()).cpu()
        return Reply(memory, {"sums": {"loss": loss}})

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        return "" if (statistics["sums"]["loss"] >= 0).all() else "losses below 0"

    def server(self, server: Slots, total: Total) -> Slots:
        loss, state = total.sum["sums"]["loss"], dict(server[SLOT])
        chosen, heat = divmod(int(loss.argmin()), loss.shape[1])
        candidates = state.pop("candidates")
        state["matrix"] = candidates[chosen]
        state["ridge"] = torch.tensor(RIDGES[chosen], dtype=torch.float64)
        state["temperature"] = torch.tensor(TEMPERATURES[heat], dtype=torch.float64)
        return server | {SLOT: state}


@dataclass(frozen=True)
class Ridge(Head):
    """softmax(Rᵀφ(x) / T)."""

    features: Features
    noise: float = 0.0  # σ on the sums that the server goes on with, in units of one row

    name: ClassVar[str] = "ridge"

    def phases(self) -> Sequence[Phase]:
        features = self.features
        return [
            noisy(Survey(features), self.noise, survey_lengths),
            noisy(Gram(features), self.noise, gram_lengths(features.clip)),
            noisy(Choose(features), self.noise, choose_lengths),
        ]

    def personal(self) -> Sequence[Phase]:
        return [OwnHead(self.features, TEMPERATURES)]

    def change(self, leaves: bool) -> Phase:
        return Change(self.features, leaves)

    def see(self, seen: Seen, state: Params) -> Tensor:
        if "matrix" not in state:
            raise UserError("the ridge head has not been learned")
        return self.features(seen, state)

    def logits(self, seen: Tensor, state: Params) -> Tensor:
        return seen @ state["matrix"] / float(state["temperature"])

    def likeness(self, seen: Tensor, state: Params) -> Tensor | None:
        return log_odds(seen, state)
