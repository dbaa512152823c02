"""Metrics -> tables and one self-contained HTML page."""

import base64
import html
import io
import json
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from fedpn.core import store
from fedpn.core.aligned import aligned
from fedpn.core.errors import UserError
from fedpn.core.summary import SETS, standard_error, summarise
from fedpn.data.dataset import Array

Tree = dict[str, Any]
COLUMNS = {"ind": "InD", "ood": "OOD", "mix": "Mix"}


FILES = ["metrics.json", "figures.json", "bundle.json", "history.jsonl", "gallery.safetensors"]


def read_runs(paths: Sequence[Path]) -> list[Tree]:
    """Reads the metrics of runs that differ in their seed alone."""
    runs = [store.read_json(path / "metrics.json") for path in paths]
    configs = [tomllib.loads((path / "config.toml").read_text()) for path in paths]
    for path, config in zip(paths[1:], configs[1:], strict=True):
        for key in configs[0] | config:
            if key != "seed" and configs[0].get(key) != config.get(key):
                raise UserError(
                    f"{path} differs from {paths[0]} in {key}, not in its seed alone; "
                    "`fedpn compare` sets methods side by side"
                )
    if len({run["seed"] for run in runs}) < len(runs):
        raise UserError("two of these runs have the same seed")
    return [_without_twins(run) for run in runs]


def _without_twins(run: Tree) -> Tree:
    """Where all clients answer by one model, it is shown once, as the global one."""
    rows = run["accuracy"]
    if "global" not in rows or rows.get("personal") != rows["global"]:
        return run
    return run | {"accuracy": {"global": rows["global"]}, "headline": "global"}


def table(runs: Sequence[Tree]) -> list[list[str]]:
    """Rows of a table: who answers, and the accuracy on InD, OOD and Mix in %, where it is known.

    One run shows ± the deviation over clients, several ± the standard error over seeds.
    """
    accuracies = [run["accuracy"] for run in runs]
    mean = summarise(accuracies)
    several = len(runs) > 1
    spread = summarise(accuracies, standard_error) if several else runs[0]["spread"]["std"]
    known = [name for name in SETS if any(row[name] is not None for row in mean.values())]
    # Without foreign rows, an oracle is the client's own model.
    people = [who for who in mean if who != "oracle" or "ood" in known]
    rows = [["accuracy, %", *(COLUMNS[name] for name in known)]]
    rows += [
        [who, *(_percent(mean[who][name], spread[who][name]) for name in known)] for who in people
    ]
    return rows


def _percent(value: float | None, spread: float | None = None) -> str:
    if value is None:
        return "–"
    text = f"{100 * value:.1f}"
    return text if spread is None else f"{text} ± {100 * spread:.1f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{_percent(value)} %"


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def facts(runs: Sequence[Tree]) -> dict[str, str]:
    """The figures beside the table, as far as they are known."""
    keys = [key for key in runs[0] if key in ("routing", "abstention", "calibration")]
    pick = [{k: {n: v for n, v in run[k].items() if n != "score"} for k in keys} for run in runs]
    mean = summarise(pick)
    found = {}
    if "routing" in mean:
        found["AUROC of the switch score"] = _number(mean["routing"]["auroc"])
        found["gap to the oracle closed"] = _number(mean["routing"]["gap_closed"], 2)
        ind, ood = (_share(mean["routing"]["delegated"][name]) for name in ("ind", "ood"))
        found["delegated, InD / OOD" if ood != "–" else "delegated, InD"] = (
            f"{ind} / {ood}".removesuffix(" / –")
        )
    if "coverage" in mean["abstention"]:
        found["answered (four outcomes)"] = _share(mean["abstention"]["coverage"])
    found["area under risk–coverage"] = _number(mean["abstention"]["aurc"])
    found["ECE"] = _number(mean["calibration"]["ece"])
    found["NLL"] = _number(mean["calibration"]["nll"])
    found["Brier"] = _number(mean["calibration"]["brier"])
    return {name: told for name, told in found.items() if told != "–"}


def text(paths: Sequence[Path]) -> str:
    """The table and the figures beside it, for a terminal."""
    runs = read_runs(paths)
    lines = aligned(table(runs))
    lines.insert(1, "─" * len(lines[0]))
    return "\n".join([_title(runs), "", *lines, "", *(f"{k}: {v}" for k, v in facts(runs).items())])


def _title(runs: Sequence[Tree]) -> str:
    run = runs[0]
    seeds = ", ".join(str(r["seed"]) for r in runs)
    return (
        f"{run['algorithm']} on {run['dataset']}: {run['clients']} clients, "
        f"{run['rounds']} rounds, seed{'s' * (len(runs) > 1)} {seeds}"
    )


