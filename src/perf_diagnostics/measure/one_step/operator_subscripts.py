"""Whether the operator under way was asked for by a subscript, such as ``boxes[best]``, and by which one."""

from __future__ import annotations

import dis
import sys
from types import CodeType

from perf_diagnostics.measure.one_step import dispatch_mode

_SUBSCRIPTS = frozenset({"BINARY_SUBSCR", "STORE_SUBSCR", "BINARY_SLICE", "STORE_SLICE"})

#: From Python 3.14 on reading a subscript is one of many binary operators.
_BINARY, _BRACKETS = "BINARY_OP", "NB_SUBSCR"


def subscript() -> tuple[CodeType, int] | None:
    """Where in which code the subscript stands; None: it was asked for otherwise. Asked while it is shown."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename != dispatch_mode.__file__:
        frame = frame.f_back
    while frame.f_back is not None and frame.f_code.co_filename == dispatch_mode.__file__:
        frame = frame.f_back
    code, at = frame.f_code, frame.f_lasti
    if at < 0 or not _is_subscript(code.co_code[at], code.co_code[at + 1]):
        return None
    return code, at


def _is_subscript(operation: int, argument: int) -> bool:
    name = dis.opname[operation]
    if name != _BINARY:
        return name in _SUBSCRIPTS
    operators: list[tuple[str, str]] = getattr(dis, "_nb_ops", [])
    return argument < len(operators) and operators[argument][0] == _BRACKETS
