"""What a loop does with a batch between its loader and the forward, as far as the device waits for it."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.loaders.hand_over import FirstWorkers, HandedOver
from perf_diagnostics.diagnose.loaders.loading_cost import cores_left
from perf_diagnostics.records import Bools, Float64, Phase

#: Work of less than this for each sample, in s, is hardly done sample by sample: ten calls on a single one take more.
AT_ONCE_S = 50e-6

_COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


def prepared_ns(facts: TrialFacts) -> Float64:
    """The host's time between a batch and its forward in each steady step, in ns, as most steps show it.

    What is long now and then (a stall, a save) is none of it, nor are pauses of the garbage collector, nor waits for
    other ranks (a barrier). In a trial on the CPU, where there is nothing to copy, all of ``transfer`` is preparation,
    too.

    Raises:
        NotMeasured: the loop marks no wait for data or no forward, or the run is older than this record.
    """
    for phase in (Phase.DATA_WAIT, Phase.FORWARD):
        facts.host_column(phase)
    found = facts.column("prepare_ns").astype(np.float64)
    for none_of_it in ("gc_ns", f"collective_{Phase.OTHER}_ns"):
        pauses = facts.table.get(none_of_it)
        if pauses is not None:
            found = np.maximum(0.0, found - pauses)
    copied = facts.table.host_ns(Phase.TRANSFER)
    if not facts.on_accelerator and copied is not None:
        found = found + copied
    typical: Float64 = np.minimum(found, 2 * float(np.median(found)))
    return typical


def preparation_share(facts: TrialFacts) -> Interval:
    """The share of the step in which nothing but the preparation of a batch went on.

    On a device that is the part of it in which the device had ended the step before: the wait for data comes first in
    a step, so of both together what exceeds the device's lag behind the host is exposed.

    Raises:
        NotMeasured: it was not recorded, or a step takes several batches on a device, whose queue between them is not
            known.
    """
    prepared, wall = prepared_ns(facts), facts.column("wall_ns")
    if not facts.on_accelerator:
        return facts.ratio("prepare_ns", prepared, wall).within(0.0, 1.0)
    if (facts.result.trial.settings.accumulation_steps or 1) > 1:
        raise NotMeasured(
            "prepare_ns", "a step takes several batches; how full the queue is between them a profiler window tells"
        )
    lag, known = _lag_before(facts)
    exposed = np.clip(facts.host_column(Phase.DATA_WAIT) + prepared - lag, 0.0, prepared)
    if int(known.sum()) < 1:
        raise facts.missing("host_lead_ns", "no step has a value of host_lead_ns")
    return facts.ratio("prepare_ns", exposed[known], wall[known]).within(0.0, 1.0)


def a_sample(facts: TrialFacts) -> Interval | None:
    """What it takes on the host for a sample, in s, as far as the loop's thread had a processor; None where nobody
    counted samples.
    """
    samples = facts.table.get("samples")
    if samples is None or not samples.sum() > 0:
        return None
    return facts.ratio("prepare_ns", prepared_ns(facts), samples).scaled(1e-9 * _running(facts))


def _running(facts: TrialFacts) -> float:
    """The part of its computing for which the loop's thread can have run; 1 where that is not known."""
    running = None if facts.on_accelerator else ask(processor.granted_share, facts)
    return 1.0 if running is None else running


def workers_pay(facts: TrialFacts) -> bool:
    """Whether workers that did it would surely win something: those that there are, or first ones after their cost."""
    free = ask(cores_left, facts)
    if free is not None and free < 1:
        return False
    if ask(facts.number, "num_workers"):
        return True
    batches = int(ask(facts.number, "accumulation_steps") or facts.result.trial.settings.accumulation_steps or 1)
    time_s = float(prepared_ns(facts).mean()) * 1e-9 * _running(facts)
    rest_s = max(0.0, facts.step_time_s.value - time_s)
    return FirstWorkers(time_s, rest_s, batches, free, HandedOver.of(facts)).surely_win(1)


def as_it_should_be(facts: TrialFacts) -> bool:
    """Whether, on the CPU, batches are worked on at once already, and workers would not surely win anything."""
    each = a_sample(facts)
    return not facts.on_accelerator and each is not None and each.surely_below(AT_ONCE_S) and not workers_pay(facts)


def computing_share(facts: TrialFacts) -> Interval | None:
    """How much of it the loop's own thread surely computed, as if it had computed in all other phases throughout.

    None where that is not known: on a device, whose host may sleep in the other phases.
    """
    used = ask(lambda: facts.column("thread_cpu_ns") - facts.column("data_wait_cpu_ns"))
    if facts.on_accelerator or used is None:
        return None
    prepared = prepared_ns(facts)
    rest = facts.host_column(Phase.OTHER) - facts.column("prepare_ns")
    elsewhere = np.sum([known for phase in _COMPUTE if (known := facts.table.host_ns(phase)) is not None], axis=0)
    surely = np.clip(used - elsewhere - rest, 0.0, prepared)
    return facts.ratio("prepare_ns", surely, prepared).within(0.0, 1.0)


def _lag_before(facts: TrialFacts) -> tuple[Float64, Bools]:
    """How long after the host the device ended the step before each, in ns, and for which steps that is known."""
    lag = np.roll(facts.column("host_lead_ns").astype(np.float64), 1)
    block = facts.table.get("block")
    if block is not None:  # a block begins with the device at rest
        lag[1:][np.diff(block) != 0] = 0.0
    known: Bools = np.isfinite(lag)
    known[0] = False
    return np.maximum(0.0, np.nan_to_num(lag)), known
