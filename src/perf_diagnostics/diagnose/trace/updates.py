"""What a trace tells of the optimizer: which one it is, whether one kernel updates all, and the device's work on it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool, Events, Kind, Trace
from perf_diagnostics.diagnose.trace.inputs import LISTED
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import launched_in, outermost
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.records import Int64

#: Torch's own range around ``step()``; and around ``zero_grad()``, which a closure calls inside of it.
_STEP = re.compile(r"^Optimizer\.step#(\w+)\.step$")
_ZERO_GRAD = re.compile(r"^Optimizer\.zero_grad#")

#: Operators and kernels that update parameters and what is kept of them in one pass: torch's, apex', bitsandbytes', and
#: what a compiler makes.
_FUSED = re.compile(
    r"^aten::_fused_(adam|adamw|sgd|adagrad)_?$|Fused(Adam|Sgd|Adagrad)|AdamFunctor|fused_adam|kOptimizer|^triton_",
    re.IGNORECASE,
)

#: Those of torch's optimizers that end each tensor's update with ``addcdiv_`` (torch 2.13).
_DIVIDE = frozenset(("Adam", "AdamW", "Adagrad", "RMSprop"))

#: Operators that update all tensors of their first list.
_AT_ONCE = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")

#: Kernels of torch's that go over memory once for each operation of an update.
_PASSES = re.compile(r"multi_tensor_apply_kernel|elementwise_kernel")


@dataclass(frozen=True, eq=False)
class Update:
    """The update of the steps.

    ``times`` are its ranges on the host, without a closure's forward and backward, with which Lightning calls
    ``step()``; ``kind`` its class in torch ("" where it is not told, or there are several), ``fused`` whether anything
    in it updates in one pass, ``launched`` which of the device's events it launched (no collectives), ``work`` the part
    of what the device computes that these are, and ``passes`` that of torch's kernels that go over memory once, 0…1.
    """

    times: Times
    kind: str
    fused: bool
    launched: Bool
    work: float
    passes: float

    @classmethod
    def of(cls, launches: Launches, computing: Bool, computing_ns: int) -> Update | None:
        """None where no range of an optimizer lies in the trace.

        Args:
            launches: of the trace.
            computing: the device's events that its work is counted by.
            computing_ns: their durations together, more than 0.
        """
        trace, ranges = launches.trace, _ranges(launches)
        if not len(ranges):
            return None
        times = Times.union(_without_closure(launches, ranges), ranges.end_ns)
        mine = launched_in(launches, times) & computing
        operators = trace.of(Kind.OPERATOR)
        inside = operators.where(times.containing(operators.start_ns) >= 0)
        names = {*np.unique(inside.name).tolist(), *np.unique(trace.device.name[mine]).tolist()}
        once = trace.named(_PASSES.search)

        def part(chosen: Bool) -> float:
            return float(trace.device.duration_ns[chosen].sum()) / computing_ns

        return cls(
            times=times,
            kind=_one(_kinds(trace, ranges)),
            fused=any(_FUSED.search(trace.names[name]) for name in names),
            launched=mine,
            work=part(mine),
            # Without operators nobody knows whether a closure lies inside.
            passes=part(mine & once[trace.device.name]) if len(operators) else 0.0,
        )


@dataclass(frozen=True, eq=False)
class UpdateOnHost:
    """What the host does for the update in the steps.

    ``times`` and ``kind`` are those of :class:`Update`; ``rows`` the outermost operators in it, and ``tensors`` how
    many parameters it updates, in the step with the most of them (None: not told).
    """

    times: Times
    kind: str
    rows: Events
    tensors: int | None

    @classmethod
    def of(cls, launches: Launches, windows: Times) -> UpdateOnHost | None:
        """None where no range of an optimizer lies in the trace.

        Args:
            launches: of the trace.
            windows: the steps, on the host.
        """
        trace, ranges = launches.trace, _ranges(launches)
        if not len(ranges):
            return None
        times = Times.union(_without_closure(launches, ranges), ranges.end_ns)
        rows, _ = outermost(launches, trace.of(Kind.OPERATOR))
        # What begins where it ends is not in it.
        rows = rows.where((times.containing(rows.start_ns + 1) >= 0) & (windows.containing(rows.start_ns) >= 0))
        kinds = _kinds(trace, ranges)
        return cls(times, _one(kinds), rows, _tensors(trace, rows, windows, kinds))

    def fused(self, trace: Trace) -> bool:
        """Whether any of its operators updates in one pass."""
        return any(_FUSED.search(trace.names[name]) for name in np.unique(self.rows.name).tolist())


def _ranges(launches: Launches) -> Events:
    """Torch's own ranges around ``step()``, else those that somebody named."""
    annotations = launches.trace.of(Kind.ANNOTATION)
    told = launches.trace.named(_STEP.match)
    ranges = annotations.where(told[annotations.name])
    return ranges if len(ranges) else annotations.where(launches.names.phase("optimizer", annotations))


