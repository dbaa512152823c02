"""Times and sizes, as people say them."""

UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
SIZES = ("B", "kB", "MB", "GB", "TB", "PB")
UNKNOWN = "–"


def duration(seconds: float | None) -> str:
    """
    >>> duration(1.94), duration(75), duration(4000), duration(200000), duration(None)
    ('1.9 s', '1 min 15 s', '1 h 6 min', '2 d 7 h', '–')
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{seconds:.1f} s"
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    units = (*UNITS, (1.0, "s"))
    first = next(i for i, (size, _) in enumerate(units) if seconds >= size)
    (size, name), (small, lesser) = units[first], units[first + 1]
    many, rest = divmod(int(seconds), int(size))
    return f"{many} {name}" + (f" {rest // int(small)} {lesser}" if rest // int(small) else "")


def ago(time: float | None, now: float) -> str:
    """How long ago something was; a clock that is ahead of ours says nothing.

    >>> ago(100.0, 107.4), ago(100.0, 90.0), ago(None, 90.0)
    ('7 s ago', 'now', '–')
    """
    if time is None:
        return UNKNOWN
    return "now" if now - time < 1 else f"{duration(float(int(now - time)))} ago".replace(".0", "")


def size(count: int | None) -> str:
    """
    >>> size(999), size(1234567), size(None)
    ('999 B', '1.2 MB', '–')
    """
    if count is None:
        return UNKNOWN
    power = min((len(str(count)) - 1) // 3, len(SIZES) - 1)
    return f"{count} B" if power == 0 else f"{count / 1000**power:.1f} {SIZES[power]}"


def number(value: float | None, places: int = 3) -> str:
    return UNKNOWN if value is None else f"{value:.{places}f}"


def count(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
