"""What of the optimizer's phase is the update, and what the loop does around it: between backward and the update."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.step_facts import NS_PER_S
from perf_diagnostics.records import Float64, Phase

#: The word of the fact ``optimizer`` where the loop updates its parameters itself, without an optimizer of torch. What
#: lies between backward and the next batch is then the optimizer's phase, as a whole.
BY_HAND = "by hand"

#: Bytes that one clipping of all gradients moves for each parameter in float32: read for the norm, read, written.
CLIP_BYTES = 12.0

#: What one ``clip_grad_norm_`` takes for a tensor of 576 elements on a CPU, in s: 2.6 to 3.1 µs beside 320 and 40 of
#: them (torch 2.13).
CLIP_TENSOR_S = 3.1e-6


def before_update_ns(facts: TrialFacts) -> Float64:
    """The host's time in each steady step that lies in the optimizer's phase and is no update, in ns.

    Raises:
        NotMeasured: the loop marks its phases itself, trains on a device (there the host may be waiting for the
            backward), or the run is older than this record.
    """
    if facts.on_accelerator:
        raise NotMeasured(
            "before_update_ns",
            "between backward and the update the host may be waiting for the device, which is no loss; a profiler "
            "window tells",
        )
    facts.column("wall_ns")
    found = facts.table.get("before_update_ns")
    if found is None:
        raise facts.missing("before_update_ns", "it is told apart in loops that are watched (run, attach) only")
    return found.astype(np.float64)


def update_ns(facts: TrialFacts) -> Float64:
    """The time of the optimizer's phase in each steady step, in ns, without what is no update where that is known."""
    whole = facts.host_column(Phase.OPTIMIZER).astype(np.float64)
    before = ask(before_update_ns, facts)
    return whole if before is None else np.maximum(0.0, whole - before)


def update_share(facts: TrialFacts) -> Interval:
    """The share of the step that the update takes; on a device, or where it is not told apart, the optimizer's."""
    if ask(before_update_ns, facts) is None:
        return facts.optimizer_share
    return facts.own_share(Phase.OPTIMIZER, update_ns(facts))


def update_s(facts: TrialFacts) -> float:
    """The mean time of that in a step, in s; pauses that are not its own are none of it."""
    return update_share(facts).value * facts.step_time_s.value


def typical_ns(times_ns: Float64) -> Float64:
    """As most steps show it: what is long now and then (a stall, a save) is looked for among the long steps."""
    typical: Float64 = np.minimum(times_ns, 2 * float(np.median(times_ns)))
    return typical


def one_clipping_s(facts: TrialFacts, bytes_per_parameter: float | None) -> float:
    """The least that clipping all gradients once takes, in s; 0 where the model's size is not known.

    Args:
        facts: the trial's.
        bytes_per_parameter: what its update moves; where the memory's speed was not measured, the update itself tells.
    """
    tensors = ask(facts.number, "optimizer_tensors") or 0.0
    parameters, bandwidth = (ask(facts.quantity, name) for name in ("trainable_parameters", "memory_bandwidth"))
    if parameters and bandwidth:
        moving_s = parameters * CLIP_BYTES / bandwidth
    elif bytes_per_parameter is None:
        moving_s = 0.0
    else:
        moving_s = float(np.median(update_ns(facts))) / NS_PER_S * min(1.0, CLIP_BYTES / bytes_per_parameter)
    return moving_s + tensors * CLIP_TENSOR_S
