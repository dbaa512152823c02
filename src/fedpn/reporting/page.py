"""The report as one HTML page that needs no other file, no network and no script to be read."""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedpn.data.dataset import Array
from fedpn.reporting import charts, finished, matrices, story
from fedpn.reporting.charts import Chart
from fedpn.reporting.classes import ByClass, read_by_class
from fedpn.reporting.finished import Example, Figures, Metrics, Origin
from fedpn.reporting.history import Round, each_round, read_history, traffic
from fedpn.reporting.pixels import data_uri
from fedpn.reporting.table import Row, Table, plain_table
from fedpn.reporting.tables import (
    UNKNOWN,
    accuracy_table,
    class_table,
    client_table,
    known,
    measures,
    share,
    unseen_table,
    worth_table,
)
from fedpn.reporting.watch import Seen, in_a_sentence, watch
from fedpn.reporting.words import OUTCOMES, SOURCES, TAKEN, count, in_bytes, outcome_style, style_of
from fedpn.routing.outcomes import Source

PARTS = ("report.css", "report.js")
WAYS_OF_BYTES = ("sent to clients", "received from clients")


@dataclass(frozen=True)
class Card:
    """An example on the page."""

    picture: str
    style: str
    outcome: str
    client: str
    verb: str
    answer: str
    confidence: str
    truth: str
    verdict: str
    reason: str
    whose: tuple[int, int]  # the number of its client, and of its class


def render(title: str, runs: Sequence[Metrics], first: Path, files: Mapping[str, str]) -> str:
    """The page of some runs; figures, examples and clients are those of the first."""
    origin = finished.read_origin(first)
    figures, history = finished.read_figures(first, origin), read_history(first)
    clients, by_class = finished.read_clients(first, origin), read_by_class(first, origin)
    images = finished.read_images(first, len(figures.examples))
    mean = story.brought_together(runs)
    warnings = [warning for run in runs for warning in run.warnings]
    gate = finished.has_gate(first)
    found = watch(Seen(mean, warnings, clients, by_class, history, gate, origin))
    over = "the deviation over clients" if len(runs) == 1 else "the standard error over seeds"
    late = unseen_table(runs)
    return _template(
        title=title,
        lead=" ".join([story.trained(runs, origin), story.meaning(mean), in_a_sentence(found)]),
        answers=_answers(mean),
        outcomes=matrices.outcomes(figures.outcomes, origin) if figures.outcomes else None,
        worth=worth_table(runs, accuracy_table(runs), "How right each way of answering is"),
        late=worth_table(runs, late, "Clients that never trained") if late else None,
        gains=story.gains(runs[0], clients),
        spread=over,
        measures=plain_table("All measures", ("measure", "value"), measures(runs).items()),
        watched=found,
        clients=client_table(runs[0], clients, origin),
        classes=class_table(by_class, clients, origin) if by_class else None,
        names={"client": origin.clients, "class": origin.classes},
        cards=_cards(figures.examples, images, origin),
        charts=list(_charts(figures, history, origin, by_class)),
        provenance=_provenance(runs, origin, history),
        files=plain_table("Files of the run", ("file", "content"), files.items(), texts=2),
    )


def _template(**values: object) -> str:
    """Fills the page in; its style and its script are the only ones that a browser will take."""
    loader = PackageLoader("fedpn.reporting", "templates")
    pages = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["whole"] = lambda text: text.replace(" %", "\u00a0%")  # on one line
    style, script = (loader.get_source(pages, name)[0] for name in PARTS)
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; "
        f"script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    page = pages.get_template("report.html")
    return page.render(style=Markup(style), script=Markup(script), policy=policy, **values)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _answers(run: Metrics) -> Table | None:
    """Who answers how much, and how rightly; None where nobody counted."""
    found = run.measures
    if found["coverage"] is None:
        return None
    shares = {
        Source.LOCAL: found["local_share"],
        Source.GLOBAL: found["global_share"],
        Source.NOBODY: 1 - found["coverage"],
    }
    names = TAKEN if run.headline == "bayes" else SOURCES
    if "local" not in run.accuracy:
        names = names | {Source.LOCAL: "the one model"}
    guess = share(found["nobody_right"])
    right = {Source.LOCAL: share(found["local_right"]), Source.GLOBAL: share(found["global_right"])}
    rows = [
        Row(
            [names[source], share(part), right.get(source, UNKNOWN)],
            note=""
            if source in right or guess == UNKNOWN
            else f"a guess would be right in {guess}",
            shares={1: 100 * part},
            style=style_of(source.value),
        )
        for source, part in shares.items()
        if part is not None and (part > 0 or source is Source.NOBODY)
    ]
    first = "answered" if names is TAKEN else "who answers"
    return known(Table("Who answers", [first, "share of inputs", "right"], rows))


def _provenance(runs: Sequence[Metrics], origin: Origin, history: Sequence[Round]) -> Table:
    facts = {
        "data": origin.dataset,
        "algorithm": runs[0].algorithm,
        "rounds": str(runs[0].rounds),
        "seeds" if len(runs) > 1 else "seed": ", ".join(str(run.seed) for run in runs),
        "trained by": ", ".join(f"{name} {number}" for name, number in origin.versions.items()),
    }
    if origin.note:
        facts["remarks on the data"] = origin.note
    bytes_ = traffic(history)
    if bytes_:
        rounds = count(len(history), "round")
        for way, total, each in zip(WAYS_OF_BYTES, bytes_, each_round(history), strict=True):
            alike = f", {in_bytes(each)} in each" if each is not None and len(history) > 1 else ""
            facts[f"{way} in {rounds}"] = f"{in_bytes(total)}{alike}"
    return plain_table("Where this comes from", ("fact", "value"), facts.items(), texts=2)


def _charts(
    figures: Figures, history: Sequence[Round], origin: Origin, by_class: ByClass | None
) -> Iterator[Chart]:
    """Draws what the run knows, but for who answers."""
    if figures.ownership:
        yield matrices.ownership(figures.ownership, origin)
    if by_class:
        yield matrices.confusion(by_class.confusion, origin)
    if figures.histogram and figures.histogram.is_spread:
        yield charts.known_and_unknown(figures.histogram)
    if figures.reliability:
        yield charts.deserved(figures.reliability)
    surest = charts.surest(figures.risk_coverage) if figures.risk_coverage else None
    if surest:
        yield surest
    yield from charts.learning(history)
    bytes_ = charts.traffic_chart(history)
    if bytes_:
        yield bytes_


def _cards(examples: Sequence[Example], images: Sequence[Array], origin: Origin) -> list[Card]:
    if not images:
        return []
    pairs = zip(examples, images, strict=True)
    return [_card(example, data_uri(image), origin) for example, image in pairs]


def _card(example: Example, picture: str, origin: Origin) -> Card:
    is_answered = example.outcome.source is not Source.NOBODY
    is_right = example.answer == example.label
    return Card(
        picture=picture,
        style=outcome_style(example.outcome),
        outcome=OUTCOMES[example.outcome],
        client=origin.clients[example.client],
        verb="says" if is_answered else "would say",
        answer=origin.classes[example.answer],
        confidence=f"{100 * example.confidence:.0f} %",
        truth=origin.classes[example.label],
        verdict=("right" if is_right else "wrong") if is_answered else "no answer",
        reason=example.reason,
        whose=(example.client, example.label),
    )
