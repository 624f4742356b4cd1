"""What kept a trial's processes off the processors: the kernel's counters over its steady steps, as shares and rates.

Every function asks one trial's facts, and lets NotMeasured pass.
"""

from __future__ import annotations

import math

import numpy as np

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.outliers import off_processor_ns
from perf_diagnostics.records import ALL_PHASES, Float64, Phase

#: Share of the time in which something waited for a processor from which a thread may have waited for one: as EXP010.
WAITING = 0.20

#: Others' share of the cores, and the idle share, from which and up to which the one is at the other's cost: as EXP010.
CROWDED = 0.10

#: Workers that compute get more of a core than this even where every core is wanted by three.
_ASLEEP = 0.15

_COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)

#: A core of which others use no more than this is free: the sampler and the system take 1 to 2 %. A judgement.
NEARLY_A_CORE = 0.2


def window_s(facts: TrialFacts) -> float:
    """Length of the stretch over which the kernel's counters were read, in s."""
    counted = ask(facts.number, "cpu_window_s")
    window = facts.quantity("measured_wall_s") if counted is None else counted
    if not window > 0:
        raise NotMeasured("measured_wall_s", f"the clock around the steps read {window:g} s")
    return window


def quota_cores(facts: TrialFacts) -> float | None:
    """The CPU quota of the trial's control groups, in cores; None where there is none or nobody looked."""
    quota = facts.result.environment.limits.get("cgroup_cpu_quota_cores")
    return float(quota) if isinstance(quota, int | float) and not isinstance(quota, bool) else None


def cores(facts: TrialFacts) -> float:
    """Cores that the trial may keep busy: those it may run on, or its quota where that is less."""
    quota = quota_cores(facts)
    return min(facts.number("cpu_count"), math.inf if quota is None else quota)


def threads_at_work(facts: TrialFacts) -> float:
    """Threads the trial keeps busy: those that compute (on a device: the one that feeds it), and its loader workers,
    of which each computes with one, unless they are seen to sleep.
    """
    computing = 1.0 if facts.on_accelerator else facts.number("threads")
    workers = ask(facts.number, "num_workers") or 0.0
    return computing + (0.0 if workers and _sleeping(facts, workers) else workers)


def _sleeping(facts: TrialFacts, workers: float) -> bool:
    """Whether the workers wait for a disk or a network: what they computed, or could have, is next to nothing."""
    used = ask(lambda: facts.quantity("workers_cpu_s") / window_s(facts))
    delayed = ask(facts.quantity, "worker_run_delay_share")
    if used is not None and delayed is not None:
        used /= max(1 - delayed, 1e-3)
    return used is not None and used < _ASLEEP * workers


def oversubscribed(facts: TrialFacts) -> bool:
    """More threads than cores."""
    return threads_at_work(facts) > cores(facts)


def switches_per_s(facts: TrialFacts) -> float:
    """How often a second a thread of the trial's process lost its processor with work to do."""
    return facts.quantity("involuntary_switches") / window_s(facts)


def waiting_share(facts: TrialFacts) -> float:
    """Share of the time in which something on the machine (or in the cgroup) waited for a processor."""
    return facts.quantity("cpu_pressure_s") / window_s(facts)


def ranks_lack_cores(facts: TrialFacts) -> bool:
    """Whether ranks that compute on processors share them with so much that an exchange may wait for a core: something
    waited for one for :data:`WAITING` of the time.

    (Six healthy trainings of 8 to 10 ms a step, two ranks on two cores that others used, waited 18 to 32 % of it for
    each other's gradients; there it was 21 to 28 % of the time, and 6 to 14 % where an exchange was slow by itself.)
    """
    return not facts.on_accelerator and waiting_share(facts) >= WAITING


def others_share(facts: TrialFacts) -> float:
    """What others used of the time of all cores that the trial may run on."""
    return facts.quantity("other_cpu_s") / (facts.number("cpu_count") * window_s(facts))


def idle_share(facts: TrialFacts) -> float:
    """What nobody used of the time of these cores; others' use of a machine with idle cores costs the trial little."""
    used = sum(facts.quantity(name) for name in ("process_cpu_s", "workers_cpu_s", "other_cpu_s"))
    return max(0.0, 1 - used / (facts.number("cpu_count") * window_s(facts)))


def crowded(facts: TrialFacts) -> bool:
    """Whether others took cores that the trial's own processes could have used: a tenth of them, and none was idle."""
    return others_share(facts) >= CROWDED > idle_share(facts)


def workers_lack_cores(facts: TrialFacts) -> bool:
    """Whether loader workers wait for cores that others have, and would keep up with a core each.

    In a trial on the CPU: for a batch they compute less, one beside the other, than the loop's own process does for a
    step. (In untouched loops on a machine that others used, 0.7 to 1.6 ms against 5.6 to 6.5; the loop waited 2 to 12.)
    """
    workers = 0.0 if facts.on_accelerator else facts.number("num_workers")
    if not workers or not crowded(facts):
        return False
    return facts.quantity("workers_cpu_s") / workers < facts.quantity("process_cpu_s")


