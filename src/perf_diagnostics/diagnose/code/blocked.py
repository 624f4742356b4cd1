"""How long the thread that computes was blocked inside of its work, on the CPU: what it neither ran nor lacked a core.

A thread that is in forward, backward or the optimizer runs, is ready and has no core, or is blocked: in a sleep, on a
file, a socket, a lock, or another process. The kernel counts the first two for the loop's thread. It may also wait for
other threads of its own process, which work for it (a pool that computes an operation); so what these ran, or could
have, is not held against it. What is left is the least that it was blocked.

Threads of torch's that have nothing to do spin before they sleep, which counts as running: for 9 ms after each stretch
of work (GNU's OpenMP with two threads on two cores, torch 2.13). With several threads so much of each wait is hidden.
What looks at the thread say goes beyond that: seen in a sleep, on a file or a socket, it waited for no thread of its
process, whatever these did, and likewise for a lock while none of them was at work. All that it was blocked, in the
part of the looks at it while blocked that surely saw such a wait, is the least, too, if it is no more than the part of
all looks that surely did. The larger one of both counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from perf_diagnostics.diagnose.code.phase_looks import proportion
from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, TrialFacts, ask
from perf_diagnostics.records import Float64, Phase

#: The phases in which a loop on the CPU computes.
WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)

#: Threads that hardly ran may have any delay over their CPU time: as in the module run_delay.
_MOST_DELAYED = 0.999


#: What a thread waits for itself, by what was seen, in words; nothing that its own process computes ends such a wait.
ITS_OWN: Mapping[str, str] = MappingProxyType(
    {
        "sleep": "in a sleep",
        "file": "on a file",
        "pipe": "on a pipe, for another process",
        "socket": "on a socket",
        "process": "for a process to end",
        "lock": "for a lock, while no thread of its process worked",
    }
)


@dataclass(frozen=True)
class WaitsSeen:
    """How often the loop's thread was seen blocked in some phases, by what it waited for; empty: nobody looked."""

    counts: Mapping[str, int]

    @property
    def own(self) -> int:
        """Looks that saw it wait for what no thread of its process computes."""
        return sum(self.counts.get(kind, 0) for kind in ITS_OWN)

    @property
    def blocked(self) -> int:
        """Looks that saw it blocked."""
        return sum(count for kind, count in self.counts.items() if kind not in ("runs", "late", "no core"))

    @property
    def least_part(self) -> float:
        """The part of these looks that surely saw such a wait, by Wilson's interval; 0 without any."""
        return self._least(self.blocked)

    @property
    def least_share(self) -> float:
        """The part of all looks that surely did.

        A late one is held to have seen none; one for which there was no core says nothing.
        """
        return self._least(sum(count for kind, count in self.counts.items() if kind != "no core"))

    def _least(self, looks: int) -> float:
        return (proportion(self.own / looks, looks).low or 0.0) if looks else 0.0

    @property
    def most(self) -> str:
        """What it was seen to wait for most often among these, in words; empty where it never was."""
        kind = max(ITS_OWN, key=lambda each: self.counts.get(each, 0))
        return ITS_OWN[kind] if self.counts.get(kind) else ""


@dataclass(frozen=True)
class Blocked:
    """What of the step the loop's thread was blocked in some phases; all are shares of the step, 0…1.

    Attributes:
        sure: the least, with the interval that its steps give.
        at_most: the most: where the thread ran or lacked a core all the time outside of these phases, and nobody worked
            for it.
        not_running: what it surely did not run in these phases.
        delayed: what it was ready to run and had no core, wherever that was.
        others: what other threads of its process ran or were ready to, in threads at a mean moment.
        looks: for what it was seen to wait in these phases.
    """

    sure: Interval
    at_most: float
    not_running: Interval
    delayed: float
    others: float
    looks: WaitsSeen

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
    looks, whole = _seen(facts, marked), float(time.sum()) / float(wall.sum())
    seen = _in_looks(_less(not_running, delayed), looks, whole)
    sure = max(_less(not_running, lost), seen, key=lambda one: one.value)
    outside = float((wall - time - (0 if wait is None else wait)).sum()) / float(wall.sum())
    unread = 0.0 if wait is None or in_wait is not None else float(wait.sum()) / float(wall.sum())
    # Of what it had no core for, so much must lie in these phases: more than all the rest of the time cannot hold it.
    surely_delayed = max(0.0, delayed - (1 - whole))
    at_most = min(whole, max(0.0, not_running.value + max(0.0, outside) + unread - surely_delayed))
    return Blocked(sure, max(sure.value, at_most), not_running.within(0.0, 1.0), delayed, others, looks)


def _less(share: Interval, lost: float) -> Interval:
    """A share of the step without what may be no wait, not below 0."""
    low, high = (None if end is None else end - lost for end in (share.low, share.high))
    return Interval(share.value - lost, low, high, share.n).within(0.0, 1.0)


def _in_looks(all_blocked: Interval, looks: WaitsSeen, work: float) -> Interval:
    """What of all that the thread was blocked it waited for no other thread of its process, at least.

    ``work`` is the share of the step that the phases take at which was looked. All ends lie at what the looks leave as
    the least: it is a lower bound, whose scatter is that of the steps.
    """
    least = min(looks.least_part * all_blocked.value, looks.least_share * work)
    return all_blocked.scaled(least / all_blocked.value if least > 0 else 0.0)


def _seen(facts: TrialFacts, phases: Sequence[Phase]) -> WaitsSeen:
    """What was seen in those phases; records of before nobody looked have none."""
    told, counts = facts.result.facts.get("waits_seen"), Counter[str]()
    for phase in phases:
        seen = told.get(str(phase)) if isinstance(told, dict) else None
        for kind, count in seen.items() if isinstance(seen, dict) else ():
            if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                counts[kind] += count
    return WaitsSeen(counts)


def _require_alone(facts: TrialFacts) -> None:
    if facts.on_accelerator:
        raise NotApplicable("thread_cpu_ns", "a thread that feeds a device waits for it, so its waiting says nothing")
    if facts.result.ranks > 1:
        raise NotApplicable("ranks", "with several ranks a thread waits for the others in its exchanges")


def _others(facts: TrialFacts) -> float:
    """Threads of the process beside the loop's that ran or were ready to, at a mean moment of the steps; at most."""
    delay = min(_MOST_DELAYED, facts.quantity("process_run_delay_share"))
    ready = facts.quantity("process_cpu_share") / (1 - delay)
    return max(0.0, ready - facts.quantity("loop_cpu_share") - facts.quantity("loop_run_delay_share"))
