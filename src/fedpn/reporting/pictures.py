"""Figures of studies: how they are made, and saved as files."""

import warnings
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.reporting.plots import NO_FORMULAS, STYLE, to_svg

FORMATS = (".png", ".svg", ".pdf")
DPI = 200
LOOKS = {"axes.titlesize": 10, "axes.titlelocation": "left", "axes.axisbelow": True}
# Okabe and Ito's colours, which nearly everybody can tell apart.
BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#7d8794"
SHADES = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#D55E00")

Fill = Callable[[list[Axes]], None]


class Picture:
    """A figure that can be shown on a page, or saved."""

    def __init__(self, fill: Fill, width: float, height: float, panels: int = 1) -> None:
        self.fill, self.size, self.panels = fill, (width, height), panels

    def svg(self) -> str:
        """The figure for a page, whose ink it takes."""
        return self._drawn(to_svg)

    def save(self, path: Path, option: str = "--plot") -> None:
        """Writes the figure, as the ending of the name says."""
        kind = path.suffix.lower()
        if kind not in FORMATS:
            raise UserError(f"{option} {path}: the name must end in {', '.join(FORMATS)}")
        if not path.parent.is_dir():
            raise UserError(f"{option} {path}: there is no directory {path.parent}")
        self._drawn(
            lambda figure: store.write_with(
                path, lambda place: figure.savefig(place, format=kind[1:], dpi=DPI)
            )
        )

    def _drawn(self, use: Callable[[Figure], str | None]) -> str:
        with mpl.rc_context(STYLE | NO_FORMULAS | LOOKS), warnings.catch_warnings():  # type: ignore[arg-type]
            # Names may have characters that matplotlib's font lacks.
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from")
            figure = Figure(figsize=self.size)
            self.fill(list(figure.subplots(1, self.panels, squeeze=False, sharey=True)[0]))
            return use(figure) or ""
