"""Which lines of a function a loop goes through again."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from perf_diagnostics.measure.code.loops import loops


def _for(rows: Any) -> Any:
    total = 0
    for row in rows:
        total += row
    return total


def _while(count: int) -> int:
    made = 1
    while count:
        made *= count
        count -= 1
    return made


def _comprehended(rows: Any) -> Any:
    return [row * 2 for row in rows]


def _plain(row: Any) -> Any:
    return row + 1


@pytest.mark.parametrize(
    ("function", "looped"), [(_for, {2, 3}), (_while, {2, 3, 4}), (_comprehended, {1}), (_plain, set())]
)
def test_lines_of_loops(function: Callable[..., Any], looped: set[int]) -> None:
    code = function.__code__
    inside = [code, *(one for one in code.co_consts if inspect.iscode(one))]  # a comprehension's, before Python 3.12
    assert {line - code.co_firstlineno for one in inside for loop in loops(one) for line in loop} == looped
