"""Time in which threads were ready to run and had no core, as the scheduler counts it: how much, and by whose fault.

Every function asks one trial's facts, and lets NotMeasured pass: where the kernel does not count, or a record is older,
:mod:`.processor` has what can be concluded without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.outliers import off_processor_ns
from perf_diagnostics.records import Phase

_COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)

#: CPU times come in ticks of 10 ms, so that a group of threads that hardly ran may have any delay over its CPU time.
_MOST_DELAYED = 0.999

#: Share of the time in which the computing thread did not run, from which others have its processor: as EXP010.
ROBBED = 0.05

#: Share of the quota's periods in which it was used up, from which waiting says nothing of others: as CPU003.
_THROTTLED = 0.05


@dataclass(frozen=True)
class Loading:
    """How the time of loading goes, in parts of it that add up to 1 with what was blocked (disk, network, lock, sleep).

    ``delayed_low`` and ``delayed_high`` are the ends of what had no core: of the loop's own delay it is not counted in
    which phase it came.
    """

    computing: float
    delayed_low: float
    delayed_high: float

    @property
    def delayed(self) -> float:
        return (self.delayed_low + self.delayed_high) / 2

    @property
    def computing_with_a_core(self) -> tuple[float, float]:
        """Part that computes of the time for which no core was lacking, least and most: near 0 it was blocked."""
        least, most = (min(1.0, self.computing / max(1 - late, 1e-9)) for late in (self.delayed_low, self.delayed_high))
        return least, most


def delayed_share(facts: TrialFacts) -> float:
    """Share of the time in which the computing thread had no core, whoever had it.

    On the CPU with several threads of torch's, a mean one's if that is more: each operation waits for all of them.
    """
    own = facts.quantity("loop_run_delay_share")
    threads = 1.0 if facts.on_accelerator else ask(facts.number, "threads") or 1.0
    if threads <= 1:
        return min(1.0, own)
    delayed = _delayed_threads(facts, "process_run_delay_share", "process_cpu_s") / threads
    return min(1.0, max(own, delayed))


def robbed_share(facts: TrialFacts) -> float:
    """Share of the time in which the computing thread was ready to run and others had the cores."""
    return _users(facts).robbed(delayed_share(facts))


def robbed(facts: TrialFacts) -> bool:
    """Whether others had the processor of the loop's thread, so that wall time is not all its own.

    Without the scheduler's count it is concluded from who used the cores, or from what the thread surely did not run.
    """
    counted = ask(robbed_share, facts)
    if counted is not None:
        return counted >= ROBBED
    off = ask(processor.off_processor_share, facts)
    return bool(ask(processor.crowded, facts)) or (off is not None and off.surely_at_least(ROBBED))


def own_share(facts: TrialFacts) -> float:
    """Share of the time in which it was ready to run and other threads of the trial's had the cores."""
    return _users(facts).lent(delayed_share(facts))


def workers_robbed_share(facts: TrialFacts) -> float:
    """Share of the time in which a mean loader worker was ready to run and others had the cores."""
    workers = loading_of_workers(facts)
    return _beside(facts, workers.computing).robbed(workers.delayed)


@dataclass(frozen=True)
class Users:
    """Cores in use by others and by the trial's own threads beside the one that is asked about, at a mean moment.

    Who lacks a core lacks one that somebody runs on: of these it is split by what each of them ran. Nobody keeps a
    thread waiting for longer than he runs.
    """

    others: float
    own: float

    def robbed(self, delayed: float) -> float:
        """What of this share of the time others had the core."""
        return min(delayed * self._part(self.others), self.others)

    def lent(self, delayed: float) -> float:
        """What of it the trial's own threads had the core."""
        return min(delayed * self._part(self.own), self.own)

    def _part(self, some: float) -> float:
        everybody = self.others + self.own
        return some / everybody if everybody > 0 else 0.0


def _users(facts: TrialFacts) -> Users:
    """Beside the loop's thread."""
    return _beside(facts, facts.quantity("loop_cpu_share"))


