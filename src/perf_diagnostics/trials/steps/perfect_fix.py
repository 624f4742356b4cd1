"""Trainings with a part left out: the ceiling experiments, which say what a perfect fix of that part could win.

None of them is a way to train. ``Settings.ceiling`` names what is left out:

``cached_batches``
    The first 16 batches (or one epoch, if it is shorter) lie on the device before the first step and are trained on
    in turn: no wait for data, no preprocessing, no copy.
``no_transfer``
    Each batch is waited for as usual and then dropped; trained on is one of the first 16, which lie on the device
    already. Not on a CPU, where nothing is copied.
``no_optimizer``
    Gradients are made and cleared; clipping, update and scheduler are left out.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads.workload import BatchCount, Training

#: Enough that batches of changing length are met in their mixture, few enough to fit beside most models.
KEPT_BATCHES = 16

ToDevice = Callable[[Any], Any]


@dataclass(frozen=True)
class Kept:
    """A batch as it came, which is what the workload counts, and the same on the device."""

    host: Any
    device: Any


def without_what_is_fixed(
    training: Training, settings: Settings, device: torch.device, to_device: ToDevice
) -> Training:
    """The training that ``settings.ceiling`` asks for; the same one where it asks for none, or for no optimizer.

    Args:
        training: the workload's parts.
        settings: of the trial.
        device: where the batches are kept.
        to_device: how the loop would move a batch.

    Raises:
        InvalidSettings: a ceiling that the device does not have.
        WorkloadError: the data gives no batch.
    """
    if settings.ceiling == "no_transfer" and device.type == "cpu":
        raise InvalidSettings("ceiling='no_transfer' needs an accelerator: on the CPU no batch is copied anywhere.")
    if settings.ceiling not in ("cached_batches", "no_transfer"):
        return training
    kept = [Kept(batch, to_device(batch)) for batch in itertools.islice(training.batches, KEPT_BATCHES)]
    if not kept:
        raise WorkloadError("The data gave no batch: is the dataset smaller than the batch size, with drop_last=True?")
    if settings.ceiling == "cached_batches":
        return dataclasses.replace(
            training,
            batches=_Replay(kept),
            count=lambda one: training.count(one.host),
            to_device=lambda one, _device: one.device,
        )
    stand_in = _StandIn(kept, training.count)
    return dataclasses.replace(training, count=stand_in.count, to_device=stand_in.to_device)


@dataclass(frozen=True)
class _Replay:
    """The kept batches in turn, without end."""

    kept: list[Kept]

    def __iter__(self) -> Iterator[Kept]:
        return itertools.cycle(self.kept)


class _StandIn:
    """Puts a kept batch in the place of each one that arrives; what is counted is what is trained on."""

    def __init__(self, kept: list[Kept], count: Callable[[Any], BatchCount]) -> None:
        self._turn = itertools.cycle(kept)
        self._now = kept[0]
        self._count = count

    def count(self, _batch: Any) -> BatchCount:
        self._now = next(self._turn)
        return self._count(self._now.host)

    def to_device(self, _batch: Any, _device: torch.device) -> Any:
        return self._now.device
