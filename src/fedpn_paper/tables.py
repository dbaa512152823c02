"""Results -> the paper's tables, its figures beside ours, and the columns that it lacks."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from fedpn.algorithms.fedpn import FedPN
from fedpn.core.settings import leaves, nest
from fedpn.runs.config import Config, preset
from fedpn_paper import published
from fedpn_paper.cells import SUBSET, Cell, by_switch, without_preset
from fedpn_paper.grid import COLUMNS, EXTRA_SETS, PAPER_SETS, ROUTED, title_of
from fedpn_paper.results import Results, Stat
from fedpn_paper.score_names import short

Tree = dict[str, Any]
NO_GLOBAL = "no global model to delegate to"


class Entry(NamedTuple):
    """Ours, where it was run, and the paper's, where it has one."""

    ours: Stat | None = None
    paper: float | None = None
    best: bool = False

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper


class Row(NamedTuple):
    """A line of a table: entries, or words."""

    name: str
    cells: list[Entry | str]


class Table(NamedTuple):
    """A table with its title and a sentence on how to read it."""

    title: str
    lead: str
    columns: Sequence[str]
    rows: list[Row]


def set_title(dataset: str, results: Results) -> str:
    """What a set is called: a subset says that it is one."""
    title = title_of(dataset.removesuffix(SUBSET))
    if dataset.endswith(SUBSET):
        return f"{title} (a few rows)"
    if dataset in EXTRA_SETS:
        return f"{title} (not in the paper)"
    return f"{title} (subset)" if "a subset" in results.note(dataset) else title


def rows_of(results: Results) -> list[str]:
    """The paper's sets, whether they were run or not, then the others that were."""
    known = [*PAPER_SETS, *EXTRA_SETS]
    there = results.sets()
    return [s for s in known if s in PAPER_SETS or s in there] + [
        s for s in there if s not in known
    ]


