"""Watches a step's operators for what crosses between host and device: copies in, and values the host waits for."""

from __future__ import annotations

import collections
import enum
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from perf_diagnostics.measure.crossings.operator_kinds import (
    ATEN,
    COPIES,
    asks_for_a_shape,
    hands_no_work,
    is_non_blocking,
    name_of,
    tensors_in,
)
from perf_diagnostics.measure.looking_mode import LookingMode
from perf_diagnostics.measure.observation import Attempt
from perf_diagnostics.records import Phase

#: Below this size a copy costs its launch and not its bytes, which take less than 3 µs at 25 GB/s. CUDA stages pageable
#: memory at once up to this size, too (CUDA driver API, "API synchronization behavior").
SMALL_BYTES = 64 * 2**10


class Kind(enum.StrEnum):
    """What crosses, or what the host waited for last, so that the device has nothing left to do."""

    READ = "read"
    WAIT = "wait"
    SMALL_COPY = "small copy"
    LARGE_COPY = "large copy"


@dataclass
class StepCrossings:
    """One step's crossings: the bytes of each copy in, and what small copies, reads and mere waits cost, in ns.

    ``large_bytes`` are those in copies of :data:`SMALL_BYTES` and more whose source was seen, ``pinned_bytes`` what of
    them comes from pinned memory; ``readers`` counts by operator and phase what the host waited for.
    """

    copies: list[int] = field(default_factory=list)
    transfer_bytes: int = 0
    large_bytes: int = 0
    pinned_bytes: int = 0
    small_ns: int = 0
    reads: int = 0
    idle_ns: int = 0
    waits: int = 0
    wait_ns: int = 0
    optimizer_waits: int = 0
    optimizer_ns: int = 0
    readers: collections.Counter[str] = field(default_factory=collections.Counter)


def _unguarded() -> AbstractContextManager[Attempt]:
    return nullcontext(Attempt())


def _nobody(_kind: Kind) -> None:
    """Nobody is told."""


def _no_phase() -> Phase | None:
    return None


def _no_wait(_since_ns: int, _until_ns: int) -> int:
    return 0


