"""The paper's figures, and where they contradict each other or the text."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from fedpn_paper.grid import COLUMNS, PAPER_SETS

Tree = dict[str, Any]
SPLITS = ("ind", "ood", "mix")
SLACK = 1.0  # points by which a mixture may miss the mean of its halves

# Where the authors' scripts differ from their text.
IN_THE_SCRIPTS = (
    "The authors' scripts evaluate on training rows too.",
    "The scripts take another share of delegated rows for each set (MNIST 0.1, FashionMNIST 0.3, "
    "MedMNIST 0.4, CIFAR10 0.4, SVHN 0.2) and score by the Dirichlet's entropy; the text has log "
    "density, typically 10 %.",
    "The scripts play 200 to 500 rounds with Adam 0.001 on some sets; Table 4 has 100 of SGD.",
    "The scripts run LeNet-5 on CIFAR10 and SVHN too; the text names ResNet-18.",
    "The scripts give the baselines another encoder and another partition than FedPN.",
    "In the authors' own figures the switch beats its own global model on 2 of 7 sets.",
)
# What no arithmetic finds.
IN_THE_TEXT = (
    'Three Gaussians: the third centre is printed as "0, 1)", with a bracket missing; the figure '
    "with its middle cluster between the two others fits (0, 0).",
    "Algorithm 1 neither hands out nor averages the encoder φ, which the text says all share; its "
    "active clients AC are a number that is looped over; its L₂ is the density of inputs, not of "
    "embeddings; the prior Pr is required and not used.",
    "Supplement, loss: the sum over f_i lacks its upper limit K. The step from ψ(α) to log α is "
    "argued by α > 1, where they differ by up to 0.58.",
    "The encoder is said to have 55k parameters; LeNet-5 for one channel of 28×28 with a "
    "16-dimensional embedding has 44,936 without padding. The flows' 5k agree: 10 classes × 30 "
    "layers × 18 = 5,400.",
    "The threshold study scores by the Dirichlet's entropy, the benchmark by log density.",
    "Table 4 gives 10 batches a round, Algorithm 1 whole epochs.",
    "The text finds FedPN's InD typically comparable to its competitors'; Table 2 has it below the "
    "best by 11.5 points on FashionMNIST, 25.0 on CIFAR10 and 8.3 on SVHN. The large margin on Mix "
    "is 1.4 points on CIFAR10 (FedBABU has 42.7).",
)


@cache
def published() -> Tree:
    """The tables of the paper."""
    file = resources.files("fedpn_paper") / "published.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def benchmark(dataset: str, algorithm: str, split: str) -> float | None:
    """A figure of the benchmark table, in %.

    >>> benchmark("mnist", "fedpn", "mix"), benchmark("digits", "fedpn", "mix")
    (98.3, None)
    """
    row = published()["benchmark"].get(dataset, {})
    found: float | None = row[algorithm][SPLITS.index(split)] if algorithm in row else None
    return found


def in_distribution(dataset: str, algorithm: str) -> float | None:
    """A figure of the table of local models alone, in %."""
    found: float | None = published()["in_distribution"].get(dataset, {}).get(algorithm)
    return found


def slips() -> list[str]:
    """What does not add up in the paper's own tables, and what the text leaves wrong."""
    return [*_mixtures(), *_marks(), *_repeats(), *IN_THE_TEXT, *IN_THE_SCRIPTS]


def _mixtures() -> list[str]:
    """Mix is half InD and half OOD: it cannot lie outside of them, nor far from their mean."""
    outside, far = [], []
    for dataset, name in PAPER_SETS.items():
        for algorithm, title in COLUMNS.items():
            ind, ood, mix = published()["benchmark"][dataset][algorithm]
            what = f"{title} on {name} ({ind} and {ood}, Mix {mix})"
            if not min(ind, ood) - 0.5 <= mix <= max(ind, ood) + 0.5:
                outside.append(what)
            elif abs(mix - (ind + ood) / 2) > SLACK:
                far.append(what)
    found = []
    if outside:
        found.append(f"Table 2: Mix outside of InD and OOD, which it mixes: {'; '.join(outside)}.")
    if far:
        found.append(
            f"Table 2: Mix more than {SLACK:g} point off the mean of its halves: {'; '.join(far)}."
        )
    return found


def _marks() -> list[str]:
    """Bold or underlined is said to be the best."""
    tables = {
        "Table 2 (Mix)": {d: _last(row) for d, row in published()["benchmark"].items()},
        "Table 3": published()["in_distribution"],
        "Table 5 (InD)": published()["ind"],
        "Table 6 (OOD)": published()["ood"],
    }
    found = []
    for table, rows in tables.items():
        for dataset, row in rows.items():
            figures = {k: v for k, v in row.items() if k != "bold"}
            best, marked = max(figures.values()), max(figures[k] for k in row["bold"])
            if best > marked:
                who = " and ".join(COLUMNS[k] for k, v in figures.items() if v == best)
                marks = ", ".join(COLUMNS[k] for k in row["bold"])
                name = PAPER_SETS[dataset]
                found.append(f"{table}: {name} marks {marks} ({marked}) as best; {who} has {best}.")
    return found


def _last(row: Tree) -> Tree:
    return {k: v if k == "bold" else v[-1] for k, v in row.items()}


def _repeats() -> list[str]:
    """The appendix repeats the benchmark's columns."""
    found = []
    for table, split in (("ind", 0), ("ood", 1)):
        for dataset, row in published()["benchmark"].items():
            for algorithm in COLUMNS:
                there, here = row[algorithm][split], published()[table][dataset][algorithm]
                if there != here:
                    what = f"{COLUMNS[algorithm]} on {PAPER_SETS[dataset]}"
                    found.append(f"{what}: {there} in Table 2, {here} in the appendix.")
    return found
