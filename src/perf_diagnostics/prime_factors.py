"""Prime factors of the lengths of Fourier transforms, for who looks at a step and who reads a trace."""

from __future__ import annotations

import math

#: Factors for which libraries have steps of their own; a length with one above the largest is done the slow way.
_FACTORS = (2, 3, 5, 7)
LARGEST_FAST = 13


def largest_factor(length: int) -> int:
    """The largest prime that divides a length; 1 of 1."""
    left, largest = length, 1
    for factor in range(2, math.isqrt(length) + 1):
        while left % factor == 0:
            left, largest = left // factor, factor
    return max(left, largest)


def fast_length(length: int) -> int:
    """The least length of at least so many, and even, whose prime factors are 2, 3, 5 and 7."""
    at = length + length % 2
    while not _is_fast(at):
        at += 2
    return at


def _is_fast(length: int) -> bool:
    for factor in _FACTORS:
        while length % factor == 0:
            length //= factor
    return length == 1
