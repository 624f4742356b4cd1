"""Whether a trace can be believed: looked at first, and nothing is concluded from one that fails."""

from __future__ import annotations

import re

import numpy as np

from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.diagnose.trace.steps import Steps
from perf_diagnostics.diagnose.wording import duration, listing, percent
from perf_diagnostics.records import Int64

#: Work on the device that starts this long before the call that launched it is out of order: clocks jitter by a few µs.
EARLY_NS = 10_000

#: … and it takes this share of all to distrust the clocks rather than an event.
MOST_EARLY = 0.001

#: Work without its launch, of all work on the device (PyTorch's own trace validator calls more than this lost).
MOST_LOST = 0.02

#: Work that was queued before the recording began, of all work on the device: with more, most launches are unknown.
MOST_QUEUED = 0.5

#: Calls that launch a kernel whose kernel is not in the trace, of all in the steps: the profiler drops what it has no
#: room for, and what was dropped would look like an idle device (judgement; none in five public traces).
MOST_UNSEEN = 0.10

#: Kernels of one stream run one after the other; old traces round to whole µs.
OVERLAP_NS = 2_000
MOST_OVERLAPS = 0.01

#: A call that launches work takes microseconds: with so many of them, a quickest one beyond this, or a middle one below
#: it, counts another unit (judgement; in the public traces the quickest takes 3 to 4 µs, the middle one 5 to 12).
LAUNCHES_TO_TELL = 20
SLOWEST_QUICKEST_LAUNCH_NS = 1_000_000
QUICKEST_MIDDLE_LAUNCH_NS = 100

_NEVER = np.iinfo(np.int64).max - EARLY_NS

#: Events of negative duration, of all.
MOST_BACKWARDS = 0.001

#: Operators that exist for Apple's GPU only (native_functions.yaml).
_APPLE = re.compile(r"^aten::_?(mps_|lstm_mps)")

#: Events of kinds that are not read, of all in a trace that shows no device at work (judgement: what another program
#: merged into it is as much).
MOST_UNREAD = 0.01


def distrust(launches: Launches, steps: Steps) -> tuple[str, str] | None:
    """The signal that cannot be trusted and why, or None if the trace holds together."""
    trace = launches.trace
    if trace.backwards > MOST_BACKWARDS * trace.seen:
        share = percent(trace.backwards / trace.seen)
        events = f"1 event ({share}) has" if trace.backwards == 1 else f"{trace.backwards} events ({share}) have"
        return "durations", f"{events} a negative duration: the clock ran backwards"
    if steps.fault:
        # Kernels that are not recorded are why the pace of those that are cannot be told.
        return (_unseen(launches, steps) if steps.launched is not None else None) or ("steps", steps.fault)
    if not steps.windows.total_ns:
        return "steps", "the trace spans no time"
    if not len(trace.device):
        return _without_device(launches)
    if not trace.device.duration_ns.any():
        return "durations", "nothing that ran on the device took any time"
    if not len(trace.runtime):
        return "runtime_calls", (
            "the trace has the device's side only, so that no gap can be laid to what the host did; record "
            "ProfilerActivity.CPU too"
        )
    return (
        _unlinked(launches)
        or _unseen(launches, steps)
        or _other_unit(launches)
        or _early(launches)
        or _late(launches, steps)
        or _overlapping(launches)
    )


def _without_device(launches: Launches) -> tuple[str, str] | None:
    """A trace of the CPU alone is sound, unless a device was at work that nobody recorded."""
    trace = launches.trace
    unread = sum(trace.unread.values())
    if unread > MOST_UNREAD * (trace.seen + unread):
        kinds = listing(
            [f"'{kind}'" if kind else "none" for kind in sorted(trace.unread, key=trace.unread.__getitem__)[-3:]]
        )
        return "device_activity", (
            f"{unread} of its events are of categories that are not read ({kinds}), and no kernel is among the others: "
            "a device's work may be, of a kind that is not known here (known are CUDA's, ROCm's and Intel's)"
        )
    if any(_APPLE.match(name) for name in trace.names):
        return "device_activity", (
            "operators ran on Apple's GPU (MPS), whose work the profiler does not record; "
            "torch.mps.profiler and Instruments show it"
        )
    if launches.names.wait(trace.runtime).any() or len(trace.runtime):
        return "device_activity", (
            "the host calls a device whose own activity is not in the trace; record that too (ProfilerActivity.CUDA, "
            "or what the device's is called)"
        )
    if trace.about.get("deviceProperties"):
        return "device_activity", (
            "the machine has a device, but its activity was not recorded, so that what the host waits for may hide "
            "behind it; record ProfilerActivity.CUDA too"
        )
    return None


