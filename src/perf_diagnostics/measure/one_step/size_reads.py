"""Whether a line that asks for the size of a tensor does no more with it than decide what runs next."""

from __future__ import annotations

import dis
from functools import cache
from types import CodeType

#: What may stand between a size and the jump that it decides: ``len(x) > 0``, ``not x.shape[0]``.
_COMPARES = frozenset(
    {"PRECALL", "LOAD_CONST", "LOAD_SMALL_INT", "BINARY_SUBSCR", "COMPARE_OP", "UNARY_NOT", "TO_BOOL", "NOP", "COPY"}
)

#: What happens to others than the names of the function itself.
_TELLS = frozenset(
    {"RAISE_VARARGS", "LOAD_ASSERTION_ERROR", "STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF", "YIELD_VALUE"}
)

#: Calls for their effect that only collect what they are given.
_COLLECTS = frozenset({"append", "extend", "insert", "add", "pop", "remove"})


@cache
def only_decides(code: CodeType, at: int) -> bool:
    """Whether it decides a condition, under which nobody outside of the function is told anything.

    An error, a message, a field, and a count that goes up by a number tell; what is collected, given names and returned
    does not. What it is used for otherwise, such as to be added up, is not looked into, and is no decision.

    Args:
        code: who asks.
        at: where its instruction stands.
    """
    instructions = [*dis.get_instructions(code)]
    here = next(number for number, one in enumerate(instructions) if one.offset >= at)
    if instructions[here].opname == "PRECALL":  # in Python 3.11 a call of a function in C may run in either half
        here += 1
    following = range(here + 1, len(instructions))
    test = next((number for number in following if instructions[number].opname not in _COMPARES), None)
    if test is None or not instructions[test].opname.startswith("POP_JUMP"):
        return False
    jump = instructions[test]
    first, last = sorted((jump.offset, int(jump.argval)))
    return not _tells([one for one in instructions if first < one.offset < last])


def _tells(part: list[dis.Instruction]) -> bool:
    names = [one.opname for one in part]
    pairs = list(zip(part, names[1:], strict=False))
    calls = sum(one.opname.startswith("CALL") and after == "POP_TOP" for one, after in pairs)
    collects = sum(one.opname in ("LOAD_METHOD", "LOAD_ATTR") and one.argval in _COLLECTS for one in part)
    counts = any(
        one.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and after == "BINARY_OP" and "=" in part[number + 1].argrepr
        for number, (one, after) in enumerate(pairs)
    )
    return calls > collects or counts or not _TELLS.isdisjoint(names)