class Maker:
    """Makes the tables of some results."""

    def __init__(self, results: Results, at_hand: Collection[str]) -> None:
        self.results, self.at_hand = results, at_hand

    def all(self) -> list[Table]:
        return [
            self.benchmark("mix", "Table 2: accuracy on Mix", "Half InD, half OOD."),
            self.benchmark("ind", "Tables 2 and 5: accuracy on InD", "The client's own classes."),
            self.benchmark("ood", "Tables 2 and 6: accuracy on OOD", "The classes it never saw."),
            self.in_distribution(),
            self.who_answers(),
            self.beside(),
            self.resnet(),
            self.budgets(),
        ]

    def benchmark(self, split: str, title: str, lead: str) -> Table:
        def entry(dataset: str, algorithm: str) -> Entry:
            paper = published.benchmark(dataset.removesuffix(SUBSET), algorithm, split)
            return self._entry(dataset, algorithm, split, paper=paper)

        return self._table(title, lead, COLUMNS, entry)

    def in_distribution(self) -> Table:
        def entry(dataset: str, algorithm: str) -> Entry:
            paper = published.in_distribution(dataset.removesuffix(SUBSET), algorithm)
            who = "local" if algorithm == "fedpn" else ""
            return self._entry(dataset, algorithm, "ind", who=who, paper=paper)

        lead = "Accuracy on InD by the clients' own models alone: FedPN without its switch."
        return self._table("Table 3: local models", lead, {"local": "Local"} | COLUMNS, entry)

    def who_answers(self) -> Table:
        """What the paper does not show: the switch beside what it chooses from."""
        rows = []
        for dataset in [d for d in rows_of(self.results) if self.results.of(d, "fedpn")]:
            cells: list[Entry | str] = [
                self._entry(dataset, "fedpn", "mix", who=who)
                for who in ("local", "global", "switch", "oracle")
            ]
            gap, auroc = (self.results.routing(dataset, key) for key in ("gap_closed", "auroc"))
            ind, ood = (self.results.routing(dataset, "delegated", key) for key in ("ind", "ood"))
            cells += [
                "–" if gap is None else f"{100 * gap.mean:.0f} %",
                "–" if auroc is None else f"{auroc.mean:.3f}",
                " / ".join("–" if s is None else f"{100 * s.mean:.0f} %" for s in (ind, ood)),
                _switch_of(self.results.of(dataset, "fedpn")[0]["settings"]),
            ]
            rows.append(Row(set_title(dataset, self.results), cells))
        lead = (
            "FedPN's own models on Mix. The oracle sends InD to the client's model and OOD to the "
            "global one; the gap is what it has over the better of the two."
        )
        models = ("local", "global", "switch", "oracle")
        figures = ("gap closed", "AUROC", "delegated, InD / OOD", "switch by")
        return Table("FedPN: who answers", lead, (*models, *figures), rows)

    def beside(self) -> Table:
        """Other switches, and FedAvg in other clothes."""
        columns = {
            "fedpn": "FedPN",
            "fedpn density10": "FedPN, log density 10 %",
            "fedpn entropy20": "FedPN, entropy 20 %",
            **{f"{a} gaussian": f"{COLUMNS[a]} routed" for a in ROUTED},
            "fedavg": "FedAvg",
            "fedavg norm": "FedAvg, BatchNorm",
            "fedavg reset": "FedAvg, momentum reset",
        }

        def entry(dataset: str, column: str) -> Entry:
            algorithm, _, variant = column.partition(" ")
            plain, asked = Cell(dataset, algorithm), Cell(dataset, algorithm, variant)
            own = plain.settings() == asked.settings()  # the preset's switch is this one
            return self._entry(dataset, algorithm, "mix", "" if own else variant)

        lead = (
            "Accuracy on Mix. Routed: a Gaussian per class on the client's embeddings decides "
            "between the method's personal and its global model, calibrated as FedPN's switch is; "
            f"FedRep, FedPer, FedBN and Local have {NO_GLOBAL}, FedAvg no personal one."
        )
        title = "Beside the paper: other switches, other FedAvgs"
        return _without_gaps(self._table(title, lead, columns, entry))

    def resnet(self) -> Table:
        rows = []
        for dataset in rows_of(self.results):
            for algorithm in ("fedpn", "fedavg"):
                found = self.results.of(dataset, algorithm, "resnet18")
                if found:
                    figures: list[Entry | str] = [
                        self._entry(
                            dataset,
                            algorithm,
                            split,
                            "resnet18",
                            paper=published.benchmark(dataset, algorithm, split),
                        )
                        for split in published.SPLITS
                    ]
                    alone = [
                        self._entry(dataset, algorithm, split, "resnet18", who=who)
                        for who, split in (("local", "ind"), ("global", "mix"), ("oracle", "mix"))
                    ]
                    name = f"{set_title(dataset, self.results)}, {COLUMNS[algorithm]}"
                    rows.append(Row(name, [*figures, *alone, str(found[0]["rounds"])]))
        lead = (
            "The encoder that the paper names for CIFAR10 and SVHN; the authors ran LeNet-5. Of "
            "FedPN its switch, its local models on InD, its global model and the oracle on Mix."
        )
        columns = ("InD", "OOD", "Mix", "local InD", "global Mix", "oracle Mix", "rounds")
        return Table("ResNet-18", lead, columns, rows)

    def budgets(self) -> Table:
        paper = published.published()["hyperparameters"]
        rows = [Row("the paper", list(paper.values()))]
        for dataset in rows_of(self.results):
            kept = self.results.of(dataset, "fedpn")
            layer = nest(kept[0]["settings"]) if kept else preset(dataset, FedPN)
            config = by_switch(without_preset(dataset, [layer]))
            rows.append(Row(set_title(dataset, self.results), _words(config)))
        lead = (
            "The same for every algorithm, chosen by FedPN's Mix on rows held out from training; "
            "MedMNIST-C and -S take what -A has, MedNIST the paper's, SVHN and CIFAR10 an earlier "
            "prototype's optimiser, of which nothing else was tried. Per-FedAvg's outer steps are "
            "without momentum, as its authors have them, though with it its Mix was higher."
        )
        columns = ("encoder", "optimiser", "batch", "rounds", "loss", "personal stage", "switch")
        return Table("Table 4: hyperparameters", lead, columns, rows)

    def _table(
        self, title: str, lead: str, columns: dict[str, str], entry: Callable[[str, str], Entry]
    ) -> Table:
        rows = []
        for dataset in rows_of(self.results):
            name = set_title(dataset, self.results)
            if dataset not in self.results.sets():
                name += ": not run" if dataset in self.at_hand else ": data not at hand"
            rows.append(Row(name, [*mark_best([entry(dataset, c) for c in columns])]))
        return Table(title, lead, tuple(columns.values()), rows)

    def _entry(
        self,
        dataset: str,
        algorithm: str,
        split: str,
        variant: str = "",
        who: str = "",
        paper: float | None = None,
    ) -> Entry:
        return Entry(self.results.accuracy(dataset, algorithm, split, variant, who), paper)


