"""One training step of a workload under given settings, each part inside its phase."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.measure.boards.float32_products import (
    float32_products,
    float32_products_kept,
    say_float32_products,
)
from perf_diagnostics.records import Phase, Settings
from perf_diagnostics.trials.perfect_fix import without_what_is_fixed
from perf_diagnostics.trials.preflight import check_precision, check_tf32
from perf_diagnostics.workloads.workload import Training

_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}

#: Modes in which a compiled model on a GPU runs as a CUDA graph, whose outputs the next run overwrites: reading them
#: then raises "accessing tensor output of CUDAGraphs that has been overwritten" (torch._inductor.cudagraph_trees). The
#: gradients of its first backward are such outputs, too, for autograd takes them as they are: what a second backward
#: adds to them raises the same, or is lost (https://github.com/pytorch/pytorch/issues/169545, open in torch 2.13).
_GRAPH_MODES = ("reduce-overhead", "max-autotune")


class EndlessBatches:
    """Batches for as many steps as are asked for: the next pass over the data begins where one ends.

    A restart happens inside ``next()``, so its cost is part of the wait for data, and no step is lost to it.
    """

    def __init__(self, source: Iterable[Any], *, on_epoch: Callable[[int], None]) -> None:
        self._source = source
        self._on_epoch = on_epoch
        self._epoch = 0
        self._iterator: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._source)
        try:
            return next(self._iterator)
        except StopIteration:
            pass
        self._epoch += 1
        self._on_epoch(self._epoch)
        restarted = iter(self._source)
        # Not "the same iterator as before": a DataLoader with persistent workers resets and returns the one it has.
        if restarted is self._source:
            raise WorkloadError(
                "The data ended and cannot be read again: an iterator was given. "
                "Give something that can be iterated afresh, such as a DataLoader or a list of batches."
            )
        self._iterator = restarted
        try:
            return next(restarted)
        except StopIteration:
            raise WorkloadError(
                "The data gave no batch: is the dataset smaller than the batch size, with drop_last=True?"
            ) from None


def move(value: Any, device: torch.device, *, non_blocking: bool, channels_last: bool = False) -> Any:
    """A batch on the device: tensors, and what holds them (mappings, sequences, dataclasses, objects with ``.to``).

    With ``channels_last`` tensors of four dimensions get that memory format; objects that move themselves keep theirs.
    """
    if isinstance(value, torch.Tensor):
        if channels_last and value.ndim == 4:
            return value.to(device, non_blocking=non_blocking, memory_format=torch.channels_last)
        return value.to(device, non_blocking=non_blocking)
    if value is None or isinstance(value, str | bytes | int | float | bool | type):
        return value
    if hasattr(value, "to") and callable(value.to):
        return _moved_by_itself(value, device) if non_blocking else value.to(device)

    def moved(item: Any) -> Any:
        return move(item, device, non_blocking=non_blocking, channels_last=channels_last)

    if isinstance(value, Mapping):
        items = {key: moved(item) for key, item in value.items()}
        return items if type(value) is dict else _rebuilt(value, items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(item) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(moved(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: moved(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **changes)
    if hasattr(value, "__dict__"):
        return _moved_object(value, moved)
    return value


def _moved_by_itself(value: Any, device: torch.device) -> Any:
    """By its own ``.to``, without waiting where it can: transformers' BatchEncoding waits for each copy otherwise."""
    try:
        return value.to(device, non_blocking=True)
    except TypeError:  # its .to takes a device only
        return value.to(device)


def _rebuilt(original: Any, items: dict[Any, Any]) -> Any:
    try:
        return type(original)(items)
    except TypeError:  # a mapping whose constructor wants something else; a plain dict reads the same
        return items


def _moved_object(value: Any, moved: Callable[[Any], Any]) -> Any:
    """A shallow copy of a plain object whose attributes that hold tensors are on the device."""
    import copy

    copied = copy.copy(value)
    for name, item in vars(value).items():
        on_device = moved(item)
        if on_device is not item:
            setattr(copied, name, on_device)
    return copied


class Phases(Protocol):
    """Where a step marks its phases: the probe, or whatever stands in its place while nothing is timed."""

    epoch: int

    def data_wait(self) -> contextlib.AbstractContextManager[None]: ...

    def transfer(self) -> contextlib.AbstractContextManager[None]: ...

    def forward(self) -> contextlib.AbstractContextManager[None]: ...

    def backward(self) -> contextlib.AbstractContextManager[None]: ...

    def optimizer(self) -> contextlib.AbstractContextManager[None]: ...

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> object: ...


