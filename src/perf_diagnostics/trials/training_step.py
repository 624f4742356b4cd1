"""One training step of a workload under given settings, each part inside its phase."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.measure.probe import Probe
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads.workload import Training

_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


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


def move(value: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """A batch on the device: tensors, and what holds them (mappings, sequences, dataclasses, objects with ``.to``)."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=non_blocking)
    if value is None or isinstance(value, str | bytes | int | float | bool | type):
        return value
    if hasattr(value, "to") and callable(value.to):
        return value.to(device)
    if isinstance(value, Mapping):
        moved = {key: move(item, device, non_blocking=non_blocking) for key, item in value.items()}
        return moved if type(value) is dict else _rebuilt(value, moved)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move(item, device, non_blocking=non_blocking) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(move(item, device, non_blocking=non_blocking) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {
            f.name: move(getattr(value, f.name), device, non_blocking=non_blocking)
            for f in dataclasses.fields(value)
            if f.init
        }
        return dataclasses.replace(value, **changes)
    if hasattr(value, "__dict__"):
        return _moved_object(value, device, non_blocking=non_blocking)
    return value


def _rebuilt(original: Any, items: dict[Any, Any]) -> Any:
    try:
        return type(original)(items)
    except TypeError:  # a mapping whose constructor wants something else; a plain dict reads the same
        return items


def _moved_object(value: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """A shallow copy of a plain object whose attributes that hold tensors are on the device."""
    import copy

    moved = copy.copy(value)
    for name, item in vars(value).items():
        on_device = move(item, device, non_blocking=non_blocking)
        if on_device is not item:
            setattr(moved, name, on_device)
    return moved


class TrainingStep:
    """Runs optimizer steps of a workload and marks their phases on a probe.

    Args:
        training: the workload's parts, already on ``device``.
        settings: precision, accumulation and pinning are applied here; the rest was applied by the workload.
        device: where the model lives.
        probe: gets the phases and one row a step.
    """

    def __init__(self, training: Training, settings: Settings, device: torch.device, probe: Probe) -> None:
        self._training = training
        self._device = device
        self._probe = probe
        self._micro_steps = settings.accumulation_steps or 1
        self._non_blocking = bool(training.facts.get("pin_memory"))
        self._batches = EndlessBatches(training.batches, on_epoch=self._begin_epoch)
        self._autocast = _autocast(settings.precision, device)
        self._scaler = _scaler(settings.precision, device)
        self.skipped_optimizer_steps = 0

    def __call__(self) -> None:
        """One optimizer step: ``accumulation_steps`` batches forward and backward, then the update."""
        samples, tokens, padding = 0, 0, 0
        counted_tokens = True
        total: torch.Tensor | None = None
        for _ in range(self._micro_steps):
            count, loss = self._micro_step()
            samples += count.samples
            counted_tokens = counted_tokens and count.tokens is not None
            tokens += count.tokens or 0
            padding += count.padding_tokens or 0
            total = loss if total is None else total + loss
        with self._probe.optimizer():
            self._update()
        self._probe.end_step(
            samples=samples,
            tokens=tokens if counted_tokens else None,
            padding_tokens=padding if counted_tokens else None,
            loss=total,
        )

    def _micro_step(self) -> tuple[Any, torch.Tensor]:
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
        return count, loss.detach()

    def _update(self) -> None:
        training, scaler = self._training, self._scaler
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


def _autocast(precision: str, device: torch.device) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    dtype = _AUTOCAST.get(precision)
    if dtype is None:
        return contextlib.nullcontext
    # The weight cache must not outlive a step, so a fresh context is entered for every forward.
    return lambda: torch.autocast(device.type, dtype=dtype)


def _scaler(precision: str, device: torch.device) -> Any:
    if precision != "float16":
        return None
    if device.type == "cpu":
        raise InvalidSettings("precision='float16' is not trained on a CPU here; use 'bfloat16' or 'float32'.")
    return torch.amp.GradScaler(device.type)


@contextlib.contextmanager
def process_settings(settings: Settings, device: torch.device) -> Iterator[None]:
    """Applies what holds for the whole process (threads, matmul precision) and puts it back afterwards."""
    threads = torch.get_num_threads()
    matmul = torch.get_float32_matmul_precision()
    if settings.precision == "tf32" and device.type != "cuda":
        raise InvalidSettings(f"precision='tf32' needs a CUDA device, not {device}.")
    try:
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        if settings.precision == "tf32":
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        if settings.threads is not None:
            torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(matmul)


def compiled(training: Training, settings: Settings) -> Training:
    """The same parts with the model compiled, if the settings ask for it."""
    if settings.compile_mode is None:
        return training
    model: Any = torch.compile(training.model, mode=settings.compile_mode)
    return dataclasses.replace(training, model=model)
