"""What the paper's figures claim, and whether ours show it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedpn.experiments.verdict import IN_PART, NOT, REPRODUCED, UNTESTED, Verdict

Tree = dict[str, Any]
CORRIDOR = (0.8, 0.9)


class Claim(NamedTuple):
    """A sentence of the paper, and what would have to be seen for it."""

    sentence: str
    seen: Callable[[Tree], list[bool]]  # each of them holds, or not


def judge(name: str, result: Tree | None) -> Verdict:
    """Compares a claim with the result of its experiment."""
    claim = CLAIMS[name]
    if result is None:
        return Verdict(claim.sentence, UNTESTED, "The experiment was not run.")
    seen = claim.seen(result)
    verdict = REPRODUCED if all(seen) else IN_PART if any(seen) else NOT
    small = (
        "A quick look at small size, which shows little: " if result["settings"]["quick"] else ""
    )
    return Verdict(claim.sentence, verdict, small + result["text"])


def _landscape(result: Tree) -> list[bool]:
    """Outliers lose density; the slope turns at 1/K; the loss is flat there."""
    exact, even = result["exact"], str(1 / result["classes"])
    fall = {key: exact[key][0] - exact[key][-1] for key in (even, "0.9")}
    return [
        min(result["exact_slope"]["0.01"]) > 0,
        min(result["turning"]) <= 1 / result["classes"] <= max(result["turning"]),
        abs(fall[even]) < 0.1 * fall["0.9"],
    ]


def _toy(result: Tree) -> list[bool]:
    """With more classes the original density falls at the centre, the repaired one does not."""
    moves = {}
    for loss, cells in result["places"]["text"].items():
        first, last = (float(np.median(cells[i]["centre"])) for i in (0, -1))
        moves[loss] = last - first
    return [moves["bayesian"] < -0.5, moves["repaired"] > -0.5]


def _noisy(result: Tree) -> list[bool]:
    """Aleatoric uncertainty tells noisy from clean, epistemic does not."""
    auroc = {
        kind: np.mean([seed["auroc"][kind] for seed in result["per_seed"]])
        for kind in ("aleatoric", "epistemic")
    }
    return [bool(auroc["aleatoric"] > 0.9), bool(abs(auroc["epistemic"] - 0.5) < 0.15)]


def _stopgrad(result: Tree) -> list[bool]:
    """The original loss gives noisy rows less density, the repaired one much less so."""
    auroc = {
        loss: np.mean([seed[loss]["auroc"] for seed in result["per_seed"]])
        for loss in ("bayesian", "repaired")
    }
    return [bool(auroc["bayesian"] > 0.6), bool(auroc["repaired"] < auroc["bayesian"] - 0.05)]


def _threshold(result: Tree) -> list[bool]:
    """In the corridor the switch is never more than three points below its best, set by set."""
    x = np.array(result["quantiles"])
    inside = (x >= CORRIDOR[0] - 1e-9) & (x <= CORRIDOR[1] + 1e-9)
    columns = [
        np.array(mix["mix"])
        for curves in result["curves"].values()
        for mix in curves["switch"].values()
    ]
    return [bool(mix.max() - mix[inside].min() < 0.03) for mix in columns]


def _overhead(result: Tree) -> list[bool]:
    """Few parameters beside the encoder's, and little of the time of training."""
    first = result["encoders"][0]
    counts = first["parameters"]
    return [counts["flows"] < 0.2 * counts["encoder"], first["share"]["label"]["median"] < 0.2]


CLAIMS = {
    "landscape": Claim(
        "The loss is flat in the density where the answer is even, and its slope changes sign "
        "there, so that outliers lose density (eq. 7, figure 2, left).",
        _landscape,
    ),
    "toy": Claim(
        "With the original loss the density of an ambiguous cluster falls as classes grow in "
        "number; repaired, it does not (figure 2, right).",
        _toy,
    ),
    "noisy": Claim(
        "Label noise shows in aleatoric and not in epistemic uncertainty (appendix B.1).", _noisy
    ),
    "stopgrad": Claim(
        "The original loss gives rows with noisy labels little density; repaired, it gives them "
        "theirs (appendix B.5).",
        _stopgrad,
    ),
    "threshold": Claim(
        "Thresholds at quantiles from 0.8 to 0.9 do not compromise the switch (appendix B.4).",
        _threshold,
    ),
    "overhead": Claim("The density's overhead is very mild (appendix B.2).", _overhead),
}
