"""What a sweep tries: the values of each setting, their combinations, and the seeds."""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedpn.algorithms import ALGORITHMS, find_algorithm, section_of
from fedpn.core.errors import UserError
from fedpn.core.settings import Tree, leaves, nest, parse_setting, told
from fedpn.runs.code import versions
from fedpn.runs.config import Config, resolve, to_tree

OPEN, CLOSED, QUOTES = "[{", "]}", "\"'"
TEXTS = ("algorithm",)  # whose values are names as they stand
NOT_SWEPT = {
    "seed": "seeds are varied with --seeds N, from --seed on",
    "dataset": "figures of several datasets have no best; sweep each on its own",
}
MANY = 10_000  # cells; more are a mistake


class Axis(NamedTuple):
    """A setting, and the values to try."""

    key: str
    values: tuple[Any, ...]


def parse_over(text: str) -> Axis:
    """Reads `key=value,value`; a value may have commas of its own inside quotes and brackets.

    >>> parse_over("fedpn.gamma=0.001,0.01")
    Axis(key='fedpn.gamma', values=(0.001, 0.01))
    >>> parse_over('data.without=["1", "2"],[]').values
    (['1', '2'], [])
    """
    key, equals, rest = text.partition("=")
    key, parts = key.strip(), split_values(rest)
    if not equals or not key or not all(parts):
        raise UserError(
            f"--over {told(text)} is not of the form key=value,value, such as "
            "fedpn.gamma=0.001,0.01"
        )
    if key in TEXTS:
        return Axis(key, tuple(parts))
    return Axis(key, tuple(_value(key, part) for part in parts))


def _value(key: str, text: str) -> Any:
    """A value as `--set` reads it."""
    found: Any = parse_setting(f"{key}={text}")
    for part in key.split("."):
        found = found[part]
    return found


def split_values(text: str) -> list[str]:
    """Parts a text at its commas, except those inside quotes and brackets.

    >>> split_values('1, "a,b", [2, 3]')
    ['1', '"a,b"', '[2, 3]']
    """
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in QUOTES:
            quote = character
        else:
            depth += (character in OPEN) - (character in CLOSED)
        if character == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


@dataclass(frozen=True)
class Plan:
    """A sweep as it was asked for."""

    layers: tuple[Tree, ...]  # settings of all cells, later ones winning
    axes: tuple[Axis, ...]
    seeds: int = 3
    config_file: str = ""  # where the first layer is from

    @property
    def given(self) -> Tree:
        """What was asked for of all cells, as flat keys."""
        return {key: value for layer in self.layers for key, value in leaves(layer)}

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(axis.key for axis in self.axes)

    @property
    def first_seed(self) -> int:
        """By which rows are dealt, in every cell: so that no cell sees the test rows of this."""
        return resolve([{k: v for k, v in self.given.items() if k == "seed"}]).seed

    def cells(self, data: str) -> list["Cell"]:
        """All cells on data with this fingerprint, each once; mistakes in settings are told."""
        self._check()
        found: dict[str, Cell] = {}
        first = self.first_seed
        for choice in self._choices():
            for seed in range(first, first + self.seeds):
                layers = [*self.layers, nest(choice), {"seed": seed}]
                config = resolve(layers)
                cell = Cell(choice, config, first, data, versions(to_tree(config)))
                found.setdefault(cell.key, cell)
        return list(found.values())

    def configs(self) -> Iterator[Config]:
        """The settings of each combination, without its seeds."""
        self._check()
        for choice in self._choices():
            yield resolve([*self.layers, nest(choice)])

    def _choices(self) -> Iterator[Tree]:
        """Combinations of values; a setting of an algorithm that does not run is left out."""
        seen = []
        for values in itertools.product(*(axis.values for axis in self.axes)):
            whole = dict(zip(self.keys, values, strict=True))
            name = self.algorithm_of(whole)
            choice = {k: v for k, v in whole.items() if self.speaks_to(k, name)}
            if choice not in seen:
                seen.append(choice)
                yield choice

    def algorithm_of(self, choice: Tree) -> str:
        return str((self.given | choice).get("algorithm", "fedpn"))

    def _check(self) -> None:
        keys = self.keys
        for key in keys:
            if key in NOT_SWEPT or key.startswith("engine."):
                why = NOT_SWEPT.get(key, "figures do not depend on the engine")
                raise UserError(f"--over {key}: {why}")
            if keys.count(key) > 1:
                raise UserError(f"--over {key} is given twice; name all its values in one")
        if self.seeds < 1:
            raise UserError(f"--seeds is {self.seeds}, but must be at least 1")
        count = self.seeds * math.prod(len(axis.values) for axis in self.axes)
        if count > MANY:
            raise UserError(f"this sweep has {count} cells, and {MANY} are the most; try fewer")
        self._refuse_idle()

    @property
    def _sections(self) -> dict[str, str]:
        """The algorithms that run, and the section that each has for itself."""
        swept = next((axis.values for axis in self.axes if axis.key == "algorithm"), None)
        running = [self.algorithm_of({})] if swept is None else [str(value) for value in swept]
        return {name: section_of(find_algorithm(name)) for name in running}

    def speaks_to(self, key: str, algorithm: str) -> bool:
        """Tells whether a setting is of the algorithm that runs, or of all."""
        section, dot, _ = key.partition(".")
        known = {*ALGORITHMS, *self._sections.values()}
        return not dot or section not in known or section == self._sections[algorithm]

    def _refuse_idle(self) -> None:
        """A setting of an algorithm that never runs would change nothing, unnoticed."""
        for key in self.keys:
            if not any(self.speaks_to(key, name) for name in self._sections):
                raise UserError(
                    f"--over {key} changes nothing, for the algorithm is "
                    f"{' or '.join(self._sections)}; say --over method.{key.partition('.')[2]}"
                )


class Cell(NamedTuple):
    """One run of a sweep."""

    choice: Tree  # what it has of its own, as flat keys
    config: Config
    dealt: int  # the seed by which rows are dealt
    data: str  # fingerprint
    code: dict[str, str]  # which version of each file of the user's own

    @property
    def key(self) -> str:
        """Tells cells apart: by all that figures depend on."""
        told_apart = {"settings": self.settings, "dealt": self.dealt, "data": self.data}
        told_apart |= {"code": self.code} if self.code else {}
        text = json.dumps(told_apart, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def settings(self) -> Tree:
        """All settings but those of the engine, as flat keys."""
        flat = dict(leaves(to_tree(self.config)))
        return {key: value for key, value in flat.items() if not key.startswith("engine.")}

    @property
    def name(self) -> str:
        return f"{in_words(self.choice)} seed={self.config.seed}"


def in_words(choice: Tree) -> str:
    """
    >>> in_words({"algorithm": "fedpn", "fedpn.gamma": 0.01})
    'algorithm=fedpn fedpn.gamma=0.01'
    """
    return " ".join(f"{key}={value}" for key, value in choice.items())


def title_of(keys: Sequence[str], config: Config) -> str:
    """What a sweep is called: its data, its algorithm, and what it goes over."""
    parts = [Path(config.dataset).stem]
    if "algorithm" not in keys:
        parts.append(section_of(find_algorithm(config.algorithm)))
    return "-".join([*parts, *(key.rpartition(".")[2] for key in keys)])