class LookedAt:
    """The phases of a step that is not timed, where all of them are looked at in the same way: by ``_span``."""

    def data_wait(self) -> contextlib.AbstractContextManager[None]:
        return self._span(Phase.DATA_WAIT)

    def transfer(self) -> contextlib.AbstractContextManager[None]:
        return self._span(Phase.TRANSFER)

    def forward(self) -> contextlib.AbstractContextManager[None]:
        return self._span(Phase.FORWARD)

    def backward(self) -> contextlib.AbstractContextManager[None]:
        return self._span(Phase.BACKWARD)

    def optimizer(self) -> contextlib.AbstractContextManager[None]:
        return self._span(Phase.OPTIMIZER)

    def _span(self, phase: Phase, /) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError


class TrainingStep:
    """Runs optimizer steps of a workload and marks their phases on a probe.

    Args:
        training: the workload's parts, already on ``device``.
        settings: precision, accumulation, pinning, memory format and ceilings (:mod:`.perfect_fix`) are applied here;
            the rest was applied by the workload.
        device: where the model lives.
        probe: gets the phases and one row a step.

    Raises:
        InvalidSettings: the model or the device cannot honour a setting.
    """

    def __init__(self, training: Training, settings: Settings, device: torch.device, probe: Phases) -> None:
        if settings.channels_last:
            training = in_channels_last(training)
        bring = functools.partial(on_device, training, device)
        training = without_what_is_fixed(training, settings, device, bring)
        self._training = training
        self._device = device
        self._probe = probe
        self._micro_steps = settings.accumulation_steps or 1
        self._updates = settings.ceiling != "no_optimizer"
        self._non_blocking = bool(training.facts.get("pin_memory"))
        self._batches = EndlessBatches(training.batches, on_epoch=self._begin_epoch)
        #: Called where the next pass over the data begins, inside the wait for its first batch.
        self.on_pass: Callable[[], None] = _nothing
        self._autocast = _autocast(settings.precision, device)
        self._scaler = _scaler(settings.precision, device)
        self._overwritten = settings.compile_mode in _GRAPH_MODES and device.type != "cpu"
        cleared = {id(parameter) for group in training.optimizer.param_groups for parameter in group["params"]}
        self._graphed = list(training.model.parameters()) if self._overwritten else []
        self._never_cleared = [parameter for parameter in self._graphed if id(parameter) not in cleared]
        #: Parameters whose gradients lie in memory of their own.
        self._taken: set[int] = set()

    def __call__(self) -> None:
        """One optimizer step: ``accumulation_steps`` batches forward and backward, then the update."""
        samples, tokens, padding = 0, 0, 0
        counted_tokens = True
        total: torch.Tensor | None = None
        for number in range(self._micro_steps):
            count, loss = self._micro_step(more=number + 1 < self._micro_steps)
            samples += count.samples
            counted_tokens = counted_tokens and count.tokens is not None
            tokens += count.tokens or 0
            padding += count.padding_tokens or 0
            total = loss if total is None else total + loss
        with self._probe.optimizer():
            self._update()
        self._taken.intersection_update(map(id, self._never_cleared))
        self._probe.end_step(
            samples=samples,
            tokens=tokens if counted_tokens else None,
            padding_tokens=padding if counted_tokens else None,
            loss=total,
        )

    def mark_on(self, phases: Phases) -> None:
        """Mark the phases of the next steps there."""
        phases.epoch = self._probe.epoch
        self._probe = phases

    @property
    def loss_scale(self) -> float | None:
        """The gradient scaler's scale, or None without one; reading it waits for the device."""
        return None if self._scaler is None else float(self._scaler.get_scale())

    def _micro_step(self, *, more: bool) -> tuple[Any, torch.Tensor]:
        """A batch forward and backward; ``more`` of them follow before the update."""
        training, probe = self._training, self._probe
        with probe.data_wait():
            batch = next(self._batches)
        count = training.count(batch)
        with probe.transfer():
            if training.to_device is not None:
                batch = training.to_device(batch, self._device)
            elif self._device.type != "cpu":
                batch = move(batch, self._device, non_blocking=self._non_blocking)
        with probe.forward(), self._autocast():
            loss = training.loss_of(training.model, batch)
            if self._micro_steps > 1:
                loss = loss / self._micro_steps
        with probe.backward():
            (loss if self._scaler is None else self._scaler.scale(loss)).backward()
            if self._overwritten:
                self._take_gradients(more=more)
        # The loss is read steps later; where the model returns it, a graph's next run would take its memory.
        return count, loss.detach().clone() if self._overwritten else loss.detach()

    def _take_gradients(self, *, more: bool) -> None:
        """Copy gradients that another backward will add to out of a graph's memory, each once until it is cleared.

        Allocated beforehand, as torch advises, a parameter that no loss depends on would get one, and be updated.
        """
        for parameter in self._graphed if more else self._never_cleared:
            if parameter.grad is not None and id(parameter) not in self._taken:
                parameter.grad = parameter.grad.clone()
                self._taken.add(id(parameter))

    def _update(self) -> None:
        training, scaler = self._training, self._scaler
        if not self._updates:
            training.optimizer.zero_grad(set_to_none=True)
            return
        if training.clip_grad_norm is not None:
            if scaler is not None:
                scaler.unscale_(training.optimizer)
            torch.nn.utils.clip_grad_norm_(training.model.parameters(), training.clip_grad_norm)
        if scaler is None:
            training.optimizer.step()
        else:
            scaler.step(training.optimizer)
            scaler.update()
        if training.scheduler is not None:
            training.scheduler.step()
        training.optimizer.zero_grad(set_to_none=True)

    def _begin_epoch(self, epoch: int) -> None:
        self._probe.epoch = epoch
        self.on_pass()


