"""The files of a finished run, read and checked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.summary import SETS
from fedpn.data.dataset import Array
from fedpn.reporting.places import MEASURES
from fedpn.reporting.values import Value, read_json, read_toml
from fedpn.routing.outcomes import OUTCOMES, Outcome
from fedpn.serving.bundle import FORMAT

GATE = "gate.safetensors"
# Accuracy by way of answering (local, global, switch, …) and set of rows; None where unknown.
Accuracy = dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Metrics:
    """What a run came to."""

    algorithm: str
    seed: int
    clients: int
    rounds: int
    headline: str  # the way of answering that the method stands for
    accuracy: Accuracy  # means over clients
    deviation: Accuracy  # over clients
    worst: Accuracy  # of all clients
    measures: dict[str, float | None]
    warnings: tuple[str, ...] = ()  # what a fine accuracy may hide
    privacy: str = ""  # what is promised to those whose rows they are
    unseen: "Metrics | None" = None  # of clients that never trained


@dataclass(frozen=True)
class ClientMetrics:
    """What a run came to for one client."""

    client: int
    classes: tuple[int, ...]  # none where the client keeps them to itself
    rows: int
    accuracy: Accuracy
    outcomes: dict[str, float | None]  # the shares of its inputs; none in older runs
    promise: dict[str, Any] | None = None  # as test rows bear it out, where one was made

    def answered_by(self, *outcomes: Outcome) -> float | None:
        """The share of its inputs that ends in one of these outcomes."""
        shares = [self.outcomes.get(outcome.label) for outcome in outcomes]
        known = [share for share in shares if share is not None]
        return sum(known) if known else None


@dataclass(frozen=True)
class Origin:
    """Names of classes and clients, and where the models come from."""

    classes: tuple[str, ...]
    clients: tuple[str, ...]
    dataset: str
    note: str
    versions: dict[str, str]  # of the programs that trained


@dataclass(frozen=True)
class Histogram:
    """Scores, each relative to its client's threshold."""

    edges: list[float]
    ind: list[float]
    ood: list[float]

    @property
    def is_spread(self) -> bool:
        """Whether scores differ at all."""
        return self.edges[-1] - self.edges[0] > 1e-6


@dataclass(frozen=True)
class Reliability:
    """Answers in bins of like confidence."""

    share: list[float]
    confidence: list[float]
    accuracy: list[float]


@dataclass(frozen=True)
class Example:
    """One input of a client, and what came of it."""

    client: int
    label: int
    answer: int
    confidence: float
    outcome: Outcome
    reason: str


@dataclass(frozen=True)
class Figures:
    """What the page's figures are drawn from; None where a run does not know it."""

    ownership: list[list[int]] | None  # rows by client and class
    reliability: Reliability | None
    risk_coverage: dict[str, list[float]] | None
    histogram: Histogram | None
    outcomes: dict[str, list[list[float]]] | None  # shares by set, client and outcome
    examples: list[Example]


def read_settings(run: Path) -> dict[str, Any]:
    """The settings of a run, as `config.toml` has them; under `code` which version of each file of
    the user's own it was run with."""
    settings = read_toml(run / "config.toml")
    Value(settings, run / "config.toml")["algorithm"].text()
    if not (run / store.IDENTITY).exists():
        return settings
    files = read_json(run / store.IDENTITY)["code"].fields()
    return settings | {"code": {name: digest.text() for name, digest in files.items()}}


def read_metrics(run: Path) -> Metrics:
    """The figures of a run, without those of each client."""
    return _metrics(read_json(run / "metrics.json"))


def _metrics(tree: Value) -> Metrics:
    accuracy = _accuracy(tree["accuracy"])
    headline = tree["headline"]
    if headline.text() not in accuracy:
        raise headline.damaged(f"one of {', '.join(accuracy)}")
    return Metrics(
        algorithm=tree["algorithm"].text(),
        seed=tree["seed"].whole(below=2**64),
        clients=tree["clients"].whole(),
        rounds=tree["rounds"].whole(),
        headline=headline.text(),
        accuracy=accuracy,
        deviation={who: _by_set(tree["spread"]["std"][who]) for who in accuracy},
        worst={who: _by_set(tree["spread"]["worst"][who]) for who in accuracy},
        measures={name: _measure(tree, place) for name, place in MEASURES.items()},
        warnings=_warnings(tree),
        privacy=tree["privacy"]["words"].text() if "privacy" in tree.fields() else "",
        unseen=tree["unseen"].optional(_metrics),
    )


def _warnings(tree: Value) -> tuple[str, ...]:
    """Those of newer runs."""
    if "warnings" not in tree.fields():
        return ()
    return tuple(item.text() for item in tree["warnings"].items())


def _accuracy(tree: Value) -> Accuracy:
    found = {who: _by_set(row) for who, row in tree.fields().items()}
    if not found:
        raise tree.damaged("an object with one way of answering or more")
    return found


def _by_set(row: Value) -> dict[str, float | None]:
    return {name: row[name].optional(Value.number) for name in SETS}


