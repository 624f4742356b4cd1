"""Which call on the host launched which work on the device, and which threads do the launching."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.trace.events import Bool, Events, Kind, Trace
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.names import Names
from perf_diagnostics.records import Int64

#: A thread that launches less than this share of all kernels is a helper, not the training.
_LEAST_LAUNCHES = 0.01

#: A call that launches a kernel takes some µs. One that takes as long as this, while the device has nothing to do, does
#: not wait for room in the queue: it loads the kernel's code, which CUDA and ROCm do at the first launch (judgement; in
#: public traces of steady steps 0 to 5 % of the time, in those of first steps 6 to 92 %).
LOADING_NS = 1_000_000

#: How PyTorch names the range around an optimizer's ``step``.
OPTIMIZER_STEP = "Optimizer.step#"


@dataclass(frozen=True, eq=False)
class Launches:
    """A trace's device events beside the runtime calls they come from.

    ``call`` gives, for each row of :attr:`Trace.device`, the row of :attr:`Trace.runtime` that launched it, or -1.
    """

    trace: Trace
    names: Names
    call: NDArray[np.intp]

    @staticmethod
    def of(trace: Trace) -> Launches:
        device, runtime = trace.device, trace.runtime
        return Launches(trace, Names(trace.names), _matching(device.correlation, runtime.correlation))

    @property
    def linked(self) -> Bool:
        return self.call >= 0

    @cached_property
    def call_start_ns(self) -> Int64:
        """Start of the launching call of each linked device event; shape ``(linked,)``."""
        starts: Int64 = self.trace.runtime.start_ns[self.call[self.linked]]
        return starts

    @cached_property
    def delay_ns(self) -> Int64:
        """From the end of the launching call to the start on the device, of linked kernels; may be negative."""
        device = self.trace.device
        chosen = self.linked & (device.kind == Kind.KERNEL)
        delay: Int64 = device.start_ns[chosen] - self.trace.runtime.end_ns[self.call[chosen]]
        return delay

    @cached_property
    def kernel_duration_ns(self) -> Int64:
        """Durations of linked kernels, in the order of :attr:`delay_ns`."""
        device = self.trace.device
        duration: Int64 = device.duration_ns[self.linked & (device.kind == Kind.KERNEL)]
        return duration

    @cached_property
    def launching(self) -> Bool:
        """For each runtime call whether it launched something."""
        launched = np.zeros(len(self.trace.runtime), np.bool_)
        launched[self.call[self.linked]] = True
        return launched

    @cached_property
    def capturing(self) -> Times:
        """When the host captured graphs: what it launched meanwhile was noted, and did not run.

        A capture that the recording cut off lasts to its end. Autograd's thread launches into a capture of another's,
        so that threads are not told apart.
        """
        calls = self.trace.runtime
        begins = calls.start_ns[self.names.capture_begins(calls)]
        ends = np.append(np.sort(calls.end_ns[self.names.capture_ends(calls)]), self.trace.events.end_ns.max(initial=0))
        return Times.union(begins, ends[np.searchsorted(ends[:-1], begins)])

    @cached_property
    def loading(self) -> Times:
        """When the device had nothing to do because a launch loaded its kernel first."""
        calls, device = self.trace.runtime, self.trace.device
        long = calls.where(self.names.kernel_launch(calls) & (calls.duration_ns >= LOADING_NS))
        return Times.union(long.start_ns, long.end_ns) - Times.union(device.start_ns, device.end_ns)

    @cached_property
    def threads(self) -> NDArray[np.int32]:
        """The tracks of the threads that train: those that launch kernels, and the one whose steps are marked or that
        updates the parameters.
        """
        kernels = self.linked & (self.trace.device.kind == Kind.KERNEL)
        tracks, counts = np.unique(self.trace.runtime.track[self.call[kernels]], return_counts=True)
        found = tracks[counts >= _LEAST_LAUNCHES * counts.sum()]
        marked = self.trace.named(lambda name: name.startswith(("ProfilerStep#", OPTIMIZER_STEP)))
        annotations = self.trace.of(Kind.ANNOTATION)
        steps = annotations.track[marked[annotations.name]] if marked.size else annotations.track[:0]
        return np.union1d(found, steps)

    def on_training_threads(self, events: Events) -> Bool:
        return np.isin(events.track, self.threads)

    def early_ns(self) -> Int64:
        """How long before its own launch call each linked device event starts (0: not before), in ns."""
        device = self.trace.device
        early: Int64 = np.maximum(self.call_start_ns - device.start_ns[self.linked], 0)
        return early


def _matching(wanted: Int64, given: Int64) -> NDArray[np.intp]:
    """For each wanted correlation the first row that has it, or -1; 0 and below link nothing."""
    if not given.size:
        return np.full(wanted.shape, -1, np.intp)
    order = np.argsort(given, kind="stable")
    place = np.minimum(np.searchsorted(given, wanted, sorter=order), given.size - 1)
    row = order[place]
    return np.where((wanted > 0) & (given[row] == wanted), row, -1)
