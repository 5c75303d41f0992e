"""Numbers as people read them: three significant figures, units beside them, and a dash where there is none."""

from typing import Any

DASH = "–"
_SCALES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def number(value: Any, digits: int = 3) -> str:
    """A plain number at `digits` significant figures, thousands grouped, without an exponent.

    >>> number(1234.6), number(0.012345), number(12), number(None)
    ('1,235', '0.0123', '12', '–')
    """
    if value is None:
        return DASH
    if isinstance(value, int) or abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    places = digits
    magnitude = abs(value)
    while magnitude >= 1:
        magnitude, places = magnitude / 10, places - 1
    while magnitude < 0.1 and places < 12:
        magnitude, places = magnitude * 10, places + 1
    return f"{value:.{max(places, 0)}f}"


def seconds(value: Any) -> str:
    """A duration in the unit that keeps it short.

    >>> seconds(26.41), seconds(0.0123), seconds(0.0000042), seconds(7260)
    ('26.4 s', '12.3 ms', '4.20 µs', '2 h 1 min')
    """
    if value is None:
        return DASH
    if value == 0:
        return "0 s"
    if value >= 3600:
        return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"
    if value >= 1:
        return f"{number(float(value))} s"
    if value >= 1e-3:
        return f"{number(value * 1e3)} ms"
    return f"{number(value * 1e6)} µs"


def short(value: Any) -> str:
    """A large count with a letter.

    >>> short(70_553_706_496), short(158_000), short(512)
    ('70.6B', '158k', '512')
    """
    if value is None:
        return DASH
    for scale, letter in _SCALES:
        if abs(value) >= scale:
            return f"{number(float(value / scale))}{letter}"
    return number(value)


def percent(value: Any) -> str:
    """A share as a percentage.

    >>> percent(0.4371), percent(0.00012), percent(0.0), percent(1.0)
    ('43.7 %', '0.012 %', '0 %', '100 %')
    """
    if value is None:
        return DASH
    return f"{number(float(value * 100), 3 if abs(value) >= 0.01 else 2)} %"


def gib(value: Any) -> str:
    """Memory, to a tenth of a GiB.

    >>> gib(61.25), gib(0.04), gib(0)
    ('61.2', '0.04', '0')
    """
    if value is None:
        return DASH
    if value == 0:
        return "0"
    return f"{value:,.1f}" if abs(value) >= 0.1 else f"{value:.2f}"


def money(value: Any) -> str:
    """US dollars.

    >>> money(201.6), money(None)
    ('$201.60', '–')
    """
    return DASH if value is None else f"${value:,.2f}"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "node"), plural(1200, "node")
    ('1 node', '1,200 nodes')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ranges(indices: list[int], most: int = 8) -> str:
    """Indices as runs; of more than `most` runs, the first ones, the last, and how many indices there are.

    >>> ranges([0, 1, 2, 5, 7, 8]), ranges(list(range(0, 2048, 16)))
    ('0–2, 5, 7–8', '0, 16, 32, …, 2032 (128)')
    """
    runs: list[list[int]] = []
    distinct = sorted(set(indices))
    for i in distinct:
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    words = [str(a) if a == b else f"{a}–{b}" for a, b in runs]
    return ", ".join(words) if len(words) <= most else f"{', '.join(words[:3])}, …, {words[-1]} ({len(distinct)})"


FILTERS = {"number": number, "seconds": seconds, "short": short, "percent": percent, "gib": gib, "money": money, "plural": plural, "ranges": ranges}
