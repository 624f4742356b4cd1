"""The measuring loop: warm-up, then blocks of steps until enough is known or the budget is spent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.measure.steps.steady import CAUSES, QUIET_STEPS, cut_transient, relative_half_width, still_growing
from perf_diagnostics.records import Length, Outcome, StepTable
from perf_diagnostics.trials.outcome import NonFiniteLoss

#: A block ends at the latest after so long, to look for a non-finite loss, to write what was measured, and to listen.
BLOCK_SECONDS = 5.0

#: How long the warm-up waits for compilation and allocation to end beyond its least steps: enough for torch.compile's
#: eight recompilations a function with quiet steps between them, and this part of the budget (or seconds without one).
SETTLING_STEPS = 40
_SETTLING_PART = 0.25
_SETTLING_S = 120.0


@dataclass
class Measured:
    """What the loop brings home; grows block by block, so that an exception loses nothing."""

    parts: list[StepTable] = field(default_factory=list)
    outcome: Outcome = Outcome.COMPLETED
    reason: str = ""
    stop_reason: str = ""
    steady: bool = True
    warmup_ended: str = ""
    first_step_s: float | None = None
    steady_wall_ns: int | None = 0
    window_ns: tuple[int, int] | None = None
    window_steps: int = 0

    @property
    def table(self) -> StepTable:
        return StepTable.concatenate(self.parts)

    @property
    def steady_steps(self) -> int:
        return sum(len(part.steady) for part in self.parts)


class Loop:
    """Runs steps under a probe.

    Args:
        step: runs one training step and ends it on the probe.
        probe: the probe that the step writes to.
        length: warm-up and stopping rule.
        budget_s: seconds from the call of :meth:`run` after which no further step is begun; None or infinite: no end.
        floor_budget_s: seconds that the least number of steps may take where ``budget_s`` does not hold them; default:
            ``budget_s``. A trial that does not fit into this either is skipped.
        workers: how many workers the loader has.
        prefetched: how many batches each of them holds ready at most.
        take_batch: takes the next batch and drops it; called between blocks of the warm-up.
        stop_requested: asked between steps; a reason (``timeout``, ``interrupted``) ends the loop.
        on_block: called between blocks with what was measured so far, for example to write it down.
        clock: host clock in ns.
    """

    def __init__(
        self,
        step: Callable[[], None],
        probe: Probe,
        length: Length,
        *,
        budget_s: float | None = None,
        floor_budget_s: float | None = None,
        workers: int = 0,
        prefetched: int = 0,
        take_batch: Callable[[], None] = lambda: None,
        stop_requested: Callable[[], Outcome | None] = lambda: None,
        on_block: Callable[[Measured], None] = lambda _measured: None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._step = step
        self._probe = probe
        self._length = length
        self._budget_s = _counted(budget_s)
        self._floor_budget_s = self._budget_s if floor_budget_s is None else _counted(floor_budget_s)
        self._workers = workers
        self._prefetched = workers * prefetched
        self._take_batch = take_batch
        self._stop_requested = stop_requested
        self._on_block = on_block
        self._clock = clock
        self._began = clock()
        self._step_s = 0.0
        self.measured = Measured()
        #: Called once, when the warm-up is over and the first measured step is about to begin.
        self.on_measuring: Callable[[], None] = lambda: None
        #: Called right before the first and right after the last of a block of measured steps.
        self.on_steady_block: tuple[Callable[[], None], Callable[[], None]] = (_nothing, _nothing)

    def run(self) -> Measured:
        """Measure; exceptions of the step pass through, with all finished blocks kept in :attr:`measured`."""
        self._began = self._clock()
        if self._warm_up():
            self._measure()
        self._cut_transient()
        return self.measured

    # -- warm-up

    def _warm_up(self) -> bool:
        """The first steps, none of which counts; false if the trial ends here."""
        self._probe.warmup = True
        self._block(1)
        self.measured.first_step_s = self._step_s
        if self._asked_to_stop():
            return False
        while (left := self._length.warmup_steps - self._steps_done()) > 0:
            # The first step may have compiled or allocated for long; only from the second on is the price known.
            affordable = self._affordable_steps() if self._steps_done() > 1 else math.inf
            if affordable < left + self._length.floor_steps:
                break
            self._block(min(left, self._block_limit()) if self._steps_done() > 1 else 1)
            if self._asked_to_stop():
                return False
        if not (self._settle() and self._drop_prefetched()):
            return False
        if self._steps_within(self._floor_budget_s) < self._length.floor_steps:
            self.measured.outcome = Outcome.SKIPPED_OVER_TIME_BUDGET
            self.measured.reason = _does_not_fit(self._step_s, self._length.floor_steps, self._floor_budget_s)
            self.measured.stop_reason = "time_budget"
            return False
        return True

    def _settle(self) -> bool:
        """Go on warming up while one of its causes still acts, within a cap; false if the trial ends here."""
        measured, began, most = self.measured, self._clock(), self._steps_done() + SETTLING_STEPS
        while growing := still_growing(measured.table):
            if self._steps_done() >= most or self._clock() >= self._settled_by_ns(began):
                self._give_up(" and ".join(CAUSES[name] for name in growing))
                return True
            self._block(QUIET_STEPS)
            if self._asked_to_stop():
                return False
        measured.warmup_ended = "its least steps were done and nothing compiled or allocated any more"
        return True

    def _drop_prefetched(self) -> bool:
        """Take out of the way what workers fetched during the first steps; false if the trial ends here.

        The first step compiles and allocates, and the workers fill their queue meanwhile. Steps that are fed from it
        hide a loader that is a little too slow for as long as the queue lasts, which is far longer than it holds
        batches: eight of them feed 48 steps of 100 ms while another one arrives every 120 ms. Taken without a step,
        they are gone at once, and the steps behind them wait as they would for as long as the training lasts.
        """
        settled_by_ns = self._settled_by_ns(self._clock())
        for left in range(self._prefetched, 0, -1):
            if self._clock() >= settled_by_ns:
                self._give_up(f"time was short to use up {left} of the batches that workers may have had ready")
                return True
            self._take_batch()
            if self._asked_to_stop():
                return False
        if self._prefetched:
            # One batch of each worker: until then a loader that keeps up may be waited for once.
            self._block(max(QUIET_STEPS, self._workers))
        return not self._asked_to_stop()

    def _give_up(self, why: str) -> None:
        measured = self.measured
        before = f"given up after {self._steps_done()} steps: " if measured.steady else f"{measured.warmup_ended} and "
        measured.warmup_ended = before + why
        measured.steady = False

    def _settled_by_ns(self, began_ns: int) -> int:
        """When waiting for the warm-up's causes to end is given up, for the steps that must be left time for."""
        if self._budget_s is None:
            return began_ns + int(_SETTLING_S * 1e9)
        # A step that compiled says nothing about what the others take, and the first one always may have.
        walls = self.measured.table.wall_ns
        quickest_ns = int(walls.min()) if walls.size > 1 else 0
        latest = self._began + int(self._budget_s * 1e9) - (QUIET_STEPS + self._length.floor_steps) * quickest_ns
        return min(latest, began_ns + int(self._budget_s * _SETTLING_PART * 1e9))

    # -- measuring

    def _measure(self) -> None:
        self._probe.warmup = False
        self.on_measuring()
        length = self._length
        check_at = length.min_steps
        while True:
            done = self.measured.steady_steps
            if done >= length.max_steps:
                self.measured.stop_reason = "max_steps"
                return
            affordable = self._affordable_steps()
            if done < length.floor_steps:
                affordable = max(affordable, length.floor_steps - done)
            if affordable < 1:
                self.measured.stop_reason = "time_budget"
                return
            self._block(int(min(check_at - done, length.max_steps - done, affordable, self._block_limit())))
            if self._asked_to_stop():
                return
            if self.measured.steady_steps >= check_at:
                width = relative_half_width(self.measured.table.steady.wall_ns)
                if width is not None and width < length.half_width:
                    self.measured.stop_reason = "half_width"
                    return
                check_at *= 2

    def _cut_transient(self) -> None:
        """Count what is still seen of the warm-up as warm-up; a number of steps that was asked for stays."""
        parts, settled, cut_ns = cut_transient(self.measured.parts)
        self.measured.steady = self.measured.steady and settled
        if self._length.half_width:
            self.measured.parts = parts
            if self.measured.steady_wall_ns is not None:
                self.measured.steady_wall_ns -= cut_ns

    # -- blocks

    def _block(self, steps: int) -> None:
        """Run and read one block of steps; a stop request ends it after the step that is under way."""
        probe, step, stop = self._probe, self._step, self._stop_requested
        clock, whole = self._clock, False
        block_begins, block_ended = (_nothing, _nothing) if probe.warmup else self.on_steady_block
        block_begins()
        probe.start()
        began = clock()
        latest = began + self._longest_block_ns()
        try:
            for _ in range(steps):
                step()
                if stop() is not None or clock() > latest:
                    break
            whole = True
        finally:
            ended = clock()
            probe.end_block()
            if probe.device_clock != "host":
                # When the device had done the block's work, and its events were still to be read.
                ended = began + probe.blocks_wall_ns[-1]
            block_ended()
            part = probe.take()
            if len(part):
                self._keep(part, began, ended, whole=whole)
        self._on_block(self.measured)
        self._check_loss(part)

    def _keep(self, part: StepTable, began_ns: int, ended_ns: int, *, whole: bool) -> None:
        measured = self.measured
        measured.parts.append(part)
        self._step_s = float(part.wall_ns.mean()) / 1e9
        if self._probe.warmup:
            return
        if not whole:
            measured.steady_wall_ns = None  # the block holds a part of a step that has no row
        elif measured.steady_wall_ns is not None:
            measured.steady_wall_ns += ended_ns - began_ns
        measured.window_steps += len(part)
        measured.window_ns = (began_ns if measured.window_ns is None else measured.window_ns[0], ended_ns)

    def _check_loss(self, part: StepTable) -> None:
        loss = part.get("loss")
        if loss is None:
            return
        bad = np.flatnonzero(~np.isfinite(loss))
        if bad.size:
            step = self._steps_done() - len(part) + int(bad[0])
            raise NonFiniteLoss(step, float(loss[bad[0]]))

    def _asked_to_stop(self) -> bool:
        outcome = self._stop_requested()
        if outcome is None:
            return False
        self.measured.outcome = outcome
        self.measured.stop_reason = str(outcome)
        return True

    def _steps_done(self) -> int:
        return sum(len(part) for part in self.measured.parts)

    def _block_limit(self) -> int:
        return max(1, int(BLOCK_SECONDS / self._step_s)) if self._step_s > 0 else self._length.max_steps

    def _longest_block_ns(self) -> int:
        """Steps that grow slower than the last block foretold must neither outrun the budget nor go unwritten."""
        longest_s = 2 * BLOCK_SECONDS
        if self._budget_s is not None:
            longest_s = min(longest_s, self._budget_s - (self._clock() - self._began) / 1e9)
        return int(longest_s * 1e9)

    def _affordable_steps(self) -> float:
        return self._steps_within(self._budget_s)

    def _steps_within(self, budget_s: float | None) -> float:
        if budget_s is None or self._step_s <= 0:
            return math.inf
        return math.floor((budget_s - (self._clock() - self._began) / 1e9) / self._step_s)


def _counted(budget_s: float | None) -> float | None:
    """A budget that can be counted in ns; one without an end is none."""
    return None if budget_s is None or math.isinf(budget_s * 1e9) else budget_s


def _does_not_fit(step_s: float, steps: int, budget_s: float | None) -> str:
    """Why not even the least number of steps is measured; setting up may have taken more time than there was."""
    if budget_s is None or budget_s <= 0:
        room = "there is no time left for it after setting up"
    else:
        room = f"it does not fit into what is left of {budget_s:.3g} s"
    return f"one step takes {step_s:.3g} s, at least {steps} are needed, and {room}"


def _nothing() -> None:
    """Nobody listens."""
