"""Dataclasses from plain values: names, types and bounds are checked, mistakes are told in words.

A setting is a field: its type says what it may be, `Annotated[..., "words"]` what it is for.
"""

import difflib
import tomllib
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedpn.core.bounds import Bounds
from fedpn.core.code import find_module
from fedpn.core.errors import UserError

T = TypeVar("T")
Tree = dict[str, Any]
CODE = (  # settings that may name code of the user's own
    *("algorithm", "model.encoder", "model.density", "data.partition"),
    *("head", "head.kind", "routing.router", "routing.rule"),  # `head` is short for `head.kind`
)
# What settings are called elsewhere.
MEANT = {
    **dict.fromkeys(("learning_rate", "local_lr", "local_learning_rate", "eta"), "lr"),
    **dict.fromkeys(("batch_size", "local_batch_size", "bs", "batchsize"), "batch"),
    **dict.fromkeys(("local_epochs", "local_epoch", "epoch"), "epochs"),
    **dict.fromkeys(("local_steps",), "steps"),
    **dict.fromkeys(("num_rounds", "n_rounds", "global_rounds", "global_epoch"), "rounds"),
    **dict.fromkeys(("num_clients", "n_clients", "client_num", "nodes"), "clients"),
    **dict.fromkeys(("join_ratio", "fraction_fit", "participation"), "join"),
    **dict.fromkeys(("alpha", "dirichlet", "dirichlet_alpha"), "beta"),
    **dict.fromkeys(("optim", "opt"), "optimizer"),
    **dict.fromkeys(("wd", "l2"), "weight_decay"),
    **dict.fromkeys(("network", "backbone", "net"), "encoder"),
    **dict.fromkeys(("target", "y"), "label"),
}
DEEPEST = 16  # sections in sections, or lists in lists
LARGEST = 2**1000  # of whole numbers; beyond some thousand digits Python does not even write them
LONGEST = 200  # characters of a value that is told


def build(cls: type[T], tree: Any, where: str) -> T:
    """Builds a dataclass from plain values, checking names, types and bounds."""
    if not isinstance(tree, Mapping):
        raise UserError(f"{where} is a section of settings, not {told(tree)}")
    known = _hints(cls)  # type: ignore[arg-type]
    values = {}
    for key, value in tree.items():
        path = f"{where}.{key}" if where else key
        if key not in known:
            raise UserError(unknown(path, [f"{where}.{k}" if where else k for k in known]))
        values[key] = _convert(known[key], value, path)
    return cls(**values)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: hints[f.name] for f in fields(cls)}


def _convert(hint: Any, value: Any, path: str) -> Any:
    if get_origin(hint) is Annotated:
        kind, *marks = get_args(hint)
        bounds = next((mark for mark in marks if isinstance(mark, Bounds)), Bounds())
        if value == "auto" and bounds.auto:
            return 0
        value = _convert(kind, value, path)
        if not bounds.admit(value):
            raise UserError(f"{path} is {value}, but must be {bounds.breach(value)}")
        return value
    if get_origin(hint) is Literal:
        one_of(path, value, list(get_args(hint)))
        return value
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f'{path} is {told(value)}, but must be a list, such as ["a", "b"]')
        return tuple(_convert(get_args(hint)[0], item, path) for item in value)
    if get_origin(hint) in (Union, types.UnionType):
        return _convert(get_args(hint)[0], value, path)
    if is_dataclass(hint):
        return value if is_dataclass(value) else build(hint, value, path)  # type: ignore[arg-type]
    return _plain(hint, value, path)


def _plain(kind: type, value: Any, path: str) -> Any:
    if kind is float and type(value) is int and abs(value) < LARGEST:
        value = float(value)
    if kind is str and type(value) in (int, float):
        value = str(value)
    wrong = type(value) is not kind or value != value or value in (float("inf"), float("-inf"))
    if wrong or (kind is int and abs(value) >= 2**63):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise UserError(f"{path} is {told(value)}, but must be {words[kind]}")
    return value


def told(value: Any) -> str:
    """A value as Python writes it, the beginning of it where it is long.

    >>> told("a" * 300)[-5:]
    'aaaa…'
    """
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def one_of(path: str, value: Any, names: Sequence[Any]) -> None:
    """Refuses a value that is none of these."""
    if value not in names:
        raise UserError(f"{path} is {told(value)}{_nearest(str(value), [str(n) for n in names])}")


def unknown(key: str, names: Sequence[str]) -> str:
    """Return that there is no such setting, and which one may be meant.

    A setting of the same last name is more likely meant than one that is spelled alike.

    >>> unknown("train.lr", ["train.late", "method.lr"])
    "unknown setting 'train.lr'; did you mean 'method.lr'?"
    >>> unknown("train.batch_size", ["train.batch", "train.balance"])
    "unknown setting 'train.batch_size'; did you mean 'train.batch'?"
    """
    last = key.rpartition(".")[2]
    meant = [name for name in names if name.rpartition(".")[2] == MEANT.get(last, last)]
    if meant:
        return f"unknown setting {told(key)}; did you mean {' or '.join(map(repr, meant))}?"
    section = key.rpartition(".")[0]
    beside = [name for name in names if name.rpartition(".")[0] == section]
    sections = {name.partition(".")[0] for name in names}
    return f"unknown setting {told(key)}{_nearest(key, beside or sorted(sections))}"


