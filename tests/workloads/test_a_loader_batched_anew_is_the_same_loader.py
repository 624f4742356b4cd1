"""What a DataLoader was made with is there when it is batched anew, or another loader would be measured."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.records import Settings
from perf_diagnostics.workloads.loaders import rebatched

CPU = torch.device("cpu")

#: What batching anew changes, and what is looked at by its effect: the sampler stands for ``shuffle``.
CHANGED = {"self", "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"}

#: What is another on a machine without an accelerator, or is deprecated and means the current device.
NOT_HERE = {"pin_memory", "pin_memory_device"}


def ready(number: int) -> None:
    """A worker's own preparation."""


def pairs(rows: list[Any]) -> list[Any]:
    return rows


def one(**changes: Any) -> DataLoader[Any]:
    made: dict[str, Any] = {
        "batch_size": 4,
        "shuffle": True,
        "num_workers": 2,
        "collate_fn": pairs,
        "timeout": 7,
        "worker_init_fn": ready,
        "multiprocessing_context": "spawn",
        "generator": torch.Generator().manual_seed(5),
        "prefetch_factor": 3,
        "persistent_workers": True,
        **({"in_order": False} if "in_order" in inspect.signature(DataLoader.__init__).parameters else {}),
        **changes,
    }
    return DataLoader(range(40), **made)  # type: ignore[arg-type]


def test_every_argument_of_a_loader_is_kept() -> None:
    before = one()
    after = rebatched(before, Settings(batch_size=8), CPU)
    assert after is not before and after.batch_size == 8
    names = set(inspect.signature(DataLoader.__init__).parameters) - CHANGED - NOT_HERE
    assert {"worker_init_fn", "generator", "multiprocessing_context", "collate_fn"} <= names
    differing = {name for name in names if getattr(after, name) is not getattr(before, name)}
    assert differing == set()


def test_without_workers_what_only_they_know_goes_with_them() -> None:
    after = rebatched(one(), Settings(batch_size=8, num_workers=0), CPU)
    assert (after.num_workers, after.timeout, after.prefetch_factor, after.persistent_workers) == (0, 0, None, False)
    assert after.multiprocessing_context is None
    assert after.worker_init_fn is ready and after.collate_fn is pairs


@pytest.mark.parametrize("batch_size", [8, 20])
def test_the_samples_come_in_the_order_of_the_loaders_own_generator(batch_size: int) -> None:
    alone = {"num_workers": 0, "timeout": 0, "multiprocessing_context": None, "prefetch_factor": None}
    drawn = [
        rebatched(one(**alone, persistent_workers=False), Settings(batch_size=size), CPU) for size in (4, batch_size)
    ]
    orders = [[row for batch in loader for row in batch] for loader in drawn]
    assert orders[0] == orders[1] != list(range(40))
