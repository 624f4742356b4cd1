"""Where in the user's own code a training's steady steps spend their time: looks of a sampler, by phase and by line."""

from __future__ import annotations

import functools
import linecache
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from perf_diagnostics.measure.code.code_places import CodePlaces
from perf_diagnostics.measure.code.code_sampling import INTERVAL_NS, RARE_INTERVAL_NS, CodeSampling
from perf_diagnostics.measure.code.course_of_looks import CourseOfLooks
from perf_diagnostics.measure.code.own_code import OwnCode
from perf_diagnostics.measure.code.program_slice import ProgramSlice, TooEntangledError
from perf_diagnostics.measure.code.prompt_lock import PromptLock
from perf_diagnostics.measure.code.stacks import NOWHERE
from perf_diagnostics.measure.code.wait_looks import WaitLooks
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.pausing_thread import PausingThread
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, Json

OFF_VARIABLE = "PERF_DIAGNOSTICS_CODE"
SIGNAL = "code_lines"

#: Paths that a record keeps, those seen most; of the rest only how often each phase was seen.
MOST_PATHS = 300

#: Lines of the user's own files that are read through for what they are to the training; of more nothing is told.
#: 10,000 took 1.6 s of a processor (transformers' trainer and models, CPython 3.11).
_MOST_LINES = 5000

#: A way to stand in a phase: its name, its part, whether the look was late, and the number of the stack.
_Way = tuple[str, str, bool, int]


def wanted() -> bool:
    """Whether the environment lets lines be looked at (``PERF_DIAGNOSTICS_CODE=0``: no)."""
    return os.environ.get(OFF_VARIABLE, "").strip().lower() not in ("0", "false", "no")


def one_at_a_time() -> bool:
    """Whether Python has a lock; builds without one have been there since 3.13."""
    enabled: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    return enabled