def ran_ns(facts: TrialFacts) -> float:
    """How long the loop's own thread ran in all steady steps, in ns.

    Where steps are too short to read its clock in each, it is what was counted over whole blocks of them.
    """
    used = ask(facts.column, "thread_cpu_ns")
    counted = ask(facts.quantity, "loop_cpu_share") if used is None else None
    if counted is not None:
        return min(1.0, counted) * float(facts.column("wall_ns").sum())
    return float(facts.column("thread_cpu_ns").sum())


def ran_outside_wait_ns(facts: TrialFacts) -> tuple[float, float]:
    """How long it ran outside of the wait for data in all steady steps, in ns: least and most.

    In waits too short to read its clock around it may have run for all of the time, or for none.
    """
    ran, wait = ran_ns(facts), facts.table.host_ns(Phase.DATA_WAIT)
    if wait is None:
        return ran, ran
    read = ask(facts.column, "data_wait_cpu_ns")
    least, most = (0.0, float(np.nansum(wait))) if read is None else (float(read.sum()),) * 2
    return max(0.0, ran - most), max(0.0, ran - least)


def granted_share(facts: TrialFacts) -> float:
    """The most of forward, backward and optimizer for which the loop's own thread can have run, on the CPU; 0...1.

    Where the scheduler's count is known, all of it but what the thread had no core for: it may have been blocked, too.
    """
    if facts.on_accelerator:
        raise facts.missing("thread_cpu_ns", "a thread that feeds a device waits for it, so its waiting says nothing")
    used = ran_outside_wait_ns(facts)[1]
    compute = sum(float(facts.host_column(phase).sum()) for phase in _COMPUTE)
    if not compute > 0:
        raise facts.missing("thread_cpu_ns", "the loop marks no time in which the model computes")
    delayed = ask(facts.quantity, "loop_run_delay_share")
    least = 0.0 if delayed is None else 1 - delayed * float(facts.column("wall_ns").sum()) / compute
    return float(min(1.0, max(0.0, used / compute, least)))


def lost_by_phase(facts: TrialFacts, lost: float) -> dict[str, float]:
    """What a thread without a processor loses of a step, spread over the phases like the step's time."""
    known = {phase: ask(facts.share, phase) for phase in ALL_PHASES}
    return {str(phase): lost * share.value for phase, share in known.items() if share is not None and share.value > 0}


def throttled_share(facts: TrialFacts) -> float:
    """Share of the quota's enforcement periods in which it was used up; 0 where there is no quota."""
    periods, throttled = facts.quantity("cpu_periods"), facts.quantity("cpu_throttled_periods")
    return throttled / periods if periods > 0 else 0.0


def surely_computing(facts: TrialFacts, part_ns: Float64) -> Interval:
    """How much of a part of each step the loop's own thread surely computed: as if it had computed in all the rest.

    Args:
        facts: of a trial on the CPU.
        part_ns: the host's time of the part in each steady step, in ns; the wait for data is none of it.
    """
    if facts.on_accelerator:
        raise facts.missing("thread_cpu_ns", "a thread that feeds a device computes beside it")
    used, rest = facts.column("thread_cpu_ns"), facts.column("wall_ns") - part_ns
    waited = facts.table.host_ns(Phase.DATA_WAIT)
    if waited is not None:
        used, rest = used - facts.column("data_wait_cpu_ns"), rest - waited
    return facts.ratio("thread_cpu_ns", np.clip(used - rest, 0.0, part_ns), part_ns).within(0.0, 1.0)


def most_computed_ns(facts: TrialFacts, part_ns: Float64) -> Float64:
    """What of a part of each step the loop's own thread can have computed, in ns a step: no longer than it ran.

    Where steps are too short to read its clock in each, what it ran in all of them is spread like the part. All of it
    where its clock was not read at all.
    """
    ran, each = ask(ran_ns, facts), ask(facts.column, "thread_cpu_ns")
    if ran is None:
        return part_ns
    if each is not None:
        within: Float64 = np.minimum(part_ns, each)
        return within
    total = float(part_ns.sum())
    return part_ns * min(1.0, ran / total) if total > 0 else part_ns


def off_processor_share(facts: TrialFacts) -> Interval:
    """Share of the step in which the thread that computes was surely not running, in a trial on the CPU.

    Near 0 where nobody disturbs it: with several threads the loop's own one computes like the others, and spins at
    the end of each operation before it sleeps.
    """
    if facts.on_accelerator:
        raise facts.missing("thread_cpu_ns", "a thread that feeds a device waits for it, so its waiting says nothing")
    return held_off_share(facts)


def held_off_share(facts: TrialFacts) -> Interval:
    """The same of the thread that feeds a device, where the host sets the pace: else it waits for the device.

    Such a thread may sleep for other reasons, too, so that this says something only beside another sign.
    """
    if facts.on_accelerator and not roofline.paced_by_host(facts):
        raise facts.missing("thread_cpu_ns", "a thread that feeds a device waits for it, so its waiting says nothing")
    facts.column("thread_cpu_ns")
    phases = {phase: facts.host_column(phase) for phase in _COMPUTE}
    off = off_processor_ns(facts.table, phases)
    if off is None:
        raise facts.missing("thread_cpu_ns", "thread_cpu_ns was not recorded")
    return facts.ratio("thread_cpu_ns", off, facts.table.wall_ns).within(0.0, 1.0)
