"""How fast something goes and how long the rest will take, in words."""


def time_left(spent: float, share: float) -> str:
    """Tells how long the rest will take, if it goes on as before.

    >>> time_left(60, 0.25), time_left(3600, 0.1), time_left(5, 0)
    ('3 min left', '9 h left', '')
    """
    if share <= 0:
        return ""
    rest = spent * (1 - share) / share
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if rest >= 1.5 * size:
            return f"{rest / size:.0f} {unit} left"
    return f"{rest:.0f} s left"


def rate(done: float, spent: float, unit: str = "") -> str:
    """
    >>> rate(5, 2, "rounds"), rate(1, 40, "rounds"), rate(1000, 4), rate(0, 3)
    ('2.5 rounds/s', '0.025 rounds/s', '250/s', '')
    """
    if done <= 0 or spent <= 0:
        return ""
    speed = done / spent
    number = f"{speed:.0f}" if speed >= 100 else f"{speed:.1f}" if speed >= 1 else f"{speed:.2g}"
    return f"{number} {unit}/s" if unit else f"{number}/s"
