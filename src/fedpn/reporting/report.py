"""Runs that differ in their seed alone -> a table on the terminal, and one self-contained page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap

from fedpn.core import store
from fedpn.core.aligned import aligned
from fedpn.core.errors import UserError
from fedpn.core.plain import plain
from fedpn.reporting import story
from fedpn.reporting.finished import (
    Metrics,
    Origin,
    read_clients,
    read_metrics,
    read_origin,
    read_settings,
)
from fedpn.reporting.history import Round, read_history, traffic
from fedpn.reporting.tables import accuracy_table, measures, unseen_table
from fedpn.reporting.values import Value
from fedpn.reporting.words import count, in_bytes

# What a report is made from, and what is in each.
CONTENTS = {
    "config.toml": "every setting of the run",
    "metrics.json": "accuracy and all other figures, of every client",
    "figures.json": "what the figures on this page are drawn from",
    "gallery.safetensors": "the inputs that are shown as examples",
    "gate.safetensors": "what strangers are told by, where there is a gate",
    "history.jsonl": "loss and accuracy, round by round",
    "bundle.json": "names of classes and clients, and where the models come from",
}
FILES = list(CONTENTS)
WIDEST = 96  # letters of a line of words


def text(paths: Sequence[Path]) -> str:
    """The table, what it means and the figures beside it, for a terminal."""
    runs, origin = read_runs(paths), read_origin(paths[0])
    table = _ruled(aligned(accuracy_table(runs)))
    if late := aligned(unseen_table(runs)):
        table += _ruled(late)
    meant = [*_wrapped(story.meaning(story.brought_together(runs))), ""]
    beside = [f"{name}: {value}" for name, value in measures(runs).items()]
    beside += _bytes(read_history(paths[0]))
    beside += [plain(runs[0].privacy)] if runs[0].privacy else []
    beside += [f"note: {plain(warning)}" for run in runs for warning in run.warnings]
    return "\n".join([heading(runs, origin), "", *table, *meant, *beside])


def closing(path: Path) -> str:
    """Return what a run came to, for a reader who sees one for the first time."""
    (run,), origin = read_runs([path]), read_origin(path)
    clients = read_clients(path, origin)
    routing = Value(read_settings(path).get("routing", {}), path / "config.toml")
    sets = routing["sets"].optional(Value.number)
    lines = [line for text in story.closing(run, clients, origin, sets) for line in _wrapped(text)]
    rows = _ruled(aligned(story.right_answers(run)))
    return "\n".join([heading([run], origin), "", *rows, *lines])


def _ruled(lines: list[str]) -> list[str]:
    """A table with a line below its head."""
    return [lines[0], "─" * len(lines[0]), *lines[1:], ""]


def _wrapped(words: str) -> list[str]:
    """Lines of a paragraph; a number and its % stay together."""
    lines = wrap(words.replace(" %", "\u00a0%"), WIDEST)
    return [line.replace("\u00a0", " ") for line in lines]


def _bytes(history: Sequence[Round]) -> list[str]:
    """What went over the wire, where it was counted."""
    found = traffic(history)
    if found is None:
        return []
    sent, received = map(in_bytes, found)
    a_round = " / ".join(in_bytes(total / len(history)) for total in found)
    return [f"sent to clients / received: {sent} / {received} ({a_round} a round)"]


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
        f"{method} on {origin.dataset}: {count(run.clients, 'client')}, "
        f"{count(run.rounds, 'round')}, {'seeds' if len(runs) > 1 else 'seed'} {seeds}"
    )
