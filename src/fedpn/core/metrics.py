"""How good answers are: accuracy, calibration, ranking, risk against coverage."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

CACHED = 1 << 17  # numbers that a processor's cache holds


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    """The share of right answers.

    >>> accuracy(torch.tensor([1, 2, 0]), torch.tensor([1, 2, 2]))
    0.6666666666666666
    """
    return int((predicted == labels).sum()) / max(len(labels), 1)


def nll(probs: Tensor, labels: Tensor) -> float:
    """Mean negative log-likelihood; probabilities below float's smallest count as that."""
    true = probs.double().gather(1, labels[:, None]).clamp(min=torch.finfo(torch.float32).tiny)
    return float(-true.log().mean())


def brier(probs: Tensor, labels: Tensor) -> float:
    """Mean squared distance to the one-hot label (Brier, 1950): from 0 to 2.

    >>> brier(torch.tensor([[0.5, 0.5]]), torch.tensor([0]))
    0.5
    """
    probs = probs.double()
    true = probs.gather(1, labels[:, None]).squeeze(1)
    return float((probs.square().sum(1) - 2 * true + 1).mean())


def reliability(probs: Tensor, labels: Tensor, bins: int = 15) -> tuple[Tensor, Tensor, Tensor]:
    """Per bin of confidence: the share of rows, their mean confidence, their accuracy."""
    confidence, predicted = probs.double().max(1)
    index = (confidence * bins).long().clamp(max=bins - 1)
    right = (predicted == labels).double()
    count = torch.bincount(index, minlength=bins)
    mean = torch.bincount(index, confidence, bins) / count.clamp(min=1)
    hits = torch.bincount(index, right, bins) / count.clamp(min=1)
    return count / max(len(labels), 1), mean, hits