def write_page(paths: Sequence[Path], out: Path) -> None:
    """Writes the report; its figures are those of the first run."""
    runs, first = read_runs(paths), paths[0]
    drawn = store.read_json(first / "figures.json")
    about = store.read_json(first / "bundle.json")
    history = [json.loads(line) for line in (first / "history.jsonl").read_text().splitlines()]
    images, _ = store.read_tensors(first / "gallery.safetensors")
    template = (resources.files("fedpn.reporting") / "templates" / "report.html").read_text(
        encoding="utf-8"
    )
    parts = {
        "title": html.escape(_title(runs)),
        "note": html.escape(about["provenance"]["note"]),
        "table": _html_table(table(runs), runs[0]["headline"]),
        "spread": "the deviation over clients"
        if len(runs) == 1
        else "the standard error over seeds",
        "facts": "".join(
            f"<div><b>{html.escape(v)}</b><span>{html.escape(k)}</span></div>"
            for k, v in facts(runs).items()
        ),
        "figures": _figures(drawn, history, about),
        "gallery": _gallery(drawn["gallery"], images, about),
        "clients": _client_table(runs[0], about),
    }
    for name, part in parts.items():
        template = template.replace(f"{{{{{name}}}}}", part)
    store.write_text(out, template)


# Title, caption, the data it is drawn from.
FIGURES = {
    "curves": (
        "Learning",
        "Loss of the clients' steps; accuracy of the global model on rows that nobody trains on.",
    ),
    "ownership": (
        "Who owns what",
        "Training rows of each client and class; area is the number of rows.",
    ),
    "histogram": (
        "Known and unknown",
        "What lies right of the line goes to the global model. "
        "Scores beyond the frame are in its outermost bars.",
    ),
    "outcomes": (
        "Four outcomes",
        "Who answers: the client (confident), nobody (ambiguous), the federation (local OOD), "
        "nobody (global uncertain).",
    ),
    "reliability": (
        "Is confidence deserved?",
        "Points on the line are right as often as they claim; area is the share of rows.",
    ),
    "risk_coverage": (
        "Errors among the surest",
        "Answers on Mix (on InD, where nothing is foreign) ordered by the answering model's total "
        "uncertainty.",
    ),
}


def _figures(drawn: Tree, history: list[Tree], about: Tree) -> str:
    from fedpn.reporting import plots

    classes, clients = about["classes"], about["clients"]
    drawings = {
        "curves": plots.curves(history) if history else None,
        "ownership": drawn["ownership"] and plots.ownership(drawn["ownership"], classes, clients),
        "histogram": drawn.get("histogram") and plots.histogram(**drawn["histogram"]),
        "outcomes": drawn.get("outcomes") and plots.outcomes(drawn["outcomes"], clients),
        "reliability": drawn["reliability"] and plots.reliability(**drawn["reliability"]),
        "risk_coverage": drawn["risk_coverage"] and plots.risk_coverage(drawn["risk_coverage"]),
    }
    return "".join(
        f'<figure class="{name}"><h2>{title}</h2>{drawings[name]}'
        f"<figcaption>{caption}</figcaption></figure>"
        for name, (title, caption) in FIGURES.items()
        if drawings[name]
    )


def _html_table(rows: list[list[str]], headline: str) -> str:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in rows[0])
    body = "".join(
        f"<tr{' class=headline' * (row[0] == headline)}>"
        + "".join(f"<td>{html.escape(c)}</td>" for c in row)
        + "</tr>"
        for row in rows[1:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _client_table(run: Tree, about: Tree) -> str:
    who = list(run["accuracy"])
    name = "mix" if any(row["mix"] is not None for row in run["accuracy"].values()) else "ind"
    rows = [["client", "classes", "rows", *(f"{w} {COLUMNS[name]}" for w in who)]]
    for c in run["per_client"]:
        names = ", ".join(about["classes"][k] for k in c["classes"] or ()) or "–"
        shares = [_percent(c["accuracy"][w][name]) for w in who]
        rows.append([about["clients"][c["client"]], names, str(c["rows"]), *shares])
    return _html_table(rows, "")


def _gallery(cards: list[Tree], images: Any, about: Tree) -> str:
    if not cards or images["images"].ndim != 4:
        return ""
    items, classes = [], about["classes"]
    for card, image in zip(cards, images["images"].numpy(), strict=True):
        right = card["answer"] == card["label"]
        answered = card["outcome"] in ("local_confident", "local_ood")
        verdict = ("right" if right else "wrong") if answered else "no answer"
        outcome, client = card["outcome"].replace("_", " "), about["clients"][card["client"]]
        items.append(
            f'<div class="card {card["outcome"]}"><img src="{_png(image)}" alt="input"><div>'
            f"<b>{html.escape(outcome)}</b> · client {html.escape(client)}<br>"
            f"{'says' if answered else 'would say'} <b>{html.escape(classes[card['answer']])}</b> "
            f"({100 * card['confidence']:.0f} %), it is {html.escape(classes[card['label']])}: "
            f"<b>{verdict}</b><br><small>{html.escape(card['reason'])}</small></div></div>"
        )
    return f'<h2>Some inputs</h2><div class="gallery">{"".join(items)}</div>'


def _png(image: Array) -> str:
    """An image as a data URI."""
    from PIL import Image

    pixels = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
