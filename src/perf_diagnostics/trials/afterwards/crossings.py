"""Watches a step's operators for what crosses between host and device: copies in, and values the host waits for."""

from __future__ import annotations

import collections
import enum
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from perf_diagnostics.records import Phase
from perf_diagnostics.trials.afterwards.operator_kinds import (
    ATEN,
    COPIES,
    asks_for_a_shape,
    hands_no_work,
    is_non_blocking,
    name_of,
    tensors_in,
)
from perf_diagnostics.trials.steps.phases import LookedAt

#: Below this size a copy costs its launch and not its bytes, which take less than 3 µs at 25 GB/s. CUDA stages pageable
#: memory at once up to this size, too (CUDA driver API, "API synchronization behavior").
SMALL_BYTES = 64 * 2**10


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

    def __init__(self, *, clock: Callable[[], int], on_device: Callable[[torch.Tensor], bool]) -> None:
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
        on_device = any(self._on_device(tensor) for tensor in tensors_in((args, named, result)))
        brings_back = on_device and self._brings_back(func, packet, args, named, result)
        copies_in = on_device and self._copies_in(packet, args, result, last)
        if on_device and not brings_back and not copies_in and not hands_no_work(func, packet):
            self._device_has_work(began)
        if brings_back or (on_device and asks_for_a_shape(func, packet, args)):
            self._step.reads += 1
            self._noted(name_of(packet))
        waited = _After.READ if brings_back else None
        if copies_in:
            waited = self._copied(result, ended - began, waits=not is_non_blocking(packet, args, named))
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
        if packet is ATEN.lift_fresh:  # torch.tensor(…, device=…), whose copy may have been shown already
            return args[0] is not last
        source = args[1] if packet is ATEN.copy_ else args[0] if packet in COPIES else None
        return isinstance(source, torch.Tensor) and not self._on_device(source)

    def _brings_back(self, func: Any, packet: Any, args: Any, named: Any, result: Any) -> bool:
        """Whether the host got a value of the device, for which it waited until the device had nothing left to do."""
        if packet in COPIES:
            to_host = isinstance(result, torch.Tensor) and not self._on_device(result)
            return to_host and not is_non_blocking(packet, args, named)
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
