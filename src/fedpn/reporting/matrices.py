"""The report's charts by client and class: who owns what, who answers, what is taken for what."""

from collections.abc import Sequence

from markupsafe import Markup

from fedpn.reporting.charts import Chart
from fedpn.reporting.drawing import Frame, below, beside, drawing, room, short, tag
from fedpn.reporting.finished import Origin
from fedpn.reporting.table import Row, Table
from fedpn.reporting.words import OUTCOMES, outcome_style
from fedpn.routing.outcomes import Outcome

MOST = 60  # clients, or classes, that are drawn
LINE = 19  # between two names
SLIM = 13  # between two bars
NAME = 16  # room for the name of an axis


def ownership(counts: Sequence[Sequence[int]], origin: Origin) -> Chart:
    """A bubble for each client and class."""
    shown = [row[:MOST] for row in counts[:MOST]]
    classes, clients = origin.classes[:MOST], origin.clients[: len(shown)]
    most = max((max(row) for row in shown), default=0) or 1
    sizes = [[count / most for count in row] for row in shown]
    styles = [["local"] * len(classes)] * len(clients)
    told = f"Training rows of {len(clients)} clients in {len(classes)} classes, {most} at the most."
    rows = [
        Row([short(name), *map(str, row)], [i], [c for c, n in enumerate(row) if n])
        for i, (name, row) in enumerate(zip(clients, shown, strict=True))
    ]
    title = "Who owns what"
    return Chart(
        title,
        f"Training rows of each client and class; area is the number of rows.{_part(origin)}",
        [_bubbles((clients, classes), sizes, styles, ("class", "client"), told)],
        Table(f"{title}: training rows", ["client", *map(short, classes)], rows),
    )


def confusion(counts: Sequence[Sequence[int]], origin: Origin) -> Chart:
    """What rows of each class are taken for."""
    classes = origin.classes[:MOST]
    shown = [row[:MOST] for row in counts[:MOST]]
    sizes = [
        [n / max(sum(whole), 1) for n in row] for row, whole in zip(shown, counts, strict=False)
    ]
    places = range(len(classes))
    styles = [["switch" if i == j else "global-uncertain" for j in places] for i in places]
    right = sum(counts[i][i] for i in range(len(counts))) / max(sum(map(sum, counts)), 1)
    rows = [
        Row([short(classes[i]), *map(str, row)], None, [i, *(j for j, n in enumerate(row) if n)])
        for i, row in enumerate(shown)
    ]
    title = "What is taken for what"
    told = f"Answers by true class: {100 * right:.1f} % of all rows are on the diagonal, right."
    return Chart(
        title,
        "Of the rows of each class, the share that is given each answer; the diagonal is right."
        f"{_part(origin)}",
        [_bubbles((classes, classes), sizes, styles, ("answer", "true class"), told)],
        Table(f"{title}: rows", ["true class", *map(short, classes)], rows),
    )


def _part(origin: Origin) -> str:
    """Says so where a long federation is drawn in part."""
    if len(origin.classes) <= MOST and len(origin.clients) <= MOST:
        return ""
    return f" The first {MOST} are drawn; the tables of clients and classes have all."


def _bubbles(
    names: tuple[Sequence[str], Sequence[str]],
    sizes: Sequence[Sequence[float]],
    styles: Sequence[Sequence[str]],
    axes: tuple[str, str],
    told: str,
) -> Markup:
    """Circles at rows and columns, their areas by sizes from 0 to 1; each knows its classes."""
    down, across = names
    slanted = room(across) > 18
    foot = 20 + (0.71 * room(across) + 8 if slanted else 18)
    frame = Frame(16 + LINE * len(down) + foot, room(down) + 12 + NAME, foot, 8)
    width = (frame.width - frame.right - frame.left) / max(len(across), 1)
    x = [frame.left + (j + 0.5) * width for j in range(len(across))]
    y = [frame.top + 4 + (i + 0.5) * LINE for i in range(len(down))]
    step = max(1, round(12 / width + 0.5))  # names need a line each
    marks = [
        *below(frame, [(x[j], short(across[j])) for j in range(0, len(x), step)], axes[0], slanted),
        *beside(frame, [(y[i], short(name)) for i, name in enumerate(down)], axes[1]),
    ]
    largest = min(LINE, max(width, 6)) * 0.48
    marks += [
        tag(
            "circle",
            class_=f"fill {styles[i][j]}",
            data_r=str(i),
            data_c=str(j + 1),
            data_of=f"{i} {j}" if down is across else str(j),
            cx=x[j],
            cy=y[i],
            r=max(largest * size**0.5, 1.2),
        )
        for i, row in enumerate(sizes)
        for j, size in enumerate(row)
        if size > 0
    ]
    return drawing(frame, marks, told)


def outcomes(shares: dict[str, list[list[float]]], origin: Origin) -> Chart | None:
    """The outcomes of each client, for known and for unknown rows; None where there is no row."""
    titles = {"ind": "inputs of own classes", "ood": "inputs of other classes"}
    known = {name: title for name, title in titles.items() if any(map(any, shares[name]))}
    if not known:
        return None
    clients = origin.clients[:MOST]
    pictures = [
        _bars(clients, shares[name], title, at) for at, (name, title) in enumerate(known.items())
    ]
    head = [
        "client",
        *(
            f"{OUTCOMES[o]} ({name} classes), %"
            for name in ("own", "other")[: len(known)]
            for o in Outcome
        ),
    ]
    rows = [
        Row([short(name), *(f"{100 * v:.1f}" for kind in known for v in shares[kind][i])], [i])
        for i, name in enumerate(clients)
    ]
    title = "Who answers, client by client"
    return Chart(
        title,
        f"The share of each client's inputs that ends so, where its classes are known to it and "
        f"where they are not.{_part(origin)}",
        pictures,
        Table(title, head, rows),
        [(outcome_style(o), OUTCOMES[o]) for o in Outcome],
    )


def _bars(clients: Sequence[str], shares: Sequence[Sequence[float]], title: str, at: int) -> Markup:
    line = LINE if len(clients) <= 20 else SLIM
    frame = Frame(26 + line * len(clients) + 38, room(clients) + 12 + NAME, 38, 22)
    x, percent = frame.across(0, 1), frame.across(0, 100)
    marks = [tag("text", title, class_="title", x=frame.left, y=13)]
    marks += below(
        frame, [(percent(v), text) for v, text in percent.ticks(5)], "share of inputs, %"
    )
    marks += beside(frame, [], "client")
    for i, name in enumerate(clients):
        y, done, parts = frame.top + 4 + i * line, 0.0, []
        for outcome, share in zip(Outcome, shares[i], strict=True):
            if share > 0:
                wide = x(min(share, 1)) - x(0)
                place = {"x": x(done), "y": y, "width": wide, "height": line * 0.8}
                parts.append(tag("rect", class_=f"fill {outcome_style(outcome)}", **place))
            done += share
        parts.append(
            tag("text", short(name), text_anchor="end", x=frame.left - 6, y=y + line * 0.4 + 4)
        )
        first = 1 + at * len(Outcome)
        marks.append(tag("g", *parts, data_r=str(i), data_c=f"{first}-{first + len(Outcome) - 1}"))
    means = [sum(row[o] for row in shares) / len(shares) for o in Outcome]
    told = ", ".join(
        f"{OUTCOMES[o]} {100 * mean:.1f} %" for o, mean in zip(Outcome, means, strict=True)
    )
    return drawing(frame, marks, f"Of {title}, on average: {told}.")
