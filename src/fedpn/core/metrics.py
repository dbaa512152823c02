"""How good answers are: accuracy, calibration, ranking, risk against coverage."""

import torch
from torch import Tensor


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
