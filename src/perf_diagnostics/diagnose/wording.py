"""How rules say numbers in sentences: percentages, durations and lists, short and with the digits that count."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perf_diagnostics.diagnose.statistics.intervals import Interval


def percent(share: float) -> str:
    """A share in 0…1 in words: ``30 %``; below 10 % with one decimal.

    >>> percent(0.304), percent(0.0304), percent(0)
    ('30 %', '3.0 %', '0 %')
    """
    return "0 %" if share == 0 else f"{share * 100:.{0 if abs(share) >= 0.0995 else 1}f} %"


def percent_between(share: Interval) -> str:
    """A share with its interval: ``30 % (28 % to 32 %)``; without one, or if it rounds to the same, the share alone."""
    value = percent(share.value)
    if share.low is None or share.high is None or percent(share.low) == value == percent(share.high):
        return value
    return f"{value} ({percent(share.low)} to {percent(share.high)})"


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits and no exponent.

    >>> significant(1234.5), significant(0.01234), significant(12.0)
    ('1234', '0.0123', '12.0')
    """
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    return f"{value:.{max(0, digits - 1 - size)}f}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it: ``12.3 ms``.

    >>> duration(0.0123), duration(2.5), duration(4.2e-6)
    ('12.3 ms', '2.50 s', '4.20 µs')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{significant(seconds / size)} {unit}"
    return f"{significant(seconds / 1e-6)} µs"


def listing(parts: Sequence[object]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    words = [str(part) for part in parts]
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} and {words[-1]}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """``1 step``, ``3 steps``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def continued(sentence: str) -> str:
    """A sentence as it stands behind a colon or a comma: with a small letter, unless its first word is a name.

    >>> continued("For 30 % of each step"), continued("DistributedDataParallel looks"), continued("GPU 0 is idle")
    ('for 30 % of each step', 'DistributedDataParallel looks', 'GPU 0 is idle')
    """
    first, _, _ = sentence.partition(" ")
    a_name = any(letter.isupper() for letter in first[1:]) or first.startswith("Python")
    return sentence if a_name else f"{sentence[:1].lower()}{sentence[1:]}"


def and_more_lines(told: int) -> str:
    """``, and at 2 more lines``, where of so many lines the first is told; empty where there is no other.

    >>> and_more_lines(3), and_more_lines(1)
    (', and at 2 more lines', '')
    """
    return "" if told < 2 else f", and at {counted(told - 1, 'more line')}"


def mean_count(mean: float) -> str:
    """A mean count with the digits that count, and no exponent.

    >>> mean_count(4.0), mean_count(1.256), mean_count(1234.5)
    ('4', '1.26', '1234')
    """
    return f"{mean:.3g}" if mean < 100 else f"{mean:.0f}"


def times(mean: float, noun: str, plural: str = "") -> str:
    """A mean count in words: ``1 wait``, ``1.5 waits``, ``20 waits``, ``1 copy``.

    >>> times(1.0, "wait"), times(1.5, "wait"), times(1234.5, "copy", "copies")
    ('1 wait', '1.5 waits', '1234 copies')
    """
    return f"{mean_count(mean)} {noun if mean == 1 else plural or noun + 's'}"
