"""The report as one HTML page that needs no other file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedpn.data.dataset import Array
from fedpn.reporting import finished, plots
from fedpn.reporting.classes import ByClass, read_by_class
from fedpn.reporting.finished import Example, Figures, Metrics, Origin, Round
from fedpn.reporting.pixels import data_uri
from fedpn.reporting.tables import (
    accuracy_table,
    class_table,
    client_table,
    measures,
    unseen_table,
)
from fedpn.routing.outcomes import Outcome, Source
from fedpn.routing.standards import promise_in_words

ANSWERERS = {
    Source.LOCAL: "the client's own model answers",
    Source.GLOBAL: "the federation's model answers",
    Source.NOBODY: "nobody answers",
}


@dataclass(frozen=True)
class Drawing:
    """A figure on the page."""

    title: str
    caption: str
    picture: Markup  # SVG by matplotlib, which escapes the names in it
    is_wide: bool = False


@dataclass(frozen=True)
class Card:
    """An example on the page."""

    picture: str
    colour: str
    outcome: str
    client: str
    verb: str
    answer: str
    confidence: str
    truth: str
    verdict: str
    reason: str


def render(title: str, runs: Sequence[Metrics], first: Path, files: Mapping[str, str]) -> str:
    """The page of some runs; figures, examples and clients are those of the first."""
    origin = finished.read_origin(first)
    figures = finished.read_figures(first, origin)
    clients = finished.read_clients(first, origin)
    by_class = read_by_class(first, origin)
    images = finished.read_images(first, len(figures.examples))
    pages = Environment(
        loader=PackageLoader("fedpn.reporting", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template("report.html").render(
        title=title,
        note=origin.note,
        table=accuracy_table(runs),
        unseen=unseen_table(runs),
        headline=runs[0].headline,
        spread="the deviation over clients" if len(runs) == 1 else "the standard error over seeds",
        measures=measures(runs),
        promise=_promise(runs[0]),
        privacy=runs[0].privacy,
        warnings=[warning for run in runs for warning in run.warnings],
        drawings=list(_drawings(figures, finished.read_history(first), origin, by_class)),
        cards=_cards(figures.examples, images, origin),
        clients=client_table(runs[0], clients, origin),
        classes=class_table(by_class, origin) if by_class else [],
        provenance=_provenance(runs, origin),
        files=files,
    )


def _promise(run: Metrics) -> str:
    """What the run promises, and what that assumes; "" where nothing was asked for."""
    risk, sure = run.measures["risk"], run.measures["sure"]
    if risk is None or sure is None:
        return ""
    return promise_in_words(risk, sure, "the client's calibration rows")


def _provenance(runs: Sequence[Metrics], origin: Origin) -> dict[str, str]:
    return {
        "data": origin.dataset,
        "algorithm": runs[0].algorithm,
        "rounds": str(runs[0].rounds),
        "seeds" if len(runs) > 1 else "seed": ", ".join(str(run.seed) for run in runs),
        "trained by": ", ".join(f"{name} {number}" for name, number in origin.versions.items()),
    }


def _drawings(
    figures: Figures, history: Sequence[Round], origin: Origin, by_class: ByClass | None
) -> Iterator[Drawing]:
    """Draws what the run knows."""
    if history:
        yield Drawing(
            "Learning",
            "Loss of the clients' steps; accuracy of the global model on rows that nobody "
            "trains on.",
            Markup(plots.curves(history)),
            is_wide=True,
        )
    if figures.ownership:
        yield Drawing(
            "Who owns what",
            "Training rows of each client and class; area is the number of rows.",
            Markup(plots.ownership(figures.ownership, origin.classes, origin.clients)),
        )
    if figures.histogram:
        yield Drawing(
            "Known and unknown",
            "What lies right of the line goes to the global model. "
            "Scores beyond the frame are in its outermost bars.",
            Markup(plots.histogram(figures.histogram)),
        )
    outcomes = plots.outcomes(figures.outcomes, origin.clients) if figures.outcomes else None
    if outcomes:
        yield Drawing("Who answers", _outcome_caption(), Markup(outcomes), is_wide=True)
    if figures.reliability:
        yield Drawing(
            "Is confidence deserved?",
            "Points on the line are right as often as they claim; area is the share of rows.",
            Markup(plots.reliability(figures.reliability)),
        )
    if by_class:
        yield Drawing(
            "What is taken for what",
            "Of the rows of each class, the share that is given each answer; the diagonal is "
            "right.",
            Markup(plots.confusion(by_class.confusion, origin.classes)),
        )
    if figures.risk_coverage:
        yield Drawing(
            "Errors among the surest",
            "Answers on Mix (on InD, where nothing is foreign) ordered by the answering model's "
            "total uncertainty.",
            Markup(plots.risk_coverage(figures.risk_coverage)),
        )


def _outcome_caption() -> str:
    """
    >>> _outcome_caption()[:47]
    "Local confident: the client's own model answers"
    """
    parts = [f"{plots.outcome_words(o.label)}: {ANSWERERS[o.source]}" for o in Outcome]
    caption = "; ".join(parts)
    return f"{caption[0].upper()}{caption[1:]}."


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
        colour=plots.outcome_colour(example.outcome.label),
        outcome=plots.outcome_words(example.outcome.label),
        client=origin.clients[example.client],
        verb="says" if is_answered else "would say",
        answer=origin.classes[example.answer],
        confidence=f"{100 * example.confidence:.0f} %",
        truth=origin.classes[example.label],
        verdict=("right" if is_right else "wrong") if is_answered else "no answer",
        reason=example.reason,
    )
