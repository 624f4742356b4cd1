"""One training step of a workload under given settings, each part inside its phase."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Settings
from perf_diagnostics.trials.preflight import check_precision
from perf_diagnostics.trials.steps.endless_batches import EndlessBatches
from perf_diagnostics.trials.steps.perfect_fix import without_what_is_fixed
from perf_diagnostics.trials.steps.phases import Phases
from perf_diagnostics.trials.steps.to_device import move, on_device
from perf_diagnostics.workloads.workload import Training

_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}

#: Modes in which a compiled model on a GPU runs as a CUDA graph, whose outputs the next run overwrites: reading them
#: then raises "accessing tensor output of CUDAGraphs that has been overwritten" (torch._inductor.cudagraph_trees). The
#: gradients of its first backward are such outputs, too, for autograd takes them as they are: what a second backward
#: adds to them raises the same, or is lost (https://github.com/pytorch/pytorch/issues/169545, open in torch 2.13).
_GRAPH_MODES = ("reduce-overhead", "max-autotune")


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
        self.on_pass: Callable[[], None] = nothing
        #: Called when all gradients of a step are there, between its phases.
        self.before_update: Callable[[], None] = nothing
        self._autocast = _autocast(settings.precision, device)
        self._scaler = _scaler(settings.precision, device)
        self._overwritten = settings.compile_mode in _GRAPH_MODES and device.type != "cpu"
        cleared = {id(parameter) for group in training.optimizer.param_groups for parameter in group["params"]}
        self._graphed = list(training.model.parameters()) if self._overwritten else []
        self._never_cleared = [parameter for parameter in self._graphed if id(parameter) not in cleared]
        #: Parameters whose gradients lie in memory of their own.
        self._taken: set[int] = set()

    def look_in_workers(self, around_start: Callable[[object], AbstractContextManager[None]]) -> None:
        """Have this around the start of the loader's workers."""
        self._batches.around_start = around_start

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
        self.before_update()
        with self._probe.optimizer():
            self._update()
        self._taken.intersection_update(map(id, self._never_cleared))
        self._probe.end_step(
            samples=samples,
            tokens=tokens if counted_tokens else None,
            padding_tokens=padding if counted_tokens else None,
            loss=total,
        )

    def take_batch(self) -> None:
        """Take the next batch and drop it."""
        next(self._batches)

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


def compiled(training: Training, settings: Settings) -> Training:
    """The same parts with the model compiled, if the settings ask for it."""
    if settings.compile_mode is None:
        return training
    model: Any = torch.compile(training.model, mode=settings.compile_mode)
    return dataclasses.replace(training, model=model)


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


def nothing() -> None:
    """Nobody wants to know."""
