"""What a walk along a thread's frames says: the user's lines, what they called and through what, told apart by number.

A walk is taken under Python's lock, while the thread stands, and is no more than its code objects and the places in
them. Which of them are the user's, which lines these are and how all is called is worked out later.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from types import CodeType

from perf_diagnostics.measure.code.loops import jumps_back
from perf_diagnostics.measure.code.module_names import ModuleNames
from perf_diagnostics.measure.code.own_code import Kind, OwnCode

#: The user's own frames that are kept at most; the outermost are left out.
MOST_OWN_FRAMES = 12

#: Libraries' functions inside of the innermost own line that are kept at most; the innermost of them are left out.
MOST_CALLS = 16

#: Ways to stand somewhere that are told apart; whatever comes after is not looked at by line.
MOST_STACKS = 4096

#: Functions of libraries of which it is remembered what they are; torch.compile and torch.fx make new ones for ever.
MOST_CODES = 16_384

#: Walks that are remembered with their numbers; beyond that all are forgotten, and worked out anew when they come.
MOST_WALKS = 2048

#: Code objects whose tables of lines are kept; beyond that all are forgotten, and read anew.
MOST_TABLES = 128

#: The name of work of ours in the training's thread.
OURS = "perf_diagnostics"

#: Functions through which modules are called.
_WRAPPERS = frozenset({"_wrapped_call_impl", "_call_impl", "__call__"})

#: A thread's frames, the innermost first: their code objects, and which instruction of each is at work (in bytes).
Walk = tuple[list[CodeType], list[int]]


@dataclass(frozen=True)
class Stack:
    """Where a thread stood: the user's lines, the innermost first, and the libraries' functions inside of them.

    ``calls`` are these functions with their modules, the one that the innermost line had called first; those that only
    call others on are left out, and of many the innermost ones. ``via`` are those through which the innermost line was
    called from the others, the outermost first.
    """

    lines: tuple[tuple[CodeType, int], ...]
    calls: tuple[str, ...]
    via: tuple[str, ...] = ()


NOWHERE = Stack((), ())


class Stacks:
    """All ways to stand that were met, by number; 0 is nowhere.

    Args:
        own_code: which files are the user's.
    """

    def __init__(self, own_code: OwnCode) -> None:
        self._own = own_code
        self._modules = ModuleNames()
        self._lines = Lines()
        self._stacks = [NOWHERE]
        #: By the numbers of its code objects, and its lines.
        self._numbers: dict[tuple[int, ...], int] = {}
        self._wrappers: dict[int, bool] = {}
        self._kept: list[CodeType] = []
        #: With the code objects, or another one might come to have the same number.
        self._walks: dict[bytes, tuple[int, list[CodeType]]] = {}

    @property
    def all(self) -> tuple[Stack, ...]:
        """What the numbers stand for."""
        return tuple(self._stacks)

    def number(self, walk: Walk) -> int:
        """That of the stack that a walk has met."""
        codes, places = walk
        key = array("q", [*map(id, codes), *places]).tobytes()
        known = self._walks.get(key)
        if known is None:
            if len(self._walks) >= MOST_WALKS:
                self._walks.clear()
            known = self._walks[key] = self._worked_out(codes, places), codes
        return known[0]

    def _worked_out(self, codes: list[CodeType], places: list[int]) -> int:
        kind_of, is_wrapper = self._own.kind_of, self._is_wrapper
        lines: list[tuple[CodeType, int]] = []
        calls: list[CodeType] = []
        via: list[CodeType] = []
        beyond: list[CodeType] = []
        key: list[int] = []
        innermost: Kind | None = None
        for code, place in zip(codes, places, strict=True):
            kind = kind_of(code.co_filename)
            innermost = innermost or kind
            if kind is Kind.OWN:
                line = self._lines.at(code, place)
                lines.append((code, line))
                key += (id(code), line)
                via += beyond
                beyond = []
                if len(lines) == MOST_OWN_FRAMES:
                    break
            elif kind is Kind.STARTER:
                break
            elif kind is Kind.LIBRARY and lines:
                beyond.append(code)
            elif kind is Kind.LIBRARY and not is_wrapper(code):
                calls.append(code)
        ours = innermost is Kind.OURS
        outer = [] if ours else calls[: -MOST_CALLS - 1 : -1]
        inner = via[: -MOST_CALLS - 1 : -1]
        key += (id(call) for call in (*outer, *inner))
        number = self._numbers.get((ours, *key))
        if number is None:
            named = (OURS,) if ours else tuple(map(self._name, outer))
            stack = Stack(tuple(lines), named, tuple(map(self._name, inner)))
            number = self._new((ours, *key), stack, [*outer, *inner])
        return number

    def _new(self, key: tuple[int, ...], stack: Stack, calls: list[CodeType]) -> int:
        """The number of a stack that is seen for the first time."""
        if len(self._stacks) >= MOST_STACKS:
            return 0
        # Kept, or another code object might come to have the same number.
        self._kept += calls
        self._stacks.append(stack)
        number = self._numbers[key] = len(self._stacks) - 1
        return number

    def _is_wrapper(self, code: CodeType) -> bool:
        """Whether a function of a library only calls another one, which says more about what is done."""
        wraps = self._wrappers.get(id(code))
        if wraps is None:
            wraps = "<locals>" in code.co_qualname or code.co_name in _WRAPPERS
            if len(self._wrappers) < MOST_CODES:
                self._wrappers[id(code)] = wraps
                self._kept.append(code)
        return wraps

    def _name(self, code: CodeType) -> str:
        """A function's, with its module's."""
        return f"{self._modules.of(code.co_filename)}.{code.co_qualname}".lstrip(".")


class Lines:
    """Lines of instructions; the tables of some code objects are kept, for those of long functions are long."""

    def __init__(self) -> None:
        #: With the code object, or another one might come to have the same number.
        self._tables: dict[int, tuple[CodeType, array[int], array[int]]] = {}

    def at(self, code: CodeType, place: int) -> int:
        """The line of an instruction, by its place in bytes; of one that has none, the first line of its code.

        The jump at a loop's end has none where several lines lead there. It is where a thread gives Python's lock away,
        so that a loop of Python's own is seen there and nowhere else: its line is that of the loop's head.

        >>> Lines().at(compile("a = 1\\n\\nb = 2", "x.py", "exec"), 1 << 20)
        3
        """
        table = self._tables.get(id(code))
        if table is None:
            if len(self._tables) >= MOST_TABLES:
                self._tables.clear()
            begins, lines = array("q"), array("q")
            heads = _heads(code) if any(line is None for *_, line in code.co_lines()) else {}
            for begin, _, line in code.co_lines():
                begins.append(begin)
                lines.append(line or heads.get(begin, 0))
            table = self._tables[id(code)] = code, begins, lines
        _, begins, lines = table
        return lines[max(0, bisect_right(begins, place) - 1)] or code.co_firstlineno


def _heads(code: CodeType) -> dict[int, int]:
    """The lines of the heads of loops, by the places of the jumps back to them."""
    line_at: dict[int, int] = {}
    for begin, end, line in code.co_lines():
        line_at.update(dict.fromkeys(range(begin, end, 2), line or 0))
    return {place: line_at.get(target, 0) for place, target in jumps_back(code)}
