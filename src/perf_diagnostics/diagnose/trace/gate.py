"""Whether a trace can be believed: looked at first, and nothing is concluded from one that fails."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.diagnose.trace.steps import Steps
from perf_diagnostics.diagnose.wording import percent

#: Work on the device that starts this long before the call that launched it is out of order: clocks jitter by a few µs.
EARLY_NS = 10_000

#: … and it takes this share of all to distrust the clocks rather than an event.
MOST_EARLY = 0.001

#: Work without its launch, of all work on the device (PyTorch's own trace validator calls more than this lost).
MOST_LOST = 0.02

#: Kernels of one stream run one after the other; old traces round to whole µs.
OVERLAP_NS = 2_000
MOST_OVERLAPS = 0.01

#: Events of negative duration, of all.
MOST_BACKWARDS = 0.001


def distrust(launches: Launches, steps: Steps) -> tuple[str, str] | None:
    """The signal that cannot be trusted and why, or None if the trace holds together."""
    trace = launches.trace
    if trace.backwards > MOST_BACKWARDS * trace.seen:
        share = percent(trace.backwards / trace.seen)
        return "durations", f"{trace.backwards} events ({share}) have a negative duration: the clock ran backwards"
    if steps.fault:
        return "steps", steps.fault
    if not steps.windows.total_ns:
        return "steps", "the trace spans no time"
    if not len(trace.device):
        return _without_device(launches)
    if not len(trace.runtime):
        return "runtime_calls", (
            "the trace has the device's side only, so that no gap can be laid to what the host did; record "
            "ProfilerActivity.CPU too"
        )
    return _unlinked(launches) or _early(launches) or _overlapping(launches)


def _without_device(launches: Launches) -> tuple[str, str] | None:
    """A trace of the CPU alone is sound, unless a device was at work that nobody recorded."""
    trace = launches.trace
    if launches.names.wait(trace.runtime).any() or len(trace.runtime):
        return "device_activity", "the host calls a device whose own activity is not in the trace"
    if trace.about.get("deviceProperties"):
        return "device_activity", (
            "the machine has a device, but its activity was not recorded, so that what the host waits for may hide "
            "behind it; record ProfilerActivity.CUDA too"
        )
    return None


def _unlinked(launches: Launches) -> tuple[str, str] | None:
    lost = float(np.mean(~launches.linked))
    if lost <= MOST_LOST:
        return None
    return "correlations", f"{percent(lost)} of the device's work has no launch in the trace (at most {MOST_LOST:.0%})"


def _early(launches: Launches) -> tuple[str, str] | None:
    early = int(np.count_nonzero(launches.early_ns() > EARLY_NS))
    if early <= MOST_EARLY * launches.call.size:
        return None
    return "clocks", (
        f"{early} of {launches.call.size} kernels and copies start before the call that launched them: the clocks of "
        "host and device do not agree"
    )


def _overlapping(launches: Launches) -> tuple[str, str] | None:
    """Graphs are excused: their branches run side by side and are all shown on the stream of the launch."""
    device, runtime = launches.trace.device, launches.trace.runtime
    in_graph = np.zeros(len(device), np.bool_)
    in_graph[launches.linked] = launches.names.graph(runtime)[launches.call[launches.linked]]
    kernels = device.where((device.kind == Kind.KERNEL) & ~in_graph)
    if len(kernels) < 2:
        return None
    # Streams end to end on one time line, so that a single running maximum tells how far each reaches.
    shift = kernels.track.astype(np.int64) * (int(kernels.end_ns.max()) + 1)
    order = np.argsort(kernels.start_ns + shift, kind="stable")
    start, end = (kernels.start_ns + shift)[order], (kernels.end_ns + shift)[order]
    overlaps = int(np.count_nonzero(start[1:] < np.maximum.accumulate(end)[:-1] - OVERLAP_NS))
    if overlaps <= MOST_OVERLAPS * len(kernels):
        return None
    return "streams", f"{overlaps} of {len(kernels)} kernels start before an earlier one of their stream ends"
