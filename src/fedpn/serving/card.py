"""The model card of a client: what its models are of, how good they are, what they promise."""

from collections.abc import Mapping
from typing import Any

from fedpn.core.plain import plain
from fedpn.routing.risk_control import broken_words
from fedpn.serving.bundle import Bundle

Tree = Mapping[str, Any]
NO_NOISE = "no noise was added: nothing is promised to those whose rows trained the models"


def card(bundle: Bundle, metrics: Tree | None = None) -> str:
    """Markdown. `metrics` are those of the run, where it is at hand; names are never markup."""
    about, origin = bundle.about, bundle.about.provenance
    held = bundle.standards
    rows = [int(n) for n in held.counts.tolist()]
    rule = {"bayes": "Bayes' rule with the client's own prior", "quantiles": "the paper's switch"}
    kind = about.routing.rule if about.routing else ""
    lines = [
        f"# Model card: client {_safe(bundle.client)}",
        "",
        f"- **Data**: {_safe(origin.get('dataset', '?'))}. {_safe(origin.get('note', ''))}",
        f"- **Method**: {_safe(origin.get('algorithm', '?'))}, {origin.get('rounds', '?')} rounds, "
        f"seed {origin.get('seed', '?')}; fedpn {_safe(origin.get('fedpn', '?'))}, "
        f"torch {_safe(origin.get('torch', '?'))}",
        f"- **Who answers**: {rule.get(kind, _safe(kind)) or 'one model, always'}",
        f"- **Version**: {bundle.version}",
        f"- **Inputs**: {_inputs(bundle)}",
        f"- **Strangers**: {'refused by a gate' if bundle.gate else 'no gate: all are answered'}",
        f"- **Promise**: {held.words() or 'none was asked for'}",
        *_tested(bundle, metrics),
        *(f"- **Remark**: {_safe(text)}" for text in held.remarks()),
        f"- **Privacy**: {_safe(origin.get('privacy') or NO_NOISE)}",
        f"- **Inside this folder**: {_inside(bundle)}",
        "",
        "## Classes",
        "",
        "| class | this client's training rows |" + (" found, % | right, % |" if metrics else ""),
        "| --- | --- |" + (" --- | --- |" if metrics else ""),
    ]
    by_class = (metrics or {}).get("by_class")
    for c, name in enumerate(bundle.classes):
        line = f"| {_safe(name)} | {rows[c]} |"
        if metrics:
            found = (by_class["recall"][c], by_class["precision"][c]) if by_class else (None, None)
            line += "".join(f" {'–' if v is None else f'{100 * v:.1f}'} |" for v in found)
        lines.append(line)
    if metrics:
        lines += ["", "Found and right are over all clients of the run, on held-out rows."]
        lines += ["", "## Figures", "", *_figures(metrics)]
    lines += [
        "",
        "## Limits",
        "",
        "- Figures and promises are for inputs drawn like the held-out rows; they say nothing of "
        "others.",
        "- A gate knows how inputs look, not what they mean: sharpness and scaling count.",
        "- Answers are no substitute for a person's judgement where mistakes do harm.",
    ]
    return "\n".join(lines) + "\n"


def _tested(bundle: Bundle, metrics: Tree | None) -> list[str]:
    """What the run's test rows say of the promise."""
    promise = promise_on_test_rows(bundle, metrics)
    if promise is None:
        return []
    broken = broken_words(promise)
    return [f"- **Promise on test rows**: {'BROKEN: ' + '; '.join(broken) if broken else 'kept'}"]


def promise_on_test_rows(bundle: Bundle, metrics: Tree | None) -> Tree | None:
    """How this client's promise did in its run, where that is known."""
    names = list(bundle.about.clients)
    for client in (metrics or {}).get("per_client", ()):
        if bundle.client in names and client["client"] == names.index(bundle.client):
            found: Tree | None = client.get("promise")
            return found
    return None


def _inside(bundle: Bundle) -> str:
    """What whoever gets the folder gets with it."""
    parts = {
        "the federation's model": bundle.shared or bundle.head,
        "the client's own model": bundle.own or bundle.own_head,
        "moments of all clients' inputs, for the gate": bundle.gate,
        "counts of all clients' held-out rows": bundle.pool,
    }
    held = [name for name, there in parts.items() if there]
    return (
        f"{', '.join(held)}; the client's number of rows of each class, and its thresholds. No "
        "input of anybody; but models remember, and who can ask them can learn of rows."
    )


def _inputs(bundle: Bundle) -> str:
    shape = bundle.blueprint.shape
    if len(shape) == 1:
        names = ", ".join(_safe(name) for name in bundle.features[:30])
        return f"{shape[0]} columns" + (f": {names}" if names else "")
    return f"pictures of {shape[2]}×{shape[1]} in {'grey' if shape[0] == 1 else 'colour'}"


def _figures(metrics: Tree) -> list[str]:
    accuracy = metrics["accuracy"][metrics["headline"]]
    shares = {"own rows": accuracy["ind"], "foreign rows": accuracy["ood"], "both": accuracy["mix"]}
    told = [f"{name} {100 * v:.1f} %" for name, v in shares.items() if v is not None]
    lines = [f"- Accuracy, were all answered ({metrics['headline']}): {', '.join(told)}"]
    coverage = metrics["abstention"].get("coverage")
    if coverage is not None:
        lines.append(f"- Answered: {100 * coverage:.1f} %")
    lines.append(f"- ECE {metrics['calibration']['ece']:.3f}")
    return lines


def _safe(text: Any) -> str:
    """A name as plain text: neither markup nor the end of a cell."""
    table = {ord(c): f"\\{c}" for c in "\\`*_[]<>|#"}
    return plain(str(text)).translate(table)
