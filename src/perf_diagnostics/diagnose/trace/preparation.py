"""When a traced loop works on a batch that its loader has given it, with the device idle."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.records import Int64


def preparing(facts: TraceFacts) -> Times:
    """From each batch to its forward, or to the first launch where no forward is marked, what of it the device idles.

    A batch arrives where a loader's range ends; without such ranges, where a step begins. Only stretches in which the
    host launches nothing count. In a trace of the CPU alone it is all the time until the forward.

    Raises:
        NotMeasured: the trace cannot be trusted, or on the CPU no forward is marked.
    """
    idle = facts.split.parts[Part.HOST]  # raises for a trace that is not sound
    begun, arrived = _forwards(facts), _batches(facts)
    if not facts.on_device and not begun.size:
        raise NotMeasured(
            "forward",
            "no range named 'forward' lies in the trace, and on the CPU operators prepare batches as well as compute; "
            "wrap the forward in torch.profiler.record_function('forward')",
        )
    limits = np.concatenate((begun, _launches(facts) if facts.on_device else begun[:0], facts.steps.windows.end[-1:]))
    limits.sort()
    until = limits[np.minimum(np.searchsorted(limits, arrived, side="left"), limits.size - 1)]
    between = Times.union(arrived, until)
    return between & idle if facts.on_device else between


def _batches(facts: TraceFacts) -> Int64:
    """When batches arrived."""
    annotations = facts.trace.of(Kind.ANNOTATION)
    waits = annotations.where(facts.launches.names.data_wait(annotations))
    return waits.end_ns if len(waits) else facts.steps.windows.start


def _forwards(facts: TraceFacts) -> Int64:
    annotations = facts.trace.of(Kind.ANNOTATION)
    return annotations.start_ns[facts.launches.names.phase("forward", annotations)]


def _launches(facts: TraceFacts) -> Int64:
    """When the threads that train launched something."""
    runtime = facts.trace.runtime
    found: Int64 = runtime.start_ns[facts.launches.launching & facts.launches.on_training_threads(runtime)]
    return found