class Crossings(LookingMode):  # type: ignore[no-untyped-call]
    """Watches operators; who has a step end says so by :meth:`step_ends`.

    The host waits for a value that it reads, where it is told to (``synchronize``), and for a copy that is not
    ``non_blocking``: torch then waits for all that was queued before. Such a wait costs nothing while the device works,
    but after it the queue is empty, and until the next operator that computes the device idles. This stretch is charged
    to what the first of the waits was for: a read, the wait itself, a copy of less than :data:`SMALL_BYTES`, or a
    larger one (which is charged nothing here). The wait for data is left out of it, for it would have been there
    anyway, and so is the time inside larger copies.

    Args:
        clock: host clock in ns.
        on_device: whether a tensor lies on the accelerator.
        phase: the one that is under way.
        data_wait_ns: for how long between two times of the clock the loop waited for data.
        tell: is called at each crossing, between operators.
        counts: whether what happens now is the training's own.
        guard: is entered around what is looked up at each operator; a failed attempt ends the looking.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], int],
        on_device: Callable[[torch.Tensor], bool],
        phase: Callable[[], Phase | None] = _no_phase,
        data_wait_ns: Callable[[int, int], int] = _no_wait,
        tell: Callable[[Kind], None] = _nobody,
        counts: Callable[[], bool] = lambda: True,
        guard: Callable[[], AbstractContextManager[Attempt]] = _unguarded,
    ) -> None:
        super().__init__()
        self.steps: list[StepCrossings] = []
        self._clock = clock
        self._on_device = on_device
        self._phase, self._data_wait_ns, self._tell, self._counts = phase, data_wait_ns, tell, counts
        self._step = StepCrossings()
        self._drained_ns: int | None = None
        self._after = Kind.READ
        self._after_phase: Phase | None = None
        self._last_copy: Any = None
        self._guard = guard
        #: Whether something of ours went wrong; nothing is seen from then on.
        self.failed = False

    # -- operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if self.failed or not self._counts():
            return func(*args, **named)
        began = self._clock()
        result = func(*args, **named)
        ended = self._clock()
        with self._guard() as attempt:
            self._see(func, args, named, result, began, ended)
        self.failed = attempt.failed
        return result

    def _see(self, func: Any, args: Any, named: Any, result: Any, *between: int) -> None:
        """An operator has run, between these two times."""
        began, ended = between
        packet = getattr(func, "_overloadpacket", func)
        last, self._last_copy = self._last_copy, None
        on_device = any(self._on_device(tensor) for tensor in tensors_in((args, named, result)))
        brings_back = on_device and self._brings_back(func, packet, args, named, result)
        copies_in = on_device and self._copies_in(packet, args, result, last)
        if on_device and not brings_back and not copies_in and not hands_no_work(func, packet):
            self._device_has_work(began)
        if brings_back or (on_device and asks_for_a_shape(func, packet, args)):
            self._step.reads += 1
            self._noted(name_of(packet), Kind.READ)
        waited = Kind.READ if brings_back else None
        if copies_in:
            waited = self._copied(result, ended - began, waits=not is_non_blocking(packet, args, named))
            self._noted_source(packet, args, result)
        if self._drained_ns is not None:
            self._drained_ns += self._clock() - ended  # what is looked up here is nobody's idling
        elif waited is not None:
            self._drain(waited)

    def waited(self) -> None:
        """The host was told to wait for the device, and has done so."""
        if self.failed or not self._counts():
            return
        ended = self._clock()
        with self._guard() as attempt:
            self._step.waits += 1
            self._noted("synchronize", Kind.WAIT)
            if self._drained_ns is None:
                self._drain(Kind.WAIT)
            else:
                self._drained_ns += self._clock() - ended
        self.failed = attempt.failed

    def step_ends(self) -> None:
        """What was seen since the last one ended is a step's."""
        self.steps.append(self._step)
        self._step = StepCrossings()

    def step_lost(self) -> None:
        """What was seen since the last one ended is none."""
        self._step, self._drained_ns, self._last_copy = StepCrossings(), None, None

    def _noted(self, name: str, kind: Kind) -> None:
        phase = self._phase()
        self._step.readers[f"{name} in {phase or Phase.OTHER}"] += 1
        self._step.optimizer_waits += phase is Phase.OPTIMIZER
        self._tell(kind)

    def _drain(self, after: Kind) -> None:
        self._after, self._after_phase = after, self._phase()
        self._drained_ns = self._clock()

    def _copied(self, result: Any, host_ns: int, *, waits: bool) -> Kind | None:
        """Note a copy in; what the host has waited for, if it has."""
        size = int(result.numel() * result.element_size())
        small = size < SMALL_BYTES
        self._step.copies.append(size)
        if self._phase() is Phase.TRANSFER:
            self._step.transfer_bytes += size
        self._last_copy = result
        kind = Kind.SMALL_COPY if small else Kind.LARGE_COPY
        self._tell(kind)
        if self._drained_ns is not None and not (small and self._after is Kind.SMALL_COPY):
            # What comes before the device's next work by another cause than the stretch's own.
            self._drained_ns += host_ns
            self._step.small_ns += host_ns if small else 0
        return kind if waits else None

    def _noted_source(self, packet: Any, args: Any, result: Any) -> None:
        """Where a large copy comes from; of what ``torch.tensor(..., device=...)`` copies nobody can change it."""
        source = None if packet is ATEN.lift_fresh else self._source(packet, args)
        size = int(result.numel() * result.element_size())
        if source is not None and size >= SMALL_BYTES:
            self._step.large_bytes += size
            self._step.pinned_bytes += size if source.is_pinned() else 0

    def _device_has_work(self, at_ns: int) -> None:
        if self._drained_ns is None:
            return
        idle_ns = max(0, at_ns - self._drained_ns - self._data_wait_ns(self._drained_ns, at_ns))
        if self._after is Kind.READ:
            self._step.idle_ns += idle_ns
        elif self._after is Kind.WAIT:
            self._step.wait_ns += idle_ns
        elif self._after is Kind.SMALL_COPY:
            self._step.small_ns += idle_ns
        if self._after in (Kind.READ, Kind.WAIT) and self._after_phase is Phase.OPTIMIZER:
            self._step.optimizer_ns += idle_ns
        self._drained_ns = None

    def _copies_in(self, packet: Any, args: Any, result: Any, last: Any) -> bool:
        if not isinstance(result, torch.Tensor) or not self._on_device(result):
            return False
        if packet is ATEN.lift_fresh:  # torch.tensor(…, device=…), whose copy may have been shown already
            return args[0] is not last
        source = self._source(packet, args)
        return source is not None and not self._on_device(source)

    def _source(self, packet: Any, args: Any) -> torch.Tensor | None:
        source = args[1] if packet is ATEN.copy_ else args[0] if packet in COPIES else None
        return source if isinstance(source, torch.Tensor) else None

    def _brings_back(self, func: Any, packet: Any, args: Any, named: Any, result: Any) -> bool:
        """Whether the host got a value of the device, for which it waited until the device had nothing left to do."""
        if packet in COPIES:
            to_host = isinstance(result, torch.Tensor) and not self._on_device(result)
            return to_host and not is_non_blocking(packet, args, named)
        return torch.Tag.data_dependent_output in getattr(func, "tags", ())


@contextmanager
def showing_waits(device: torch.device, seen: Crossings) -> Iterator[None]:
    """Let ``torch.<device>.synchronize`` and ``torch.accelerator.synchronize`` be seen as well; put back afterwards.

    What somebody has put in their place meanwhile stays.
    """
    thread = threading.get_ident()
    modules: list[Any] = [getattr(torch, name, None) for name in (device.type, "accelerator")]
    before = [(module, module.synchronize) for module in modules if hasattr(module, "synchronize")]

    def shown(wait: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(wait)
        def waiting(*arguments: Any, **named: Any) -> Any:
            result = wait(*arguments, **named)
            if threading.get_ident() == thread:
                seen.waited()
            return result

        return waiting

    put = [(module, wait, shown(wait)) for module, wait in before]
    try:
        for module, _, ours in put:
            module.synchronize = ours
        yield
    finally:
        for module, wait, ours in put:
            if module.synchronize is ours:
                module.synchronize = wait
