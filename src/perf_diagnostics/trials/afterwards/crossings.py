"""What crosses between host and device in a step: copies in, and values that the host waits for; after the timed steps.

A few steps are run under a mode that is shown every operator. It slows the host, so that nothing is timed as a whole;
what is taken are counts, sizes, and stretches that the mode itself hardly touches.
"""

from __future__ import annotations

import collections
import enum
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from scipy import special
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from perf_diagnostics.measure.observation import Unreadable
from perf_diagnostics.records import QUANTITIES, Phase, Quantity
from perf_diagnostics.trials.afterwards.afterwards import Timed
from perf_diagnostics.trials.training_step import LookedAt, TrainingStep

#: Steps that are looked at; one more before them starts the loader's workers.
STEPS = 5

#: Below this size a copy costs its launch and not its bytes, which take less than 3 µs at 25 GB/s. CUDA stages pageable
#: memory at once up to this size, too (CUDA driver API, "API synchronization behavior").
SMALL_BYTES = 64 * 2**10

#: Operators named as the reason for reads, in the source of what was found.
_NAMED = 3

_ATEN = torch.ops.aten
_COPIES = (_ATEN._to_copy, _ATEN.copy_)
_INDEXING = (_ATEN.index, _ATEN.index_put, _ATEN.index_put_, _ATEN._index_put_impl_)
#: Operators that hand the device no work, and whose schema does not say so.
_FREE = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "_unsafe_view"),
        *("_reshape_alias", "detach", "alias", "lift", "lift_fresh", "resize_", "set_"),
    }
)


class _After(enum.Enum):
    """What the host waited for last, so that the device has nothing left to do."""

    READ = enum.auto()
    WAIT = enum.auto()
    SMALL_COPY = enum.auto()
    LARGE_COPY = enum.auto()


@dataclass
class StepCrossings:
    """One step's crossings: the bytes of each copy in, and what small copies, reads and mere waits cost, in ns."""

    copies: list[int] = field(default_factory=list)
    transfer_bytes: int = 0
    small_ns: int = 0
    reads: int = 0
    idle_ns: int = 0
    waits: int = 0
    wait_ns: int = 0
    optimizer_waits: int = 0
    optimizer_ns: int = 0


