"""What making a batch costs, what there is to make it with, and how long a step would take with more workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose import processor, run_delay
from perf_diagnostics.diagnose.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.wording import duration
from perf_diagnostics.records import Float64, Phase

Kind: TypeAlias = Literal["computing", "waiting", "mixed", "unknown"]

#: With less than this part of the cores left idle, workers that do not compute may just wait for a core.
SATURATED = 0.1

#: What the loop itself needs to take a batch over from a worker, in s: 0.34 to 0.41 ms of its own CPU time for a batch
#: of two small tensors that takes 0.09 ms to make (torch 2.13, two virtual cores).
HAND_OVER_S = 0.3e-3

#: Batches that come closer together than so many hand-overs are as likely to be held up by these as by being made.
_RUSHED = 4


@dataclass(frozen=True)
class Loading:
    """What making a batch costs, and what there is to make it with.

    ``work_s`` is what one worker needs for a batch, ``needed`` how many workers keep up with the rest of the step,
    ``rest_s``, all for the ``batches`` of one step. ``kind`` is how that time is spent: computing, waiting (disk,
    network, locks), mixed, or unknown; what of it passed without a core (``delayed``, where the scheduler's count is
    known) is no part of either. ``lay_ready``: for most of the wait a batch was there, and the loop had no core.
    """

    work_s: float
    rest_s: float
    kind: Kind
    workers: int | None
    needed: int
    free_cores: float | None
    wait_s: float
    batches: int = 1
    delayed: float | None = None
    lay_ready: bool = False

    @property
    def lacked_cores(self) -> bool:
        """Too much of the time passed without a core to be left unsaid."""
        return self.delayed is not None and self.delayed >= SATURATED

    @property
    def workers_pay(self) -> bool:
        """False where taking a batch over from a worker takes the loop longer than it waits for one now."""
        return self.wait_s > self.batches * HAND_OVER_S

    @property
    def rushed(self) -> bool:
        """Workers run, and batches come so close together that handing them over may be what takes the time."""
        return bool(self.workers) and self.rest_s + self.wait_s < _RUSHED * self.batches * HAND_OVER_S

    @property
    def takes(self) -> str:
        """``A batch takes one worker 12.0 ms``."""
        what = "A batch takes" if self.batches == 1 else f"The {self.batches} batches of a step take"
        return f"{what} {'one worker' if self.workers or self.workers_pay else 'the loop'} {duration(self.work_s)}"

    @property
    def cores_lacking(self) -> bool:
        """More workers cannot compute faster than the free cores allow."""
        return self.kind == "computing" and self.free_cores is not None and self.needed > self.free_cores

    def step_s(self, workers: int) -> float:
        """The least a step takes with so many workers: the rest of it and the hand-over, or the workers' own time."""
        return max(self.rest_s + self.batches * HAND_OVER_S, self.work_s / workers)

    def proposed(self, cores: float | None, workers_per_core: float) -> int:
        """Workers to try: one more than would just keep up, within what the cores bear."""
        most = math.inf if cores is None else cores * workers_per_core
        if self.kind == "computing" and self.free_cores is not None:
            most = self.free_cores
        return int(min(self.needed + 1, most))


def loading_of(facts: TrialFacts, share: Interval, *, computing_share: float, waiting_share: float) -> Loading:
    """What loading costs in a trial whose exposed wait is ``share`` of the step.

    Args:
        facts: the trial.
        share: its exposed wait for data.
        computing_share: CPU time over the time of loading from which it is computing.
        waiting_share: the same, up to which it is waiting.
    """
    step = facts.step_time_s.value
    workers = ask(lambda: int(facts.number("num_workers")))
    wait = ask(lambda: facts.host_time_s(Phase.DATA_WAIT).value)
    # Running workers that cannot keep up are all busy, and a batch takes one of them as many steps as there are
    # workers. Without workers the loop makes the batch itself, inside its wait.
    work = workers * step if workers else (share.value * step if wait is None else wait)
    rest = max(step * (1 - share.value), 1e-9)
    scheduled = ask(run_delay.loading, facts)
    kind = (
        _kind(facts, computing_share, waiting_share)
        if scheduled is None
        else _kind_with_a_core(*scheduled.computing_with_a_core, computing_share, waiting_share)
    )
    ready = bool(workers) and bool(ask(run_delay.batches_lay_ready, facts))
    if kind == "waiting" and ready:
        kind = "mixed"  # workers whose batches lie ready wait for the loop
    return Loading(
        work_s=work,
        rest_s=rest,
        kind=kind,
        workers=workers,
        needed=math.ceil(work / rest),
        free_cores=ask(lambda: facts.free_cores),
        wait_s=step - rest,
        batches=int(ask(facts.number, "accumulation_steps") or facts.result.trial.settings.accumulation_steps or 1),
        delayed=None if scheduled is None else scheduled.delayed,
        lay_ready=ready,
    )


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
