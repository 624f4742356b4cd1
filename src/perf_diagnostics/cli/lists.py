"""Lists on the command line: ``1,2 4`` and ``1 2 4`` mean the same."""

from __future__ import annotations

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
