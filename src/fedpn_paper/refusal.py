"""Risk and coverage of the four-outcome rule where some inputs are nobody's."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.core import metrics, seeds
from fedpn.routing.scores import Opinion, of_posterior
from fedpn_paper.figure import Result
from fedpn_paper.opened import Opened, Seen
from fedpn_paper.scenes import limits

SHARES = torch.arange(0, 101, dtype=torch.float64) / 100  # of abstention
POINTS = 101


class Stream(NamedTuple):
    """A client's Mix rows, then as many strangers: both models' opinions, and the truth."""

    local: Opinion
    shared: Opinion
    labels: Tensor  # [n], -1 for a stranger: every answer to it is wrong

    @property
    def known(self) -> Tensor:
        return self.labels >= 0


def rule(opened: Opened, seen: Seen) -> Result:
    """Risk and coverage of the four-outcome rule over its abstention, and of plain orderings."""
    counts, orders = [], []
    for client in range(opened.ready.federation.clients):
        stream, cuts = _stream(opened, client, seen)
        limit = opened.thresholds[client].epistemic
        delegate = stream.local.epistemic > limit
        labels = {
            "local": stream.local.probs.argmax(-1),
            "global": stream.shared.probs.argmax(-1),
        }
        labels["switch"] = torch.where(delegate, labels["global"], labels["local"])
        totals = {"local": stream.local.total, "global": stream.shared.total}
        totals["switch"] = torch.where(delegate, totals["global"], totals["local"])
        orders.append({who: (totals[who], labels[who] != stream.labels) for who in labels})
        doubt = torch.where(
            delegate[:, None],
            stream.shared.total[:, None] > cuts["total"],
            stream.local.aleatoric[:, None] > cuts["aleatoric"],
        )
        counts.append(_counts(~doubt, labels["switch"] != stream.labels, stream.known))
    told = {name: torch.stack([c[name] for c in counts]).sum(0) for name in counts[0]}
    answered = told["answered"].clamp(min=1)
    return {
        "coverage": told["answered"] / told["rows"],
        "risk": told["wrong"] / answered,
        "known_answered": told["known_answered"] / told["known"],
        "known_wrong": told["known_wrong"] / told["known_answered"].clamp(min=1),
        "strangers_answered": (told["answered"] - told["known_answered"])
        / (told["rows"] - told["known"]),
        "ordered": {who: _ordered([o[who] for o in orders]) for who in orders[0]},
        "abstain": opened.config.routing.abstain,
    }


def _stream(opened: Opened, client: int, seen: Seen) -> tuple[Stream, dict[str, Tensor]]:
    """Mix rows and strangers of one client, and its abstention thresholds for every share."""
    rows, score = opened.ready.federation, opened.config.routing.score
    mix, params = rows.mix(client), opened.people.predictor(client)
    count = min(len(mix), len(seen.z))
    strange = torch.from_numpy(
        seeds.stream("refusal", rows.seed, client).permutation(len(seen.z))[:count]
    )
    z = torch.cat([opened.embed(params, mix), seen.z[strange]])
    labels = opened.ready.data.y[torch.from_numpy(mix)]
    stream = Stream(
        of_posterior(opened.look(params, z).posterior, score),
        of_posterior(opened.look(opened.shared, z).posterior, score),
        torch.cat([labels, labels.new_full((count,), -1)]),
    )
    own = opened.embed(params, rows.calibration[client])
    cuts = {
        "aleatoric": of_posterior(opened.look(params, own).posterior, score).aleatoric,
        "total": of_posterior(opened.look(opened.shared, own).posterior, score).total,
    }
    return stream, {name: limits(values, 1 - SHARES) for name, values in cuts.items()}


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
