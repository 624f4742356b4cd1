"""What a training of the user's own did not show: the columns that are left out of its record, and the reasons why."""

from __future__ import annotations

from collections.abc import Iterable

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.steps.loop_probe import CALLS_SEEN, DATA_WAIT, OPTIMIZER, LoopProbe
from perf_diagnostics.measure.steps.calls import COUNTS, TIMES
from perf_diagnostics.records import ALL_PHASES, MEASURED_PHASES, Gap, StepTable

#: Around shorter waits, and at the ends of shorter steps, the thread's CPU clock is not read: a cold system call takes
#: some five microseconds.
LEAST_WAIT_NS = 1_000_000
LEAST_STEP_NS = 5_000_000

#: What only a trial of a sweep records, and the columns that only some batches have.
_NOT_IN_A_TRAINING = {
    "flops_per_step": "operations are counted for the trials of a sweep only",
    "traffic_bytes_per_step": "operations are counted for the trials of a sweep only",
    "before_update_ns": "where in the optimizer the update begins was not seen",
    "tokens": "the batches have no input_ids, and no mask of padding was seen, to count tokens by",
    "padding_tokens": "neither the batches nor the model's calls have a mask that is certain to be one of padding, on "
    "the CPU or copied from there",
}


def without_unseen(part: StepTable, probe: LoopProbe, *, exchanges: bool) -> StepTable:
    """The part without what was never seen, for zeros there were not measured.

    Args:
        part: some steps.
        probe: where they were marked.
        exchanges: whether gradients are exchanged with other ranks.
    """
    unseen = [ALL_PHASES[index] for index in range(len(MEASURED_PHASES)) if not probe.has_seen(index)]
    absent = {f"{clock}_{phase}_ns" for phase in unseen for clock in ("host", "device")}
    if not (probe.has_seen(OPTIMIZER) and probe.bridged) or probe.by_hand:
        absent.add("before_update_ns")
    if not (probe.has_seen(DATA_WAIT) and probe.cpu_clock):
        absent.add("data_wait_cpu_ns")
    if not probe.step_clock:
        absent.add("thread_cpu_ns")
    if not (probe.bridged or probe.has_seen(CALLS_SEEN)):
        absent |= {*COUNTS, *TIMES}
    if not exchanges:
        absent |= {"exchange_ns", "exchange_hidden_ns"}
    return StepTable({name: values for name, values in part.columns.items() if name not in absent})


def gaps_of(about: About, probe: LoopProbe, columns: Iterable[str]) -> list[Gap]:
    """Why each signal that a trial may have is absent.

    Args:
        about: what is known about the training.
        probe: where it was marked.
        columns: those that its steps have.
    """
    why = about.why_unseen
    gaps = [
        Gap(f"host_{phase}_ns", why.get(str(phase), f"the loop marked no {phase}; its time is in other"))
        for index, phase in enumerate(MEASURED_PHASES)
        if not probe.has_seen(index)
    ]
    if probe.has_seen(DATA_WAIT) and not probe.cpu_clock:
        why_not = f"the waits are under {LEAST_WAIT_NS / 1e6:g} ms, too short to read the thread's CPU clock around"
        gaps.append(Gap("data_wait_cpu_ns", why_not))
    if not probe.step_clock:
        why_not = f"the steps are under {LEAST_STEP_NS / 1e6:g} ms, too short to read the thread's CPU clock in each"
        gaps.append(Gap("thread_cpu_ns", why_not))
    recorded = {*columns, *(quantity.name for quantity in about.quantities)}
    gaps += [Gap(signal, why_not) for signal, why_not in _NOT_IN_A_TRAINING.items() if signal not in recorded]
    if "loss" in why and not probe.has_loss:
        gaps.append(Gap("loss", why["loss"]))
    return gaps
