"""The facts of one rank's trace that rules may ask for: shares with intervals, or NotMeasured with the reason."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.statistics.intervals import Interval, mean_interval, ratio_interval, student_quantile
from perf_diagnostics.diagnose.trace.breakdown import Breakdown, Part, breakdown, host_breakdown
from perf_diagnostics.diagnose.trace.events import Bool, Events, Kind, Trace
from perf_diagnostics.diagnose.trace.gate import distrust
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import share_of_busy
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.diagnose.trace.nodes import GRADIENT, Nodes
from perf_diagnostics.diagnose.trace.own_times import OwnTimes
from perf_diagnostics.diagnose.trace.steps import Steps, steps_of
from perf_diagnostics.diagnose.trace.updates import Update, UpdateOnHost
from perf_diagnostics.records import Int64

#: Fewer steps than this have no interval, and no verdict is drawn from them.
LEAST_STEPS = 3

#: From so many steps on, batch means allow for autocorrelation; fewer cannot show any.
_ENOUGH_FOR_BATCHES = 20

#: Names of operators, ranges, Python functions and kernels of which a training has some: of a backward pass, or of the
#: update of its parameters.
_OF_TRAINING = re.compile(r"autograd::|backward|_bwd|wgrad|dgrad|optimizer|multi_tensor_apply", re.IGNORECASE)

#: A kernel that starts this soon after its launch found the device idle.
PROMPT_NS = 20_000


@dataclass(frozen=True, eq=False)
class TraceFacts:
    """A trace's steps, what they went to, and how the device was fed."""

    trace: Trace
    launches: Launches
    steps: Steps
    distrusted: tuple[str, str] | None

    @staticmethod
    def of(trace: Trace) -> TraceFacts:
        launches = Launches.of(trace)
        steps = steps_of(launches)
        return TraceFacts(trace, launches, steps, distrust(launches, steps))

    @property
    def label(self) -> str:
        return self.trace.label

    @property
    def on_device(self) -> bool:
        return len(self.trace.device) > 0

    @property
    def thin(self) -> bool:
        """Too few steps, or none marked."""
        return not self.steps.marked or len(self.steps) < LEAST_STEPS

    @cached_property
    def split(self) -> Breakdown:
        """Where every nanosecond went; NotMeasured where the trace cannot be trusted or is a cold start."""
        self.require_sound()
        self.require_steady()
        return breakdown(self.launches, self.steps) if self.on_device else host_breakdown(self.launches, self.steps)

    def require_sound(self) -> None:
        """Raise NotMeasured if the trace contradicts itself or lacks a side."""
        if self.distrusted is not None:
            raise NotMeasured(*self.distrusted)

    def require_steady(self) -> None:
        """Raise NotMeasured in a cold start."""
        if self.steps.cold:
            raise NotMeasured("steady_steps", "the trace covers a cold start, not steady steps")

    def require_device(self, signal: str) -> None:
        self.require_sound()
        if not self.on_device:
            raise NotApplicable(signal, "nothing in the trace ran on a device: these are the CPU's operators")

    @property
    def wall_ns(self) -> Int64:
        return self.steps.windows.end - self.steps.windows.start

    @cached_property
    def step_time_s(self) -> Interval:
        return mean_interval(self.wall_ns / 1e9)

    def per_step_ns(self, part: Part) -> Int64:
        """The time of a part in each step; over all parts they add up to :attr:`wall_ns` exactly."""
        return self.split.parts[part].within(self.steps.windows)

    def share(self, *parts: Part) -> Interval:
        """The share of the steps' time that parts of the waterfall take together."""
        return self.share_of(np.sum([self.per_step_ns(part) for part in parts], axis=0))

    def share_of(self, per_step: Int64 | Times) -> Interval:
        """The share of the steps' time of a set of time, or of so many ns in each step."""
        values = per_step.within(self.steps.windows) if isinstance(per_step, Times) else per_step
        return share_interval(values, self.wall_ns)

    @property
    def busy_share(self) -> float:
        """The device's work of any kind: no fix of the host's side makes a step shorter than it."""
        return self.share_of(self.split.busy).value

    @property
    def host_share(self) -> float:
        """What the host needs to launch a step's work at its own speed; slowed by the profiler, so an upper bound."""
        return self.share_of(self.split.host.working.within(self.steps.on_host)).value

    @property
    def coverage(self) -> float:
        """How much of the time has an explanation."""
        return 1 - self.share(Part.UNEXPLAINED).value

    @cached_property
    def prompt_share(self) -> float:
        """The share of kernels that start within 20 µs of their launch: near 1 the device waits for the host."""
        self.require_device("launch_delay")
        if not self.launches.delay_ns.size:
            raise NotMeasured("launch_delay", "no kernel is linked to its launch")
        return float(np.mean(self.launches.delay_ns < PROMPT_NS))

    @property
    def delay_s(self) -> float:
        """The mean time between launch and start, weighted by the kernels' durations: how far ahead the host is."""
        self.require_device("launch_delay")
        weights = self.launches.kernel_duration_ns
        if not weights.sum() > 0:
            raise NotMeasured("launch_delay", "no kernel is linked to its launch")
        return float(np.average(np.maximum(self.launches.delay_ns, 0), weights=weights)) / 1e9

    @cached_property
    def loader_seen(self) -> bool:
        """Whether a loader, or whoever waits for one, left a range in the trace."""
        return bool(self.launches.names.data_wait(self.trace.of(Kind.ANNOTATION)).any())

    @property
    def loading(self) -> Times:
        """When the training was inside its loader; NotMeasured where the loader left no range in the trace."""
        loading = self.split.host.loading
        if not self.loader_seen:
            raise NotMeasured(
                "data_wait",
                "no loader left a range in the trace ('enumerate(DataLoader)…'); a wait for data, if there is one, is "
                "in 'other host work'. Wrap next(batches) in torch.profiler.record_function('data_wait')",
            )
        return loading

    @cached_property
    def computing(self) -> Bool:
        """Which of the device's events within the steps compute: neither collectives nor copies, which run beside the
        others.
        """
        device = self.trace.device
        computing: Bool = (device.kind != Kind.COPY) & ~self.launches.names.communication(device)
        return computing & (self.steps.windows.containing(device.start_ns) >= 0)

    @cached_property
    def computing_ns(self) -> int:
        """The durations of these together; NotMeasured where nothing took any time."""
        self.require_device("kernels")
        self.require_steady()
        whole = int(self.trace.device.duration_ns[self.computing].sum())
        if not whole:
            raise NotMeasured("kernels", "nothing was computed on the device within the steps")
        return whole

    def part_of_computing(self, chosen: Bool) -> float:
        """The part of what the device computes within the steps that some of its events take, 0…1."""
        return float(self.trace.device.duration_ns[self.computing & chosen].sum()) / self.computing_ns

    @cached_property
    def own_times(self) -> OwnTimes:
        """What operators of the CPU take themselves; NotMeasured where the trace cannot be trusted, or starts cold."""
        self.require_sound()
        self.require_steady()
        return OwnTimes.of(self.launches, self.steps)

    @cached_property
    def nodes(self) -> Nodes | None:
        """Autograd's nodes; None where nobody noted any."""
        return Nodes.of(self.launches)

    def require_nodes(self) -> Nodes:
        """Raise NotMeasured where no backward pass is in the trace, or no steps are told apart."""
        self.require_sound()
        if not self.steps.marked:
            raise NotMeasured("steps", "no steps are marked in the trace")
        if self.nodes is None:
            raise NotMeasured("autograd_nodes", "no node of autograd's is in the trace, so no backward pass is known")
        return self.nodes

    def require_sizes(self, operators: Events) -> None:
        """Raise NotMeasured where none of these operators tells the sizes of its inputs."""
        if not (operators.told >= 0).any():
            raise NotMeasured("input_dims", "the trace does not tell the sizes of operators: record_shapes=True does")

    @cached_property
    def update(self) -> Update | None:
        """The optimizer's update; None where no range of it lies in the trace."""
        return Update.of(self.launches, self.computing, self.computing_ns)

    @cached_property
    def update_on_host(self) -> UpdateOnHost | None:
        """What the host does for it; None where no range of it lies in the trace."""
        return UpdateOnHost.of(self.launches, self.steps.on_host)

    def kernel_share(self, chosen: Bool) -> float:
        """The share of the device's busy time that some of its events take."""
        self.require_device("kernels")
        self.require_steady()
        share = share_of_busy(self.launches, self.steps.windows, chosen)
        if share is None:
            raise NotMeasured("kernels", "nothing ran on the device within the steps")
        return share

    @cached_property
    def device_work_ns(self) -> int:
        """The durations of all that ran on the device within the steps; NotMeasured where nothing took any time."""
        self.require_device("kernels")
        self.require_steady()
        device = self.trace.device
        whole = int(device.duration_ns[self.steps.windows.containing(device.start_ns) >= 0].sum())
        if not whole:
            raise NotMeasured("kernels", "nothing ran on the device within the steps")
        return whole

    @cached_property
    def forward_only(self) -> bool:
        """Whether operators are in the trace, and no sign of a backward pass or of an update: inference, or evaluation.

        False where CUDA graphs are launched: what a graph does, no operator tells.
        """
        launches = self.launches
        if not len(self.trace.of(Kind.OPERATOR)) or launches.names.graph(self.trace.runtime).any():
            return False
        return not any(_OF_TRAINING.search(name) for name in self.trace.names)

    @cached_property
    def gradients_a_step(self) -> float | None:
        """How many parameters' gradients the backward pass of a step writes; None where autograd noted none."""
        operators = self.trace.of(Kind.OPERATOR)
        noted = self.trace.named(lambda name: name == GRADIENT)
        written = operators.where(noted[operators.name])
        count = self.calls_in_steps(written)
        return float(count.mean()) if count.any() else None

    @property
    def copies_in_steps(self) -> Events:
        """Copies between host and device that start within the steps."""
        self.require_device("copies")
        copies = self.trace.of(Kind.COPY)
        copies = copies.where(self.launches.names.between_host_and_device(copies))
        return copies.where(self.steps.windows.containing(copies.start_ns) >= 0)

    def calls_in_steps(self, calls: Events) -> Int64:
        """How many of some calls or operators start in each step."""
        step = self.steps.on_host.containing(calls.start_ns)
        return np.bincount(step[step >= 0], minlength=len(self.steps)).astype(np.int64)


def share_interval(part_ns: Int64, wall_ns: Int64) -> Interval:
    """A part's share of the time, with an interval from its scatter over steps.

    A trace has a handful of steps; batch means of so few would leave two degrees of freedom. Below 20 steps the
    residuals of single steps are used (ratio estimator, Student's t), from 20 on :func:`ratio_interval`.
    """
    n = part_ns.size
    if n < LEAST_STEPS or n >= _ENOUGH_FOR_BATCHES:
        return ratio_interval(part_ns, wall_ns).within(0.0, 1.0)
    share = float(part_ns.sum()) / float(wall_ns.sum())
    spread = float((part_ns - share * wall_ns).std(ddof=1)) * math.sqrt(n) / float(wall_ns.sum())
    half = student_quantile(n - 1) * spread
    return Interval(share, share - half, share + half, n).within(0.0, 1.0)


def facts_of(traces: Sequence[Trace]) -> tuple[TraceFacts, ...]:
    """The facts of each rank, in the order of the files."""
    return tuple(TraceFacts.of(trace) for trace in traces)