class Crossings(TorchDispatchMode, LookedAt):  # type: ignore[no-untyped-call]
    """Watches operators, and takes the place of the probe for the phases they lie in.

    The host waits for a value that it reads, where it is told to (``synchronize``), and for a copy that is not
    ``non_blocking``: torch then waits for all that was queued before. Such a wait costs nothing while the device works,
    but after it the queue is empty, and until the next operator that computes the device idles. This stretch is charged
    to what the first of the waits was for: a read, the wait itself, a copy of less than :data:`SMALL_BYTES`, or a
    larger one (which is charged nothing here). The wait for data is left out of it, for it would have been there
    anyway, and so is the time inside larger copies.

    Args:
        clock: host clock in ns.
        on_device: whether a tensor lies on the accelerator.
    """

    def __init__(
        self, *, clock: Callable[[], int] = time.perf_counter_ns, on_device: Callable[[torch.Tensor], bool]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.epoch = 0
        self.steps: list[StepCrossings] = []
        self.readers: collections.Counter[str] = collections.Counter()
        self._clock = clock
        self._on_device = on_device
        self._step = StepCrossings()
        self._phase: Phase | None = None
        self._drained_ns: int | None = None
        self._after = _After.READ
        self._after_phase: Phase | None = None
        self._last_copy: Any = None

    # -- operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        began = self._clock()
        named = kwargs or {}
        result = func(*args, **named)
        ended = self._clock()
        packet = getattr(func, "_overloadpacket", func)
        last, self._last_copy = self._last_copy, None
        on_device = any(self._on_device(tensor) for tensor in _tensors((args, named, result)))
        brings_back = on_device and self._brings_back(func, packet, args, named, result)
        copies_in = on_device and self._copies_in(packet, args, result, last)
        if on_device and not brings_back and not copies_in and not _free(func, packet):
            self._device_has_work(began)
        if brings_back or (on_device and _asks_for_a_shape(func, packet, args)):
            self._step.reads += 1
            self._noted(_name(packet))
        waited = _After.READ if brings_back else None
        if copies_in:
            waited = self._copied(result, ended - began, waits=not _later(packet, args, named))
        if self._drained_ns is not None:
            self._drained_ns += self._clock() - ended  # what is looked up here is nobody's idling
        elif waited is not None:
            self._drain(waited)
        return result

    def waited(self) -> None:
        """The host was told to wait for the device, and has done so."""
        self._step.waits += 1
        self._noted("synchronize")
        if self._drained_ns is None:
            self._drain(_After.WAIT)

    def _noted(self, name: str) -> None:
        self.readers[f"{name} in {self._phase or Phase.OTHER}"] += 1
        self._step.optimizer_waits += self._phase is Phase.OPTIMIZER

    def _drain(self, after: _After) -> None:
        self._after, self._after_phase = after, self._phase
        self._drained_ns = self._clock()

    def _copied(self, result: Any, host_ns: int, *, waits: bool) -> _After | None:
        """Note a copy in; what the host has waited for, if it has."""
        size = int(result.numel() * result.element_size())
        small = size < SMALL_BYTES
        self._step.copies.append(size)
        if self._phase is Phase.TRANSFER:
            self._step.transfer_bytes += size
        self._last_copy = result
        if self._drained_ns is not None and not (small and self._after is _After.SMALL_COPY):
            # What comes before the device's next work by another cause than the stretch's own.
            self._drained_ns += host_ns
            self._step.small_ns += host_ns if small else 0
        return (_After.SMALL_COPY if small else _After.LARGE_COPY) if waits else None

    def _device_has_work(self, at_ns: int) -> None:
        if self._drained_ns is None:
            return
        idle_ns = max(0, at_ns - self._drained_ns)
        if self._after is _After.READ:
            self._step.idle_ns += idle_ns
        elif self._after is _After.WAIT:
            self._step.wait_ns += idle_ns
        elif self._after is _After.SMALL_COPY:
            self._step.small_ns += idle_ns
        if self._after in (_After.READ, _After.WAIT) and self._after_phase is Phase.OPTIMIZER:
            self._step.optimizer_ns += idle_ns
        self._drained_ns = None

    def _copies_in(self, packet: Any, args: Any, result: Any, last: Any) -> bool:
        if not isinstance(result, torch.Tensor) or not self._on_device(result):
            return False
        if packet is _ATEN.lift_fresh:  # torch.tensor(…, device=…), whose copy may have been shown already
            return args[0] is not last
        source = args[1] if packet is _ATEN.copy_ else args[0] if packet in _COPIES else None
        return isinstance(source, torch.Tensor) and not self._on_device(source)

    def _brings_back(self, func: Any, packet: Any, args: Any, named: Any, result: Any) -> bool:
        """Whether the host got a value of the device, for which it waited until the device had nothing left to do."""
        if packet in _COPIES:
            to_host = isinstance(result, torch.Tensor) and not self._on_device(result)
            return to_host and not _later(packet, args, named)
        return torch.Tag.data_dependent_output in getattr(func, "tags", ())

    # -- phases

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> None:
        self.steps.append(self._step)
        self._step = StepCrossings()

    @contextmanager
    def _span(self, phase: Phase) -> Iterator[None]:
        before, self._phase = self._phase, phase
        began = self._clock()
        try:
            yield
        finally:
            self._phase = before
            if phase is Phase.DATA_WAIT and self._drained_ns is not None:
                self._drained_ns += self._clock() - began  # the loader's time, with or without a wait before it


class HostAndDevice:
    """Brings the counts of copies and reads a step (``copies_in_…``, ``small_copies_…``, ``reads_back_…``).

    Args:
        clock: host clock in ns.
        on_device: whether a tensor lies on the accelerator; default: on anything but the CPU.
    """

    name: ClassVar[str] = "copies_in_per_step"

    def __init__(
        self,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        on_device: Callable[[torch.Tensor], bool] = lambda tensor: tensor.device.type not in ("cpu", "meta"),
    ) -> None:
        self._clock = clock
        self._on_device = on_device

    def __call__(self, timed: Timed) -> Iterable[Quantity]:
        """Nothing for a trial on the CPU, where nothing crosses.

        Raises:
            Unreadable: the model is compiled, or there is no time for the steps.
        """
        return [] if timed.device.type == "cpu" else self.look(timed)

    def look(self, timed: Timed) -> list[Quantity]:
        """Run the steps and sum up what crossed."""
        if any(_compiled(module) for module in timed.training.model.modules()):
            # A mode would have it compiled anew, and slow it for good (pytorch#140909).
            raise Unreadable("a compiled model's operators are not shown; a profiler window (--deep) is", lasting=True)
        if not timed.affords(2 * (STEPS + 1)):
            raise Unreadable(f"what is left of the trial's time does not hold {STEPS + 1} slow steps")
        seen = Crossings(clock=self._clock, on_device=self._on_device)
        step = TrainingStep(timed.training, timed.trial.settings, timed.device, seen)
        step()
        seen.steps.clear()
        with showing_waits(timed.device, seen), seen:
            for _ in range(STEPS):
                step()
        return quantities(seen.steps, seen.readers)


@contextmanager
def showing_waits(device: torch.device, seen: Crossings) -> Iterator[None]:
    """Let ``torch.<device>.synchronize`` and ``torch.accelerator.synchronize`` be seen as well; put back afterwards."""
    modules: list[Any] = [getattr(torch, name, None) for name in (device.type, "accelerator")]
    before = [(module, module.synchronize) for module in modules if hasattr(module, "synchronize")]

    def shown(wait: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(wait)
        def waiting(*arguments: Any, **named: Any) -> Any:
            result = wait(*arguments, **named)
            seen.waited()
            return result

        return waiting

    try:
        for module, wait in before:
            module.synchronize = shown(wait)
        yield
    finally:
        for module, wait in before:
            module.synchronize = wait


def quantities(steps: list[StepCrossings], readers: collections.Counter[str]) -> list[Quantity]:
    """What crossed in a mean step, by the names in :data:`~perf_diagnostics.records.QUANTITIES`."""
    source = f"operators of {len(steps)} steps after the timed ones"
    copies = [size for step in steps for size in step.copies]
    small = [size for size in copies if size < SMALL_BYTES]
    found = {
        "copies_in_per_step": len(copies) / len(steps),
        "copies_in_transfer_bytes": statistics.fmean(step.transfer_bytes for step in steps),
        "small_copies_per_step": len(small) / len(steps),
        "reads_back_per_step": statistics.fmean(step.reads for step in steps),
        "waits_per_step": statistics.fmean(step.reads + step.waits for step in steps),
        **_mean_s("small_copies_cost", [step.small_ns for step in steps]),
        **_mean_s("reads_back_idle", [step.idle_ns for step in steps]),
        **_mean_s("waits_idle", [step.idle_ns + step.wait_ns for step in steps]),
        "optimizer_waits_per_step": statistics.fmean(step.optimizer_waits for step in steps),
        **_mean_s("optimizer_waits_idle", [step.optimizer_ns for step in steps]),
    }
    if copies:
        found["copies_in_median_bytes"] = statistics.median(copies)
    named = ", ".join(f"{name} ({count / len(steps):g})" for name, count in readers.most_common(_NAMED))
    sources = dict.fromkeys(("reads_back_per_step", "waits_per_step"), f"{source}: {named}" if named else source)
    return [
        Quantity(name, float(value), QUANTITIES[name][0], sources.get(name, source)) for name, value in found.items()
    ]


def _mean_s(name: str, values_ns: list[int]) -> dict[str, float]:
    """The mean of the steps in s and the ends of its 95 % interval by Student's distribution."""
    mean = statistics.fmean(values_ns) / 1e9
    spread = statistics.stdev(values_ns) / 1e9 / math.sqrt(len(values_ns))
    half = float(special.stdtrit(len(values_ns) - 1, 0.975)) * spread
    return {f"{name}_s": mean, f"{name}_low_s": mean - half, f"{name}_high_s": mean + half}


def _later(packet: Any, args: Any, named: Any) -> bool:
    """Whether a copy is ``non_blocking``."""
    return bool(named.get("non_blocking", args[2] if packet is _ATEN.copy_ and len(args) > 2 else False))


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _asks_for_a_shape(func: Any, packet: Any, args: Any) -> bool:
    """Whether the host had to wait for a number of elements before the operator could go on."""
    if packet in _INDEXING:  # only by a mask, whose ones have to be counted
        return any(one.dtype in (torch.bool, torch.uint8) for one in _tensors(args[1] if len(args) > 1 else ()))
    return torch.Tag.dynamic_output_shape in getattr(func, "tags", ())


def _free(func: Any, packet: Any) -> bool:
    """Whether an operator hands the device no work: it makes room, or gives another view of what is there."""
    if _name(packet) in _FREE:
        return True
    schema = getattr(func, "_schema", None)
    aliases = [] if schema is None else [one.alias_info for one in schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _compiled(module: torch.nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule"


def _name(packet: Any) -> str:
    return str(getattr(packet, "__name__", packet))
