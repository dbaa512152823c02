"""The report's charts over numbers: learning, bytes, scores, confidence, risk.

Each is a drawing, what it shows in words, and the table of its values.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from markupsafe import Markup

from fedpn.core.plain import plain
from fedpn.reporting.drawing import Frame, Scale, axes, bands, drawing, inside, polyline, tag
from fedpn.reporting.finished import Histogram, Reliability
from fedpn.reporting.history import Round
from fedpn.reporting.table import Table, plain_table
from fedpn.reporting.words import in_bytes, style_of

MOST_ROUNDS = 120  # in a table
EVERY = 5  # of the points of risk and coverage, in a table
FLATTENED = 3  # times as high as all others: such a curve leaves the chart
T = TypeVar("T")
Key = tuple[str, str]  # a class of the style, and what it stands for


@dataclass(frozen=True)
class Chart:
    """A figure on the page."""

    title: str
    caption: str
    pictures: Sequence[Markup]
    table: Table
    keys: Sequence[Key] = ()  # what colours stand for


def learning(history: Sequence[Round]) -> Iterator[Chart]:
    """Loss and accuracy over the rounds, as far as they are known."""
    told = {
        "Loss of the clients' steps": [(r.number, r.loss) for r in history],
        "Accuracy of the federation's model, on rows that nobody trains on": [
            (r.number, None if r.accuracy is None else 100 * r.accuracy) for r in history
        ],
    }
    titles = (("Loss", "loss", "switch"), ("Accuracy", "accuracy, %", "global"))
    for (title, name, style), (caption, pairs) in zip(titles, told.items(), strict=True):
        points = [(x, y) for x, y in pairs if y is not None]
        if points:
            top = 100.0 if title == "Accuracy" else None
            yield _by_round(f"{title} by round", f"{caption}.", name, style, points, top)


def _by_round(
    title: str,
    caption: str,
    name: str,
    style: str,
    points: Sequence[tuple[int, float]],
    top: float | None,
) -> Chart:
    frame = Frame()
    x, y = _scales(frame, [n for n, _ in points], [v for _, v in points], top)
    shown = _some(points)
    told = f"{title}: from {points[0][1]:.3g} in round {points[0][0]} to {points[-1][1]:.3g} in "
    marks = [
        *axes(frame, x, y, ("round", name), whole=True),
        polyline(((x(n), y(v)) for n, v in points), style),
        *bands(frame, [x(n) for n, _ in shown]),
    ]
    picture = drawing(frame, marks, f"{told}round {points[-1][0]}.")
    rows = [(str(n), f"{v:.4g}") for n, v in shown]
    return Chart(title, caption, [picture], plain_table(title, ("round", name), rows))


def traffic_chart(history: Sequence[Round]) -> Chart | None:
    """Bytes that went over the wire, round by round, where rounds differ in them."""
    known = [r for r in history if r.sent is not None or r.received is not None]
    if len({(r.sent, r.received) for r in known}) < 2:
        return None
    numbers = [r.number for r in known]
    columns = {"sent": [r.sent or 0 for r in known], "received": [r.received or 0 for r in known]}
    most, frame = max(max(column) for column in columns.values()), Frame()
    unit, size = next((u, s) for u, s in _UNITS if most >= s or s == 1)
    x, y = _scales(frame, numbers, [0.0, most / size])
    lines = [
        polyline(((x(n), y(v / size)) for n, v in zip(numbers, columns[name], strict=True)), style)
        for name, style in (("sent", "global"), ("received", "local"))
    ]
    shown = _some(list(zip(numbers, *columns.values(), strict=True)))
    marks = [*axes(frame, x, y, ("round", unit), whole=True), *lines]
    marks += bands(frame, [x(row[0]) for row in shown])
    total = [in_bytes(sum(column)) for column in columns.values()]
    told = f"Bytes by round: the server sent {total[0]} to clients and received {total[1]}."
    rows = [(str(n), in_bytes(sent), in_bytes(received)) for n, sent, received in shown]
    table = plain_table("Bytes by round", ("round", "sent to clients", "received from them"), rows)
    keys = (("global", "sent to clients"), ("local", "received from them"))
    return Chart("Bytes by round", told, [drawing(frame, marks, told)], table, keys)


_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def _scales(
    frame: Frame, x: Sequence[float], y: Sequence[float], top: float | None = None
) -> tuple[Scale, Scale]:
    """Scales for points; the second one begins at 0 or below."""
    low = min(0.0, *y)
    high = max(*y, low) if top is None else top
    return frame.across(min(x), max(x)), frame.up(low, high if high > low else low + 1)


def _some(points: Sequence[T]) -> list[T]:
    """Points at even steps, the last among them, where they are too many for a table."""
    step = -(-len(points) // MOST_ROUNDS)
    return list(reversed(points[::-1][::step]))


def known_and_unknown(scores: Histogram) -> Chart:
    """The switch's score of known and unknown rows, beside the threshold."""
    frame, edges = Frame(), scores.edges
    x, y = _scales(frame, edges, [100 * share for share in (*scores.ind, *scores.ood)])
    kinds = [("local", scores.ind, "own classes"), ("global", scores.ood, "other classes")]
    kinds = [kind for kind in kinds if any(kind[1])]
    marks = axes(frame, x, y, ("score above the client's threshold", "share of rows, %"))
    for style, shares, _ in kinds:
        steps = [(edge, share) for i, share in enumerate(shares) for edge in edges[i : i + 2]]
        outline = [(edges[0], 0.0), *steps, (edges[-1], 0.0)]
        path = " ".join(f"{x(a):.1f},{y(100 * b):.1f}" for a, b in outline)
        marks.append(tag("polygon", class_=f"area {style}", points=path))
    if edges[0] <= 0 <= edges[-1]:
        bottom = frame.height - frame.bottom
        marks.append(tag("line", class_="limit", x1=x(0), x2=x(0), y1=frame.top, y2=bottom))
        marks.append(tag("text", "delegated →", x=x(0) + 4, y=frame.top + 10))
    marks += bands(frame, [x((a + b) / 2) for a, b in pairwise(edges)])
    sent = [sum(s for s, e in zip(shares, edges, strict=False) if e >= 0) for _, shares, _ in kinds]
    told = ", ".join(
        f"{100 * s:.0f} % of {name}" for s, (_, _, name) in zip(sent, kinds, strict=True)
    )
    rows = [
        (f"{a:.3g} to {b:.3g}", f"{100 * own:.1f}", f"{100 * other:.1f}")
        for a, b, own, other in zip(edges, edges[1:], scores.ind, scores.ood, strict=False)
    ]
    title = "Known and unknown"
    return Chart(
        title,
        "What lies right of the line goes to the federation's model. Scores beyond the frame are "
        "in its outermost bars.",
        [drawing(frame, marks, f"Scores of rows: right of the threshold are about {told}.")],
        plain_table(title, ("score", "own classes, %", "other classes, %"), rows),
        [(style, name) for style, _, name in kinds],
    )


