"""What is watched, as tables for a terminal."""

import time
from collections.abc import Iterable, Iterator, Sequence

from fedpn.core.aligned import aligned
from fedpn.flower.watch.standing import note, state_of
from fedpn.flower.watch.status import Member, Run, Site, Unreadable, Warned
from fedpn.flower.watch.words import UNKNOWN, ago, count, duration, number, size

SHOWN = 8  # warnings
WIDEST = 32  # characters of a name in a table
SETS = {"ind": "InD", "ood": "OOD", "mix": "Mix"}
HEAD = ("node", "state", "last seen", "round", "rows", "seconds", "to it", "from it", "loss")


def show(items: Iterable[Run | Site | Unreadable], now: float) -> str:
    """One paragraph for each run and node."""
    return "\n\n".join("\n".join(_lines(item, now)) for item in items)


def _lines(item: Run | Site | Unreadable, now: float) -> Iterator[str]:
    if isinstance(item, Unreadable):
        yield f"{item.place}: {item.why}"
        return
    yield from _run(item, now) if isinstance(item, Run) else _site(item, now)
    yield from _warnings(item.warnings)


def _run(run: Run, now: float) -> Iterator[str]:
    what = ", ".join(filter(None, [run.dataset, run.algorithm, "masked" if run.secure else ""]))
    yield _joined(run.name or run.place, what, f"run {run.run}" if run.run else "")
    state = state_of(run, now)
    going = state in ("running", "silent")
    yield "  " + _joined(
        state,
        run.phase if going else "",
        _round(run.round, run.rounds),
        f"loss {number(run.loss)}" if run.loss is not None else "",
        f"about {duration(run.left)} left" if going and run.left is not None else "",
        note(run, now),
    )
    yield f"  {_since(run, now)}"
    if run.nodes:
        rows = [HEAD, *(_member(node, now) for node in run.nodes)]
        yield from ("", *(f"  {line}" for line in aligned(rows, texts=2)))
        yield from (f"  {node.name}: {node.why}" for node in run.nodes if node.why)
    if run.figures:
        yield from ("", *(f"  {line}" for line in aligned(_figures(run))))


def _member(node: Member, now: float) -> Sequence[str]:
    return (
        _short(node.name),
        node.state or UNKNOWN,
        ago(node.seen, now),
        count(node.round),
        count(node.rows),
        number(node.seconds, 1),
        size(node.sent),
        size(node.received),
        number(node.loss),
    )


def _figures(run: Run) -> list[list[str]]:
    """Accuracies in per cent, as reports have them."""
    sets = list(dict.fromkeys(key for cells in run.figures.values() for key in cells))
    rows = [["accuracy", *(SETS.get(key, key) for key in sets)]]
    for name, cells in run.figures.items():
        shares = [cells.get(key) for key in sets]
        rows.append([name, *(UNKNOWN if v is None else f"{100 * v:.1f}" for v in shares)])
    return rows


def _site(site: Site, now: float) -> Iterator[str]:
    yield _joined(site.name or site.place, "this node", f"run {site.run}" if site.run else "")
    yield "  " + _joined(
        state_of(site, now), site.phase or "", _round(site.round, site.rounds), note(site, now)
    )
    if site.link is not None:
        where = site.link.superlink or "its SuperLink"
        yield f"  {site.link.state or UNKNOWN} ({where}) {ago(site.link.since, now)}"
    if site.started is None:  # its worker has not come up yet
        return
    yield f"  {_since(site, now)}"
    facts = (
        ("rows", count(site.rows)),
        ("seconds", number(site.seconds, 1)),
        ("loss", number(site.loss)),
        ("received", size(site.received)),
        ("sent", size(site.sent)),
        ("answered", count(site.answered)),
        ("refused", count(site.refused)),
        ("model", site.model or UNKNOWN),
    )
    yield from ("", *(f"  {line}" for line in aligned(list(zip(*facts, strict=True)), texts=0)))


def _since(item: Run | Site, now: float) -> str:
    return _joined(
        f"started {ago(item.started, now)}",
        f"last word {ago(item.updated, now)}",
        f"process {item.pid}" if item.pid else "",
        f"fedpn {item.version}" if item.version else "",
    )


def _warnings(warnings: Sequence[Warned]) -> Iterator[str]:
    if not warnings:
        return
    more = len(warnings) - SHOWN
    yield from ("", "  warnings" + (f" (the last {SHOWN} of {len(warnings)})" * (more > 0)))
    for warned in warnings[-SHOWN:]:
        yield f"    {_clock(warned.time)}  {warned.text or UNKNOWN}"


def _short(name: str) -> str:
    return name if len(name) <= WIDEST else name[: WIDEST - 1] + "…"


def _clock(when: float | None) -> str:
    if when is None:
        return UNKNOWN.ljust(16)
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))


def _round(done: int | None, of: int | None) -> str:
    if done is None:
        return ""
    return f"round {done}" + (f" of {of}" if of is not None else "")


def _joined(*parts: str | None) -> str:
    return " · ".join(filter(None, parts))
