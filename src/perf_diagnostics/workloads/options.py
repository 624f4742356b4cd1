"""A workload's own options: declared as a frozen dataclass, read from plain values, refused when unknown."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, cast

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Json, Settings

T = TypeVar("T")


def option(default: Json, says: str, *, least: float | None = None, among: tuple[str, ...] = ()) -> Any:
    """A field of an options dataclass: its default, what it means, and which values it may take."""
    return dataclasses.field(default=default, metadata={"says": says, "least": least, "among": among})


@dataclass(frozen=True)
class OptionText:
    """What there is to tell about one option; ``default`` None means that the workload chooses."""

    name: str
    default: Json
    says: str


def option_texts(kind: type[Any]) -> tuple[OptionText, ...]:
    """The options a dataclass declares, in its order."""
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind)
    return tuple(OptionText(f.name, cast(Json, f.default), f.metadata["says"]) for f in fields)


def options_from(kind: type[T], given: Mapping[str, Json], *, workload: str) -> T:
    """An instance of the options dataclass ``kind`` with the given values.

    Raises:
        WorkloadError: A name that ``kind`` lacks, or a value of another type or outside its limits.
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    types = typing.get_type_hints(kind)
    values: dict[str, Json] = {}
    for name, value in given.items():
        if name not in fields:
            raise WorkloadError(f"{workload} has no option {shown(name)}; {known_names(name, fields)}.")
        values[name] = _checked(value, types[name], fields[name].metadata, f"Option {name} of {workload}")
    return kind(**values)


def refuse_settings(settings: Settings, names: Iterable[str], *, workload: str, why: str) -> None:
    """Raise InvalidSettings if one of these settings was chosen, for a workload that cannot honour it.

    A switch that is off (``False``) asks for nothing and is never refused.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and value is not False:
            raise InvalidSettings(f"{name}={value!r} cannot be honoured by {workload}: {why}. Leave {name} unset.")


def known_names(wrong: str, known: Iterable[str]) -> str:
    """The close matches of a wrong name, then all known ones, as the end of an error's sentence."""
    names = sorted(known)
    if not names:
        return "none are known"
    close = difflib.get_close_matches(wrong, names, n=1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"known are {', '.join(names)}"


def shown(text: str, *, limit: int = 80) -> str:
    """Untrusted text for an error message: quoted, control characters escaped, cut to ``limit`` characters."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def _checked(value: Json, kind: Any, limits: Mapping[str, Any], what: str) -> Json:
    allowed = typing.get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if isinstance(value, int) and not isinstance(value, bool) and float in allowed and int not in allowed:
        value = float(value)
    if type(value) not in allowed:
        words = " or ".join("null" if a is NoneType else a.__name__ for a in allowed)
        raise WorkloadError(f"{what} is {shown(str(value))}, a {type(value).__name__}; it must be of type {words}.")
    if limits["among"] and value not in limits["among"]:
        raise WorkloadError(f"{what} is {shown(str(value))}; it must be one of {', '.join(limits['among'])}.")
    if limits["least"] is not None and isinstance(value, int | float) and not value >= limits["least"]:
        raise WorkloadError(f"{what} is {value}; it must be at least {limits['least']}.")
    return value