def _measure(tree: Value, place: tuple[str, ...]) -> float | None:
    for name in place:
        if tree.value is None:
            return None
        tree = tree[name]
    return tree.optional(Value.number)


def read_clients(run: Path, origin: Origin) -> list[ClientMetrics]:
    """The figures of each client."""
    return [_client(tree, origin) for tree in read_json(run / "metrics.json")["per_client"].items()]


def _client(tree: Value, origin: Origin) -> ClientMetrics:
    classes = tree["classes"].optional(Value.items) or []
    return ClientMetrics(
        client=tree["client"].whole(below=len(origin.clients)),
        classes=tuple(item.whole(below=len(origin.classes)) for item in classes),
        rows=tree["rows"].whole(),
        accuracy=_accuracy(tree["accuracy"]),
        outcomes=tree["abstention"].optional(_outcome_shares) or {},
        promise=_promise(tree["promise"]) if "promise" in tree.fields() else None,
    )


def _promise(tree: Value) -> dict[str, Any]:
    sides = {
        side: {
            "wrong": tree[side]["wrong"].optional(Value.number),
            "rows": tree[side]["rows"].whole(),
        }
        for side in ("own", "foreign")
    }
    return {"risk": tree["risk"].number()} | sides


def _outcome_shares(tree: Value) -> dict[str, float | None]:
    found = tree["outcomes"].optional(Value.fields) or {}
    return {name: share.optional(Value.number) for name, share in found.items()}


def read_origin(run: Path) -> Origin:
    """What the run's bundle says of its models."""
    tree = read_json(run / "bundle.json")
    if tree["format"].value != FORMAT:
        raise UserError(
            f"{run} is of format {tree['format'].value}, and this fedpn reads format {FORMAT}: "
            "report it with the version that wrote it, or run it again"
        )
    made = tree["provenance"]
    return Origin(
        classes=tree["classes"].texts(),
        clients=tree["clients"].texts(),
        dataset=made["dataset"].text(),
        note=made["note"].text(),
        versions={name: made[name].text() for name in ("fedpn", "torch")},
    )


def read_figures(run: Path, origin: Origin) -> Figures:
    """What the page's figures are drawn from."""
    tree = read_json(run / "figures.json")
    return Figures(
        ownership=tree["ownership"].optional(lambda table: _ownership(table, origin)),
        reliability=tree["reliability"].optional(_reliability),
        risk_coverage=tree["risk_coverage"].optional(_risk_coverage),
        histogram=tree["histogram"].optional(_histogram),
        outcomes=tree["outcomes"].optional(lambda table: _outcomes(table, origin)),
        examples=[_example(card, origin) for card in tree["gallery"].items()],
    )


def _ownership(table: Value, origin: Origin) -> list[list[int]]:
    clients = table.items(len(origin.clients))
    return [[count.whole() for count in row.items(len(origin.classes))] for row in clients]


def _reliability(tree: Value) -> Reliability:
    share = tree["share"].numbers()
    bins = len(share)
    return Reliability(share, tree["confidence"].numbers(bins), tree["accuracy"].numbers(bins))


def _risk_coverage(tree: Value) -> dict[str, list[float]]:
    return {who: risk.numbers() for who, risk in tree.fields().items()}


def _histogram(tree: Value) -> Histogram:
    edges = tree["edges"].numbers()
    bins = len(edges) - 1
    if bins < 1:
        raise tree["edges"].damaged("a list of two numbers or more")
    return Histogram(edges, tree["ind"].numbers(bins), tree["ood"].numbers(bins))


def _outcomes(tree: Value, origin: Origin) -> dict[str, list[list[float]]]:
    return {
        name: [row.numbers(len(OUTCOMES)) for row in tree[name].items(len(origin.clients))]
        for name in ("ind", "ood")
    }


def _example(card: Value, origin: Origin) -> Example:
    outcome = card["outcome"]
    if outcome.text() not in OUTCOMES:
        raise outcome.damaged(f"one of {', '.join(OUTCOMES)}")
    return Example(
        client=card["client"].whole(below=len(origin.clients)),
        label=card["label"].whole(below=len(origin.classes)),
        answer=card["answer"].whole(below=len(origin.classes)),
        confidence=card["confidence"].number(),
        outcome=next(known for known in Outcome if known.label == outcome.text()),
        reason=card["reason"].text(),
    )


def has_gate(run: Path) -> bool:
    """Whether strangers are told from what is known, so that nobody answers them."""
    return bool(store.read_tensors(run / GATE)[0])


def read_images(run: Path, count: int) -> list[Array]:
    """The inputs of the examples, [C, H, W] each; none where inputs are not images."""
    path = run / "gallery.safetensors"
    tensors, _ = store.read_tensors(path)
    if "images" not in tensors or tensors["images"].ndim != 4:
        return []
    images: Array = tensors["images"].numpy()
    if images.dtype != np.uint8 or len(images) != count or 0 in images.shape:
        raise store.Damaged(f"{path} is damaged: it must hold {count} images of whole bytes")
    return list(images)
