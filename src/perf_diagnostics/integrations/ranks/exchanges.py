"""What a training of several processes tells beside its steps: its exchanges of gradients, and each rank's memory.

DistributedDataParallel counts its exchanges, and times the first ten and then each hundredth, whether anybody asks or
not. Only what it has written down is read: no hook is put in, no rate is changed, nothing waits.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from perf_diagnostics.integrations.ranks.bucket_views import gradient_memory, same_graph_so_far
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Json, StepTable

if TYPE_CHECKING:
    import torch

#: ``Reducer::should_collect_runtime_stats`` and ``kDDPRuntimeLoggingSampleRate`` (torch/csrc/distributed/c10d/
#: reducer.hpp): the first ten, then each hundredth.
_EACH_UP_TO, _THEN_EACH = 10, 100

#: So many steps are looked at one by one, about 60 us each; then those in which the next timed exchange is due.
LOOKS = 14
#: If nobody had a model that exchanges by then, there is none.
_FOUND_BY = 6

#: In its first step DDP's buckets are those it began with, and its graph has nothing to be compared with.
_FIRST = 1

_COLUMNS = ("exchange_ns", "exchange_hidden_ns")
_NEVER = 2**62


def _sent_buffers(ddp: Any) -> dict[str, Json]:
    """The buffers that DDP broadcasts before each forward: their bytes, and the largest one; empty without any."""
    left_out = getattr(ddp, "parameters_to_ignore", ())
    if not getattr(ddp, "broadcast_buffers", False):
        return {}
    sizes = {name: one.numel() * one.element_size() for name, one in ddp.module.named_buffers() if name not in left_out}
    if not sum(sizes.values()):
        return {}
    largest = max(sizes, key=lambda name: sizes[name])
    return {
        "ddp_buffer_bytes": sum(sizes.values()),
        "ddp_largest_buffer": largest,
        "ddp_largest_buffer_bytes": sizes[largest],
    }


def _nobody() -> Iterable[torch.nn.Module]:
    return ()


class Exchanges:
    """Reads DistributedDataParallel's own log after a step, and puts what it says beside the steps.

    Args:
        observations: where what cannot be read is noted.
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        #: The models that are trained, wrappers included.
        self.modules: Callable[[], Iterable[torch.nn.Module]] = _nobody
        #: After so many steps there may be something to read.
        self.next_look = 1
        self._ddp: weakref.ReferenceType[Any] | None = None
        self._log: Mapping[str, Any] = {}
        self._timed: list[tuple[int, float, float]] = []
        self._counted: list[tuple[int, int]] = []
        self._before: tuple[int, Mapping[str, Any]] | None = None
        self._timed_any = False
        self._beside_buckets: int | None = None
        self._same_graph: bool | None = None
        self._buffers: dict[str, Json] | None = None

    def look(self, steps: int) -> None:
        """After so many steps: what has DDP written down? It tells of an exchange when the next one begins."""
        with self._observations.guard(*_COLUMNS):
            log = self._read()
            if log and not (self._counted and self._counted[-1][0] >= steps):
                self._note(steps, int(log.get("iteration", 0)), log)
        with self._observations.guard("ddp_gradients_beside_bytes"):
            self._look_at_options(steps)
        with self._observations.guard("ddp_buffer_bytes"):
            ddp = None if self._ddp is None else self._ddp()
            if ddp is not None and self._buffers is None:
                self._buffers = _sent_buffers(ddp)
        self.next_look = self._when(steps)

    def _note(self, steps: int, iteration: int, log: Mapping[str, Any]) -> None:
        """The mean exchange since the last look, put beside the step that comes next.

        What lies before the first look is not used: it holds the first exchange of all, after which DDP makes its
        buckets anew.
        """
        before, self._before = self._before, (iteration, log)
        self._counted.append((steps, iteration))
        if len(self._counted) > 2 * LOOKS:
            del self._counted[LOOKS]  # of a long training the first counts and the last ones say the most
        if before is None or before[0] == iteration:
            return
        took_ns = _since(before, (iteration, log), "backward_comm_time")
        hidden_ns = _since(before, (iteration, log), "backward_compute_comm_overlap_time")
        if took_ns > 0:
            self._timed_any = True
            self._timed.append((steps, took_ns, min(max(hidden_ns, 0.0), took_ns)))

    def _look_at_options(self, steps: int) -> None:
        """What do gradients hold beside the buckets (once), and were the same parameters unused in all steps so far?"""
        ddp = None if self._ddp is None else self._ddp()
        if ddp is None or steps <= _FIRST:
            return
        if self._beside_buckets is None and not self._log.get("gradient_as_bucket_view"):
            self._beside_buckets = gradient_memory(ddp)
        if self._log.get("find_unused_parameters"):
            self._same_graph = same_graph_so_far(ddp)

    def _when(self, steps: int) -> int:
        """When DDP will have written down more, by its count so far."""
        if steps < (LOOKS if self._ddp is not None else _FOUND_BY):
            return steps + 1
        rate = self._least_and_most()
        if self._ddp is None or not self._counted or rate is None:
            return _NEVER
        then, count = self._counted[0]
        now = count + max(1.0, rate[0]) * (steps - then)
        due = (self._counted[-1][1] // _THEN_EACH + 1) * _THEN_EACH
        return steps + max(1, math.ceil((due - now) / max(1.0, rate[0])))

    def forget(self) -> None:
        """The steps so far are dropped, and counted from 0 again."""
        self._timed.clear()
        self._counted.clear()
        self._before = None

    def beside(self, part: StepTable, first: int, device: str) -> StepTable:
        """A block of steps, of which the first one has this number, with the columns that ranks have.

        Memory is read now, at the end of the block.
        """
        columns = {name: np.full(len(part), math.nan) for name in _COLUMNS}
        for row, took_ns, hidden_ns in self._timed:
            if first <= row < first + len(part):
                columns["exchange_ns"][row - first] = took_ns
                columns["exchange_hidden_ns"][row - first] = hidden_ns
        self._timed = [timed for timed in self._timed if timed[0] >= first + len(part)]
        for name, value in _memory(device).items():
            columns[name] = np.full(len(part), math.nan)
            columns[name][-1] = value
        return StepTable({**columns, **part.columns})

    @property
    def seen(self) -> bool:
        """Whether any model exchanges its gradients by DDP."""
        return bool(self._log)

    def facts(self) -> dict[str, Json]:
        """How gradients are exchanged, by the names of ``TrialResult.facts``; what nobody knows is absent."""
        log = self._log
        found: dict[str, Json] = {}
        if not log:
            return found
        buckets = _sizes(log.get("rebuilt_bucket_sizes") or log.get("bucket_sizes"))
        if buckets:
            found |= {"ddp_buckets": len(buckets), "ddp_largest_bucket_bytes": max(buckets)}
        for fact, name in (
            ("ddp_gradient_bytes", "total_parameter_size_bytes"),
            ("ddp_bucket_cap_bytes", "bucket_cap_bytes"),
        ):
            if log.get(name):
                found[fact] = log[name]
        # A framework shows what lies inside of its wrapper; the log is the wrapper's own.
        found["data_parallel"] = "DistributedDataParallel"
        for option in ("find_unused_parameters", "gradient_as_bucket_view", "static_graph"):
            found[f"ddp_{option}"] = bool(log.get(option))
        if self._timed_any and "unused_parameter_size" in log:
            found["ddp_unused_parameter_bytes"] = int(log["unused_parameter_size"])
        for fact, value in (
            ("ddp_gradients_beside_bytes", self._beside_buckets),
            ("ddp_can_set_static_graph", self._same_graph),
        ):
            if value is not None:
                found[fact] = value
        found["ddp_buckets_rebuilt"] = bool(log.get("has_rebuilt_buckets") or log.get("rebuilt_bucket_sizes"))
        return found | (self._buffers or {}) | self._exchanges_per_step()

    def _exchanges_per_step(self) -> dict[str, Json]:
        """How many exchanges a step makes, between two ends: DDP writes its count down only where it also times."""
        rate = self._least_and_most()
        return {} if rate is None else {"exchanges_per_step_least": rate[0], "exchanges_per_step_most": rate[1]}

    def _least_and_most(self) -> tuple[float, float] | None:
        least, most = 0.0, math.inf
        for after, (step, low) in enumerate(self._counted):
            for later, count in self._counted[after + 1 :]:
                least = max(least, (count - _most(low)) / (later - step))
                most = min(most, (_most(count) - low) / (later - step))
        return (least, most) if most < math.inf else None

    def _read(self) -> Mapping[str, Any]:
        ddp = None if self._ddp is None else self._ddp()
        if ddp is None and self._ddp is None:
            ddp = _ddp_in(self.modules())
            self._ddp = None if ddp is None else weakref.ref(ddp)
        log = getattr(ddp, "_get_ddp_logging_data", None)
        if log is None:
            return {}
        self._log = log()
        return self._log


def _since(before: tuple[int, Mapping[str, Any]], now: tuple[int, Mapping[str, Any]], name: str) -> float:
    """The mean of what DDP timed between two looks, in ns, from its running means; 0 where it timed nothing."""
    (first, earlier), (last, later) = before, now
    timed, timed_before = _timed_of(last), _timed_of(first)
    if timed is None or timed_before is None or timed <= timed_before:
        return float(later.get(name, 0))  # somebody has set another rate: the last one stands for all
    total = float(later.get(f"avg_{name}", 0)) * timed - float(earlier.get(f"avg_{name}", 0)) * timed_before
    return total / (timed - timed_before)


def _timed_of(iteration: int) -> int | None:
    """How many exchanges DDP had timed when it wrote this count down."""
    if iteration <= _EACH_UP_TO:
        return iteration
    return None if iteration % _THEN_EACH else _EACH_UP_TO + iteration // _THEN_EACH


def _most(iteration: int) -> int:
    """The highest true count behind one that was written down."""
    if iteration < _EACH_UP_TO:
        return iteration
    return _THEN_EACH - 1 if iteration == _EACH_UP_TO else iteration + _THEN_EACH - 1


def _ddp_in(modules: Iterable[torch.nn.Module]) -> Any:
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    if parallel is None:
        return None
    wrapped = (part for module in modules for part in module.modules())
    return next((part for part in wrapped if isinstance(part, parallel.DistributedDataParallel)), None)


def _sizes(text: object) -> list[int]:
    """``"1071144, 1050624"``."""
    return [int(size) for size in str(text or "").split(",") if size.strip().isdigit()]


def _memory(device: str) -> dict[str, float]:
    """What this rank holds now, by column."""
    held = {"host_rss_bytes": float(psutil.Process().memory_info().rss)}
    torch: Any = sys.modules.get("torch")
    if device.startswith("cuda") and torch is not None:
        held["allocated_bytes"] = float(torch.cuda.memory_allocated(device))
        held["reserved_bytes"] = float(torch.cuda.memory_reserved(device))
    return held