def ece(probs: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Expected calibration error of the top label, over bins of equal width (Guo et al., 2017)."""
    share, confidence, hits = reliability(probs, labels, bins)
    return float((share * (confidence - hits).abs()).sum())


def adaptive_ece(probs: Tensor, labels: Tensor, bins: int = 15) -> float:
    """The same over bins of equally many rows (Nixon et al., 2019)."""
    confidence, predicted = probs.double().max(1)
    order = confidence.argsort(stable=True)
    right = (predicted == labels).double()[order]
    parts = zip(confidence[order].tensor_split(bins), right.tensor_split(bins), strict=True)
    gaps = [float((c.sum() - r.sum()).abs()) for c, r in parts]
    return sum(gaps) / max(len(labels), 1)


def auroc(known: Tensor, unknown: Tensor) -> float:
    """The chance that an unknown row scores above a known one, ties counting half.

    >>> auroc(torch.tensor([0.1, 0.2]), torch.tensor([0.2, 0.9]))
    0.875
    """
    below, up_to = (
        torch.searchsorted(known.sort().values, unknown, right=right).double()
        for right in (False, True)
    )
    return float((below + up_to).mean() / 2 / len(known))


def fpr95(known: Tensor, unknown: Tensor) -> float:
    """The share of unknown rows that pass where 95 % of the known ones do.

    >>> fpr95(torch.arange(100.0), torch.tensor([50.0, 94.0, 95.0, 200.0]))
    0.5
    """
    limit = known.double().sort().values[math.ceil(0.95 * len(known)) - 1]
    return float((unknown.double() <= limit).double().mean())


def auroc_of_classes(probs: Tensor, labels: Tensor) -> float | None:
    """Each class against all others, mean over the classes that have rows of both kinds."""
    there = torch.bincount(labels, minlength=probs.shape[1])
    found = [
        auroc(probs[labels != c, c].double(), probs[labels == c, c].double())
        for c in ((there > 0) & (there < len(labels))).nonzero().flatten().tolist()
    ]
    return sum(found) / len(found) if found else None


TABULATED = 300  # classes at most of which figures are kept one by one, with their confusions


def confusion(guess: Tensor, labels: Tensor, classes: int) -> Tensor:  # [K, K]
    """How many rows of each class, by row, are taken for which, by column.

    >>> confusion(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    return torch.bincount(labels * classes + guess, minlength=classes**2).reshape(classes, classes)


def by_class(table: Any) -> dict[str, Any]:
    """Rows, recall and precision of each class from its confusions, which stand beside them.

    >>> by_class([[3, 1], [0, 4]])["precision"]
    [1.0, 0.8]
    """
    counts = torch.as_tensor(table).double()
    rows, said, right = counts.sum(1), counts.sum(0), counts.diagonal()
    return {
        "rows": rows.long().tolist(),
        "recall": _ratio(right, rows),
        "precision": _ratio(right, said),
        "confusion": counts.long().tolist(),
    }


def _ratio(part: Tensor, whole: Tensor) -> list[float | None]:
    pairs = zip(part.tolist(), whole.tolist(), strict=True)
    return [p / w if w else None for p, w in pairs]


def risk_coverage(uncertainty: Tensor, wrong: Tensor) -> Tensor:
    """The share of errors among the k most certain answers, for k = 1 … n.

    >>> risk_coverage(torch.tensor([0.3, 0.1, 0.2]), torch.tensor([True, False, False]))
    tensor([0.0000, 0.0000, 0.3333], dtype=torch.float64)
    """
    order = uncertainty.argsort(stable=True)
    errors = wrong[order].double().cumsum(0)
    return errors / torch.arange(1, len(errors) + 1, dtype=torch.float64)


def aurc(uncertainty: Tensor, wrong: Tensor) -> float:
    """Area under the risk–coverage curve (Geifman & El-Yaniv, 2017): lower is better."""
    return float(risk_coverage(uncertainty, wrong).mean())


def gap_closed(local: float, shared: float, switch: float, oracle: float) -> float | None:
    """How much of what an oracle gains over the better model the switch gains.

    >>> gap_closed(local=0.5, shared=0.8, switch=0.85, oracle=0.9)
    0.5
    """
    best = max(local, shared)
    return round((switch - best) / (oracle - best), 12) if oracle > best else None


def balanced_accuracy(guess: Tensor, labels: Tensor) -> float:
    """The mean over classes of the share of their rows that is found.

    >>> balanced_accuracy(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]))
    0.5
    """
    rows = torch.bincount(labels)
    found = torch.bincount(labels[guess == labels], minlength=len(rows))
    return float((found[rows > 0] / rows[rows > 0]).double().mean())


def majority_share(labels: Tensor) -> float:
    """How often one would be right by always saying the most frequent class.

    >>> majority_share(torch.tensor([0, 0, 0, 1]))
    0.75
    """
    return float(torch.bincount(labels).max() / len(labels))


def tempered(
    scores: Tensor, truth: Tensor, temperatures: Sequence[float]
) -> Tensor:  # [..., B, K], [B] -> [..., B, T]
    """Log probabilities of the true classes under each temperature.

    A few rows at a time: under all temperatures they stay in the processor's cache.

    >>> tempered(torch.tensor([[3.0, 1.0]]), torch.tensor([0]), [1.0, 2.0]).exp()
    tensor([[0.8808, 0.7311]])
    """
    few = max(1, CACHED * len(truth) // max(scores.numel(), 1))
    found = []
    for some, true in zip(torch.split(scores, few, -2), torch.split(truth, few), strict=True):
        below = some - some.amax(-1, keepdim=True)
        mine = below.gather(-1, true.expand(some.shape[:-1])[..., None])[..., 0]
        room = torch.empty_like(below)
        logs = []
        for temperature in temperatures:
            torch.mul(below, 1 / temperature, out=room)
            logs.append(mine / temperature - room.exp_().sum(-1).log())
        found.append(torch.stack(logs, -1))
    return torch.cat(found, -2)
