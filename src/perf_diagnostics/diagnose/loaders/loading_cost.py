"""What making a batch costs, and what there is to make it with, from what a trial recorded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.facts import processor, run_delay
from perf_diagnostics.diagnose.facts.facts import LEAST_STEPS, Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.step_facts import NS_PER_S
from perf_diagnostics.diagnose.loaders.hand_over import HandedOver
from perf_diagnostics.diagnose.loaders.loading import SATURATED, Kind, Loading, rushed
from perf_diagnostics.diagnose.loaders.waits_by_looks import loader_looks
from perf_diagnostics.diagnose.loaders.waits_timed import loader_parts
from perf_diagnostics.records import Bools, Float64, Phase

#: From this part of the wait on it is most of it.
_MOST_OF_IT = 0.5

#: Where so many of the steps begin a pass over the data, each of them does; the others are chance.
_EACH = 0.9


def loading_of(facts: TrialFacts, share: Interval, *, computing_share: float, waiting_share: float) -> Loading:
    """What loading costs in a trial whose exposed wait is ``share`` of the step.

    Args:
        facts: the trial.
        share: its exposed wait for data.
        computing_share: CPU time over the time of loading from which it is computing.
        waiting_share: the same, up to which it is waiting.
    """
    workers = ask(lambda: int(facts.number("num_workers")))
    wait = ask(lambda: facts.host_time_s(Phase.DATA_WAIT).value)
    between = ask(_between_starts, facts) or _Between(facts.step_time_s.value, share.value)
    step = between.step_s
    # Running workers that cannot keep up are all busy, and a batch takes one of them as many steps as there are
    # workers. Without workers the loop makes the batch itself, inside its wait.
    parts = loader_parts(facts)
    drawn = 0.0 if parts is None else parts.draws.value
    made_here = (1 - drawn) * (between.wait_s or (share.value * step if wait is None else wait))
    work = workers * step if workers else made_here
    rest = max(step * (1 - (1 - drawn) * between.wait_share), 1e-9)
    scheduled = ask(run_delay.loading, facts)
    kind = (
        _kind(facts, computing_share, waiting_share)
        if scheduled is None
        else _kind_with_a_core(*scheduled.computing_with_a_core, computing_share, waiting_share)
    )
    ready = bool(workers) and bool(ask(run_delay.batches_lay_ready, facts))
    may_idle = ready or (bool(workers) and _for_cores(facts, share))
    batches = int(ask(facts.number, "accumulation_steps") or facts.result.trial.settings.accumulation_steps or 1)
    computed_s = ask(_taking_over_s, facts) if workers else None
    drawn_s = drawn * between.wait_share * step
    taking_over_s = None if computed_s is None else max(0.0, computed_s - drawn_s)
    hands_over = taking_over_s is not None and taking_over_s >= _MOST_OF_IT * (step - rest)
    if parts is not None and parts.takes_over is not None:
        # What was timed holds its waits, too: for the worker's thread that answers for each tensor, and for a core. One
        # that computes all the time, in Python, answers when it gives its lock away: it makes the next batch meanwhile.
        answers_late = kind == "computing" and not hands_over and taking_over_s is not None
        if not answers_late:
            taking_over_s = parts.takes_over.value * between.wait_share * step
        hands_over = parts.takes_over_most and not answers_late
    free_cores, batch = ask(cores_left, facts), HandedOver.of(facts)
    if kind == "waiting" and (may_idle or hands_over or rushed(step, batches * batch.calls_s, workers, free_cores)):
        kind = "mixed"  # workers whose batches lie ready, or are being handed over, wait for the loop, or for cores
    # What the bytes of a batch cost the loop of running workers is in the rest of its steps already.
    hand_over_s = max(batches * (batch.calls_s if workers else batch.least_s), taking_over_s or 0.0)
    each = each_step_begins(facts)
    return Loading(
        work_s=work,
        rest_s=rest,
        now_s=step,
        kind=kind,
        workers=workers,
        needed=math.ceil(work / (rest + hand_over_s)),
        free_cores=free_cores,
        wait_s=step - rest,
        batches=batches,
        delayed=None if scheduled is None else scheduled.delayed,
        lay_ready=ready,
        may_idle=may_idle,
        hand_over_s=hand_over_s,
        batch=batch,
        hands_over=hands_over,
        of_time=between.of_time,
        starts=each or between.starts_share >= _MOST_OF_IT,
        anew=restarts(facts),
        starts_share=1.0 if each else between.starts_share,
        computes_s=ask(_workers_compute_s, facts) if workers else None,
        each=each,
        looks=loader_looks(facts),
        parts=parts,
    )


def _for_cores(facts: TrialFacts, share: Interval) -> bool:
    """Whether most of the wait for workers may have been for cores that others had: then they may have been idle."""
    left = ask(run_delay.wait_left, facts, share)
    return left is not None and left[0] <= (1 - _MOST_OF_IT) * share.value


def cores_left(facts: TrialFacts) -> float:
    """Cores beside those that train which others leave free: what they used is not there for workers."""
    free, others = facts.free_cores, ask(processor.others_share, facts)
    if others is None:
        return free
    left = math.floor(free - others * facts.number("cpu_count") + processor.NEARLY_A_CORE)
    return min(free, float(max(0, left)))


@dataclass(frozen=True)
class _Between:
    """A mean step, in s, its exposed wait for data, what part of all time such steps take, and of all wait the starts.

    ``wait_s`` is the loop's whole wait in such a step, hidden by a device's queue or not; None where no starts are left
    out.
    """

    step_s: float
    wait_share: float
    of_time: float = 1.0
    starts_share: float = 0.0
    wait_s: float | None = None


def _between_starts(facts: TrialFacts) -> _Between:
    """The steps with which no pass begins, where workers are started anew for each: more of them start no faster.

    Also where there are none: what the loop does to begin a pass (its sampler's order) no worker would do for it. A
    wait beyond the median of all others is of the start, as INP005 counts it.
    """
    if facts.number("num_workers") and not restarts(facts):
        raise NotMeasured("epoch", "the loader keeps its workers")
    wall, waits, others = facts.column("wall_ns"), exposed_wait_ns(facts), ~starting_steps(facts)
    if others.all() or int(others.sum()) < LEAST_STEPS:
        raise NotMeasured("epoch", "no pass began within the steady steps, or nearly each step begins one")
    started = np.maximum(0.0, waits[~others] - float(np.median(waits[others]))).sum() / max(1.0, float(waits.sum()))
    time = float(wall[others].sum())
    return _Between(
        step_s=float(wall[others].mean()) / NS_PER_S,
        wait_share=min(1.0, float(waits[others].sum()) / time),
        of_time=time / float(wall.sum()),
        starts_share=float(started),
        wait_s=float(facts.host_column(Phase.DATA_WAIT)[others].mean()) / NS_PER_S,
    )


def _workers_compute_s(facts: TrialFacts) -> float:
    """CPU time of the workers, in s a step."""
    return facts.quantity("workers_cpu_s") / processor.window_s(facts) * facts.step_time_s.value


def _taking_over_s(facts: TrialFacts) -> float:
    """What the loop's own thread computes in its wait for workers' batches, in s a step, as most steps show it.

    First batches of a pass, for which workers are started, are long now and then.
    """
    if facts.on_accelerator:
        raise facts.missing("data_wait_cpu_ns", "how much of the loop's work the device's queue hides is not known")
    return float(np.median(facts.column("data_wait_cpu_ns"))) / NS_PER_S


def core_bound_s(facts: TrialFacts, loading: Loading) -> float:
    """The shortest step, in s, if making a batch is computing all the way; 0 where the cores are not known."""
    cores = ask(facts.number, "cpu_count")
    if loading.free_cores is None or cores is None:
        return 0.0
    if loading.free_cores >= 1:
        return loading.work_s / loading.free_cores
    # Every core trains already: loading and training share them, and their work adds up.
    return (loading.work_s + loading.rest_s * cores) / cores


def computing_share_of(facts: TrialFacts) -> Interval:
    """How much of the time of loading is computing: in the loop's own wait without workers, else in the workers'.

    The workers' CPU time is known for all steady steps together only, so it has no interval.
    """
    workers = facts.number("num_workers")
    if not workers:
        return facts.data_wait_cpu_share
    share = facts.quantity("workers_cpu_s") / (workers * processor.window_s(facts))
    return Interval(min(1.0, share), None, None, facts.steps)


def restarts(facts: TrialFacts) -> bool:
    """Whether the loader has workers, and starts them anew for each pass over the data."""
    recorded = facts.result.facts
    return bool(recorded.get("num_workers")) and (recorded.get("persistent_workers") is False or made_anew(facts))


def made_anew(facts: TrialFacts) -> bool:
    """Whether each pass over the data came from a DataLoader of its own: such a one has no workers to keep."""
    passes, loaders = (ask(facts.number, name) for name in ("passes", "loaders"))
    return passes is not None and passes > 1 and loaders == passes


def exposed_wait_ns(facts: TrialFacts) -> Float64:
    """The wait for data of each steady step in which nothing else went on, in ns; 0 where an event was lost."""
    times = facts.table.device_ns(Phase.DATA_WAIT)
    if not facts.on_accelerator:
        return facts.host_column(Phase.DATA_WAIT).astype(np.float64)
    if times is not None:
        return np.nan_to_num(times)
    starved: Float64 = np.nan_to_num(facts.column("starved")) * facts.host_column(Phase.DATA_WAIT)
    return starved


def epoch_begins(facts: TrialFacts) -> NDArray[np.intp]:
    """Positions of the steady steps with which a pass over the data begins, shape ``(passes,)``."""
    epoch = facts.column("epoch")
    return np.flatnonzero(np.diff(epoch, prepend=epoch[:1]) != 0)


def starting_steps(facts: TrialFacts) -> Bools:
    """The steady steps in which a pass over the data starts, shape ``(steps,)``: its first, and those after it for
    which workers that are started anew still fill their queue.

    Those are as many as the queue holds at most: up to the last place in a pass where surely most passes (by three
    standard deviations of a fair coin) wait longer than the median of the steps behind.
    """
    begins, waits = epoch_begins(facts), exposed_wait_ns(facts)
    starting = np.zeros(facts.steps, dtype=bool)
    starting[begins] = True
    ahead = ask(facts.number, "prefetch_factor")
    if not begins.size or ahead is None or not restarts(facts):
        return starting
    held = int(ahead * facts.number("num_workers"))
    place = np.arange(facts.steps) - np.maximum.accumulate(np.where(starting, np.arange(facts.steps), -1))
    place[: begins[0]] = -1  # the pass that was under way
    behind = waits[place > held]
    if behind.size < LEAST_STEPS:
        return starting
    for last in range(held, 0, -1):
        longer = waits[place == last] > np.median(behind)
        if longer.sum() >= longer.size / 2 + 3 * np.sqrt(longer.size) / 2:
            return starting | ((place >= 0) & (place <= last))
    return starting


def each_step_begins(facts: TrialFacts) -> bool:
    """Whether nearly each step begins a pass over the data, and takes a few of its batches: ``next(iter(loader))``.

    Not where a pass has no more batches than a step takes, as far as that is known.
    """
    begins, batches = ask(epoch_begins, facts), ask(facts.number, "batches_a_pass")
    if begins is None or facts.steps < LEAST_STEPS or begins.size < _EACH * (facts.steps - 1):
        return False
    taken = ask(facts.number, "accumulation_steps") or facts.result.trial.settings.accumulation_steps or 1
    return batches is None or batches > taken


def _kind_with_a_core(least: float, most: float, computing_share: float, waiting_share: float) -> Kind:
    """By the part that computes, least and most, of the time in which no core was lacking."""
    if least >= computing_share:
        return "computing"
    return "waiting" if most <= waiting_share else "mixed"


def _kind(facts: TrialFacts, computing_share: float, waiting_share: float) -> Kind:
    share = ask(computing_share_of, facts)
    if share is None:
        return "unknown"
    if share.value >= computing_share:
        return "computing"
    return "waiting" if share.value <= waiting_share and not _cores_lack(facts, share.value, waiting_share) else "mixed"


def _cores_lack(facts: TrialFacts, share: float, waiting_share: float) -> bool:
    """Whether what loads may have waited for a core: using none says nothing about disk or network then.

    The loop's own thread loads without workers: where others had the cores, its share of the time of loading counts
    against what it got of them while the model computed.
    """
    if not ask(facts.number, "num_workers"):
        got = ask(processor.granted_share, facts) if ask(processor.crowded, facts) else None
        return got is not None and share > waiting_share * got
    idle = ask(processor.idle_share, facts)
    if idle is not None:
        return idle < SATURATED
    return bool(ask(processor.oversubscribed, facts))
