"""Metrics -> the rows of the report's tables."""

from collections.abc import Mapping, Sequence

from fedpn.core.summary import SETS, standard_error, summarise
from fedpn.reporting.classes import ByClass
from fedpn.reporting.finished import Accuracy, ClientMetrics, Metrics, Origin

SET_NAMES = {"ind": "InD", "ood": "OOD", "mix": "Mix"}
UNKNOWN = "–"


def accuracy_table(runs: Sequence[Metrics]) -> list[list[str]]:
    """A row for each way of answering: its accuracy on InD, OOD and Mix in %, where it is known.

    One run shows ± the deviation over clients, several ± the standard error over seeds.
    """
    answering = [who for who in runs[0].accuracy if all(who in run.accuracy for run in runs)]
    seeds = [{who: run.accuracy[who] for who in answering} for run in runs]
    mean: Accuracy = summarise(seeds)
    spread = summarise(seeds, standard_error) if len(runs) > 1 else runs[0].deviation
    known = [name for name in SETS if any(row[name] is not None for row in mean.values())]
    rows = [["accuracy, %", *(SET_NAMES[name] for name in known)]]
    for who in answering:
        if who == "oracle" and "ood" not in known:
            continue  # without foreign rows, an oracle is the client's own model
        rows.append([who, *(percent(mean[who][name], spread[who][name]) for name in known)])
    return rows


def unseen_table(runs: Sequence[Metrics]) -> list[list[str]]:
    """The same of clients that never trained, where there are such."""
    late = [run.unseen for run in runs if run.unseen is not None]
    if not late or len(late) < len(runs):
        return []
    (_, *names), *rows = accuracy_table(late)
    return [[f"unseen ({late[0].clients}), %", *names], *rows]


def client_table(run: Metrics, clients: Sequence[ClientMetrics], origin: Origin) -> list[list[str]]:
    """A row for each client: its classes, its rows, and the accuracy of each way of answering."""
    name = "mix" if any(row["mix"] is not None for row in run.accuracy.values()) else "ind"
    rows = [["client", "classes", "rows", *(f"{who} {SET_NAMES[name]}" for who in run.accuracy)]]
    for client in clients:
        classes = ", ".join(origin.classes[number] for number in client.classes) or UNKNOWN
        shares = [percent(client.accuracy.get(who, {}).get(name)) for who in run.accuracy]
        rows.append([origin.clients[client.client], classes, str(client.rows), *shares])
    return rows


def class_table(by_class: ByClass, origin: Origin) -> list[list[str]]:
    """A row for each class: how many rows it has, how many are found, and what they are taken for.

    Rare classes come first: a fine accuracy hides them.
    """
    rows = [["class", "rows", "found, %", "right where said, %", "most often taken for"]]
    for c in sorted(range(len(by_class.rows)), key=lambda c: by_class.rows[c]):
        others = [(n, k) for k, n in enumerate(by_class.confusion[c]) if k != c and n]
        most = max(others, default=None)
        taken = f"{origin.classes[most[1]]} ({most[0]})" if most else UNKNOWN
        shares = (percent(by_class.recall[c]), percent(by_class.precision[c]))
        rows.append([origin.classes[c], str(by_class.rows[c]), *shares, taken])
    return rows


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