def _beside(facts: TrialFacts, running: float) -> Users:
    """Beside a thread that ran for this part of the time."""
    if (ask(processor.throttled_share, facts) or 0.0) >= _THROTTLED:
        raise facts.missing("loop_run_delay_share", "a CPU quota held the trial back, which counts as delay, too")
    own_s = facts.quantity("process_cpu_s") + facts.quantity("workers_cpu_s")
    others = processor.others_share(facts) * facts.number("cpu_count")
    return Users(others, max(0.0, own_s / processor.window_s(facts) - running))


def loading(facts: TrialFacts) -> Loading:
    """How the time of loading goes: in the loop's own wait without workers, else in the workers."""
    return loading_of_workers(facts) if facts.number("num_workers") else _loading_of_the_loop(facts)


def loading_of_workers(facts: TrialFacts) -> Loading:
    """How the time of a mean worker goes; running workers that cannot keep up are all busy with batches."""
    workers = facts.number("num_workers")
    if not workers:
        raise NotMeasured("worker_run_delay_share", "there are no workers")
    time_s = workers * processor.window_s(facts)
    computing = min(1.0, facts.quantity("workers_cpu_s") / time_s)
    delayed = min(1 - computing, _delayed_threads(facts, "worker_run_delay_share", "workers_cpu_s") / workers)
    return Loading(computing, delayed, delayed)


def wait_left(facts: TrialFacts, share: Interval) -> tuple[float, float]:
    """Share of the step that would be wait for data without others, least and most.

    Of a loop without workers its wait and its step lose what others took of them. With workers that waited for the loop
    the wait also loses what others took of theirs (the least), and what the trial's own threads surely took of it;
    where they were busy throughout, a batch takes them as many steps as there are workers, less what others took of
    it, while the rest of the step is shorter, too.
    """
    wait, users = share.value, _users(facts)
    lost, ends = users.robbed(min(1.0, facts.quantity("loop_run_delay_share"))), ask(delay_in_wait, facts)
    workers = facts.number("num_workers")
    if ends is None and not workers:
        raise facts.missing("data_wait_cpu_ns", "where the loop's thread had no core was not measured")
    # Of a wait as most steps show it the part is taken that was taken of all: the delay is counted over all steps.
    usual = 1.0 if ends is None else _usual(wait, _wait_share(facts))
    early, late = (users.robbed(end) * usual for end in (ends or (0.0, 0.0)))
    theirs = workers_robbed_share(facts) if workers else 0.0
    # With its batch there the loop waits for a core and for no data, whoever has the core.
    own = users.lent(ends[0]) * usual if workers and ends is not None else 0.0
    found = [_left(wait, late + own + theirs, lost), _left(wait, early + own + theirs, lost)]
    if workers:
        rest = max(0.0, 1 - wait - min(lost, users.robbed(ask(_lost_while_computing, facts) or 0.0)))
        found.append(max(0.0, 1 - theirs - rest) / max(1 - theirs, rest, 1e-9))
    return min(found), max(found)


def _left(wait: float, taken: float, lost: float) -> float:
    """Share of a step that is ``lost`` shorter, of a wait that others took this much of."""
    left = max(0.0, wait - taken)
    return min(1.0, left / max(1 - max(lost, min(taken, wait)), left, 1e-9))


def batches_lay_ready(facts: TrialFacts) -> bool:
    """Whether most of the wait for workers' batches was for a core of the loop's own: then they may have been idle."""
    low, high = delay_in_wait(facts)
    return low + high >= _wait_share(facts)


def _wait_share(facts: TrialFacts) -> float:
    """The loop's wait for data over all of the steps' time."""
    return float(facts.host_column(Phase.DATA_WAIT).sum()) / float(facts.column("wall_ns").sum())


def _loading_of_the_loop(facts: TrialFacts) -> Loading:
    """How the loop's own wait for data goes."""
    low, high = delay_in_wait(facts)
    wait = float(facts.host_column(Phase.DATA_WAIT).sum())
    scale = float(facts.column("wall_ns").sum()) / wait
    return Loading(min(1.0, float(facts.column("data_wait_cpu_ns").sum()) / wait), low * scale, high * scale)


