"""Values on the command line: lists, in which ``1,2 4`` and ``1 2 4`` mean the same, assignments, numbers, seconds."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from perf_diagnostics.cli.parser import nearest
from perf_diagnostics.errors import InvalidSettings

if TYPE_CHECKING:
    from perf_diagnostics.records import Precision

#: What a sweep can train in, and what it refuses by a reason of its own.
PRECISIONS, _REFUSED_LATER = ("float32", "tf32", "bfloat16", "float16"), "float64"


def precision(name: str, *, of: str) -> Precision:
    """A precision by its name.

    Raises:
        InvalidSettings: there is none of that name.
    """
    if name not in (*PRECISIONS, _REFUSED_LATER):
        raise InvalidSettings(f"{of}: {name!r} is not one of {', '.join(PRECISIONS)}{nearest(name, PRECISIONS)}.")
    return cast("Precision", name)


def split_names(given: Iterable[str]) -> list[str]:
    """Names separated by commas or spaces, empty ones dropped."""
    return [name.strip() for text in given for name in str(text).split(",") if name.strip()]


def some_names(given: Iterable[str], *, of: str) -> list[str]:
    """Names separated by commas or spaces, at least one; ``of`` is the flag they were given to.

    Raises:
        InvalidSettings: there is none.
    """
    names = split_names(given)
    if not names:
        raise InvalidSettings(f"{of} names nothing; give at least one value, or leave the flag out.")
    return names


def split_whole_numbers(given: Iterable[str | int], *, of: str) -> list[int]:
    """Whole numbers separated by commas or spaces, at least one.

    Raises:
        InvalidSettings: one is not a whole number, or there is none.
    """
    numbers = []
    for name in some_names((str(item) for item in given), of=of):
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


def assignments(given: Iterable[str], *, of: str) -> dict[str, str]:
    """Several ``NAME=VALUE`` by name.

    Raises:
        InvalidSettings: one is not of that form, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in given:
        name, value = split_assignment(text, of=of)
        if name in found:
            raise InvalidSettings(f"{of} gives {name} twice: {found[name]} and {value}. Give it once.")
        found[name] = value
    return found


def parsed_value(text: str) -> Any:
    """``true``, ``none``, ``3``, ``0.5`` as what they mean; anything else as text, nan and infinity too."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text


def whole_number(text: str) -> int:
    """A whole number, as the type of an argument."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number.") from None


def at_least_one(text: str) -> int:
    """A whole number from 1 on, as the type of an argument."""
    if (value := whole_number(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is too few; give 1 or more.")
    return value


def number(text: str) -> float:
    """A number, as the type of an argument."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number.") from None


def seconds(text: str) -> float:
    """Seconds, 0 or more, as the type of an argument."""
    value = number(text)
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text} is no length of time; give 0 or more seconds.")
    return value


def some_seconds(text: str) -> float:
    """Seconds, more than 0, as the type of an argument."""
    if not (value := seconds(text)):
        raise argparse.ArgumentTypeError("0 leaves no time at all; give more than 0 seconds.")
    return value