def _without_gaps(table: Table) -> Table:
    """Leaves out rows and columns that hold nothing."""
    rows = [row for row in table.rows if any(map(_is_there, row.cells))]
    kept = [i for i in range(len(table.columns)) if any(_is_there(row.cells[i]) for row in rows)]
    return table._replace(
        columns=[table.columns[i] for i in kept],
        rows=[Row(row.name, [row.cells[i] for i in kept]) for row in rows],
    )


def _is_there(entry: Entry | str) -> bool:
    return isinstance(entry, Entry) and entry.ours is not None


def mark_best(row: list[Entry]) -> list[Entry]:
    """Marks the best of ours, as far as printed digits tell."""
    best = max((round(e.ours.mean, 1) for e in row if e.ours), default=None)
    return [e._replace(best=e.ours is not None and round(e.ours.mean, 1) == best) for e in row]


def _switch_of(settings: Tree) -> str:
    """The switch of a FedPN cell."""
    router = settings.get("routing.router", "log_density")
    return _switch_words(router, settings.get("routing.outliers", 0.1))


def _switch_words(router: str, share: float) -> str:
    """
    >>> _switch_words("dirichlet_entropy", 0.2)
    'entropy, 20 %'
    """
    return f"{short(router).replace('_', ' ')}, {100 * share:g} %"


def _words(config: Config) -> list[Entry | str]:
    method, train = config.method, config.train
    momentum = f", momentum {method.momentum:g}" if method.optimizer == "sgd" else ""
    return [
        "LeNet-5",
        f"{method.optimizer.upper() if method.optimizer == 'sgd' else 'Adam'} {method.lr:g}"
        f"{momentum}, state averaged",
        str(train.batch),
        f"{config.rounds} of {train.steps} batches",
        f"γ {getattr(method, 'gamma', 0):g}, λ {getattr(method, 'entropy_weight', 0):g}",
        f"{method.adapt_epochs} epochs, at least {method.adapt_steps} steps, "
        f"Adam {method.adapt_lr:g}",
        _switch_words(config.router, config.routing.outliers),
    ]


def tried(found: dict[str, Tree]) -> Table:
    """The candidates of every dataset, each with the switch that did best on the held-out rows."""
    rows = []
    for dataset, candidates in found.items():
        for name, tree in candidates.items():
            best = max(tree["found"], key=_headline)
            settings = {k: v for k, v in tree["candidate"].items() if k != "personal_steps"}
            words = ", ".join(f"{k} {v}" for k, v in leaves(settings)) or "the defaults"
            switch = _switch_words(best["score"], best["outliers"]) if "score" in best else "–"
            rows.append(
                Row(
                    f"{title_of(dataset)}: {name}",
                    [words, str(best["personal_steps"]), switch, f"{_headline(best):.1f}"],
                )
            )
    lead = (
        "Candidates on a fifth of the training rows of seed 0, held out from training; the switch "
        "is the best of log density and entropy at 2 to 30 %. Test rows had no part in it."
    )
    columns = ("settings", "personal steps", "switch", "Mix")
    return Table("How budgets were chosen", lead, columns, rows)


def _headline(found: Tree) -> float:
    accuracy = found["accuracy"]
    who = next(w for w in ("switch", "personal", "global") if w in accuracy)
    return float(accuracy[who]["mix"])
