"""A probe whose steps may end in hindsight: at a place on the tape that was kept, because only later it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.integrations.steps.loop_probe import LoopProbe
from perf_diagnostics.measure.steps.tape import AT, END, FOLDED, FORWARD, OPTIMIZER, OTHER, START, code_of, time_of

#: What a step held: samples, tokens, padding tokens; None where it could not be told.
Held = tuple[int | None, int | None, int | None]


@dataclass(frozen=True)
class OpenBorder:
    """A place on the tape at which a step may have ended, with what would have been read there; sums from the start."""

    mark: int
    epoch: int
    graphs: int
    cpu_ns: int
    wait_cpu_ns: int
    gc_ns: int


class HindsightProbe(LoopProbe):
    """A loop's probe that can end steps where they ended, also when that is known only afterwards."""

    def open_border(self) -> OpenBorder:
        """The last mark is where a step may have ended; :meth:`end_steps_at` ends it there."""
        last = len(self._marks) - 1
        cpu_ns = self._step_cpu() - self._cpu_ns if self._reads_cpu else 0
        return OpenBorder(last, self.epoch, self._graphs(), cpu_ns, self._wait_cpu_ns, self._gc_ns)

    def end_steps_at(self, ends: Sequence[tuple[OpenBorder, Held]], *, lost: int = 0) -> list[int]:
        """Steps have ended at these borders, in their order, and held so much. Only while no device is timed.

        Args:
            ends: their borders, and what they held.
            lost: so many of the first ones are not recorded.

        Returns:
            When they ended, in ns of the host's clock.
        """
        cpu_ns = wait_ns = gc_ns = 0
        for number, (border, (samples, tokens, padding)) in enumerate(ends):
            recorded = number >= lost
            self._marks[border.mark] = time_of(self._marks[border.mark]) + AT[END if recorded else START]
            if recorded:
                held = (samples or 0, -1 if tokens is None else tokens, -1 if padding is None else padding)
                epoch = border.epoch if number else self._step_epoch
                self._was_told((*held, self.warmup, epoch, self._block, border.graphs))
                self._told.append((self._steps, self._last_told))
                if self._reads_cpu:
                    self._cpu.extend((self._steps, border.wait_cpu_ns - wait_ns, border.cpu_ns - cpu_ns))
                if border.gc_ns > gc_ns:
                    self._pauses[self._steps] = border.gc_ns - gc_ns
                self._steps += 1
            cpu_ns, wait_ns, gc_ns = border.cpu_ns, border.wait_cpu_ns, border.gc_ns
            self._step_mark = border.mark + 1
        self._step_epoch = self.epoch
        self._cpu_ns += cpu_ns
        self._wait_cpu_ns -= wait_ns
        self._gc_ns -= gc_ns
        return [time_of(self._marks[border.mark]) for border, _ in ends]

    @property
    def last_mark(self) -> int:
        """The place of the last mark on the tape."""
        return len(self._marks) - 1

    def turn_into_forward(self, places: Sequence[int]) -> None:
        """What was marked there as other, by :data:`OTHER`, is forward."""
        marks = self._marks
        for place in places:
            if place < len(marks) and code_of(marks[place]) == OTHER:
                marks[place] += AT[FORWARD] - AT[OTHER]

    def no_update(self) -> None:
        """What was marked last as optimizer, in the step that is under way, is other."""
        marks = self._marks
        for place in reversed(range(self._step_mark, len(marks))):
            if (code := code_of(marks[place])) in (OPTIMIZER, END, START, FOLDED):
                if code == OPTIMIZER:
                    marks[place] += AT[OTHER] - AT[OPTIMIZER]
                return

    def begin_again(self) -> None:
        """What was marked so far belongs to no step: the first one begins now."""
        self._block_start = now = self._clock()
        self._mark(now + AT[START])
        self.end_steps_at([(self.open_border(), (None, None, None))], lost=1)

    def leave_out(self, took_ns: int, cpu_ns: int) -> None:
        """The time since the last mark was spent on work of ours: what came before it moves up to now.

        Args:
            took_ns: by the host's clock.
            cpu_ns: by the thread's CPU clock.
        """
        np.frombuffer(self._marks, dtype=np.int64)[:] += took_ns
        self._block_start += took_ns
        self._cpu_ns += cpu_ns
        if self._origin is not None and self._block == 0:
            self._origin += took_ns
