"""Beyond the paper: heads in closed form and Bayes' rule, beside FedPN's switch and its oracle."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fedpn_paper.results import Results, stat
from fedpn_paper.tables import Entry, Row, Table, mark_best, rows_of, set_title

Tree = dict[str, Any]


class Way(NamedTuple):
    """A way of answering: whose run, and which of its answers."""

    title: str
    algorithm: str
    variant: str
    who: str


WAYS = (
    Way("FedAvg", "fedavg", "", "global"),
    Way("FedPN, its switch", "fedpn", "", "switch"),
    Way("FedPN, its oracle", "fedpn", "", "oracle"),
    Way("Bayes, trained head", "fedpn", "bayes", "bayes"),
    Way("Bayes, ridge on layers", "fedpn", "layers", "bayes"),
    Way("Bayes, ridge on patches", "fedpn", "patches", "bayes"),
    Way("Bayes, ridge on both", "fedpn", "ridge", "bayes"),
    Way("analytic, Bayes", "analytic", "", "bayes"),
    Way("analytic on an untrained encoder", "analytic", "untrained", "bayes"),
)
FIGURES = (
    "InD",
    "OOD",
    "Mix",
    "gap closed",
    "AURC",
    "ECE",
    "own stream",
    "foreign stream",
    "mixed stream",
    "shares learned",
    "seeds",
)


def bayes_tables(results: Results) -> list[Table]:
    """All ways on Mix, and all figures of each; sets without a run in closed form are left out."""
    closed = [w for w in WAYS if w.who == "bayes"]
    there = [
        name
        for name in rows_of(results)
        if any(results.of(name, way.algorithm, way.variant) for way in closed)
    ]
    return [_mix(results, there), _all(results, there)] if there else []


def _mix(results: Results, sets: Sequence[str]) -> Table:
    rows = []
    for name in sets:
        entries = [
            Entry(results.accuracy(name, way.algorithm, "mix", way.variant, way.who))
            for way in WAYS
        ]
        oracle = WAYS.index(next(way for way in WAYS if way.who == "oracle"))
        marked = mark_best([entry for i, entry in enumerate(entries) if i != oracle])
        marked.insert(oracle, entries[oracle])  # it knows whose a row is: it does not compete
        rows.append(Row(set_title(name, results), [*marked]))
    lead = (
        "Accuracy on Mix, half own and half foreign rows, the share of own rows taken for ½. Ridge "
        "heads follow FedPN's rounds; `analytic` has none. The oracle knows whose each row is."
    )
    title = "Beyond the paper: closed form and Bayes' rule"
    return Table(title, lead, tuple(way.title for way in WAYS), rows)


def _all(results: Results, sets: Sequence[str]) -> Table:
    rows = []
    for name in sets:
        for way in WAYS:
            found = results.of(name, way.algorithm, way.variant)
            if found and way.who != "oracle":
                title = f"{set_title(name, results)}: {way.title}"
                rows.append(Row(title, _figures(found, way.who)))
    lead = (
        "Gap closed: of what an oracle between the same two models has over the better of them. "
        "AURC, the area under risk–coverage, and ECE on Mix; lower is better. Streams: only own, "
        "only foreign or both kinds of rows, Bayes' rule having learned their share without "
        "labels; then the shares that it learned."
    )
    return Table("Beyond the paper: all figures", lead, FIGURES, rows)


def _figures(found: Sequence[Tree], who: str) -> list[Entry | str]:
    headline = all(record["headline"] == who for record in found)

    def entry(*keys: str) -> Entry:
        values = _values(found, keys)
        return Entry(stat([100 * value for value in values]) if values else None)

    def small(digits: int, *keys: str) -> str:
        values = _values(found, keys) if headline else []
        return f"{stat(values).mean:.{digits}f}" if values else "–"

    bayes = who == "bayes"
    gap = _values(found, ("routing", "gap_closed")) if headline else []
    streams = [
        entry("streams", name, "accuracy") if bayes else "–" for name in ("own", "foreign", "mixed")
    ]
    shares = [_values(found, ("streams", n, "own_share")) for n in ("own", "foreign", "mixed")]
    learned = " / ".join(f"{stat(values).mean:.2f}" for values in shares if values)
    return [
        *(entry("accuracy", who, split) for split in ("ind", "ood", "mix")),
        f"{100 * stat(gap).mean:.0f} %" if gap else "–",
        small(4, "abstention", "aurc"),
        small(3, "calibration", "ece"),
        *streams,
        learned if bayes and learned else "–",
        str(len(found)),
    ]


def _values(found: Sequence[Tree], keys: Sequence[str]) -> list[float]:
    """A figure of each record, where it is there."""
    values = []
    for record in found:
        value: Any = record
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            values.append(float(value))
    return values