def on_device(training: Training, device: torch.device, batch: Any) -> Any:
    """A batch where the model is, as the loop would bring it there, before the first step."""
    if training.to_device is not None:
        return training.to_device(batch, device)
    return batch if device.type == "cpu" else move(batch, device, non_blocking=False)


def in_channels_last(training: Training) -> Training:
    """The same parts with the model's images and filters, and those of its batches, stored channel by channel last.

    Raises:
        InvalidSettings: no parameter has four dimensions, so there is no convolution of images to gain by it.
    """
    if not any(parameter.ndim == 4 for parameter in training.model.parameters()):
        raise InvalidSettings(
            f"channels_last=True: no parameter of the {type(training.model).__name__} has four dimensions, so there "
            "is no convolution whose memory format could matter; leave it unset."
        )
    training.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    own, non_blocking = training.to_device, bool(training.facts.get("pin_memory"))

    def to_device(batch: Any, where: torch.device) -> Any:
        there = batch if own is None else own(batch, where)
        return move(there, where, non_blocking=non_blocking, channels_last=True)

    return dataclasses.replace(training, to_device=to_device)


def _autocast(precision: str, device: torch.device) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    dtype = _AUTOCAST.get(precision)
    if dtype is None:
        return contextlib.nullcontext
    # The weight cache must not outlive a step, so a fresh context is entered for every forward.
    return lambda: torch.autocast(device.type, dtype=dtype)


def _scaler(precision: str, device: torch.device) -> Any:
    if precision != "float16":
        return None
    check_precision(precision, device.type)
    return torch.amp.GradScaler(device.type)


@contextlib.contextmanager
def on_current_device(device: torch.device) -> Iterator[None]:
    """Makes a CUDA device ready and the current one, and puts the one that was back afterwards.

    What a workload makes on ``"cuda"``, and the thread that pins memory, then use this board and no other. Before CUDA
    is initialised torch's allocator has no device: ``torch.cuda.reset_peak_memory_stats`` raises "Invalid device
    argument 0: did you call init?" (c10/cuda/CUDACachingAllocator.cpp, assertValidDevice), while reading it gives 0.

    Raises:
        RuntimeError: CUDA does not start, in torch's words.
    """
    if device.type != "cuda":
        yield
        return
    torch.cuda.init()  # type: ignore[no-untyped-call]
    with torch.cuda.device(device):
        yield


@contextlib.contextmanager
def process_settings(settings: Settings, device: torch.device) -> Iterator[None]:
    """Applies what holds for the whole process (threads, matmul precision) and puts it back afterwards."""
    threads = torch.get_num_threads()
    check_precision(settings.precision, device.type)
    if settings.precision == "tf32" and torch.version.hip is None:
        check_tf32(torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))
    with float32_products_kept():
        try:
            if settings.threads is not None:
                torch.set_num_threads(settings.threads)
            if settings.precision == "tf32" and float32_products() == "highest":
                say_float32_products("high")
            yield
        finally:
            if settings.threads is not None:
                torch.set_num_threads(threads)


def compiled(training: Training, settings: Settings) -> Training:
    """The same parts with the model compiled, if the settings ask for it."""
    if settings.compile_mode is None:
        return training
    model: Any = torch.compile(training.model, mode=settings.compile_mode)
    return dataclasses.replace(training, model=model)


def _nothing() -> None:
    """Nobody counts passes."""
