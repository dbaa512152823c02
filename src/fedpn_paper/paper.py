"""The whole paper: what is missing of its tables and figures, then the ledger."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import fedpn_paper as experiments
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.federated.listener import Listener
from fedpn.runs.studies import scheduler
from fedpn_paper import ledger
from fedpn_paper.cells import VARIANTS
from fedpn_paper.figure import Settings
from fedpn_paper.grid import Wish, cells, cost
from fedpn_paper.record import recorded, settle

BENCHMARK, LEDGER = "benchmark", "ledger"
PARTS = (BENCHMARK, *experiments.EXPERIMENTS, LEDGER)
FIGURE_COST = 2.0  # of an experiment, compared with FedAvg of LeNet-5


@dataclass(frozen=True)
class Order:
    """What of the paper is asked for."""

    only: tuple[str, ...] = PARTS
    wish: Wish = field(default_factory=Wish)
    workers: int = 2


def make(
    order: Order, out: Path, pages: Path, hear: scheduler.Hear, stop: Callable[[], bool]
) -> dict[str, str]:
    """Plays what is missing and writes the ledger; returns what went wrong, by name."""
    store.make_folder(out)
    store.make_folder(pages, "--pages")
    wrong = scheduler.play(jobs(order, out), order.workers, hear, stop)
    ledger.write(out, pages, wrong)
    return wrong


def jobs(order: Order, out: Path) -> list[scheduler.Job]:
    """What is missing below `out`: cells first, then the experiments, which may want cells."""
    for part in order.only:
        if part not in PARTS:
            raise UserError(f"--only {part!r}; choose one of {', '.join(PARTS)}")
    listed: list[scheduler.Job] = []
    if BENCHMARK in order.only:
        missing = [cell for cell in cells(order.wish, out) if recorded(cell, out) is None]
        for cell in missing:
            branch = not VARIANTS[cell.variant].trained
            needs = frozenset([cell.plain.name] if branch else [])
            listed.append(scheduler.Job(cell.name, partial(settle, cell, out), cost(cell), needs))
    first = frozenset(job.name for job in listed)
    settings = Settings(rounds=order.wish.rounds, quick=order.wish.quick, home=out)
    for name in [part for part in order.only if part in experiments.EXPERIMENTS]:
        place = out / "experiments" / name
        kept = place / "result.json"
        if not (kept.exists() and experiments.is_kept(kept, settings.told())):
            do = partial(_figure, name, place, settings)
            listed.append(scheduler.Job(name, do, FIGURE_COST, after=first))
    return listed


def _figure(name: str, place: Path, settings: Settings, listener: Listener) -> Any:
    return experiments.play(name, place, settings, listener)


def chosen(text: str | None, all_of: Sequence[str], what: str) -> tuple[str, ...]:
    """Reads a list of names, comma between.

    >>> chosen("b,a", ["a", "b", "c"], "--only")
    ('b', 'a')
    """
    if text is None:
        return tuple(all_of)
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    if not names:
        raise UserError(f"{what} names nothing; choose among {', '.join(all_of)}")
    for name in names:
        if name not in all_of:
            raise UserError(f"{what} {name!r}; choose among {', '.join(all_of)}")
    return names
