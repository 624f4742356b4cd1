"""The seam between what is trained and the loop that trains it: a Workload builds one Training for one trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from perf_diagnostics.records import Json, Settings

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class BatchCount:
    """What one batch holds: samples, tokens (padding included) and how many of those are padding.

    A workload without tokens says None to both, never 0; one that cannot tell padding says None to the last.
    """

    samples: int
    tokens: int | None = None
    padding_tokens: int | None = None


@dataclass
class Training:
    """Everything the loop needs, built fresh for one trial on one device; the loop is ours, the parts the workload's.

    Attributes:
        model: The module to train, already on the device and in training mode.
        optimizer: Over the model's parameters, after the model was moved.
        batches: Re-iterable; one pass is one epoch. Usually a DataLoader. Yields batches on the host.
        loss_of: From the model and a batch on the device to a scalar loss that can be differentiated.
        count: From a batch on the host, before its transfer, to what it holds; never waits for a device.
        to_device: Moves one batch; None leaves it to the loop, which moves the tensors in a nested batch.
        scheduler: Stepped after each optimizer step, if there is one.
        clip_grad_norm: Largest norm of all gradients together; None does not clip.
        facts: Plain values about the parts, by the names that ``TrialResult.facts`` uses.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batches: Iterable[Any]
    loss_of: Callable[[torch.nn.Module, Any], torch.Tensor]
    count: Callable[[Any], BatchCount]
    to_device: Callable[[Any, torch.device], Any] | None = None
    scheduler: Any | None = None
    clip_grad_norm: float | None = None
    facts: dict[str, Json] = field(default_factory=dict)


class Workload(Protocol):
    """Something that can be trained under given settings.

    A workload applies the settings it knows: batch size, sequence length, the loader's, the optimizer's
    implementation and gradient checkpointing; None means its own default. What it cannot honour it refuses.
    Device checks, precision, compilation, threads and accumulation are the loop's.
    """

    @property
    def name(self) -> str:
        """What it is asked for by."""
        ...

    @property
    def says(self) -> str:
        """One line about it."""
        ...

    def build(self, settings: Settings, *, options: Mapping[str, Json], seed: int) -> Training:
        """Build model, optimizer and batches; weights, data and their order all follow from ``seed``.

        It seeds torch's global generator too, so that dropout follows from ``seed`` as well.

        Raises:
            InvalidSettings: A setting this workload cannot honour.
            WorkloadError: An unknown or impossible option, or a part that cannot be had.
        """
        ...
