"""fedpn paper."""

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpn.cli.commands.command import command
from fedpn.core.errors import UserError

if TYPE_CHECKING:
    from fedpn_paper.paper import Order


def add(commands: Any) -> None:
    text = "run what is missing of the paper's tables and figures, and write the ledger"
    option = command(commands, "paper", _paper, text).add_argument
    option("--only", metavar="PARTS", help="such as benchmark,toy,ledger (default: everything)")
    option("--datasets", metavar="NAMES", help="such as mnist,svhn (default: all, where at hand)")
    option("--algorithms", metavar="NAMES", help="such as fedpn,fedavg (default: all)")
    option("--seeds", type=int, default=3, help="of FedPN (default: 3)")
    option("--other-seeds", type=int, default=1, help="of the other algorithms (default: 1)")
    option("--rounds", type=int, help="instead of each dataset's own")
    option("--quick", action="store_true", help="small, to see that all of it works: minutes")
    option("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="at a time (default: 2)")
    option("--out", type=Path, help="default: results; of --quick, quick")
    option("--pages", type=Path, help="where the ledger goes (default: --out)")
    option("--resume", action="store_true", help="go on in --out; what is there is always kept")


def _paper(options: argparse.Namespace) -> int:
    from fedpn.cli.console import Interrupt
    from fedpn.cli.overall import Overall
    from fedpn_paper import paper

    order = _order(options)
    out = options.out or Path("quick" if options.quick else "results")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of each worker, which has a core to itself
    pages = options.pages or out
    with ExitStack() as stack:
        display = stack.enter_context(Overall(paper.jobs(order, out)))
        interrupt = stack.enter_context(Interrupt())
        wrong = paper.make(order, out, pages, display, interrupt)
    for name, words in wrong.items():
        print(f"fedpn: {name}: {words}", file=sys.stderr)
    print(f"ledger: {pages / 'ledger.html'} and {pages / 'ledger.md'}")
    if interrupt():
        return 130
    return 1 if wrong else 0


def _order(options: argparse.Namespace) -> "Order":
    from fedpn_paper import grid, paper

    for name in ("seeds", "other_seeds", "rounds", "jobs"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')} is {value}, but must be at least 1")
    quick = options.quick
    all_sets = (*grid.PAPER_SETS, *grid.EXTRA_SETS, "digits")
    usual = ",".join(grid.QUICK_SETS if quick else all_sets[:-1])
    datasets = usual if options.datasets is None else options.datasets
    wish = grid.Wish(
        paper.chosen(datasets, all_sets, "--datasets"),
        paper.chosen(options.algorithms, grid.ALGORITHMS, "--algorithms"),
        1 if quick else options.seeds,
        1 if quick else options.other_seeds,
        options.rounds,
        quick,
    )
    return paper.Order(paper.chosen(options.only, paper.PARTS, "--only"), wish, options.jobs)
