"""The borders between steps at which a training's profiler window begins and ends; the steps that do not count."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.record.conclusion import Course
from perf_diagnostics.integrations.steps.loop_probe import LoopProbe
from perf_diagnostics.integrations.window.window import LoopWindow
from perf_diagnostics.measure.observation import Observations

#: Where what follows a window is so many times as long, what a board took during it is a hundredth at most.
_MANY_WINDOWS = 100


class WindowBorders:
    """Leads a training through its profiler window; all of it is called between two steps.

    Args:
        about: what is known about the training.
        probe: where its steps are marked; those of the window, and some after it, as warm-up.
        course: how many steady steps there were.
        observations: where it is noted why there is no window.
        between_blocks: ends a block of steps, and begins the next one behind what is done in it.
        place: the trial's folder, once there is one.
        clock: host clock in ns.
    """

    def __init__(
        self,
        *,
        about: About,
        probe: LoopProbe,
        course: Course,
        observations: Observations,
        between_blocks: Callable[[], AbstractContextManager[None]],
        place: Callable[[], Path | None],
        clock: Callable[[], int],
    ) -> None:
        self.window = LoopWindow(observations)
        self._about = about
        self._probe = probe
        self._course = course
        self._between_blocks = between_blocks
        self._place = place
        self._clock = clock
        #: Steady steps before it, and when the last of them ended; how long it then was until the next one.
        self._before = (0, 0)
        self._took_ns = 0

    @property
    def under_way(self) -> bool:
        """Whether the step that goes on is none that counts."""
        return self.window.under_way

    def look(self, ended_ns: int) -> int:
        """Begin the window if it is time: gives 0, or in how many ns to look again.

        Args:
            ended_ns: when the last steady step ended; its block is closed, and the next one has no step yet.
        """
        course = self._course
        if not self.window.waiting:
            return 0
        again_ns = self.window.later_ns(course.steady_steps, course.steady_wall_ns)
        if again_ns:
            return again_ns
        with self._between_blocks():
            self._before = (course.steady_steps, ended_ns)
            self.window.begin(
                self._about.device, course.steady_wall_ns // course.steady_steps, queued=_queued(self._about)
            )
            self._probe.warmup = self.window.under_way
        self.window.follow(self._probe.state)
        return 0

    def border(self) -> bool:
        """A step has ended that does not count; true if the next one does not, either."""
        if self.window.step_ended():
            with self._between_blocks():
                self.window.write(self._place())
        elif not self.window.under_way:
            with self._between_blocks():
                self._probe.warmup = False
            self._took_ns = self._clock() - self._before[1]
        self.window.follow(self._probe.state)
        return self.window.under_way

    def break_off(self, *, in_peace: bool) -> None:
        """No step comes any more: the profiler is to stop before anything else is looked at."""
        self.window.break_off(self._place(), in_peace=in_peace)

    def training_ended(self, *, in_peace: bool) -> None:
        """The training is over; ``in_peace`` where it came to its end by itself."""
        course = self._course
        self.window.training_ended(
            self._place(), in_peace=in_peace, steps=course.steady_steps, steady_ns=course.steady_wall_ns
        )

    def undisturbed(self, steps: int, ended_ns: int) -> tuple[int, int]:
        """The steady steps over which a board's readings are added up, and until when.

        All of them, or those before the window where what the board did during it would be seen in the sum.
        """
        before, until_ns = self._before
        if before and (not self._took_ns or ended_ns - until_ns < _MANY_WINDOWS * self._took_ns):
            return before, until_ns
        return steps, ended_ns


def _queued(about: About) -> int:
    """Batches that wait in the training's loader at most."""
    facts = {**about.facts, **about.loader_facts}
    workers, ahead = facts.get("num_workers"), facts.get("prefetch_factor")
    if not isinstance(workers, int):
        return 0
    return workers * (ahead if isinstance(ahead, int) else 2)
