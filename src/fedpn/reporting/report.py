"""Runs that differ in their seed alone -> a table on the terminal, and one self-contained page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedpn.core import store
from fedpn.core.aligned import aligned
from fedpn.core.errors import UserError
from fedpn.core.plain import plain
from fedpn.reporting.finished import Metrics, Origin, read_metrics, read_origin, read_settings
from fedpn.reporting.tables import accuracy_table, measures, unseen_table

# What a report is made from, and what is in each.
CONTENTS = {
    "config.toml": "every setting of the run",
    "metrics.json": "accuracy and all other figures, of every client",
    "figures.json": "what the figures on this page are drawn from",
    "gallery.safetensors": "the inputs that are shown as examples",
    "history.jsonl": "loss and accuracy, round by round",
    "bundle.json": "names of classes and clients, and where the models come from",
}
FILES = list(CONTENTS)


def text(paths: Sequence[Path]) -> str:
    """The table and the figures beside it, for a terminal."""
    runs = read_runs(paths)
    lines = aligned(accuracy_table(runs))
    beside = [f"{name}: {value}" for name, value in measures(runs).items()]
    beside += [plain(runs[0].privacy)] if runs[0].privacy else []
    beside += [f"note: {plain(warning)}" for run in runs for warning in run.warnings]
    rule = "─" * len(lines[0])
    table = [lines[0], rule, *lines[1:], ""]
    if late := aligned(unseen_table(runs)):
        table += [late[0], "─" * len(late[0]), *late[1:], ""]
    return "\n".join([heading(runs, read_origin(paths[0])), "", *table, *beside])


def write_page(paths: Sequence[Path], out: Path) -> None:
    """Writes the page; its figures are those of the first run."""
    from fedpn.reporting.page import render

    runs, origin = read_runs(paths), read_origin(paths[0])
    store.write_text(out, render(heading(runs, origin), runs, paths[0], CONTENTS))


def read_runs(paths: Sequence[Path]) -> list[Metrics]:
    """Reads the metrics of runs that differ in their seed alone."""
    first, *others = [read_settings(path) for path in paths]
    for path, settings in zip(paths[1:], others, strict=True):
        for key in first | settings:
            if key not in ("seed", "engine") and first.get(key) != settings.get(key):
                raise UserError(
                    f"{path} differs from {paths[0]} in {key}, not in its seed alone; "
                    "`fedpn compare` sets methods side by side"
                )
    runs = [read_metrics(path) for path in paths]
    if len({run.seed for run in runs}) < len(runs):
        raise UserError("two of these runs have the same seed")
    return [_without_copies(run) for run in runs]


def _without_copies(run: Metrics) -> Metrics:
    """Where all clients answer by one model, it is shown once, as the global one."""
    if run.unseen is not None:
        run = replace(run, unseen=_without_copies(run.unseen))
    shared = run.accuracy.get("global")
    if shared is None or run.accuracy.get("personal") != shared:
        return run
    accuracy = {who: row for who, row in run.accuracy.items() if who != "personal"}
    headline = "global" if run.headline == "personal" else run.headline
    return replace(run, accuracy=accuracy, headline=headline)


def heading(runs: Sequence[Metrics], origin: Origin) -> str:
    """Which method on which data, in one line; the data have the name that their owner gave."""
    run, seeds = runs[0], ", ".join(str(run.seed) for run in runs)
    method = run.algorithm.rpartition(":")[2]  # of one's own, without its file
    return (
        f"{method} on {origin.dataset}: {_count(run.clients, 'client')}, "
        f"{_count(run.rounds, 'round')}, {'seeds' if len(runs) > 1 else 'seed'} {seeds}"
    )


def _count(number: int, noun: str) -> str:
    """
    >>> _count(1, "round"), _count(2, "round")
    ('1 round', '2 rounds')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
