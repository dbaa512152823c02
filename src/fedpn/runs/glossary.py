"""Every setting with its default, its choices and what it is for, as TOML to begin from."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tomli_w

from fedpn.runs.config import Config, resolve, to_tree


def glossary(algorithm: str, dataset: str) -> str:
    """The settings of a run by some algorithm on some data, as they are where nothing is said.

    >>> glossary("fedpn", "mnist").splitlines()[0]
    'dataset = "mnist"  # a named set, or a path to your own'
    """
    config = resolve([{"algorithm": algorithm, "dataset": dataset}])
    tree = to_tree(config)
    plain = {key: value for key, value in tree.items() if not isinstance(value, dict)}
    parts = ["\n".join(_lines(Config, plain))]
    for name, values in tree.items():
        if isinstance(values, dict):
            kind = type(getattr(config, name, config.method))
            about = (inspect.getdoc(kind) or "").split("\n")[0]
            parts.append("\n".join([f"[{name}]  # {about}", *_lines(kind, values)]))
    return "\n\n".join(parts) + "\n"


def _lines(kind: type, values: dict[str, Any]) -> Iterator[str]:
    said, hints = _comments(kind), get_type_hints(kind)
    for key, value in values.items():
        choices = get_args(hints[key]) if get_origin(hints[key]) is Literal else ()
        words = [" | ".join(filter(None, choices)), said.get(key, "")]
        comment = "; ".join(filter(None, words))
        yield tomli_w.dumps({key: value}).strip() + (f"  # {comment}" if comment else "")


def _comments(kind: type) -> dict[str, str]:
    """What stands behind the fields, or above them, in the source of a dataclass and its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not is_dataclass(base):
            continue
        names, above = {field.name for field in fields(base)}, ""
        for line in inspect.getsource(base).splitlines():
            if line.strip().startswith("# "):
                above = f"{above} {line.strip()[2:]}".strip()
                continue
            match = re.match(r"    (\w+): [^#]*(?:# (.*))?$", line)
            if match and match[1] in names and (match[2] or above):
                found[match[1]] = match[2] or above
            above = ""
    return found
