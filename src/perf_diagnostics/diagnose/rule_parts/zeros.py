"""The part of zeros in words, where it is so near to all that it needs more digits."""

from __future__ import annotations


def zeros_in_words(part: float) -> str:
    """A part near 1, with the digits that count: ``99.98 %``."""
    for digits in (0, 1, 2):
        if 1 - part >= 0.999 * 10 ** -(digits + 2):
            return f"{part * 100:.{digits}f} %"
    return f"{part * 100:.3f} %"
