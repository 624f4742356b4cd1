"""Loaders and random numbers all workloads share: a DataLoader from settings, and what a loader is set to."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Json, Settings

_LOADER_SETTINGS = ("batch_size", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory")


def random_numbers(seed: int, purpose: str) -> np.random.Generator:
    """A generator that depends on ``seed`` and ``purpose`` alone, so that parts do not disturb each other's draws."""
    return np.random.default_rng([seed % 2**64, zlib.crc32(purpose.encode())])


def loader_arguments(settings: Settings, device: torch.device) -> dict[str, Any]:
    """DataLoader keyword arguments for these settings: no workers and pinned memory on CUDA unless asked otherwise.

    Raises:
        InvalidSettings: A combination a DataLoader cannot honour.
    """
    workers = settings.num_workers or 0
    pin = device.type == "cuda" if settings.pin_memory is None else settings.pin_memory
    if pin and not torch.accelerator.is_available():
        raise InvalidSettings("pin_memory=True needs an accelerator to copy to and none is available; leave it unset.")
    arguments: dict[str, Any] = {"batch_size": settings.batch_size, "num_workers": workers, "pin_memory": pin}
    if workers == 0:
        for name in ("prefetch_factor", "persistent_workers"):
            value = getattr(settings, name)
            if value:
                raise InvalidSettings(f"{name}={value!r} needs worker processes; set num_workers to at least 1.")
    else:
        # Left to torch where unset: 2 batches a worker, workers restarted at each epoch.
        for name in ("prefetch_factor", "persistent_workers"):
            value = getattr(settings, name)
            if value is not None:
                arguments[name] = value
    return arguments


def shuffled_loader(
    dataset: Dataset[Any],
    settings: Settings,
    *,
    device: torch.device,
    seed: int,
    collate: Callable[[list[Any]], Any] | None = None,
) -> DataLoader[Any]:
    """A loader over all of ``dataset`` in an order that follows from ``seed``, another one each epoch.

    The last batch of an epoch may be partial.

    Raises:
        InvalidSettings: No batch of ``settings.batch_size`` can be made, or the loader's settings clash.
    """
    samples = len(dataset)  # type: ignore[arg-type]
    if settings.batch_size > samples:
        raise InvalidSettings(
            f"batch_size={settings.batch_size} is more than the {samples} samples of one epoch, so no batch would be "
            "full; ask for a smaller batch or more samples."
        )
    order = torch.Generator().manual_seed(seed)
    arguments = loader_arguments(settings, device)
    return DataLoader(dataset, shuffle=True, generator=order, collate_fn=collate, **arguments)


def rebatched(loader: DataLoader[Any], settings: Settings, device: torch.device) -> DataLoader[Any]:
    """The same data in the same order and collation, with the batch size and the loader settings of ``settings``.

    Loader settings that are None stay as they are in ``loader``, which is returned itself if nothing would change.

    Raises:
        InvalidSettings: The loader makes its batches in a way of its own, or its settings clash.
    """
    asked = {name: getattr(settings, name) for name in _LOADER_SETTINGS if getattr(settings, name) is not None}
    if all(getattr(loader, name) == value for name, value in asked.items()):
        return loader
    streamed = isinstance(loader.dataset, IterableDataset)
    if loader.batch_size is None or (not streamed and type(loader.batch_sampler) is not BatchSampler):
        raise InvalidSettings(
            f"{', '.join(f'{name}={value!r}' for name, value in asked.items())} cannot be given to this loader: it "
            "makes its batches in a way of its own. Give a DataLoader made with batch_size=…."
        )
    # Without an accelerator torch pins nothing, whatever the loader says.
    kept: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "pin_memory": loader.pin_memory and torch.accelerator.is_available(),
    }
    if loader.num_workers and asked.get("num_workers") != 0:
        kept.update(prefetch_factor=loader.prefetch_factor, persistent_workers=loader.persistent_workers)
    merged = settings.replace(**{**kept, **asked})
    return DataLoader(
        loader.dataset,
        sampler=None if streamed else loader.sampler,
        collate_fn=loader.collate_fn,
        drop_last=loader.drop_last,
        timeout=loader.timeout if merged.num_workers else 0,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
        **loader_arguments(merged, device),
    )


def loader_facts(loader: object) -> dict[str, Json]:
    """What a DataLoader is set to, by the names of ``TrialResult.facts``; nothing about any other iterable."""
    if not isinstance(loader, DataLoader):
        return {}
    facts: dict[str, Json] = {
        "num_workers": loader.num_workers,
        "pin_memory": bool(loader.pin_memory) and torch.accelerator.is_available(),
    }
    if loader.num_workers:
        facts["prefetch_factor"] = loader.prefetch_factor
        facts["persistent_workers"] = loader.persistent_workers
    return facts
