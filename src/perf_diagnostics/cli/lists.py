"""Values on the command line: lists, in which ``1,2 4`` and ``1 2 4`` mean the same, assignments, and seconds."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable

from perf_diagnostics.errors import InvalidSettings


def split_names(given: Iterable[str]) -> list[str]:
    """Names separated by commas or spaces, empty ones dropped."""
    return [name.strip() for text in given for name in str(text).split(",") if name.strip()]


def split_whole_numbers(given: Iterable[str | int], *, of: str) -> list[int]:
    """Whole numbers separated by commas or spaces.

    Raises:
        InvalidSettings: one is not a whole number.
    """
    numbers = []
    for name in split_names(str(item) for item in given):
        try:
            numbers.append(int(name))
        except ValueError:
            raise InvalidSettings(f"{of}: {name!r} is not a whole number.") from None
    return numbers


def split_assignment(text: str, *, of: str) -> tuple[str, str]:
    """``NAME=VALUE`` as its two parts.

    Raises:
        InvalidSettings: there is no ``=`` or no name.
    """
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise InvalidSettings(f"{of} {text!r} is not NAME=VALUE.")
    return name.strip(), value


def seconds(text: str) -> float:
    """Seconds, 0 or more, as the type of an argument."""
    value = float(text)
    if math.isnan(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text} is no length of time; give 0 or more seconds.")
    return value


def some_seconds(text: str) -> float:
    """Seconds, more than 0, as the type of an argument."""
    if not (value := seconds(text)):
        raise argparse.ArgumentTypeError("0 leaves no time at all; give more than 0 seconds.")
    return value