def _unlinked(launches: Launches) -> tuple[str, str] | None:
    """Work without its launch is lost, unless it was queued before the recording began: where the host is far ahead,
    a trace opens with a whole queue of it. Correlations count up, so that its are below those of all calls recorded.
    """
    correlation, linked = launches.trace.device.correlation, launches.linked
    queued = ~linked & (correlation > 0) & (correlation < _first(correlation[linked]))
    lost = float(np.mean(~linked & ~queued))
    if lost > MOST_LOST:
        return (
            "correlations",
            f"{percent(lost)} of the device's work has no launch in the trace (at most {MOST_LOST:.0%})",
        )
    before = float(np.mean(queued))
    if before > MOST_QUEUED:
        return "correlations", (
            f"{percent(before)} of the device's work was launched before the recording began (at most "
            f"{MOST_QUEUED:.0%}); record more steps"
        )
    return None


def _first(correlation: Int64) -> int:
    return int(correlation.min()) if correlation.size else 0


def _unseen(launches: Launches, steps: Steps) -> tuple[str, str] | None:
    runtime = launches.trace.runtime
    calls = runtime.where(launches.names.kernel_launch(runtime))
    calls = calls.where(
        (steps.on_host.containing(calls.start_ns) >= 0) & (launches.capturing.containing(calls.start_ns) < 0)
    )
    if not len(calls):
        return None
    seen = np.isin(calls.correlation, launches.trace.device.correlation)
    unseen = float(np.mean(~seen))
    if unseen <= MOST_UNSEEN:
        return None
    still_busy = launches.trace.device.end_ns.max() > calls.start_ns.max()
    if still_busy and not seen[int(np.argmin(seen)) :].any():
        return "kernels", (
            f"the last {percent(unseen)} of the calls that launch a kernel have none in the trace (at most "
            f"{MOST_UNSEEN:.0%}), while the device was still at work on earlier ones: the recording ended before it "
            "came to them; call torch.cuda.synchronize() before the profiler stops"
        )
    return "kernels", (
        f"{percent(unseen)} of the calls that launch a kernel have none in the trace (at most {MOST_UNSEEN:.0%}): the "
        "profiler dropped them, and the device would look idle where they ran; record fewer steps"
    )


def _early(launches: Launches) -> tuple[str, str] | None:
    early = int(np.count_nonzero(launches.early_ns() > EARLY_NS))
    if early <= MOST_EARLY * launches.call.size:
        return None
    return "clocks", (
        f"{early} of {launches.call.size} kernels and copies start before the call that launched them: the clocks of "
        "host and device do not agree"
    )


def _late(launches: Launches, steps: Steps) -> tuple[str, str] | None:
    """The device's clock may be behind as well: its work then goes on after the host had waited for all of it, or lies
    in no step although the steps launched it.
    """
    device, linked = launches.trace.device, launches.linked
    start, end = device.start_ns[linked], device.end_ns[linked]
    late = int(np.count_nonzero(end > _done_ns(launches) + EARLY_NS))
    if late > MOST_EARLY * end.size:
        return "clocks", (
            f"{late} of {end.size} kernels and copies end after the host had waited for all of them: the clocks of "
            "host and device do not agree"
        )
    launched = (steps.on_host.containing(launches.call_start_ns) >= 0).any()
    first, last = steps.windows.start[0], steps.windows.end[-1]
    if launched and not ((start < last) & (end > first)).any():
        return "clocks", (
            "none of the device's work lies within the steps, which launched some of it: the clocks of host and device "
            "do not agree, or the host is further ahead than the trace is long"
        )
    return None


def _done_ns(launches: Launches) -> Int64:
    """By when each linked piece of work must be done: the first end of a wait for the whole device that began after
    its launch. Far away without such a wait, and where several devices work: which of them was waited for is not known.
    """
    trace = launches.trace
    waits = trace.runtime.where(launches.names.wait_for_device(trace.runtime))  # by start, as all events
    if not len(waits) or trace.devices > 1:
        return np.full(launches.call_start_ns.shape, _NEVER)
    soonest = np.append(np.minimum.accumulate(waits.end_ns[::-1])[::-1], _NEVER)
    done: Int64 = soonest[np.searchsorted(waits.start_ns, launches.call_start_ns, side="right")]
    return done


def _other_unit(launches: Launches) -> tuple[str, str] | None:
    """Chrome's format counts in microseconds; a file that counts in another unit moves every threshold."""
    took = launches.trace.runtime.duration_ns[launches.launching]
    if took.size < LAUNCHES_TO_TELL:
        return None
    quickest, middle = int(took.min()), float(np.median(took))
    if quickest <= SLOWEST_QUICKEST_LAUNCH_NS and middle >= QUICKEST_MIDDLE_LAUNCH_NS:
        return None
    seen = (
        f"even the quickest launch takes {duration(quickest / 1e9)}"
        if quickest > SLOWEST_QUICKEST_LAUNCH_NS
        else f"the middle launch takes {middle:g} ns"
    )
    return "unit", f"{seen}, so its times are not in microseconds, or calls were slowed a hundredfold"


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
