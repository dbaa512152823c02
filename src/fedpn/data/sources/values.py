"""Single values of any type -> a cell's value and what it looks like."""

import datetime
import math
import numbers
from decimal import Decimal
from typing import Any

import numpy as np

from fedpn.data.cells import Kind, fingerprint
from fedpn.data.recipe import LARGEST, Style
from fedpn.data.sources.writing import NO_SIGNS, NOTHING, read

DAY = 86_400.0
NONE = (float("nan"), Kind.MISSING)


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """Whether a value is a number by its type; truth is none."""
    return isinstance(value, numbers.Real | Decimal) and not isinstance(value, bool | np.bool_)


def number_as_text(value: Any) -> str:
    """A number as a name: whole ones without a point.

    >>> number_as_text(7.0), number_as_text(250.1)
    ('7', '250.1')
    """
    if isinstance(value, numbers.Integral):
        return str(int(value))
    value = float(value)
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)


def read_value(
    value: Any, style: Style, signed: bool = False, named: bool = False
) -> tuple[float, Kind]:
    """Texts by how they are written, other values by their type.

    >>> read_value(True, Style())[1], read_value(datetime.date(1970, 1, 3), Style())
    (<Kind.YES: 3>, (2.0, <Kind.DATE: 4>))
    """
    if value is None:
        return NONE
    if is_text(value):
        return _text(value, style, signed, named)
    if isinstance(value, bool | np.bool_):
        return fingerprint(str(bool(value))), Kind.YES if value else Kind.NO
    if isinstance(value, np.datetime64 | np.timedelta64):
        value = value.astype("M8[us]" if isinstance(value, np.datetime64) else "m8[us]").item()
    if is_number(value):
        return _number(value)
    if isinstance(value, datetime.date) and value == value:  # NaT is not even itself
        return _days(value), Kind.DATE
    if isinstance(value, datetime.timedelta) and value == value:
        return value.total_seconds() / DAY, Kind.NUMBER
    return _text(str(value), style, signed, named)


def _text(text: str, style: Style, signed: bool, named: bool) -> tuple[float, Kind]:
    folded = text.strip().casefold()
    if folded in NOTHING and not (signed and folded in NO_SIGNS):
        return NONE
    if named or (signed and folded in NO_SIGNS):
        return fingerprint(text), Kind.TEXT
    return read(text, style)


def _number(value: Any) -> tuple[float, Kind]:
    try:
        found = float(value)
    except OverflowError:
        return fingerprint("too large"), Kind.TEXT
    if math.isnan(found):
        return NONE
    if abs(found) > LARGEST:
        return fingerprint("too large"), Kind.TEXT
    return found, Kind.NUMBER


def _days(value: datetime.date) -> float:
    """Days since 1970, in universal time where a zone is told."""
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return (value - datetime.datetime(1970, 1, 1)).total_seconds() / DAY
