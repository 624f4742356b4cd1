"""Where in the user's own code a training's steady steps spend their time: looks of a sampler, by phase and by line."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType

from perf_diagnostics.measure.code_sampling import INTERVAL_NS, NOWHERE, RARE_INTERVAL_NS, CodeSampling
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.own_code import OwnCode
from perf_diagnostics.measure.pausing_thread import PausingThread
from perf_diagnostics.measure.privacy import Person, masked_text
from perf_diagnostics.measure.probe import Probe
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples

OFF_VARIABLE = "PERF_DIAGNOSTICS_CODE"
SIGNAL = "code_lines"

#: Paths that a record keeps, those seen most; of the rest only how often each phase was seen.
MOST_PATHS = 300

#: Characters of a line that are kept.
_MOST_TEXT = 160

#: A way to stand in a phase: its name, its part, whether the look was late, and the number of the stack.
_Way = tuple[str, str, bool, int]


def wanted() -> bool:
    """Whether the environment lets lines be looked at (``PERF_DIAGNOSTICS_CODE=0``: no)."""
    return os.environ.get(OFF_VARIABLE, "").strip().lower() not in ("0", "false", "no")


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
        self._seen: Counter[_Way] = Counter()
        self._rare: Counter[_Way] = Counter()
        self._folder = Path.cwd()
        self._person: Person | None = None
        self._texts: dict[tuple[str, int], str] = {}

    def begin(self) -> None:
        """The steady steps begin, in this thread."""
        if not wanted():
            self._observations.note(SIGNAL, f"{OFF_VARIABLE} turns it off")
            return
        if self._clock is not time.perf_counter_ns:
            self._observations.note(SIGNAL, "the loop has a clock of its own, which only its thread may ask")
            return
        with self._observations.guard(SIGNAL):
            self._sampling = CodeSampling(self._clock, OwnCode(), threading.get_ident())
            self._thread = PausingThread(self._sampling.tick, self._observations, SIGNAL)
            self._thread.start()

    def block_ended(self, probe: Probe, *, counts: bool) -> None:
        """A block of steps has ended, and its marks are still on the probe; ``counts`` where its steps are steady."""
        if self._sampling is None:
            return
        with self._observations.guard(SIGNAL):
            looks = self._sampling.take()
            if not counts or not looks:
                return
            due = probe.phases_at([look.at_ns for look in looks])
            seen = probe.phases_at([look.seen_ns for look in looks])
            for look, where, later in zip(looks, due, seen, strict=True):
                if where is not None:
                    # Of a late look that saw another phase nobody knows at which line the thread was when it was due.
                    stack = look.stack if where == later else 0
                    (self._rare if look.rare else self._seen)[*where, look.late, stack] += 1

    def end(self) -> None:
        """The training is over."""
        if self._thread is not None:
            with self._observations.guard(SIGNAL):
                self._thread.stop()

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
        paths: dict[tuple[str, str, bool, tuple[int, ...], tuple[str, ...], tuple[str, ...]], list[int]] = {}
        for rank, ((phase, part, late, number), _) in enumerate((self._seen + self._rare).most_common()):
            stack = stacks[number] if rank < MOST_PATHS else NOWHERE
            places = [self._place(code, line) for code, line in reversed(stack.lines)]
            on_the_way = tuple(numbers.setdefault(place, len(numbers)) for place in places)
            counts = paths.setdefault((phase, part, late, on_the_way, stack.calls, stack.via), [0, 0])
            counts[0] += self._seen[phase, part, late, number]
            counts[1] += self._rare[phase, part, late, number]
        return CodeSamples(
            places=tuple(numbers),
            paths=tuple(
                CodePath(phase=phase, part=part, late=late, places=places, calls=calls, via=via, looks=looks, rare=rare)
                for (phase, part, late, places, calls, via), (looks, rare) in paths.items()
            ),
            interval_s=INTERVAL_NS / 1e9,
            rare_interval_s=RARE_INTERVAL_NS / 1e9,
            cpu_s=sampling.cpu_ns / 1e9,
        )

    def _place(self, code: CodeType, line: int) -> CodePlace:
        person = self._person = self._person or Person.here()
        file = Path(code.co_filename)
        shown = _cell(code.co_filename) or (
            file.relative_to(self._folder) if file.is_relative_to(self._folder) else file
        )
        at = (code.co_filename, line)
        if at not in self._texts:
            self._texts[at] = masked_text(linecache.getline(*at).strip(), person)[:_MOST_TEXT]
        return CodePlace(
            file=person.removed_from(str(shown)), line=line, function=code.co_qualname, text=self._texts[at]
        )


def _cell(file: str) -> str:
    """The name of a notebook's cell (``Cell In[3]``) by the name that its code has; empty for a file."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)  # IPython 8 or later
    named = None if name_of is None else name_of(file)
    return "" if named is None else " ".join(named)
