"""Which cells the tables need, the most telling first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedpn.core.errors import UserError
from fedpn.data.sources import datasets
from fedpn_paper.cells import SUBSET, VARIANTS, Cell
from fedpn_paper.subset import subset

# Of the paper, by the names of the files that hold them.
PAPER_SETS = {
    "mnist": "MNIST",
    "fashionmnist": "FashionMNIST",
    "organamnist": "MedMNIST-A",
    "organcmnist": "MedMNIST-C",
    "organsmnist": "MedMNIST-S",
    "cifar10": "CIFAR10",
    "svhn": "SVHN",
}
EXTRA_SETS = {"medicalmnist": "MedNIST"}  # ours, not one of the paper's
QUICK_SETS = ("digits", "fashionmnist")
COLUMNS = {
    "fedavg": "FedAvg",
    "fedrep": "FedRep",
    "perfedavg": "Per-FedAvg",
    "fedbabu": "FedBABU",
    "fedper": "FedPer",
    "fedbn": "FedBN",
    "apfl": "APFL",
    "fedpn": "FedPN",
}
ALGORITHMS = (*COLUMNS, "local", "analytic")
BAYES = ("bayes", "layers", "patches", "ridge")  # FedPN's variants that answer by Bayes' rule
ROUTED = ("perfedavg", "fedbabu", "apfl", "fedpn")  # who has both a personal and a global model
RESNET_SETS, RESNET_METHODS = ("cifar10", "svhn"), ("fedpn", "fedavg")
QUICK: dict[str, Any] = {
    "clients": 8,
    "rounds": 10,
    "train": {"batch": 32},
    "method": {"lr": 0.02},
    "fedpn": {"adapt_steps": 200, "adapt_epochs": 0},
}
QUICK_ROWS = 3000
# What a cell costs, compared with FedAvg of LeNet-5.
COSTS = {"fedpn": 1.3, "perfedavg": 2.5, "apfl": 2.0, "fedbn": 3.0}
VARIANT_COSTS = {"norm": 3.0, "resnet18": 30.0, "gaussian": 0.2, "density10": 0.2, "entropy20": 0.2}
VARIANT_COSTS |= {"bayes": 0.2, "layers": 0.8, "patches": 0.5, "ridge": 1.2}


@dataclass(frozen=True)
class Wish:
    """What of the tables is asked for."""

    sets: tuple[str, ...] = (*PAPER_SETS, *EXTRA_SETS)
    algorithms: tuple[str, ...] = ALGORITHMS
    seeds: int = 3  # of FedPN
    other_seeds: int = 1  # of the others
    rounds: int | None = None
    quick: bool = False


def title_of(name: str) -> str:
    """What a set is called.

    >>> title_of("organamnist"), title_of("digits")
    ('MedMNIST-A', 'digits')
    """
    return (PAPER_SETS | EXTRA_SETS).get(name, name)


def is_small(record: dict[str, Any]) -> bool:
    """Tells whether a record is of a quick look: some rows only, or fewer clients than usual."""
    dataset = str(record["dataset"])
    return dataset.endswith(SUBSET) or record["clients"] < Cell(dataset).config().clients


def cell_of(record: dict[str, Any]) -> Cell:
    """The cell that a record is of, as it is run where nothing else is asked for."""
    return Cell(record["dataset"], record["algorithm"], record["variant"], record["seed"])


def at_hand(name: str) -> bool:
    """Tells whether a set can be read without fetching it."""
    return name in datasets.BUILT_IN or datasets.find(name) is not None


def cells(wish: Wish, out: Path) -> list[Cell]:
    """The cells of all sets at hand, in the order of their worth."""
    sets = [_opened(name, wish, out) for name in wish.sets if at_hand(name)]
    if not sets:
        raise UserError(
            f"none of {', '.join(wish.sets)} is at hand; see `fedpn data list` and $FEDPN_DATA"
        )
    changes = QUICK if wish.quick else {}
    listed = [
        replace(cell, rounds=wish.rounds, changes=changes)
        for cell in _order(sets, wish)
        if cell.algorithm in wish.algorithms
    ]
    return [_short(cell) for cell in listed]


def planned(sets: Sequence[str]) -> list[Cell]:
    """All cells of some sets, as they are run where nothing else is asked for."""
    return list(_order(sets, Wish()))


def _opened(name: str, wish: Wish, out: Path) -> str:
    if not wish.quick or name in datasets.BUILT_IN:
        return name
    return str(subset(name, QUICK_ROWS, out / "data"))


def _order(sets: Sequence[str], wish: Wish) -> Iterator[Cell]:
    """The cells of some sets, the most telling first."""
    others = [a for a in ALGORITHMS if a not in ("fedpn", "analytic")]
    yield from (Cell(d, "fedpn", "", 0) for d in sets)
    yield from (Cell(d, a, "", 0) for d in sets for a in others)
    yield from (Cell(d, "fedpn", "", s) for s in range(1, wish.seeds) for d in sets)
    yield from (Cell(d, "analytic", "", s) for s in range(wish.seeds) for d in sets)
    yield from (Cell(d, "analytic", "untrained", 0) for d in sets)
    yield from (Cell(d, "fedavg", "", s) for s in range(1, wish.seeds) for d in sets)
    yield from (Cell(d, "fedpn", v, s) for s in range(wish.seeds) for d in sets for v in BAYES)
    yield from (Cell(d, a, "gaussian", 0) for d in sets for a in ROUTED)
    yield from (Cell(d, "fedpn", v, 0) for d in sets for v in _switches(d))
    yield from (Cell(d, "fedavg", v, 0) for v in ("reset", "norm") for d in sets)
    yield from (
        Cell(d, a, "", s)
        for s in range(1, wish.other_seeds)
        for d in sets
        for a in others
        if a != "fedavg" or s >= wish.seeds
    )
    if not wish.quick:
        yield from (
            Cell(d, a, "resnet18", 0) for a in RESNET_METHODS for d in RESNET_SETS if d in sets
        )


def _switches(dataset: str) -> Iterator[str]:
    """The paper's two switches, where the preset's own is another."""
    own = Cell(dataset).settings()
    for variant in ("density10", "entropy20"):
        if Cell(dataset, variant=variant).settings() != own:
            yield variant


def _short(cell: Cell) -> Cell:
    """A ResNet takes no more rounds than its own."""
    if cell.variant != "resnet18" or cell.rounds is None:
        return cell
    return replace(cell, rounds=min(cell.rounds, VARIANTS["resnet18"].settings["rounds"]))


def cost(cell: Cell) -> float:
    """What a cell costs, compared with others."""
    return VARIANT_COSTS.get(cell.variant, COSTS.get(cell.algorithm, 1.0))