def _kinds(trace: Trace, ranges: Events) -> set[str]:
    steps = (_STEP.match(trace.names[name]) for name in np.unique(ranges.name).tolist())
    return {step[1] for step in steps if step is not None}


def _one(kinds: set[str]) -> str:
    return next(iter(kinds)) if len(kinds) == 1 else ""


def _tensors(trace: Trace, rows: Events, windows: Times, kinds: set[str]) -> int | None:
    """Adam and its kin end each tensor's update with ``addcdiv_``; SGD adds to each one, and with momentum multiplies
    and adds to its average before. (torch 2.13, _single_tensor_* and _multi_tensor_*.) Of others, and of both beside
    each other, nobody knows.
    """
    if not kinds or not (kinds <= _DIVIDE or kinds == {"SGD"}):
        return None
    step = windows.containing(rows.start_ns)
    listed = trace.named(lambda name: name.startswith(LISTED))[rows.name]
    if not len(rows) or (rows.size[listed] < 0).any():
        return None
    size = np.where(listed, rows.size, 1)

    def counted(*names: str) -> Int64:
        """Tensors that operators of these names take in each step."""
        chosen = trace.named(lambda name: name.removeprefix("aten::") in names)[rows.name]
        return np.bincount(step[chosen], weights=size[chosen], minlength=len(windows)).astype(np.int64)

    divided = counted("addcdiv_", "_foreach_addcdiv_", *_AT_ONCE)
    if divided.any():
        return int(divided.max())
    lists = counted("_foreach_mul_")
    lists = lists if lists.any() else counted("_foreach_add_")
    found = int((counted("add_") - counted("mul_") + lists).max())
    return found if found > 0 else None


def _without_closure(launches: Launches, ranges: Events) -> Int64:
    """Where each range begins once its backward, and its zeroing of gradients, are over."""
    trace = launches.trace
    annotations, operators = trace.of(Kind.ANNOTATION), trace.of(Kind.OPERATOR)
    engine = trace.named(lambda name: name.startswith(ENGINE))
    zeroing = trace.named(_ZERO_GRAD.match)
    backward = operators.where(engine[operators.name])
    beside = annotations.where(zeroing[annotations.name] | launches.names.phase("backward", annotations))
    start = np.concatenate((backward.start_ns, beside.start_ns))
    end = np.concatenate((backward.end_ns, beside.end_ns))
    order = np.argsort(end)
    start, end = start[order], end[order]
    begins = ranges.start_ns.copy()
    for place, (first, last) in enumerate(zip(ranges.start_ns.tolist(), ranges.end_ns.tolist(), strict=True)):
        # The last one that ends inside; a backward in which the update lies ends after it.
        at = int(np.searchsorted(end, last, side="right")) - 1
        if at >= 0 and end[at] > first and start[at] >= first:
            begins[place] = end[at]
    return begins
