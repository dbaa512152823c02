"""Plain values that nobody means: for settings, JSON and the heads of files."""

import datetime as dt

from hypothesis import strategies as st

NUMBERS = [0, 1, -1, 2, 255, 256, 2**31, -(2**31) - 1, 2**53 + 1, 2**63, -(2**63) - 1, 2**64]
NUMBERS += [10**400, -(10**400)]
FLOATS = [0.0, -0.0, 0.5, -1.5, 1e-320, 1e38, 1e39, 1e308, float("inf"), -float("inf")]
FLOATS += [float("nan")]
TEXTS = ["", " ", "\0", "\n", "\x1b[31m", "\u202e", "\ufeff", "é", "𝟙", "١", "a" * 300]
TEXTS += [
    "auto",
    "none",
    "nan",
    "true",
    "../..",
    "/",
    ":",
    ".py:",
    "a:b",
    ".a:b",
    "\0.py:a",
    "%s{}",
]
SURROGATES = ["\ud800", "a\udcff"]  # what files hold no more than once decoded, but callers may


def numbers():
    return st.one_of(
        st.sampled_from(NUMBERS), st.sampled_from(FLOATS), st.integers(-100, 100), st.floats()
    )


def texts():
    letters = st.characters(exclude_categories=["Cs"])
    return st.one_of(st.sampled_from(TEXTS), st.text(letters, max_size=20))


def scalars():
    return st.one_of(numbers(), texts(), st.booleans())


def values():
    """Anything that TOML and JSON both hold."""
    return st.one_of(scalars(), _nested(scalars()), deep())


def _nested(inner):
    return st.recursive(
        inner,
        lambda more: st.one_of(
            st.lists(more, max_size=4), st.dictionaries(texts(), more, max_size=4)
        ),
        max_leaves=8,
    )


def json_values():
    return st.one_of(values(), st.none(), _nested(st.one_of(scalars(), st.none())))


def toml_values():
    moments = st.sampled_from([dt.date(1979, 5, 27), dt.time(7, 32), dt.datetime(1979, 5, 27, 7)])
    return st.one_of(values(), moments)


def deep():
    """Lists in lists, or sections in sections."""
    return st.builds(_bury, scalars(), st.integers(1, 150), st.booleans())


def _bury(value, depth, in_lists):
    for _ in range(depth):
        value = [value] if in_lists else {"a": value}
    return value


def changed(tree, replacements):
    """A tree of plain values, in which one to three places hold something else, or nothing."""
    paths = list(_paths(tree))
    change = st.tuples(
        st.sampled_from(paths),
        st.sampled_from(["put", "put", "drop", "add"]),
        texts(),
        replacements,
    )
    return st.lists(change, min_size=1, max_size=3).map(lambda changes: _apply(tree, changes))


def _paths(tree, where=()):
    yield where
    for key, value in _items(tree):
        yield from _paths(value, (*where, key))


def _items(tree):
    if isinstance(tree, dict):
        return list(tree.items())
    return list(enumerate(tree)) if isinstance(tree, list) else []


def _apply(tree, changes):
    for path, kind, key, value in changes:
        tree = _replace(tree, path, kind, key, value)
    return tree


def _replace(tree, path, kind, key, value):
    """A copy with one place changed; a place that is there no more is left."""
    if not path:
        if kind == "add" and isinstance(tree, dict):
            return tree | {key: value}
        if kind == "add" and isinstance(tree, list):
            return [*tree, value]
        return value
    held = dict(_items(tree))
    if path[0] not in held:
        return tree
    if kind == "drop" and len(path) == 1:
        del held[path[0]]
    else:
        held[path[0]] = _replace(held[path[0]], path[1:], kind, key, value)
    return held if isinstance(tree, dict) else list(held.values())
