"""The Python interface, from signatures and docstrings."""

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

from making.tables import table

INTRO = """# Python

`import fedpn` is quick: PyTorch is loaded with the first use. Names of the first four parts are
those of the package itself; the rest is for those who [extend it](../guides/index.md#extend-it).
`Params` are tensors by name, `Slots` are such by role, `Array` is NumPy's. A mistake of the
caller's is a `fedpn.UserError`, whose text is one sentence.
"""
# Part -> where its names come from.
PARTS: dict[str, list[str]] = {
    "Run": ["fedpn:run", "fedpn:open", "fedpn:Run", "fedpn:UserError"],
    "Answer": ["fedpn:load", "fedpn.serving.predict:Predictor", "fedpn.serving.predict:Answer"],
    "Study": [
        *("fedpn:sweep", "fedpn.runs.studies.sweep:Sweep"),
        *("fedpn:compare", "fedpn.runs.studies.comparison:Comparison"),
    ],
    "Data and settings": ["fedpn:open_dataset", "fedpn.data.dataset:Dataset", "fedpn:Config"],
    "Algorithms": ["fedpn:FedAvg", "fedpn.core.task:Task", "fedpn.core.task:Batch"],
    "Phases": [
        *("fedpn.federated.phase:Phase", "fedpn.federated.phase:Reply"),
        *("fedpn.federated.site:Site", "fedpn.federated.heads.base:Head"),
        "fedpn.federated.listener:Listener",
    ],
    "Routing": [
        *("fedpn.routing.routers:Router", "fedpn.routing.opinion:Opinion"),
        *("fedpn.routing.rule:Rule", "fedpn.routing.rule:Decision"),
    ],
}
# Types that have a name in the code, from the longest.
ALIASES = {
    "dict[str, dict[str, Tensor]]": "Slots",
    "dict[str, Tensor]": "Params",
    "ndarray[tuple[Any, ...], dtype[Any]]": "Array",
}
MODULES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")
PROMPT = re.compile(r"(?:^ *(?:>>>|\.\.\.).*\n?(?:^(?! *>>>)(?! *$).*\n?)*)+", re.MULTILINE)
WITH_WORDS = ("Config", "FedAvg")  # dataclasses whose fields are settings
INSIDE = {"Predictor": ("views", "decide", "find_share", "tell"), "Sweep": ("lines", "remarks")}


def page() -> str:
    """The page of the Python interface."""
    parts = [INTRO.strip()]
    for part, names in PARTS.items():
        parts.append(f"## {part}")
        parts += [line for spec in names for line in describe(spec)]
    return "\n\n".join(filter(None, parts)) + "\n"


def describe(spec: str) -> Iterator[str]:
    """One name: its signature, what its docstring says, and what is inside."""
    module, _, name = spec.partition(":")
    thing = getattr(importlib.import_module(module), name)
    yield f"### {module}.{name}"
    yield f"```python\n{head(name, thing)}\n```"
    yield prose(thing)
    if name in WITH_WORDS:
        yield "Its fields are [settings](settings.md)."
    elif is_dataclass(thing) and isinstance(thing, type):
        yield from _fields(thing)
    elif isinstance(thing, type) and issubclass(thing, tuple) and hasattr(thing, "_fields"):
        hints = inspect.get_annotations(thing)
        yield table(["field", "type"], [[f"`{n}`", f"`{short(hints[n])}`"] for n in thing._fields])
    if isinstance(thing, type):
        yield from _methods(name, thing)


def _fields(thing: type) -> Iterator[str]:
    hints = inspect.get_annotations(thing)
    lines = [[f"`{f.name}`", f"`{short(hints.get(f.name, f.type))}`"] for f in fields(thing)]
    if lines:
        yield table(["field", "type"], lines)


def _methods(name: str, thing: type) -> Iterator[str]:
    for method, value in vars(thing).items():
        inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        inner = inner.fget if isinstance(inner, property) else inner
        inner = inner.func if isinstance(inner, cached_property) else inner
        told = inspect.isfunction(inner) and inner.__doc__
        shown = not method.startswith("_") or method == "__call__"
        if told and shown and method not in INSIDE.get(name, ()):
            is_value = isinstance(value, property | cached_property)
            line = _value(method, inner) if is_value else head(method, inner)
            yield f"#### {name}.{method}".replace("__", r"\_\_")
            yield f"```python\n{line}\n```"
            yield prose(inner)


def _value(name: str, thing: Any) -> str:
    return f"{name}: {short(inspect.signature(thing).return_annotation)}"


def head(name: str, thing: Any) -> str:
    """The first line of a definition, without the names of modules, folded where it is long."""
    if isinstance(thing, type):
        bases = [base.__name__ for base in thing.__bases__ if base is not object]
        return f"class {name}" + (f"({', '.join(bases)})" if bases else "")
    signature = inspect.signature(thing)
    shown = [short(parameter) for parameter in signature.parameters.values()]
    ends = "" if signature.return_annotation is signature.empty else _ends(signature)
    line = f"def {name}({', '.join(shown)}){ends}"
    if len(line) > 88:
        line = f"def {name}(\n    " + ",\n    ".join(shown) + f",\n){ends}"
    return line


def _ends(signature: inspect.Signature) -> str:
    return f" -> {short(signature.return_annotation)}"


def short(thing: Any) -> str:
    """A type or a parameter, without the names of modules.

    >>> short(inspect.signature(lambda x=None: 0).parameters["x"])
    'x=None'
    """
    text = MODULES.sub("", thing.__name__ if isinstance(thing, type) else str(thing))
    for long, name in ALIASES.items():
        text = text.replace(long, name)
    return text


def prose(thing: Any) -> str:
    """A docstring as Markdown: examples become blocks."""
    text = inspect.getdoc(thing) or ""
    if hasattr(thing, "_fields") and text.startswith(f"{thing.__name__}("):
        return ""  # what Python itself says of a named tuple
    return PROMPT.sub(lambda m: f"\n```pycon\n{m[0].rstrip()}\n```\n", text).strip()
