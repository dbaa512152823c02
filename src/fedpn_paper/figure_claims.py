"""What the paper's figures claim, and whether ours show it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedpn_paper.figure import mean_of
from fedpn_paper.grid import title_of
from fedpn_paper.noisy import CHANCE
from fedpn_paper.threshold import in_corridor
from fedpn_paper.verdict import NOT_RUN, SMALL, Verdict, share

Tree = dict[str, Any]
ROUTES_ALIKE = 0.5  # points on Mix
FALL = 0.5  # nats
FLAT = 0.1  # of the fall for a sure label
MILD = 0.2  # of the time, or of the parameters


class Finding(NamedTuple):
    """A part of a claim: whether it holds, and the numbers."""

    holds: bool
    words: str


class Claim(NamedTuple):
    """A sentence of the paper, and what is found of it in a result."""

    sentence: str
    find: Callable[[Tree], list[Finding]]


def judge(name: str, result: Tree | None) -> Verdict:
    """Compares a claim with the result of its experiment."""
    claim = CLAIMS[name]
    if result is None:
        return Verdict(claim.sentence, NOT_RUN, "The experiment was not run.")
    found = claim.find(result)
    marked = "; ".join(f"{'✓' if holds else '✗'} {words}" for holds, words in found)
    verdict = share(sum(holds for holds, _ in found), len(found))
    small = SMALL if result["settings"]["quick"] else ""
    return Verdict(claim.sentence, verdict, f"{small}{marked}.", name)


def _landscape(result: Tree) -> list[Finding]:
    exact, even = result["exact"], 1 / result["classes"]
    fall = {key: exact[key][0] - exact[key][-1] for key in (str(even), "0.9")}
    low, high = min(result["turning"]), max(result["turning"])
    slope = min(result["exact_slope"]["0.01"])
    return [
        Finding(slope > 0, "for an outlier (0.01) the loss grows with the density everywhere"),
        Finding(
            low <= even <= high,
            f"the slope turns at 1/K = {even:.3f} (the exact loss turns from {low:.3f} to "
            f"{high:.3f}; the paper's approximation drops a term as large as what is left)",
        ),
        Finding(
            abs(fall[str(even)]) < FLAT * fall["0.9"],
            f"at 1/K the loss is flat (it falls by {fall[str(even)]:.2f} nats, for a sure label by "
            f"{fall['0.9']:.2f})",
        ),
    ]


def _toy(result: Tree) -> list[Finding]:
    first, last = result["classes"][0], result["classes"][-1]
    found = []
    for loss, falls, words in (
        ("bayesian", True, "the original loss takes it away"),
        ("repaired", False, "the repaired loss leaves it"),
    ):
        cells = result["places"]["text"][loss]
        start, end = (float(np.median(cells[i]["centre"])) for i in (0, -1))
        moved = f"(log-density {start:.2f} at K = {first}, {end:.2f} at K = {last})"
        found.append(Finding((end - start < -FALL) is falls, f"{words} {moved}"))
    return found


def _noisy(result: Tree) -> list[Finding]:
    seeds = result["per_seed"]
    aleatoric, epistemic = (
        mean_of(seeds, "clients", "auroc", kind) for kind in ("aleatoric", "epistemic")
    )
    side = "low" if epistemic > 0.5 else "high"
    return [
        Finding(
            aleatoric > 0.9, f"expected entropy tells noisy from clean rows (AUROC {aleatoric:.3f})"
        ),
        Finding(
            abs(epistemic - 0.5) < CHANCE,
            f"log density does not (AUROC {epistemic:.3f}: noisy rows lie {side})",
        ),
    ]


def _stopgrad(result: Tree) -> list[Finding]:
    seeds = result["per_seed"]
    median = {
        loss: {kind: mean_of(seeds, "noise", loss, "median", kind) for kind in ("clean", "noisy")}
        for loss in ("bayesian", "repaired")
    }
    gap = {loss: row["noisy"] - row["clean"] for loss, row in median.items()}
    told = {loss: f"{row['noisy']:.1f} and {row['clean']:.1f}" for loss, row in median.items()}
    return [
        Finding(
            gap["bayesian"] < 0,
            "under the original loss noisy rows have less density than clean ones (medians "
            f"{told['bayesian']} nats)",
        ),
        Finding(
            gap["repaired"] > gap["bayesian"],
            f"the repaired loss gives them more in proportion ({told['repaired']})",
        ),
    ]


def _threshold(result: Tree) -> list[Finding]:
    inside, found = in_corridor(result), []
    for name, curves in result["sets"].items():
        alone = 100 * curves["reference"]["global"]["mix"]
        worst = min(100 * np.array(row["mix"])[inside].min() for row in curves["switch"].values())
        words = f"{title_of(name)} at worst {worst:.1f} there, the global model {alone:.1f}"
        found.append(Finding(bool(worst > alone - 0.05), words))
    return found


def _overhead(result: Tree) -> list[Finding]:
    first = result["encoders"][0]
    counts, shares = first["parameters"], first["share"]
    part = counts["flows"] / counts["encoder"]
    timed = {"label": "training", "inference": "inference"}
    return [
        Finding(part < MILD, f"the flows have {100 * part:.0f} % of LeNet-5's parameters"),
        *(
            Finding(
                shares[way]["median"] < MILD,
                f"{100 * shares[way]['median']:.0f} % ({100 * shares[way]['low']:.0f} to "
                f"{100 * shares[way]['high']:.0f}) of the time of {name}",
            )
            for way, name in timed.items()
        ),
    ]


def _scores(result: Tree) -> list[Finding]:
    found = []
    for name, tree in result["sets"].items():
        density, entropy = (
            100 * tree["scores"][score]["mix"] for score in ("log_density", "entropy")
        )
        words = f"{title_of(name)} Mix {density:.1f} by density, {entropy:.1f} by entropy"
        found.append(Finding(abs(density - entropy) <= ROUTES_ALIKE, words))
    return found


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
    "scores": Claim(
        "Log density and the Dirichlet's entropy route comparably (section 4.2), both at 10 %.",
        _scores,
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
