"""Every setting, from the dataclasses that `fedpn settings` reads."""

import inspect
import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import resources
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tomli_w

from fedpn.algorithms import ALGORITHMS
from fedpn.algorithms.base import FedAvg
from fedpn.core.bounds import Bounds
from fedpn.core.settings import leaves, words
from fedpn.runs.config import Config, resolve
from fedpn.runs.glossary import ALGORITHM
from making.tables import cell, code, table

KINDS = {bool: "true or false", int: "whole number", float: "number", str: "text"}
INTRO = """# Settings

Every setting is a key of one TOML file, which each run keeps as `config.toml`. They may be typed
one by one, `--set section.key=value`, or given from Python, `fedpn.run(out, section__key=value)`.
An unknown key, a value beyond its bounds or one that changes nothing is refused in a sentence.

`fedpn settings` prints this page for one algorithm and one dataset, as a config file to begin
from:

```
fedpn settings --algorithm ditto --dataset mnist
```

Named sets come with [presets](#presets-by-dataset) that go over these defaults; what you type goes
over both. `[method]` speaks to whichever algorithm runs, and a section with an algorithm's name,
such as `[ditto]`, to that one alone.
"""


def page() -> str:
    """The page of settings."""
    default, sections = Config(), []
    plain = [f.name for f in fields(Config) if not is_dataclass(getattr(default, f.name))]
    lines = [line for line in rows(Config, plain) if line[0]]
    named = [code("algorithm"), "text", code('"fedpn"'), cell(ALGORITHM)]
    sections.append(_section("Of the run", "", [lines[0], named, *lines[1:]]))
    for f in fields(Config):
        value = getattr(default, f.name)
        if is_dataclass(value) and f.name != "method":
            sections.append(_section(f"`[{f.name}]`", _about(type(value)), rows(type(value))))
    sections.append(_section("`[method]`", "What all algorithms have.", rows(FedAvg)))
    for name, algorithm in ALGORITHMS.items():
        own = list(inspect.get_annotations(algorithm)) if algorithm is not FedAvg else []
        lines = list(rows(algorithm, [f.name for f in fields(algorithm) if f.name in own]))
        if lines:
            about = f"[{algorithm.__name__}](../methods.md#{name}), beside what `[method]` has."
            sections.append(_section(f"`[{name}]`", about, lines))
    return "\n\n".join([INTRO.strip(), *sections, presets()]) + "\n"


def presets() -> str:
    """What named sets have instead of the defaults, and why."""
    usual, digits = Config(), resolve([{"dataset": "digits"}])
    about = (
        "The defaults above are those of data without a preset, such as your own: "
        f"{usual.clients} clients, {usual.rounds} rounds. These sets have some of their own; so "
        f"`fedpn run`, on digits, has {digits.clients} clients and {digits.rounds} rounds."
    )
    files = sorted((resources.files("fedpn.runs") / "presets").iterdir(), key=lambda f: f.name)
    lines = [
        _preset(f.name, f.read_text(encoding="utf-8")) for f in files if f.name.endswith(".toml")
    ]
    return "\n\n".join(["## Presets by dataset", about, table(["dataset", "preset", "why"], lines)])


def _preset(name: str, text: str) -> list[str]:
    """
    >>> _preset("a.toml", '# Few\\n# rows.\\nrounds = 9\\n[posterior.routing]\\nrouter = "msp"')
    ['`a`', '`rounds = 9`<br>`routing.router = "msp"` (posterior networks)', 'Few rows.']
    """
    first = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    why = " ".join(line.removeprefix("#").strip() for line in first)
    set_to = []
    for key, value in leaves(tomllib.loads(text)):
        whose = " (posterior networks)" if key.startswith("posterior.") else ""
        set_to.append(code(f"{key.removeprefix('posterior.')} = {_toml(value)}") + whose)
    return [code(name.removesuffix(".toml")), "<br>".join(set_to), cell(why)]


def _section(title: str, about: str, lines: Any) -> str:
    head = ["setting", "what it may be", "default", "what it is for"]
    return "\n\n".join(filter(None, [f"## {title}", about, table(head, lines)]))


def rows(kind: type, names: list[str] | None = None) -> Iterator[list[str]]:
    """A line for each field: name, kind, default, words."""
    said, hints = words(kind), get_type_hints(kind, include_extras=True)
    for f in fields(kind):
        if names is None or f.name in names:
            about = cell(said.get(f.name, ""))
            yield [code(f.name), may_be(hints[f.name]), code(_toml(f.default)), about]


def may_be(hint: Any) -> str:
    """What a value may be, in words.

    >>> may_be(Annotated[float, Bounds(low=0, high=1)])
    'number, from 0 to 1'
    """
    if get_origin(hint) is Literal:
        return ", ".join(code(one) for one in get_args(hint))
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        bounds = [_in_words(note) for note in notes if isinstance(note, Bounds)]
        return ", ".join(filter(None, [may_be(inner), *bounds]))
    if get_origin(hint) is tuple:
        return "list of texts"
    return KINDS[hint]


def _in_words(bounds: Bounds) -> str:
    """Bounds; of those that only keep slips of the finger out, the lower end."""
    wide = bounds.low is not None and bounds.high is not None and bounds.high >= 10**6
    return f"at least {bounds.low:g}" if wide else str(bounds)


def _toml(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    return tomli_w.dumps({"x": plain}).removeprefix("x = ").strip()


def _about(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n")[0]
