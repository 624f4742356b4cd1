"""JSON values by their types: what a record may hold, and the keys of an object read with errors that name the file."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from perf_diagnostics.errors import RecordError
from perf_diagnostics.records import Json

T = TypeVar("T")


def plain(value: object, where: str) -> Json:
    """A free value as JSON holds it; ``where`` names it in the error if it is none.

    Raises:
        RecordError: The value is, or holds, something other than text, numbers, booleans, None, mappings and lists.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return _finite(float(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise RecordError(f"{where} is a {type(value).__name__}, which no record holds; give text, a number or a list.")


def _finite(number: float) -> Json:
    if math.isnan(number):
        return None
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


@dataclass(frozen=True)
class Fields:
    """The keys of one JSON object, read by type; an error names the file (``where``) and the key."""

    values: Mapping[str, Json]
    where: str

    @classmethod
    def of(cls, data: Json, where: str) -> Fields:
        if not isinstance(data, dict):
            raise RecordError(f"{where} should be a JSON object, not {type(data).__name__}.")
        return cls(data, where)

    def need(self, key: str) -> Json:
        if key not in self.values:
            raise RecordError(f"{self.where}: the key {key!r} is missing.")
        return self.values[key]

    def text(self, key: str, default: str | None = None) -> str:
        return self._typed(key, default, lambda v: isinstance(v, str), "text")

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self._typed(key, default, lambda v: isinstance(v, bool), "true or false")

    def whole(self, key: str, default: int | None = None) -> int:
        return self._typed(key, default, lambda v: isinstance(v, int) and not isinstance(v, bool), "a whole number")

    def number(self, key: str) -> float:
        value = self.values.get(key)
        if value in ("Infinity", "-Infinity"):
            return math.inf if value == "Infinity" else -math.inf
        return self._typed(key, None, lambda v: isinstance(v, int | float) and not isinstance(v, bool), "a number")

    def mapping(self, key: str) -> dict[str, Json]:
        """A free object; absent is empty."""
        return dict(self.part(key).values) if key in self.values else {}

    def texts(self, key: str) -> dict[str, str]:
        part = self.mapping(key)
        fields = Fields(part, f"{self.where}: {key}")
        return {name: fields.text(name) for name in part}

    def part(self, key: str) -> Fields:
        return Fields.of(self.need(key), f"{self.where}: {key}")

    def parts(self, key: str) -> list[Fields]:
        """The objects of a list; absent is empty."""
        values: list[Json] = self._typed(key, [], lambda v: isinstance(v, list), "a list")
        return [Fields.of(value, f"{self.where}: {key}[{index}]") for index, value in enumerate(values)]

    def _typed(self, key: str, default: T | None, fits: Callable[[Json], bool], kind: str) -> T:
        if default is not None and key not in self.values:
            return default
        value: Any = self.need(key)
        if not fits(value):
            raise RecordError(f"{self.where}: the key {key!r} should hold {kind}, not {value!r:.80}.")
        typed: T = value
        return typed
