"""Every setting with its default, its choices and what it is for, as TOML to begin from."""

import inspect
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tomli_w

from fedpn.core.settings import words
from fedpn.runs.config import Config, resolve, to_tree

ALGORITHM = "see `fedpn algorithms`, or file.py:Class of your own"


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
    said, hints = words(kind), get_type_hints(kind)
    for key, value in values.items():
        choices = get_args(hints[key]) if key in hints and get_origin(hints[key]) is Literal else ()
        about = said.get(key, "") if key != "algorithm" else ALGORITHM
        comment = "; ".join(filter(None, [" | ".join(filter(None, choices)), about]))
        yield tomli_w.dumps({key: value}).strip() + (f"  # {comment}" if comment else "")