def names_of(cls: type, where: str = "") -> Iterator[str]:
    """Yield the full names of all settings of a dataclass.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Oven:
    ...     heat: int = 180
    >>> list(names_of(Oven, "kitchen."))
    ['kitchen.heat']
    """
    for name, hint in _hints(cls).items():
        kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if is_dataclass(kind):
            yield from names_of(kind, f"{where}{name}.")  # type: ignore[arg-type]
        else:
            yield where + name


def _nearest(word: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; choose one of {', '.join(sorted(filter(None, names)))}"


def find_object(setting: str, spec: str, kind: str) -> Any:
    """Imports an object of the user's own: `file.py:name` or `module:name`."""
    module, _, attribute = spec.rpartition(":")
    try:
        found: Any = find_module(spec)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        again = " (it was never in a file: give it again)" if module.startswith("own_") else ""
        raise UserError(
            f"{setting}: cannot import the {kind} {told(spec)}: {error}{again}"
        ) from None
    return found


def named_code(tree: Tree) -> dict[str, str]:
    """The settings that name code of somebody's own, which is run when it is found.

    >>> named_code({"algorithm": "mine.py:Own", "routing": {"router": "msp"}, "dataset": "a:b"})
    {'algorithm': 'mine.py:Own'}
    >>> named_code({"head": "mine.py:Head"})
    {'head': 'mine.py:Head'}
    """
    return {k: v for k, v in leaves(tree) if k in CODE and isinstance(v, str) and ":" in v}


def need_trust(tree: Tree, where: Any, trust: bool, typed: Collection[Any] = ()) -> None:
    """Refuse code that a file names, unless the file is trusted or the same code was typed.

    The one rule for configs, runs and exported folders: to find code is to run it.
    """
    strange = [value for value in named_code(tree).values() if value not in typed]
    if strange and not trust:
        raise UserError(
            f"{where} names code of its own ({', '.join(strange)}), which would be run; if you "
            "know where it comes from, add --trust (from Python, trust=True)"
        )


def words(cls: type) -> dict[str, str]:
    """What the fields of a dataclass are for.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Oven:
    ...     heat: Annotated[int, Bounds(low=0), "in degrees"] = 180
    >>> words(Oven)
    {'heat': 'in degrees'}
    """
    hints = get_type_hints(cls, include_extras=True)
    return {
        name: next((m for m in get_args(hint)[1:] if isinstance(m, str)), "")
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
    }


def merge(low: Tree, high: Tree) -> Tree:
    """Lays one tree of settings over another.

    >>> merge({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}})
    {'a': 1, 'b': {'c': 2, 'd': 3}}

    `head = "ridge"` is short for `head.kind = "ridge"`.

    >>> merge({"head": "ridge"}, {"head": {"filters": 4}})
    {'head': {'kind': 'ridge', 'filters': 4}}
    """
    merged = dict(low)
    for key, value in high.items():
        old = merged.get(key)
        if key == "head":
            old, value = ({"kind": v} if isinstance(v, str) else v for v in (old, value))
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = merge(dict(old), dict(value))
        merged[key] = value
    return merged


def nest(flat: Tree) -> Tree:
    """The tree of settings with flat keys.

    >>> nest({"a": 1, "b.c": 2})
    {'a': 1, 'b': {'c': 2}}
    """
    tree: Tree = {}
    for key, value in flat.items():
        inner = value
        for name in reversed(key.split(".")):
            inner = {name: inner}
        tree = merge(tree, inner)
    return tree


def leaves(tree: Tree, where: str = "") -> Iterator[tuple[str, Any]]:
    """Walks a tree of settings.

    >>> dict(leaves({"a": 1, "b": {"c": 2}}))
    {'a': 1, 'b.c': 2}
    """
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{where}{key}.")
        else:
            yield f"{where}{key}", value


def parse_setting(text: str) -> Tree:
    """Reads one `section.key=value`.

    >>> parse_setting("fedpn.gamma=0.1")
    {'fedpn': {'gamma': 0.1}}
    >>> parse_setting("model.encoder=mlp")
    {'model': {'encoder': 'mlp'}}
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set {told(text)} is not of the form key=value, such as fedpn.gamma=0.1")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):  # no TOML, or a number of too many digits
        parsed = value.strip()
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    _refuse_absurd(parsed, f"--set {told(text)}")
    return dict(parsed)


def read_toml(path: Path) -> Tree:
    """Reads a config file."""
    try:
        if path.is_dir() or path.suffix in (".csv", ".tsv", ".parquet", ".npz"):
            raise UserError(f"{path} is no config file; data are named with --dataset {path}")
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no config file {path}") from None
    except UserError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read the config {path}: {error}") from None
    _refuse_absurd(tree, str(path))
    return tree


def _refuse_absurd(tree: Tree, what: str) -> None:
    """Refuses what could neither be walked through nor be told."""
    level: list[Any] = [tree]
    for _ in range(DEEPEST):
        if any(isinstance(value, int) and abs(value) >= LARGEST for value in level):
            raise UserError(f"{what} has a whole number of more than 300 digits; write a smaller")
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise UserError(f"{what} has more than {DEEPEST} sections or lists in each other")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
