"""How figures of studies look, and how they become SVG that takes its ink from the page."""

import io
import re

from matplotlib.figure import Figure

INK = "#111111"  # replaced by the page's own colour, so that figures read on a dark screen
COLOURS = {
    "local": "#3b82c4",
    "personal": "#3b82c4",
    "global": "#e08a1e",
    "switch": "#1f9e74",
    "oracle": "#a078c8",
    "bayes": "#c2477f",
}
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedpn",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
# Names of classes and clients may contain $; no text of a report is a formula.
NO_FORMULAS = {"text.parse_math": False, "text.usetex": False}


def to_svg(figure: Figure) -> str:
    """Writes a figure as SVG without a background, its ink the page's own."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    # Within tags alone: a class may be named #111111.
    return re.sub(r"<[^>]*>", _with_page_ink, text[text.index("<svg") :])


def _with_page_ink(tag: re.Match[str]) -> str:
    return tag.group().replace(INK, "currentColor")
