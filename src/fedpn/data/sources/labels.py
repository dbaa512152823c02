"""Labels as people write them -> class numbers and names."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from fedpn.core.errors import UserError
from fedpn.core.plain import composed
from fedpn.data.dataset import Array
from fedpn.data.sources.guard import LONGEST, short

LARGEST = 2**53  # beyond it floats are not exact
NUMBER = re.compile(r"[+-]?[0-9]{1,300}(\.[0-9]*)?(e[+-]?[0-9]{1,2})?", re.IGNORECASE | re.ASCII)
Place = Callable[[int], str]  # a row's number -> how the user finds it


def row_of(what: str) -> Place:
    """Names rows, counted from 0, as NumPy does.

    >>> row_of("labels of a.npz")(3)
    'row 3 of labels of a.npz'
    """
    return lambda row: f"row {row} of {what}"


def encode(
    values: Array, what: str, place: Place | None = None, least: int = 2
) -> tuple[Array, tuple[str, ...]]:
    """Numbers the classes: class numbers stay as they are, names are sorted.

    >>> encode(np.array([1, 0, 1]), "labels")[1], encode(np.array(["b", "a"]), "labels")
    (('0', '1'), (array([1, 0]), ('a', 'b')))
    """
    place = place or row_of(what)
    values = values.ravel()
    if len(values) == 0:
        raise UserError(f"{what} is empty; every row needs a label")
    if values.dtype.kind in "US":
        numbers, names = name_values(values, what, place)
    elif values.dtype.kind in "iubf":
        numbers = whole_numbers(values, place)
        _refuse_gaps(numbers, what, place)
        names = tuple(map(str, range(int(numbers.max()) + 1)))
    else:
        raise UserError(f"{what} has the type {values.dtype}; labels are whole numbers or names")
    if len(names) < least:
        raise UserError(
            f"{what} names one class only, {names[0]!r}; at least 2 are needed to learn anything"
        )
    return numbers, names


def name_values(
    values: Array, what: str, place: Place | None = None
) -> tuple[Array, tuple[str, ...]]:
    """Numbers names in their order; names that are all whole numbers sort as numbers.

    >>> name_values(np.array(["10", "9", "10"]), "labels")
    (array([1, 0, 1]), ('9', '10'))
    """
    place = place or row_of(what)
    texts = _texts(values, what, place)
    empty = np.flatnonzero(np.char.str_len(np.char.strip(texts)) == 0)
    if len(empty):
        raise UserError(f"{place(int(empty[0]))} is empty; fill it in or drop the row")
    long = np.flatnonzero(np.char.str_len(texts) > LONGEST)
    if len(long):
        raise UserError(
            f"{place(int(long[0]))} begins with {short(str(texts[long[0]]))!r} and is longer than "
            f"{LONGEST} characters; give it a shorter name"
        )
    names, numbers = np.unique(texts, return_inverse=True)
    if all(_is_number(name) for name in names):
        order = np.argsort(names.astype(np.int64), kind="stable")
        names, numbers = names[order], np.argsort(order)[numbers]
    return numbers.astype(np.int64), tuple(map(str, names))


def _texts(values: Array, what: str, place: Place) -> Array:
    """Names as text that any file or terminal can take."""
    try:
        texts = values.astype(str)
        names, places = np.unique(texts, return_inverse=True)
        "".join(names.tolist()).encode()
    except (ValueError, SystemError) as error:  # bytes beyond ASCII, what is no character
        if values.dtype.kind == "S":
            row = next(i for i, value in enumerate(values.tolist()) if not value.isascii())
            raise UserError(
                f"{place(row)} is the bytes {values.tolist()[row]!r}, whose letters are not known; "
                "save names by np.array(names, dtype=str)"
            ) from error
        raise UserError(
            f"{what} holds a name that is no text ({error}); write it in letters"
        ) from error
    return np.array([composed(name) for name in names.tolist()])[places].astype(str)


def twins(names: Sequence[str], what: str) -> list[str]:
    """Tell of names that may be meant for one: written in other cases, or for the same number.

    >>> twins(("Well", "well", "7", "007", "8"), "classes")
    ["the classes 'Well' and 'well' differ in their case alone", "the classes '7' and '007' are \
one number"]
    """
    first: dict[str | float, str] = {}
    told = []
    for name in names:
        digits = NUMBER.fullmatch(name)
        other = first.setdefault(float(name) if digits else name.casefold(), name)
        if other != name and (digits or len(name) > 1):  # single letters may well be classes
            why = "are one number" if digits else "differ in their case alone"
            told.append(f"the {what} {short(other)!r} and {short(name)!r} {why}")
    return told


def _is_number(name: str) -> bool:
    digits = name.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= 18  # what 64 bits hold


def whole_numbers(values: Array, place: Place) -> Array:
    """Refuses missing and broken labels."""
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # what is no number is named below
            bad = np.flatnonzero(~np.isfinite(values) | (values != np.round(values)))
        if len(bad):
            raise UserError(
                f"{place(int(bad[0]))} is {values[bad[0]]}; a label is a whole number or a name"
            )
    with np.errstate(over="ignore"):  # what is too large for a float is so for a label
        large = np.flatnonzero(np.abs(values.astype(np.float64)) > LARGEST)
    if len(large):
        raise UserError(
            f"{place(int(large[0]))} is {values[large[0]]}; class numbers count from 0, "
            "and names are given as text"
        )
    return values.astype(np.int64)


def _refuse_gaps(numbers: Array, what: str, place: Place) -> None:
    negative = np.flatnonzero(numbers < 0)
    if len(negative):
        raise UserError(
            f"{place(int(negative[0]))} is {numbers[negative[0]]}; class numbers count from 0"
        )
    present = np.unique(numbers)
    if len(present) <= present[-1]:
        gap = int(np.flatnonzero(present != np.arange(len(present)))[0])
        raise UserError(
            f"{what} goes up to class {present[-1]} but no row has class {gap}; "
            "number the classes from 0 without gaps, or give names instead"
        )
