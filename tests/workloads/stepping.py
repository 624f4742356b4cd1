"""What the tests of all workloads do to a training: plain steps, and a comparison of two."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from perf_diagnostics.workloads import Training


def steps(training: Training, count: int) -> list[float]:
    """The losses of ``count`` plain training steps on a cpu."""
    losses = []
    endless = itertools.chain.from_iterable(training.batches for _ in range(count))
    for batch in itertools.islice(endless, count):
        loss = training.loss_of(training.model, batch)
        loss.backward()
        training.optimizer.step()
        training.optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def same_training(one: Training, other: Training, *, batches: int = 2) -> bool:
    """Whether two trainings start from equal weights and equal first batches."""
    weights = zip(one.model.parameters(), other.model.parameters(), strict=True)
    pairs = zip(itertools.islice(one.batches, batches), itertools.islice(other.batches, batches), strict=True)
    return all(torch.equal(a, b) for a, b in weights) and all(_equal(a, b) for a, b in pairs)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        one, other = list(one.values()), list(other.values())
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


class Forwards:
    """Counts how often a module ran forward, as gradient checkpointing makes it run again for backward."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.count = 0
        # Not a hook after forward: recomputing stops as soon as it has what backward needs, before the block ends.
        module.register_forward_pre_hook(self._began)

    def _began(self, *_: object) -> None:
        self.count += 1
