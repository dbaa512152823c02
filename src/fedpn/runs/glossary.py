"""Every setting with its default, its choices and what it is for, as TOML to begin from."""

import inspect
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import tomli_w

from fedpn.core.settings import words
from fedpn.runs.config import Config, resolve, to_tree

ALGORITHM = "see `fedpn algorithms`, or file.py:Class of your own"
WIDTH = 96  # of comments


def glossary(algorithm: str, dataset: str) -> str:
    """The settings of a run by some algorithm on some data, as they are where nothing is said.

    >>> glossary("fedpn", "mnist").splitlines()[0]
    'dataset = "mnist"  # a named set, or a path to your own'
    """
    parts = []
    for head, settings in _sections(resolve([{"algorithm": algorithm, "dataset": dataset}])):
        lines = [_line(s.key, s.value) + (f"  # {s.about}" if s.about else "") for s in settings]
        parts.append("\n".join(([f"[{head[0]}]  # {head[1]}"] if head else []) + lines))
    return "\n\n".join(parts) + "\n"


def commented(
    config: Config, others: Mapping[str, Sequence[str]], without: Collection[str] = ()
) -> str:
    """A config to edit, each setting below what it is for; reads back as the same config.

    `others` are values to choose instead, by setting, which stand behind a `#`. Of the settings in
    `without`, those are left out that are as they would be.
    """
    usual = to_tree(resolve([{"algorithm": config.algorithm, "dataset": config.dataset}]))
    parts = []
    for head, settings in _sections(config):
        place, same = (f"{head[0]}.", usual.get(head[0], {})) if head else ("", usual)
        kept = [s for s in settings if place + s.key not in without or same[s.key] != s.value]
        if head and kept:
            parts.append(f"[{head[0]}]  # {head[1]}")
        for key, value, about in kept:
            choices = [f"# {key} = {other}" for other in others.get(place + key, ())]
            parts.append("\n".join([*_above(about), _line(key, value), *choices]))
    return "\n\n".join(parts) + "\n"


class Setting(NamedTuple):
    """A setting, its value, and what is to be said about it."""

    key: str
    value: Any
    about: str


Section = tuple[tuple[str, str] | None, list[Setting]]  # a name and what it is about, its settings


def _sections(config: Config) -> Iterator[Section]:
    """The settings of a config, section by section; the first has no name."""
    tree = to_tree(config)
    yield None, _settings(Config, {k: v for k, v in tree.items() if not isinstance(v, dict)})
    for name, values in tree.items():
        if isinstance(values, dict):
            kind = type(getattr(config, name, config.method))
            about = (inspect.getdoc(kind) or "").split("\n")[0]
            yield (name, about), _settings(kind, values)


def _settings(kind: type, values: dict[str, Any]) -> list[Setting]:
    said, hints = words(kind), get_type_hints(kind)
    found = []
    for key, value in values.items():
        choices = get_args(hints[key]) if key in hints and get_origin(hints[key]) is Literal else ()
        about = said.get(key, "") if key != "algorithm" else ALGORITHM
        about = "; ".join(filter(None, [" | ".join(filter(None, choices)), about]))
        found.append(Setting(key, value, about))
    return found


def _above(about: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(about, WIDTH, break_on_hyphens=False)]


def _line(key: str, value: Any) -> str:
    """
    >>> _line("classes", ["a", "b"])
    'classes = ["a", "b"]'
    """
    if isinstance(value, list):  # in one line
        items = (tomli_w.dumps({"_": item}).removeprefix("_ = ").strip() for item in value)
        return f"{_line(key, 0)[:-1]}[{', '.join(items)}]"
    return tomli_w.dumps({key: value}).strip()