def deserved(bins: Reliability) -> Chart:
    """How often answers of some confidence are right."""
    frame = Frame(height=300, top=20, right=22)
    x, y = frame.across(0, 100), frame.up(0, 100)
    columns = zip(bins.share, bins.confidence, bins.accuracy, strict=True)
    shown = [(share, 100 * c, 100 * a) for share, c, a in columns if share > 0]
    marks = [*axes(frame, x, y, ("confidence, %", "share that is right, %"))]
    marks.append(tag("line", class_="limit", x1=x(0), y1=y(0), x2=x(100), y2=y(100)))
    marks.append(polyline(((x(c), y(a)) for _, c, a in shown), "switch"))
    marks += [
        tag(
            "circle", class_="fill switch", data_r=str(i), cx=x(c), cy=y(a), r=2.5 + 12 * share**0.5
        )
        for i, (share, c, a) in enumerate(shown)
    ]
    off = sum(share * abs(c - a) for share, c, a in shown)
    told = f"Confidence against the share that is right: off by {off:.1f} points on average."
    rows = [(f"{c:.0f}", f"{a:.1f}", f"{100 * share:.1f}") for share, c, a in shown]
    head = ("confidence, %", "right, %", "of all rows, %")
    title = "Is confidence deserved?"
    return Chart(
        title,
        "Points on the dashed line are right as often as they claim; area is the share of rows.",
        [drawing(frame, marks, told)],
        plain_table(title, head, rows),
    )


def surest(risks: dict[str, list[float]]) -> Chart | None:
    """The errors among the most certain answers."""
    known = {who: risk for who, risk in risks.items() if len(risk) > 1}
    if not known:
        return None
    frame, highest = Frame(height=300), {who: max(risk) for who, risk in known.items()}
    top = _top(list(highest.values()))
    x, y = _scales(frame, [0.0, 100.0], [0.0, 100 * top])
    marks = axes(frame, x, y, ("share of rows answered, %, surest first", "share wrong, %"))
    for who, risk in known.items():
        curve = [(i / (len(risk) - 1), value) for i, value in enumerate(risk)]
        for part in inside(curve, top):
            marks.append(polyline(((x(100 * a), y(100 * b)) for a, b in part), style_of(who)))
    steps = [i * EVERY / 100 for i in range(100 // EVERY + 1)]
    marks += bands(frame, [x(100 * step) for step in steps])
    rows = [
        (
            f"{100 * s:.0f}",
            *(f"{100 * risk[round(s * (len(risk) - 1))]:.1f}" for risk in known.values()),
        )
        for s in steps
    ]
    title = "Errors among the surest"
    halves = (f"{plain(who)} {100 * risk[len(risk) // 2]:.1f} %" for who, risk in known.items())
    return Chart(
        title,
        "Share of wrong answers where only the surest are given, by the answering model's total "
        f"uncertainty.{_beyond(highest, top)}",
        [drawing(frame, marks, f"Wrong among the surer half: {', '.join(halves)}.")],
        plain_table(title, ("answered, %", *(f"{plain(who)} wrong, %" for who in known)), rows),
        [(style_of(who), plain(who)) for who in known],
    )


def _top(highest: Sequence[float]) -> float:
    """Where the axis ends: above all curves, or above all but one that would flatten the others.

    >>> _top([0.5, 0.04, 0.03]), _top([0.5, 0.3]), _top([0.5]), _top([0.5, 0.0])
    (0.05, 0.5, 0.5, 0.5)
    """
    worst, *rest = sorted(highest, reverse=True)
    if not rest or not 0 < FLATTENED * rest[0] < worst:
        return worst
    return 1.25 * rest[0]


def _beyond(highest: dict[str, float], top: float) -> str:
    """Says whose curve leaves the chart, and how high it goes."""
    return "".join(
        f" The axis ends at {100 * top:.1f} %: {plain(who)} goes on, to {100 * value:.1f} %."
        for who, value in highest.items()
        if value > top
    )
