"""Uploads at the border: a node may send anything, and only what was asked for comes in."""

from collections import Counter
from collections.abc import Iterable

from flwr.app import RecordDict

from fedpn.core.trees import Slots, flatten
from fedpn.flower.app.records import unpack


class Refused(Exception):  # noqa: N818
    """Why an upload does not count."""


def form_of(content: RecordDict) -> Slots | None:
    """What an upload holds, whatever that is; nothing where it cannot be read."""
    try:
        return unpack(content, ())
    except ValueError:
        return None


def most_common(forms: Iterable[Slots | None]) -> Slots | None:
    """One of those that have the names, shapes and types that most have."""
    marks: Counter[str] = Counter()
    examples: dict[str, Slots] = {}
    for form in forms:
        if form is not None:
            flat = flatten(form)
            mark = str([(name, t.dtype, tuple(t.shape)) for name, t in sorted(flat.items())])
            marks[mark] += 1
            examples.setdefault(mark, form)
    return examples[marks.most_common(1)[0][0]] if marks else None


def read_upload(content: RecordDict, expected: Slots | None) -> Slots:
    """Reads an upload that has the names, shapes and types expected."""
    if expected is None:
        raise Refused("uploaded what cannot be read")
    try:
        found = flatten(unpack(content, tuple(expected)))
    except ValueError as error:
        raise Refused(f"uploaded what cannot be read: {error}") from None
    asked = flatten(expected)
    strange = sorted(found.keys() ^ asked.keys())
    if strange:
        some = ", ".join(name[:60] for name in strange[:3]) + " …" * (len(strange) > 3)
        raise Refused(f"uploaded other entries than were asked for: {some}")
    for name, tensor in asked.items():
        if found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            is_, should = (f"{t.dtype} {tuple(t.shape)}" for t in (found[name], tensor))
            raise Refused(f"uploaded {name} as {is_}, not {should}")
    # In the order of our own: sums over entries depend on it in the last bits.
    return {r: {n: found[f"{r}/{n}"] for n in params} for r, params in expected.items()}
