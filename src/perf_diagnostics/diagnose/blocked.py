"""How long the thread that computes was blocked inside of its work, on the CPU: what it neither ran nor lacked a core.

A thread that is in forward, backward or the optimizer runs, is ready and has no core, or is blocked: in a sleep, on a
file, a socket, a lock, or another process. The kernel counts the first two for the loop's thread. It may also wait for
other threads of its own process, which work for it (a pool that computes an operation); so what these ran, or could
have, is not held against it. What is left is the least that it was blocked.

Threads of torch's that have nothing to do spin before they sleep, which counts as running: for 9 ms after each stretch
of work (GNU's OpenMP with two threads on two cores, torch 2.13). With several threads so much of each wait is hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.facts import Interval, NotApplicable, TrialFacts, ask
from perf_diagnostics.records import Float64, Phase

#: The phases in which a loop on the CPU computes.
WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)

#: Threads that hardly ran may have any delay over their CPU time: as in the module run_delay.
_MOST_DELAYED = 0.999


@dataclass(frozen=True)
class Blocked:
    """What of the step the loop's thread was blocked in some phases; all are shares of the step, 0…1.

    Attributes:
        sure: the least, with the interval that its steps give.
        at_most: the most: where the thread ran all the time outside of these phases, and nobody worked for it.
        not_running: what it surely did not run in these phases.
        delayed: what it was ready to run and had no core, wherever that was.
        others: what other threads of its process ran or were ready to, in threads at a mean moment.
    """

    sure: Interval
    at_most: float
    not_running: Interval
    delayed: float
    others: float

    @property
    def waiting(self) -> float:
        """What it neither ran nor had no core for, at least: blocked, or waiting for other threads of its process."""
        return max(self.sure.value, self.not_running.value - self.delayed)


def blocked(facts: TrialFacts, phases: Sequence[Phase] = WORK) -> Blocked:
    """How long the loop's thread was blocked in those of ``phases`` that the loop marks.

    CPU time is known for the whole step only, so all of it outside of the wait for data is taken to lie in these
    phases.

    Raises:
        NotMeasured: where the scheduler does not count, the steps are too short to read the thread's clock in each, or
            none of the phases is marked; NotApplicable on a device, and with several ranks.
    """
    _require_alone(facts)
    wall = facts.column("wall_ns")
    marked = [phase for phase in phases if ask(facts.host_column, phase) is not None]
    if not marked:
        raise facts.missing("thread_cpu_ns", "the loop marks no time in which the model computes")
    time: Float64 = np.sum([facts.host_column(phase) for phase in marked], axis=0, dtype=np.float64)
    wait, in_wait = facts.table.host_ns(Phase.DATA_WAIT), ask(facts.column, "data_wait_cpu_ns")
    ran = facts.column("thread_cpu_ns") - (0 if in_wait is None else in_wait)
    # Below 0 in single steps, too: a clock that ticks coarsely is right over many of them only.
    not_running = facts.ratio("thread_cpu_ns", time - ran, wall)
    delayed, others = min(1.0, facts.quantity("loop_run_delay_share")), _others(facts)
    lost = delayed + others
    sure = Interval(
        not_running.value - lost,
        None if not_running.low is None else not_running.low - lost,
        None if not_running.high is None else not_running.high - lost,
        not_running.n,
    ).within(0.0, 1.0)
    outside = float((wall - time - (0 if wait is None else wait)).sum()) / float(wall.sum())
    unread = 0.0 if wait is None or in_wait is not None else float(wait.sum()) / float(wall.sum())
    whole = float(time.sum()) / float(wall.sum())
    at_most = min(whole, max(0.0, not_running.value + max(0.0, outside) + unread))
    return Blocked(sure, max(sure.value, at_most), not_running.within(0.0, 1.0), delayed, others)


def _require_alone(facts: TrialFacts) -> None:
    if facts.on_accelerator:
        raise NotApplicable("thread_cpu_ns", "a thread that feeds a device waits for it, so its waiting says nothing")
    told = facts.result.facts.get("ranks")
    if len(facts.result.steps) > 1 or (isinstance(told, int) and told > 1):
        raise NotApplicable("ranks", "with several ranks a thread waits for the others in its exchanges")


def _others(facts: TrialFacts) -> float:
    """Threads of the process beside the loop's that ran or were ready to, at a mean moment of the steps; at most."""
    delay = min(_MOST_DELAYED, facts.quantity("process_run_delay_share"))
    ready = facts.quantity("process_cpu_share") / (1 - delay)
    return max(0.0, ready - facts.quantity("loop_cpu_share") - facts.quantity("loop_run_delay_share"))
