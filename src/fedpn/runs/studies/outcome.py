"""What came of a sweep: its settings from the best to the worst, as tables, files and a picture."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpn.core import store
from fedpn.core.aligned import aligned
from fedpn.core.errors import UserError
from fedpn.core.extras import is_here, needed
from fedpn.core.plain import plain
from fedpn.core.rows import write_rows
from fedpn.core.settings import Tree
from fedpn.core.summary import SETS, standard_error
from fedpn.reporting.places import MEASURES
from fedpn.reporting.tables import UNKNOWN, percent
from fedpn.reporting.words import SET_NAMES
from fedpn.runs.config import Config, to_tree
from fedpn.runs.result import framed
from fedpn.runs.studies.command import run_command
from fedpn.runs.studies.grid import Cell, Plan, in_words

if TYPE_CHECKING:
    from fedpn.reporting.pictures import Picture

DEALING = ("clients", "data.")  # settings by which figures are of other rows


@dataclass(frozen=True)
class Setting:
    """One combination of values, and the figures of its seeds."""

    choice: Tree
    config: Config  # of its first seed
    figures: dict[int, Tree]  # by seed

    def values(self, name: str) -> list[float]:
        """Accuracy on a set of rows, a seed each, of the answers that the method stands for."""
        found = [tree["accuracy"][tree["headline"]][name] for tree in self.figures.values()]
        return [value for value in found if value is not None]

    def mean(self, name: str) -> float | None:
        values = self.values(name)
        return float(np.mean(values)) if values else None

    def error(self, name: str) -> float | None:
        """The standard error over seeds, where there are several."""
        values = self.values(name)
        return standard_error(values) if len(values) > 1 else None

    @property
    def headline(self) -> str:
        return str(next(iter(self.figures.values()))["headline"])


class Sweep:
    """A sweep's settings, the best first; figures are of tuning rows."""

    def __init__(
        self,
        plan: Plan,
        out: Path,
        found: Sequence[tuple[Cell, Tree]],
        failures: Mapping[str, str] | None = None,
    ) -> None:
        if not found:
            raise UserError(f"no cell of {out} has come to an end; run the sweep again to go on")
        self.plan, self.path, self.failures = plan, out, dict(failures or {})
        groups: dict[str, Setting] = {}
        for cell, record in found:
            seedless = repr({k: v for k, v in cell.settings.items() if k != "seed"})
            setting = groups.setdefault(seedless, Setting(cell.choice, cell.config, {}))
            setting.figures[cell.config.seed] = record["figures"]
        known = [name for name in SETS if any(s.values(name) for s in groups.values())]
        whole = [name for name in known if all(s.values(name) for s in groups.values())]
        self.sets, self.measure = known, "mix" if "mix" in whole else "ind"
        self.settings = sorted(groups.values(), key=self._order, reverse=True)

    def _order(self, setting: Setting) -> tuple[bool, float]:
        """Settings that lack a seed come last: what is missing may be what is bad."""
        return len(setting.figures) == self.plan.seeds, setting.mean(self.measure) or 0.0

    @property
    def best(self) -> Tree:
        """The values that did best on tuning rows, by their keys."""
        return dict(self.settings[0].choice)

    @property
    def command(self) -> str:
        """What to run for an honest figure of the best, on test rows that no cell has seen."""
        return run_command(self.plan, self.best)

    def table(self) -> Any:
        """A row for each setting, the best first: a frame where pandas is there."""
        return framed(
            [
                {key: setting.choice.get(key) for key in self.plan.keys}
                | {"answers": setting.headline, "seeds": len(setting.figures)}
                | {
                    name: value
                    for of in self.sets
                    for name, value in ((of, setting.mean(of)), (f"{of}_error", setting.error(of)))
                }
                for setting in self.settings
            ]
        )

    def rows(self) -> list[dict[str, Any]]:
        """A row for each cell and figure, as `sweep.csv` has them."""
        return [
            {key: setting.choice.get(key) for key in self.plan.keys}
            | {"seed": seed, "answers": who, "headline": who == tree["headline"]}
            | {"figure": figure, "value": value}
            for setting in self.settings
            for seed, tree in sorted(setting.figures.items())
            for who, figure, value in _figures(tree)
        ]

    @property
    def picture(self) -> "Picture":
        """The sweep as a picture."""
        with needed("a picture"):
            from fedpn.reporting.sweep_plots import Point, picture

        points = [
            Point(s.choice, [100 * value for value in s.values(self.measure)])
            for s in self.settings
        ]
        words = f"accuracy on tuning rows, {SET_NAMES[self.measure]}, %"
        return picture(self.plan.keys, points, words)

    def write(self) -> None:
        """Write `sweep.csv`, `best.toml` and, where matplotlib is installed, `sweep.png`."""
        write_rows(self.path / "sweep.csv", self.rows())
        if is_here("matplotlib"):
            self.picture.save(self.path / "sweep.png")
        best = to_tree(self.settings[0].config) | {"seed": self.plan.first_seed}
        store.write_toml(self.path / "best.toml", best)

    def lines(self) -> list[list[str]]:
        """The table as texts, its head first."""
        head = [*self.plan.keys, "answers", "seeds", *(f"{SET_NAMES[n]}, %" for n in self.sets)]
        return [head, *(self._line(setting) for setting in self.settings)]

    def _line(self, setting: Setting) -> list[str]:
        there, asked = len(setting.figures), self.plan.seeds
        return [
            *(plain(str(setting.choice.get(key, UNKNOWN))) for key in self.plan.keys),
            setting.headline,
            str(there) if there == asked else f"{there} of {asked}",
            *(percent(setting.mean(name), setting.error(name)) for name in self.sets),
        ]

    def remarks(self) -> Iterator[str]:
        """What is to be known of these figures."""
        first, *others = self.settings
        mean, error = first.mean(self.measure) or 0.0, first.error(self.measure)
        yield (
            f"best: {plain(in_words(self.best))}, {SET_NAMES[self.measure]} "
            f"{percent(mean, error)} % on tuning rows (a fifth of the training rows)"
        )
        near = [plain(in_words(s.choice)) for s in others if self._is_near(first, s)]
        if near:
            more = f" and {len(near) - 5} more" if len(near) > 5 else ""
            yield f"as good, for all that these seeds tell: {'; '.join(near[:5])}{more}"
        if any(key.startswith(DEALING) for key in self.plan.keys):
            yield "settings differ in how rows are dealt: their figures are of different rows"
        if others:
            yield (
                f"the figure of the best is optimistic, for it was chosen among "
                f"{len(self.settings)} by the same rows"
            )
        yield "an honest one, on test rows that no cell has seen:"

    def _is_near(self, first: Setting, other: Setting) -> bool:
        """Tells whether the best is ahead by no more than a standard error, seed by seed."""
        pairs = zip(first.values(self.measure), other.values(self.measure), strict=False)
        ahead = [a - b for a, b in pairs]
        return len(ahead) > 1 and float(np.mean(ahead)) <= standard_error(ahead)

    def __repr__(self) -> str:
        lines = aligned(self.lines(), len(self.plan.keys) + 1)
        told = [*self.remarks(), f"  {plain(self.command)}"]
        return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:], "", *told])

    def _repr_html_(self) -> str:
        head, *rows = self.lines()
        table = [_row(head, "th"), *(_row(row, "td") for row in rows)]
        told = "".join(f"<p>{escape(text)}</p>" for text in self.remarks())
        command = f"<pre>{escape(self.command)}</pre>"
        picture = self.picture.svg() if is_here("matplotlib") else ""
        return f"<table>{''.join(table)}</table>{told}{command}{picture}"


def _figures(tree: Tree) -> Iterator[tuple[str, str, float]]:
    """All figures of a cell that are known: whose answers, which figure, its value."""
    for who, by_set in tree["accuracy"].items():
        yield from ((who, name, by_set[name]) for name in SETS if by_set[name] is not None)
    for name, place in MEASURES.items():
        value: Any = tree
        for key in place:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            yield tree["headline"], name, float(value)


def _row(cells: Sequence[str], kind: str) -> str:
    return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells) + "</tr>"
