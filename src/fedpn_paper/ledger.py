"""The ledger: all results below a place -> one HTML page and one Markdown file."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedpn_paper as experiments
from fedpn.core import store
from fedpn_paper import ledger_html, ledger_markdown
from fedpn_paper.bayes_tables import bayes_tables
from fedpn_paper.cells import VARIANTS, Cell
from fedpn_paper.claims import verdicts
from fedpn_paper.grid import (
    COLUMNS,
    EXTRA_SETS,
    PAPER_SETS,
    at_hand,
    cell_of,
    is_small,
    planned,
)
from fedpn_paper.published import slips
from fedpn_paper.record import read_records
from fedpn_paper.results import Results
from fedpn_paper.tables import Maker, Table, rows_of, set_title, tried
from fedpn_paper.verdict import Verdict

Tree = dict[str, Any]
LOW = 25.0  # % on Mix


@dataclass(frozen=True)
class Figure:
    """An experiment as the ledger shows it."""

    name: str
    title: str
    text: str
    svg: str
    png: str  # where it lies, seen from the page


@dataclass(frozen=True)
class Book:
    """All that the ledger says."""

    tables: list[Table]
    verdicts: list[Verdict]
    slips: list[str]
    notes: list[str]
    figures: list[Figure]
    wrong: dict[str, str]


def write(out: Path, pages: Path, wrong: dict[str, str]) -> None:
    """Reads the results below `out` and writes `ledger.html` and `ledger.md`."""
    here = {name for name in [*PAPER_SETS, *EXTRA_SETS] if at_hand(name)}
    place = Path(os.path.relpath(out, pages))
    book = make(read_records(out), read_figures(out), read_tuning(out), place, here, wrong)
    pages.mkdir(parents=True, exist_ok=True)
    store.write_text(pages / "ledger.html", ledger_html.render(book))
    store.write_text(pages / "ledger.md", ledger_markdown.render(book))


def read_figures(out: Path) -> dict[str, tuple[Tree, str]]:
    """Results and pictures of the experiments that were run."""
    found = {}
    for name in experiments.EXPERIMENTS:
        folder = out / "experiments" / name
        if (folder / "result.json").exists() and (folder / "figure.svg").exists():
            picture = (folder / "figure.svg").read_text(encoding="utf-8")
            found[name] = store.read_json(folder / "result.json"), picture
    return found


def picture(name: str) -> Path:
    """Where an experiment's picture lies below the results."""
    return Path("experiments") / name / "figure.png"


def read_tuning(out: Path) -> dict[str, Tree]:
    """What candidates for budgets came to, by dataset."""
    return {path.stem: store.read_json(path) for path in sorted((out / "tuning").glob("*.json"))}


def make(
    records: list[Tree],
    figures: dict[str, tuple[Tree, str]],
    tuning: dict[str, Tree],
    out: Path,
    here: Collection[str] = (),
    wrong: dict[str, str] | None = None,
) -> Book:
    """Brings everything together; `out` is where results lie, seen from the page."""
    results = Results(tuple(records))
    return Book(
        [
            *(Maker(results, here).all() if records else []),
            *bayes_tables(results),
            *([tried(tuning)] if tuning else []),
        ],
        verdicts(results, {name: result for name, (result, _) in figures.items()}),
        slips(),
        notes(results),
        [
            Figure(name, r["title"], r["text"], svg, (out / picture(name)).as_posix())
            for name, (r, svg) in figures.items()
        ],
        wrong or {},
    )


def notes(results: Results) -> list[str]:
    """What must be known to read the tables: the protocol, the data, what was cut short."""
    counts = sorted({record["clients"] for record in results.records})
    lines = [
        f"Rows are pooled and dealt to {' or '.join(map(str, counts)) or 20} clients of two or "
        "three classes; each client's rows are "
        "split once into 50 % training, 20 % calibration and 30 % test rows, and no row has two "
        "places. The authors' evaluation saw training rows too.",
        "One partition, one encoder (LeNet-5), one budget for every algorithm. FedBN needs "
        "BatchNorm, so that its LeNet-5 has it; FedAvg is shown with it as well.",
        "Ours is the mean over clients, then over seeds, ± the standard error over seeds; without "
        "± there is one seed, 0. Below it: the paper's figure, and ours minus it. A seed deals the "
        "classes anew, and some deals are easier: verdicts compare methods on like seeds, and a "
        "row's best is marked without that care.",
        "Budgets were chosen by FedPN's Mix on training rows of seed 0, and no other method had a "
        "budget of its own: this may favour FedPN. Other seeds deal all rows anew, so that some of "
        "their test rows were among those. What to try came in part from earlier prototypes, whose "
        "figures were of test rows; on SVHN and CIFAR10 their optimiser was taken over untried, "
        "and only personal steps, score and share were chosen.",
    ]
    for dataset in rows_of(results):
        note = results.note(dataset)
        if note:
            lines.append(f"{set_title(dataset, results)}: {note}.")
    return lines + _untrained(results) + _cuts(results) + _gaps(results)


def _untrained(results: Results) -> list[str]:
    """Global models that one budget for all leaves far behind."""
    lines = []
    for algorithm, title in COLUMNS.items():
        low = []
        for dataset in rows_of(results):
            mix = results.accuracy(dataset, algorithm, "mix", who="global")
            if mix is not None and mix.mean < LOW:
                low.append(f"{set_title(dataset, results)} {mix}")
        if low:
            lines.append(
                f"{title}'s global model has hardly learned under this budget, and its figures "
                f"may say little of the method: Mix {'; '.join(low)}."
            )
    return lines


def _cuts(results: Results) -> list[str]:
    """Runs of fewer rounds than their budget has."""
    lines = []
    for record in results.records:
        cell, rounds = cell_of(record), record["rounds"]
        wanted = cell.config().rounds
        if rounds < wanted and not is_small(record):
            lines.append(f"Cut short: {_told(cell, results)}: {rounds} rounds instead of {wanted}.")
    return lines


def _gaps(results: Results) -> list[str]:
    """Cells that are planned and were not run, of the sets that were."""
    there = {cell_of(record) for record in results.records}
    sets = [dataset for dataset in (*PAPER_SETS, *EXTRA_SETS) if dataset in results.sets()]
    missing = [_told(cell, results) for cell in planned(sets) if cell not in there]
    return [f"Not run: {'; '.join(missing)}."] if missing else []


def _told(cell: Cell, results: Results) -> str:
    name = COLUMNS.get(cell.algorithm, "Local")
    what = " ".join(filter(None, (name, VARIANTS[cell.variant].title)))
    return f"{what} on {set_title(cell.dataset, results)}, seed {cell.seed}"