class CodeWatch:
    """Looks from the first steady step to the last one; all but the looking happens in the loop's thread.

    Args:
        clock: host clock in ns, the steps'.
        observations: where it is noted why there is nothing.
    """

    def __init__(self, clock: Callable[[], int], observations: Observations) -> None:
        self._clock = clock
        self._observations = observations
        self._sampling: CodeSampling | None = None
        self._thread: PausingThread | None = None
        self._waits: WaitLooks | None = None
        self._seen: Counter[_Way] = Counter()
        self._rare: Counter[_Way] = Counter()
        self._course: CourseOfLooks[_Way] = CourseOfLooks()
        self._places = CodePlaces(with_kinds=True)

    def begin(self) -> None:
        """The steady steps begin, in this thread."""
        if not wanted():
            self._observations.note(SIGNAL, f"{OFF_VARIABLE} turns it off")
            return
        if self._clock is not time.perf_counter_ns:
            self._observations.note(SIGNAL, "the loop has a clock of its own, which only its thread may ask")
            return
        with self._observations.guard(SIGNAL):
            watched, waits = threading.get_ident(), WaitLooks.of_this_thread(self._clock)
            lock = PromptLock(watched) if one_at_a_time() else None
            self._waits = waits
            self._sampling = CodeSampling(self._clock, OwnCode(), watched, lock=lock)
            tick = self._sampling.tick if waits is None else waits.before(self._sampling.tick)
            if lock is None:
                self._thread = PausingThread(tick, self._observations, SIGNAL)
            else:
                self._thread = PausingThread(lock.around(tick), self._observations, SIGNAL, after=lock.had)
            self._thread.start()

    def block_ended(self, probe: Probe, *, counts: bool) -> None:
        """A block of steps has ended, and its marks are still on the probe; ``counts`` where its steps are steady."""
        if self._sampling is None:
            return
        with self._observations.guard(SIGNAL):
            looks = self._sampling.take()
            if self._waits is not None:
                self._waits.take(probe.phases_at, counts=counts)
            if not counts or not looks:
                return
            due = probe.phases_at([look.at_ns for look in looks])
            seen = probe.phases_at([look.seen_ns for look in looks])
            for look, where, later in zip(looks, due, seen, strict=True):
                if where is not None:
                    # Of a late look that saw another phase nobody knows at which line the thread was when it was due.
                    stack = look.stack if where == later else 0
                    way = (*where, look.late, stack)
                    (self._rare if look.rare else self._seen)[way] += look.weight
                    self._course.count(way, look.at_ns, look.weight)

    def end(self) -> None:
        """The training is over."""
        if self._thread is not None:
            with self._observations.guard(SIGNAL):
                stopped = self._thread.stop()
                if stopped and self._waits is not None:
                    self._waits.close()

    def waits(self) -> dict[str, Json]:
        """What the thread was seen to wait for in steady steps, by the name of a trial's fact; empty without a look."""
        if self._waits is None or not (self._seen or self._rare):
            return {}
        told: dict[str, Json] = {}
        with self._observations.guard(SIGNAL):
            told = self._waits.told()
        return {"waits_seen": told} if told else {}

    def samples(self) -> CodeSamples | None:
        """What was seen so far; None where nothing was."""
        if self._sampling is None or not (self._seen or self._rare):
            return None
        found: CodeSamples | None = None
        with self._observations.guard(SIGNAL):
            found = self._named(self._sampling)
        return found  # noqa: RET504 - the guard may have swallowed what the assignment raised

    def _named(self, sampling: CodeSampling) -> CodeSamples:
        stacks = sampling.stacks
        numbers: dict[CodePlace, int] = {}
        lines: dict[CodePlace, tuple[str, int]] = {}
        paths: dict[tuple[str, str, bool, tuple[int, ...], tuple[str, ...], tuple[str, ...]], list[_Way]] = {}
        for rank, (way, _) in enumerate((self._seen + self._rare).most_common()):
            phase, part, late, number = way
            stack = stacks[number] if rank < MOST_PATHS else NOWHERE
            places = [self._places.place(code, line) for code, line in reversed(stack.lines)]
            lines.update(
                (place, (code.co_filename, line))
                for place, (code, line) in zip(places, reversed(stack.lines), strict=True)
            )
            on_the_way = tuple(numbers.setdefault(place, len(numbers)) for place in places)
            paths.setdefault((phase, part, late, on_the_way, stack.calls, stack.via), []).append(way)
        return CodeSamples(
            places=tuple(numbers),
            roles=_roles([lines[place] for place in numbers]),
            paths=tuple(
                CodePath(
                    phase=phase,
                    part=part,
                    late=late,
                    places=places,
                    calls=calls,
                    via=via,
                    looks=sum(self._seen[way] for way in ways),
                    rare=sum(self._rare[way] for way in ways),
                    course=tuple(map(sum, zip(*map(self._course.of, ways), strict=True))),
                )
                for (phase, part, late, places, calls, via), ways in paths.items()
            ),
            interval_s=INTERVAL_NS / 1e9,
            rare_interval_s=RARE_INTERVAL_NS / 1e9,
            cpu_s=sampling.cpu_ns / 1e9,
            stretch_s=self._course.stretch_s,
        )


def _roles(lines: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """What each line is to the training; nothing where that takes too long to find, or cannot be found."""
    texts = {file: linecache.getlines(file) for file in dict.fromkeys(file for file, _ in lines)}
    if sum(map(len, texts.values())) > _MOST_LINES:
        return ()
    program = _program(tuple((file, "".join(text)) for file, text in texts.items()))
    return () if program is None else tuple(str(program.role(*line) or "") for line in lines)


@functools.lru_cache(maxsize=1)
def _program(texts: tuple[tuple[str, str], ...]) -> ProgramSlice | None:
    """Files read through, by name and text: once for all borders at which a training is seen at the same files."""
    try:
        return ProgramSlice(dict(texts))
    except (RecursionError, TooEntangledError):
        return None
