"""Rules that other packages bring: entry points of the group ``perf_diagnostics.rules``, each leading to one rule.

In the ``pyproject.toml`` of such a package::

    [project.entry-points."perf_diagnostics.rules"]
    slow-logging = "my_package.rules:SlowLogging"

where ``SlowLogging`` is a rule (see :mod:`perf_diagnostics.diagnose.rule`), or a class or function that makes one when
called without arguments. Its code is of its own: no rule of ours is replaced. One that raises is named as failed, and
the others' answers stand; while you write it, ``PERF_DIAGNOSTICS_STRICT=1`` in the environment has the error raised.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import re
from typing import Any, cast

from perf_diagnostics.diagnose.finding import Family
from perf_diagnostics.diagnose.rule import SECTIONS, Rule
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.errors import InvalidSettings

ENTRY_POINTS = "perf_diagnostics.rules"

_CODE = re.compile(r"[A-Z]{3}\d{3}")
_LOOKS_AT = ("trial", "group", "run")


def all_rules() -> tuple[Rule, ...]:
    """Our rules, then the installed ones by the names of their entry points.

    Raises:
        InvalidSettings: an installed rule cannot be loaded or is none; the text names its package.
    """
    found: list[Rule] = list(RULES)
    for point in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        rule = _loaded(point)
        if rule.code in {known.code for known in found}:
            raise InvalidSettings(f"{_where(point)} has the code {rule.code}, which is taken. {_WHAT_NOW}")
        found.append(rule)
    return tuple(found)


_WHAT_NOW = "Mend or remove the package it comes from."


def _loaded(point: importlib.metadata.EntryPoint) -> Rule:
    try:
        loaded = point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidSettings(f"{_where(point)} cannot be loaded: {error}. {_WHAT_NOW}") from error
    try:
        rule = loaded() if isinstance(loaded, type) or not hasattr(loaded, "check") else loaded
    except TypeError as error:
        raise InvalidSettings(f"{_where(point)} cannot be made without arguments: {error}. {_WHAT_NOW}") from error
    wrong = _wrong_with(rule)
    if wrong:
        raise InvalidSettings(f"{_where(point)} is no rule: {wrong}. {_WHAT_NOW}")
    return cast(Rule, rule)


def _wrong_with(rule: Any) -> str:
    """Why this is no rule; empty if it is one."""
    missing = [name for name in ("code", "name", "family", "looks_at", "check") if not hasattr(rule, name)]
    if missing:
        return f"it has no {', '.join(missing)}"
    if not isinstance(rule.code, str) or _CODE.fullmatch(rule.code) is None:
        return f"its code {rule.code!r} is not three capitals and three digits"
    if not isinstance(rule.family, Family):
        return f"its family {rule.family!r} is none of {', '.join(Family)}"
    if rule.looks_at not in _LOOKS_AT:
        return f"it looks at {rule.looks_at!r}, not at one of {', '.join(_LOOKS_AT)}"
    if not dataclasses.is_dataclass(rule):
        return "it is no dataclass, whose fields are its thresholds"
    page = inspect.getdoc(rule) or ""
    absent = [section for section in SECTIONS if f"{section}:" not in page]
    return f"its docstring lacks the sections {', '.join(absent)}" if absent else ""


def _where(point: importlib.metadata.EntryPoint) -> str:
    return f"The rule {point.name!r}, installed as {point.value},"
