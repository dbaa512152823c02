"""Risk and coverage of the four-outcome rule where some inputs are nobody's."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.core import metrics, seeds
from fedpn.routing.opinion import Opinion, join
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.rule import Decision, Views
from fedpn_paper.figure import Result
from fedpn_paper.opened import Opened
from fedpn_paper.scenes import limits

SHARES = torch.arange(0, 101, dtype=torch.float64) / 100  # of abstention
POINTS = 101


class Stream(NamedTuple):
    """A client's Mix rows, then as many strangers: what there is to decide by, and the truth."""

    views: Views
    labels: Tensor  # [n], -1 for a stranger: every answer to it is wrong

    @property
    def known(self) -> Tensor:
        return self.labels >= 0


def refuse(opened: Opened, z: Tensor) -> Result:
    """What the four-outcome rule does with strangers, by their embeddings.

    Risk and coverage over its share of abstention, and of plain orderings by total uncertainty.
    """
    counts, orders = [], []
    for client in range(opened.setup.federation.clients):
        stream = stream_of(opened, client, z)
        views, switch = stream.views, opened.rule(client).decide(stream.views)
        doubters = rules_of(opened, client)
        answered = torch.stack([rule.decide(views).answered for rule in doubters], 1)
        answers: dict[str, Opinion | Decision]
        answers = {"local": views.local, "global": views.shared, "switch": switch}
        orders.append({who: (a.total, a.label != stream.labels) for who, a in answers.items()})
        counts.append(_counts(answered, switch.label != stream.labels, stream.known))
    told = {name: torch.stack([c[name] for c in counts]).sum(0) for name in counts[0]}
    strangers = told["rows"] - told["known"]
    return {
        "coverage": told["answered"] / told["rows"],
        "risk": told["wrong"] / told["answered"].clamp(min=1),
        "known_answered": told["known_answered"] / told["known"],
        "known_wrong": told["known_wrong"] / told["known_answered"].clamp(min=1),
        "strangers_answered": (told["answered"] - told["known_answered"]) / strangers,
        "ordered": {who: _ordered([o[who] for o in orders]) for who in orders[0]},
        "abstain": opened.config.routing.abstain,
    }


def stream_of(opened: Opened, client: int, z: Tensor) -> Stream:
    """Mix rows and strangers of one client."""
    rows = opened.setup.federation
    mix = rows.mix(client)
    count = min(len(mix), len(z))
    order = seeds.stream("refusal", rows.seed, client).permutation(len(z))
    strange = z[torch.from_numpy(order[:count]).to(z.device)]
    local = join([opened.local(client, mix), opened.local_view(client, strange)])
    shared = join([opened.observe.shared(mix), opened.shared_view(strange)])
    score = opened.router.score(local, shared, opened.bundles[client].router)
    labels = opened.setup.labels(mix).cpu()
    return Stream(Views(local, shared, score), torch.cat([labels, labels.new_full((count,), -1)]))


def rules_of(opened: Opened, client: int) -> list[Quantiles]:
    """The client's rule for every share of abstention."""
    rows, own = opened.setup.federation.calibration[client], opened.rule(client)
    aleatoric = limits(opened.local(client, rows).aleatoric, 1 - SHARES)
    total = limits(opened.observe.shared(rows).total, 1 - SHARES)
    pairs = zip(aleatoric.tolist(), total.tolist(), strict=True)
    return [replace(own, aleatoric=a, total=t) for a, t in pairs]


def _counts(answered: Tensor, wrong: Tensor, known: Tensor) -> dict[str, Tensor]:
    """Rows by what became of them, for every share: [n, Q], [n], [n] -> [Q] each."""
    mine = answered & known[:, None]
    return {
        "rows": torch.tensor(len(known)),
        "known": known.sum(),
        "answered": answered.sum(0),
        "wrong": (answered & wrong[:, None]).sum(0),
        "known_answered": mine.sum(0),
        "known_wrong": (mine & wrong[:, None]).sum(0),
    }


def _ordered(parts: list[tuple[Tensor, Tensor]]) -> list[float]:
    """The risk–coverage curve of all clients' rows, surest first."""
    uncertainty, wrong = (torch.cat(column) for column in zip(*parts, strict=True))
    risk = metrics.risk_coverage(uncertainty, wrong)
    at = np.linspace(0, len(risk) - 1, POINTS).round().astype(int)
    curve: list[float] = risk[torch.from_numpy(at)].tolist()
    return curve
