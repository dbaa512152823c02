"""Uploads at the border: a node may send anything, and only what was asked for comes in."""

from flwr.app import RecordDict

from fedpn.flower.records import unpack
from fedpn.trees import Slots, flatten, stack


class Refused(Exception):  # noqa: N818
    """Why an upload does not count."""


def read_upload(content: RecordDict, expected: Slots) -> Slots:
    """Reads an upload that has the names, shapes and types expected; stacked, as one of many."""
    try:
        found = flatten(unpack(content, tuple(expected)))
    except Exception as error:
        raise Refused(f"uploaded what cannot be read: {error}") from None
    asked = flatten(expected)
    strange = sorted(found.keys() ^ asked.keys())
    if strange:
        some = ", ".join(strange[:3]) + " …" * (len(strange) > 3)
        raise Refused(f"uploaded other entries than were asked for: {some}")
    for name, tensor in asked.items():
        if found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            is_, should = (f"{t.dtype} {tuple(t.shape)}" for t in (found[name], tensor))
            raise Refused(f"uploaded {name} as {is_}, not {should}")
    # In the order of our own: sums over entries depend on it in the last bits.
    ordered = {r: {n: found[f"{r}/{n}"] for n in params} for r, params in expected.items()}
    return stack([ordered])
