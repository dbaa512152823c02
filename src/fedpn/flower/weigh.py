"""How many bytes a message carries: what its arrays, texts and numbers take, uncopied."""

from typing import Any

from flwr.app import RecordDict


def weigh(content: RecordDict) -> int:
    """The bytes of what a message says; names and envelopes are not counted."""
    arrays = (a for record in content.array_records.values() for a in record.values())
    told = (v for record in content.config_records.values() for v in record.values())
    numbers = (v for record in content.metric_records.values() for v in record.values())
    return sum(len(a.data) for a in arrays) + sum(map(_length, told)) + sum(map(_length, numbers))


def _length(value: Any) -> int:
    """
    >>> _length("é"), _length([b"ab", b"c"]), _length(1.5)
    (2, 3, 8)
    """
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    return sum(map(_length, value)) if isinstance(value, list) else 8