def delay_in_wait(facts: TrialFacts) -> tuple[float, float]:
    """Share of the time in which the loop waited for data, ready to run and without a core: least and most.

    The loop's delay is counted over all of the step. What its thread did not run outside of the wait bounds what of the
    delay can lie there, and so what must lie in the wait; on the CPU with one thread, forward, backward and optimizer
    block on nothing, so that all of what they lack is delay.
    """
    wait = float(facts.host_column(Phase.DATA_WAIT).sum())
    if not wait > 0:
        raise NotMeasured("data_wait_cpu_ns", "the loop waits for no data")
    used, read = float(facts.column("thread_cpu_ns").sum()), ask(facts.column, "data_wait_cpu_ns")
    # In waits too short to read the thread's clock around it may have run for all of it, or for none.
    least, most = (0.0, min(wait, used)) if read is None else (float(read.sum()),) * 2
    return _delay_within(facts, wait, least, most)


def outside_left(facts: TrialFacts, share: Interval, phases: Sequence[Phase]) -> tuple[float, float]:
    """Share of the step that would lie in these phases, which train nothing, without others: least and most.

    What the thread computed there is its CPU time beyond that of waiting and computing: at least as if it had computed
    in all of forward, backward and optimizer, at most as if in none.
    """
    if facts.on_accelerator:
        raise facts.missing("loop_run_delay_share", "the step is the device's, and the delay that of the host's thread")
    if facts.table.host_ns(Phase.DATA_WAIT) is not None:
        facts.column("data_wait_cpu_ns")  # not known: all of the delay could lie here, which tells nothing
    time = sum(float(facts.host_column(phase).sum()) for phase in phases)
    least, most = processor.ran_outside_wait_ns(facts)
    computing = sum(float(facts.host_column(phase).sum()) for phase in _COMPUTE)
    users, lost = _users(facts), min(1.0, facts.quantity("loop_run_delay_share"))
    ends = _delay_within(facts, time, min(time, max(0.0, least - computing)), min(time, most))
    usual = _usual(share.value, time / float(facts.column("wall_ns").sum()))
    low, high = (_left(share.value, users.robbed(end) * usual, users.robbed(lost)) for end in ends[::-1])
    return low, high


def _usual(share: float, whole: float) -> float:
    """What most steps show of a time, over all of it."""
    return min(1.0, share / whole) if whole > 0 else 1.0


def _delay_within(facts: TrialFacts, time: float, least: float, most: float) -> tuple[float, float]:
    """Share of the time in which the loop's thread was without a core within ``time`` of all steps: least and most.

    ``least`` and ``most`` are the ends of the CPU time that it used there; all in ns.
    """
    wall, used = float(facts.column("wall_ns").sum()), processor.ran_ns(facts)
    delay = min(1.0, facts.quantity("loop_run_delay_share")) * wall
    elsewhere = max(0.0, wall - time - max(0.0, used - most))
    computes_alone = not facts.on_accelerator and ask(facts.number, "threads") == 1
    surely_elsewhere = (ask(_lost_while_computing, facts) or 0.0) * wall if computes_alone else 0.0
    low = min(max(0.0, time - most), max(0.0, delay - elsewhere))
    high = max(low, min(max(0.0, time - least), delay - surely_elsewhere))
    return low / wall, high / wall


def _lost_while_computing(facts: TrialFacts) -> float:
    """What of the step the thread lacked in forward, backward and optimizer, as far as it can be delay; at least."""
    phases = {phase: facts.host_column(phase) for phase in _COMPUTE if ask(facts.host_column, phase) is not None}
    facts.column("thread_cpu_ns")
    off = off_processor_ns(facts.table, phases)
    if off is None:
        raise facts.missing("thread_cpu_ns", "the loop marks no time in which the model computes")
    return min(facts.quantity("loop_run_delay_share"), float(off.sum()) / float(facts.column("wall_ns").sum()))


def _delayed_threads(facts: TrialFacts, share: str, cpu_s: str) -> float:
    """Threads of a group that had no core, at a mean moment."""
    delayed = min(_MOST_DELAYED, facts.quantity(share))
    return delayed / (1 - delayed) * facts.quantity(cpu_s) / processor.window_s(facts)
