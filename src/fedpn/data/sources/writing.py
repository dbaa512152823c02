"""Cells as people write them: numbers with points or commas, dates, yes and no, or nothing."""

import re
from datetime import date

from fedpn.data.cells import Kind, fingerprint
from fedpn.data.recipe import LARGEST, Style

NO_SIGNS = {"-", "--", "---", "."}  # nothing, where there is no "+"
NOTHING = {"", "na", "n/a", "n.a.", "#n/a", "nan", "nat", "<na>", "null", "?", *NO_SIGNS}
NOTHING |= {"k.a.", "k. a.", "keine angabe", "n.d."}
YES = {"yes", "y", "true", "t", "ja", "j", "oui", "si", "sí", "wahr", "vrai"}
NO = {"no", "n", "false", "f", "nein", "non", "falsch", "faux"}
BLANK = " \u00a0\u2009\u202f'’"  # may part thousands, whichever sign parts decimals


def _number(thousands: str, decimal: str) -> re.Pattern[str]:
    groups = rf"[1-9][0-9]{{0,2}}(?:[{thousands}{BLANK}][0-9]{{3}})+|[0-9]+"
    return re.compile(
        rf"[+-]?(?:(?:{groups})(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    )


NUMBERS = {".": _number(",", r"\."), ",": _number(r"\.", ",")}
_ZONE = r"(?: ?Z|([+-][0-9]{2}):?([0-9]{2}))?"
_TIME = (
    r"(?:[T ]+([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:[.,][0-9]+)?)?"
    rf"(?: ?([AaPp])\.?[Mm]\.?)?{_ZONE})?"
)
YEAR_FIRST = re.compile(rf"([0-9]{{4}})([-/.])([0-9]{{1,2}})\2([0-9]{{1,2}}){_TIME}")
YEAR_LAST = re.compile(rf"([0-9]{{1,2}})([-/.])([0-9]{{1,2}})\2([0-9]{{4}}|[0-9]{{2}}){_TIME}")
DAY_NAMED = re.compile(
    rf"([0-9]{{1,2}})[- ./]+([A-Za-zä]{{3,9}})[- ./,]+([0-9]{{4}}|[0-9]{{2}}){_TIME}"
)
MONTH_NAMED = re.compile(rf"([A-Za-z]{{3,9}})\.? +([0-9]{{1,2}}),? +([0-9]{{4}}){_TIME}")
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
GERMAN = ("januar", "februar", "märz", "", "mai", "juni", "juli", "", "", "oktober", "", "dezember")
EPOCH = date(1970, 1, 1).toordinal()
PIVOT = 30  # two-digit years below it are of this century, as in Excel: 00-29 are 2000-2029
Read = tuple[float, Kind]


def read(text: str, style: Style) -> Read:
    """A cell's value and what it looks like.

    >>> read("1.234,5", Style(",")), read("1,234.5", Style("."))
    ((1234.5, <Kind.NUMBER: 1>), (1234.5, <Kind.NUMBER: 1>))
    >>> read("1970-01-03", Style()), read("Ja", Style())[1], read("n/a", Style())[1]
    ((2.0, <Kind.DATE: 4>), <Kind.YES: 3>, <Kind.MISSING: 0>)
    """
    text = text.strip()
    folded = text.casefold()
    if folded in NOTHING:
        return float("nan"), Kind.MISSING
    for way in (read_number, read_date):
        found = way(text, style)
        if found is not None:
            return found, Kind.NUMBER if way is read_number else Kind.DATE
    kind = Kind.YES if folded in YES else Kind.NO if folded in NO else Kind.TEXT
    return fingerprint(text), kind


def read_number(text: str, style: Style) -> float | None:
    """A number of 32 bits, by the signs that the column has, or else by those it can only have."""
    sign = style.decimal or "."
    if NUMBERS[sign].fullmatch(text) is None:
        sign = "," if sign == "." else "."
        if NUMBERS[sign].fullmatch(text) is None:
            return None
    thousands = BLANK + ("," if sign == "." else ".")
    value = float(text.translate({ord(c): None for c in thousands}).replace(",", "."))
    return value if abs(value) <= LARGEST else None


def read_date(text: str, style: Style) -> float | None:
    """Days since 1970; the hours are their part."""
    found = YEAR_FIRST.fullmatch(text)
    if found:
        year, month, day = int(found[1]), int(found[3]), int(found[4])
    elif found := YEAR_LAST.fullmatch(text):
        first, second = int(found[1]), int(found[3])
        day, month = (second, first) if style.day_first == "no" else (first, second)
        if month > 12:
            day, month = month, day
        year = _century(found[4])
    elif found := DAY_NAMED.fullmatch(text):
        day, month, year = int(found[1]), _month(found[2]), _century(found[3])
    elif found := MONTH_NAMED.fullmatch(text):
        day, month, year = int(found[2]), _month(found[1]), int(found[3])
    else:
        return None
    try:
        days = date(year, month, day).toordinal() - EPOCH
    except ValueError:  # no such day
        return None
    hours = _hours(*found.groups()[-6:])
    return None if hours is None else days + hours / 24


def _century(year: str) -> int:
    """A year of two digits lies from 1930 to 2029.

    >>> _century("45"), _century("29"), _century("0045")
    (1945, 2029, 45)
    """
    number = int(year)
    return number if len(year) > 2 else number + (2000 if number < PIVOT else 1900)


def _month(name: str) -> int:
    """A month by the first three letters of its name or more; 0 for other words.

    >>> _month("Jun"), _month("sept"), _month("Okt"), _month("marble")
    (6, 9, 10, 0)
    """
    name = name.lower()
    full = enumerate(zip(MONTHS, GERMAN, strict=True), 1)
    return next((i for i, month in full if any(m.startswith(name) for m in month)), 0)


def _hours(
    hour: str | None,
    minute: str | None,
    second: str | None,
    half: str | None,
    zone: str | None,
    more: str | None,
) -> float | None:
    """Hours since midnight, of universal time where a zone is told; None where there is no such."""
    told = int(hour or 0)
    if half is not None:
        if not 1 <= told <= 12:
            return None
        told = told % 12 + 12 * (half in "Pp")
    if told > 23 or int(minute or 0) > 59:
        return None
    found = told + (int(minute or 0) + int(second or 0) / 60) / 60
    if zone is None:
        return found
    return found - int(zone) - int(more or 0) / 60 * (-1 if zone.startswith("-") else 1)
