"""Metrics -> the rows of the report's tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedpn.core.summary import SETS, standard_error, summarise
from fedpn.reporting.classes import ByClass
from fedpn.reporting.finished import Accuracy, ClientMetrics, Metrics, Origin
from fedpn.reporting.table import Row, Table
from fedpn.reporting.words import SET_NAMES, WAYS, some, style_of
from fedpn.routing.outcomes import Outcome, Source

UNKNOWN = "–"
ANSWERING = {
    Source.LOCAL: "own model answers",
    Source.GLOBAL: "federation answers",
    Source.NOBODY: "nobody answers",
}
ONE_ANSWERS = {Source.LOCAL: "answered", Source.NOBODY: "nobody answers"}  # without a router


def accuracy_table(runs: Sequence[Metrics]) -> list[list[str]]:
    """A row for each way of answering: its accuracy on InD, OOD and Mix in %, where it is known.

    One run shows ± the deviation over clients, several ± the standard error over seeds.
    """
    shown = ways(runs[0])
    answering = [who for who in shown if all(who in run.accuracy for run in runs)]
    seeds = [{who: run.accuracy[who] for who in answering} for run in runs]
    mean: Accuracy = summarise(seeds)
    spread = summarise(seeds, standard_error) if len(runs) > 1 else runs[0].deviation
    known = [name for name in SETS if any(row[name] is not None for row in mean.values())]
    rows = [["accuracy, %", *(SET_NAMES[name] for name in known)]]
    rows += [
        [who, *(percent(mean[who][name], spread[who][name]) for name in known)] for who in answering
    ]
    return rows


def ways(run: Metrics) -> list[str]:
    """The ways of answering that say something; without foreign rows, an oracle says nothing."""
    foreign = any(row["ood"] is not None for row in run.accuracy.values())
    return [who for who in run.accuracy if who != "oracle" or foreign]


def unseen_table(runs: Sequence[Metrics]) -> list[list[str]]:
    """The same of clients that never trained, where there are such."""
    late = [run.unseen for run in runs if run.unseen is not None]
    if not late or len(late) < len(runs):
        return []
    (_, *names), *rows = accuracy_table(late)
    return [[f"unseen ({late[0].clients}), %", *names], *rows]


def worth_table(runs: Sequence[Metrics], rows: Sequence[Sequence[str]], caption: str) -> Table:
    """A table of accuracies for the page: with bars, and what each way of answering is."""
    head, *body = rows
    told = [
        Row(
            row,
            is_headline=row[0] == runs[0].headline,
            note=WAYS.get(row[0], ""),
            shares={
                i: float(cell.split()[0]) for i, cell in enumerate(row) if i and cell != UNKNOWN
            },
            style=style_of(row[0]),
        )
        for row in body
    ]
    return Table(caption, head, told)


def client_table(run: Metrics, clients: Sequence[ClientMetrics], origin: Origin) -> Table:
    """A row for each client: its classes and rows, who answers, how right each way is."""
    name = judged_by(run)
    names = ANSWERING if "local" in run.accuracy else ONE_ANSWERS
    sources = {
        f"{who}, %": [outcome for outcome in Outcome if outcome.source is source]
        for source, who in names.items()
    }
    shown = ways(run)
    rows = []
    for client in clients:
        classes = some([origin.classes[number] for number in client.classes], 12) or UNKNOWN
        answered = [percent(client.answered_by(*outcomes)) for outcomes in sources.values()]
        right = [percent(client.accuracy.get(who, {}).get(name)) for who in shown]
        cells = [origin.clients[client.client], classes, str(client.rows), *right, *answered]
        rows.append(Row(cells, [client.client], client.classes or None))
    head = [
        "client",
        "classes",
        "training rows",
        *(f"{who} {SET_NAMES[name]}, %" for who in shown),
        *sources,
    ]
    return known(Table("Every client", head, rows, frozenset({0, 1})))


def judged_by(run: Metrics) -> str:
    """The set of rows that figures are of: Mix, or InD where to most clients nothing is foreign."""
    mixed = run.measures["mixed_clients"]
    few = mixed is not None and 2 * mixed < run.clients
    there = any(row["mix"] is not None for row in run.accuracy.values())
    return "mix" if there and not few else "ind"


def known(table: Table) -> Table:
    """Without columns that nobody has."""
    there = [
        j for j, _ in enumerate(table.head) if any(row.cells[j] != UNKNOWN for row in table.rows)
    ]
    rows = [replace(row, cells=[row.cells[j] for j in there]) for row in table.rows]
    texts = frozenset(i for i, j in enumerate(there) if j in table.texts)
    return replace(table, head=[table.head[j] for j in there], rows=rows, texts=texts)


def class_table(by_class: ByClass, clients: Sequence[ClientMetrics], origin: Origin) -> Table:
    """A row for each class: how many rows it has, how many are found, and what they are taken for.

    Rare classes come first: a fine accuracy hides them.
    """
    rows = []
    for c in sorted(range(len(by_class.rows)), key=lambda c: by_class.rows[c]):
        others = [(n, k) for k, n in enumerate(by_class.confusion[c]) if k != c and n]
        most = max(others, default=None)
        taken = f"{origin.classes[most[1]]} ({most[0]})" if most else UNKNOWN
        shares = (percent(by_class.recall[c]), percent(by_class.precision[c]))
        owners = [client.client for client in clients if c in client.classes]
        cells = [origin.classes[c], str(by_class.rows[c]), *shares, taken]
        rows.append(Row(cells, owners or None, [c]))
    head = ["class", "test rows", "found, %", "right where said, %", "most often taken for"]
    return Table("Every class, the rarest first", head, rows, frozenset({0, 4}))


def measures(runs: Sequence[Metrics]) -> dict[str, str]:
    """The figures beside the table, as far as they are known."""
    mean = summarise([run.measures for run in runs])
    ind, ood = share(mean["delegated_ind"]), share(mean["delegated_ood"])
    delegated = {"delegated, InD / OOD": f"{ind} / {ood}"}
    if ood == UNKNOWN:
        delegated = {"delegated, InD": ind}
    found = {
        "AUROC of the switch score": number(mean["auroc"]),
        "gap to the oracle closed": number(mean["gap_closed"], 2),
        **delegated,
        "foreign inputs kept where 95 % of own ones are": share(mean["fpr95"]),
        "answered": share(mean["coverage"]),
        **_promised(mean),
        "Bayes' rule, share learned: own inputs only": share(mean["own_stream"]),
        "Bayes' rule, share learned: foreign inputs only": share(mean["foreign_stream"]),
        "Bayes' rule, share learned: other clients' inputs": share(mean["others_stream"]),
        "own inputs are told from others' by": told_apart_by(mean),
        "clients with a head of their own": share(mean["own_heads"] or None),
        "balanced accuracy": share(mean["balanced"]),
        "always the most frequent class": share(mean["majority"]),
        "AUROC of classes": number(mean["class_auroc"]),
        "area under risk–coverage": number(mean["aurc"]),
        "ECE": number(mean["ece"]),
        "adaptive ECE": number(mean["adaptive_ece"]),
        "NLL": number(mean["nll"]),
        "Brier": number(mean["brier"]),
    }
    return {name: value for name, value in found.items() if value != UNKNOWN}


def _promised(mean: Mapping[str, float | None]) -> dict[str, str]:
    """What was promised of answers and of sets, beside what came of it."""

    def pair(name: str) -> str:
        own, foreign = share(mean[f"{name}_own"]), share(mean[f"{name}_foreign"])
        return own if foreign == UNKNOWN else f"{own} / {foreign}"

    found = {}
    if mean["risk"] is not None:
        found[f"wrong of the answered, own / foreign (promised: {share(mean['risk'])})"] = pair(
            "wrong"
        )
        found["answered, own / foreign"] = pair("answered")
    if mean["set_own"] is not None:
        sizes = (number(mean["set_own"], 2), number(mean["set_foreign"], 2))
        found["sets without the true class, own / foreign"] = pair("missed")
        found["classes in a set, own / foreign"] = " / ".join(sizes)
    return found


def told_apart_by(mean: Mapping[str, float | None]) -> str:
    """What Bayes' rule goes by, in words.

    >>> told_apart_by({"by_classes": 1.0, "by_looks": 0.0})
    'their classes'
    >>> told_apart_by({"by_classes": 0.0, "by_looks": 0.0})
    'nothing: one model for all'
    """
    shares = {"their classes": mean["by_classes"], "their looks": mean["by_looks"]}
    if None in shares.values():
        return UNKNOWN
    words = [
        name if value == 1 else f"{name} ({share(value)} of clients)"
        for name, value in shares.items()
        if value
    ]
    return ", ".join(words) or "nothing: one model for all"


def percent(value: float | None, spread: float | None = None) -> str:
    """
    >>> percent(0.5), percent(0.5, 0.01), percent(None)
    ('50.0', '50.0 ± 1.0', '–')
    """
    if value is None:
        return UNKNOWN
    text = f"{100 * value:.1f}"
    return text if spread is None else f"{text} ± {100 * spread:.1f}"


def share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{percent(value)} %"


def number(value: float | None, digits: int = 3) -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}"
