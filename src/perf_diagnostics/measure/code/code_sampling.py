"""Looks, many times a second and from another thread, at which line of the user's code a training's thread stands.

What is seen is the host: on an accelerator the line that waits for it, or queues work for it. Where the times of a step
are known, only the division of a phase among lines is taken from the looks, not its length.

A look needs Python's lock, and so takes place when the thread gives that away: in long operations and waits at once, in
Python code after ``sys.getswitchinterval()`` (5 ms), wherever it stands by then. In between it is *late*: the thread
was in Python code for a while, and came to an operation or a wait, where it is seen. A late look belongs to the
moment at which it was due, and the line it saw is an upper bound for that line's time.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import NamedTuple

from perf_diagnostics.measure.code.own_code import Kind, OwnCode

#: Mean time between two looks, and after how many of them it becomes the second one: a short training is to be seen
#: often enough, and a long one little disturbed. A look takes 8 µs of a processor that does nothing else, and up to
#: 150 µs, waking up included, of a crowded one (CPython 3.11).
INTERVAL_NS = 25_000_000
RARE_INTERVAL_NS = 100_000_000
OFTEN_LOOKS = 400

#: The time between two looks is drawn evenly from this part of the mean to the rest of it, or looks at a fixed rate
#: could fall into step with a training of as fixed a rate, and see the same place of each step.
_LEAST = 0.5

#: A look that comes so much behind the time at which it was due is late; waking up takes less.
_LATE_NS = 500_000

#: Unless it comes behind by about the time after which Python takes its lock away from a thread.
_FORCED = (0.9, 1.4)

#: Frames that are looked through, and the user's own that are kept, at most; the outermost of these are left out.
_MOST_FRAMES = 400
MOST_OWN_FRAMES = 12

#: Libraries' functions inside of the innermost own line that are kept at most; the innermost of them are left out.
MOST_CALLS = 16

#: Ways to stand somewhere that are told apart; whatever comes after is not looked at by line.
MOST_STACKS = 4096

#: Looks that wait for their block to end. In a block that goes on for longer (the night of an evaluation, a notebook
#: that nobody touches) every second one goes, and those that are left and that come count twice.
MOST_WAITING = 8192

#: Functions of libraries of which it is remembered what they are; torch.compile and torch.fx make new ones for ever.
MOST_CODES = 16_384


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


class Look(NamedTuple):
    """One look: at which moment (ns of the host clock) it belongs to a phase, when it took place, and what it saw.

    ``stack`` is a number, for which :attr:`CodeSampling.stacks` has the stack; a ``rare`` look stands for
    :data:`RARE_INTERVAL_NS` of the thread's time, any other one for :data:`INTERVAL_NS`, and of a block that took very
    long for ``weight`` times that.
    """

    at_ns: int
    seen_ns: int
    stack: int
    rare: bool
    late: bool
    weight: int = 1


#: The name of work of ours in the training's thread.
OURS = "perf_diagnostics"

#: Functions through which modules are called.
_WRAPPERS = frozenset({"_wrapped_call_impl", "_call_impl", "__call__"})


class CodeSampling:
    """Looks at one thread's stack; what it saw is taken from time to time by whoever knows the phases.

    Args:
        clock: host clock in ns, the steps'.
        own_code: which files are the user's.
        thread: whose stack, by ``threading.get_ident()``.
        thread_cpu: CPU time of the thread that looks, in ns.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        own_code: OwnCode,
        thread: int,
        *,
        thread_cpu: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._clock = clock
        self._own = own_code
        self._watched = thread
        self._thread_cpu = thread_cpu
        self._looked: list[Look] = []
        self._looks = 0
        self._due_ns: int | None = None
        switch_ns = sys.getswitchinterval() * 1e9
        self._forced_ns = _FORCED[0] * switch_ns, _FORCED[1] * switch_ns
        self._stacks = [NOWHERE]
        #: By the numbers of its code objects, and its lines.
        self._numbers: dict[tuple[int, ...], int] = {}
        self._wrappers: dict[int, bool] = {}
        self._kept: list[CodeType] = []
        self._random = random.Random(thread)  # noqa: S311 - no secret, and the script's own draws stay as they are
        self._threads_before_ns = self._last_cpu_ns = 0

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """What the numbers that :meth:`take` gives stand for."""
        return tuple(self._stacks)

    @property
    def cpu_ns(self) -> int:
        """CPU time that looking has taken so far, waking up included."""
        return self._threads_before_ns + self._last_cpu_ns

    def tick(self) -> int:
        """Look, and give in how many ns to look again."""
        self.look()
        cpu_ns = self._thread_cpu()
        if cpu_ns < self._last_cpu_ns:  # another thread looks now
            self._threads_before_ns += self._last_cpu_ns
        self._last_cpu_ns = cpu_ns
        mean_ns = RARE_INTERVAL_NS if self._rare else INTERVAL_NS
        wait_ns = int(self._random.uniform(_LEAST, 2 - _LEAST) * mean_ns)
        self._due_ns = self._clock() + wait_ns
        return wait_ns

    @property
    def _rare(self) -> bool:
        return self._looks >= OFTEN_LOOKS

    def take(self) -> list[Look]:
        """The looks since the last time."""
        taken, self._looked = self._looked, []
        return taken

    def look(self) -> None:
        """See where the thread stands now."""
        weight = self._weight()
        if self._looks % weight:
            self._looks += 1  # the one before stands for it
            return
        frame: FrameType | None = sys._current_frames().get(self._watched)
        if frame is None:
            return
        now = self._clock()
        kind_of, is_wrapper = self._own.kind_of, self._is_wrapper
        lines: list[tuple[CodeType, int]] = []
        calls: list[FrameType] = []
        via: list[FrameType] = []
        beyond: list[FrameType] = []
        key: list[int] = []
        innermost: Kind | None = None
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            kind = kind_of(code.co_filename)
            innermost = innermost or kind
            if kind is Kind.OWN:
                line = frame.f_lineno or code.co_firstlineno
                lines.append((code, line))
                key += (id(code), line)
                via += beyond
                beyond = []
                if len(lines) == MOST_OWN_FRAMES:
                    break
            elif kind is Kind.STARTER:
                break
            elif kind is Kind.LIBRARY and lines:
                beyond.append(frame)
            elif kind is Kind.LIBRARY and not is_wrapper(code):
                calls.append(frame)
            frame = frame.f_back
        ours = innermost is Kind.OURS
        outer = [] if ours else calls[: -MOST_CALLS - 1 : -1]
        inner = via[: -MOST_CALLS - 1 : -1]
        key += (id(call.f_code) for call in (*outer, *inner))
        number = self._numbers.get((ours, *key))
        if number is None:
            named = (OURS,) if ours else tuple(map(_name, outer))
            number = self._new((ours, *key), Stack(tuple(lines), named, tuple(map(_name, inner))), [*outer, *inner])
        due, self._due_ns = self._due_ns, None
        behind_ns = 0 if due is None else now - due
        late = behind_ns > _LATE_NS and not self._forced_ns[0] <= behind_ns <= self._forced_ns[1]
        look = Look(now - behind_ns if late else now, now, number, self._rare, late, weight)
        self._looked.append(look)  # in one go: the loop's thread may take the list at any moment before
        self._looks += 1

    def _weight(self) -> int:
        """For how many looks the next one stands; where too many wait, every second one of them goes."""
        looked = self._looked
        if len(looked) >= MOST_WAITING:
            left = [look._replace(weight=2 * look.weight) for look in looked[::2]]
            # The loop's thread may have taken them by now; a lock would hold it up, in a signal's handler for ever.
            if self._looked is looked:
                self._looked = looked = left
        return looked[0].weight if looked else 1

    def _new(self, key: tuple[int, ...], stack: Stack, calls: list[FrameType]) -> int:
        """The number of a stack that is seen for the first time."""
        if len(self._stacks) >= MOST_STACKS:
            return 0
        # Kept, or another code object might come to have the same number.
        self._kept += [call.f_code for call in calls]
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


def _name(frame: FrameType) -> str:
    """A function's, with its module's."""
    return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}".lstrip(".")
