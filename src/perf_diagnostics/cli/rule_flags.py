"""What ``diagnose`` and ``trace`` can be told about the rules: to name every one, and other thresholds."""

from __future__ import annotations

import argparse


def add_all(command: argparse.ArgumentParser) -> None:
    """The flag that names every rule."""
    command.add_argument(
        "--all", "-a", action="store_true", help="also name the rules that found nothing, or could not look, and why"
    )


def add_threshold(command: argparse.ArgumentParser, *, such_as: str) -> None:
    """The flag that changes a threshold."""
    command.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="CODE.FIELD=VALUE",
        help=f"override a rule's threshold, for example {such_as}; may be given several times",
    )


def thresholds(given: list[str]) -> dict[str, dict[str, float]]:
    """``["INP001.warn_share=0.15"]`` as ``{"INP001": {"warn_share": 0.15}}``.

    Raises:
        InvalidSettings: not of that form.
    """
    from perf_diagnostics.errors import InvalidSettings

    chosen: dict[str, dict[str, float]] = {}
    for text in given:
        name, _, value = text.partition("=")
        code, _, field = name.partition(".")
        try:
            limit = float(value)
        except ValueError:
            raise InvalidSettings(f"--threshold {text!r} is not CODE.FIELD=NUMBER, such as INP001.warn_share=0.15.")  # noqa: B904
        of_rule = chosen.setdefault(code.upper(), {})
        if field in of_rule:
            raise InvalidSettings(f"--threshold gives {name} twice: {of_rule[field]:g} and {limit:g}. Give it once.")
        of_rule[field] = limit
    return chosen
