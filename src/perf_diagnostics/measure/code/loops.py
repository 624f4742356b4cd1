"""Where a function goes through the same instructions again: its loops, and those of its comprehensions."""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType

#: So many functions' loops are kept.
_KEPT = 512


def jumps_back(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Where each jump back stands, and where it leads to, both in bytes."""
    instructions = (one for one in dis.get_instructions(code) if "JUMP_BACKWARD" in one.opname)
    return tuple((one.offset, int(one.argval)) for one in instructions)


@lru_cache(_KEPT)
def loops(code: CodeType) -> tuple[frozenset[int], ...]:
    """Of each jump back the lines that are gone through again, those of the head among them.

    >>> [sorted(one) for one in loops(compile("a = 1\\nfor b in c:\\n    d = b\\ne = 2", "x.py", "exec"))]
    [[2, 3]]
    """
    lines = [(begin, end, line) for begin, end, line in code.co_lines() if line]
    return tuple(
        frozenset(line for begin, end, line in lines if target < end and begin <= place)
        for place, target in jumps_back(code)
    )
