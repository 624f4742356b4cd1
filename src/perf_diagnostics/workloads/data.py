"""Loaders and random numbers all workloads share: a DataLoader from settings, and what a loader is set to."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Json, Settings

_LOADER_SETTINGS = ("batch_size", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory")


def random_numbers(seed: int, purpose: str) -> np.random.Generator:
    """A generator that depends on ``seed`` and ``purpose`` alone, so that parts do not disturb each other's draws."""
    return np.random.default_rng([seed % 2**64, zlib.crc32(purpose.encode())])


def check_workers(settings: Settings) -> None:
    """Refuse what only worker processes could do where there are none.

    Raises:
        InvalidSettings: ``prefetch_factor`` or ``persistent_workers`` without workers.
    """
    for name in () if settings.num_workers else ("prefetch_factor", "persistent_workers"):
        value = getattr(settings, name)
        if value:
            raise InvalidSettings(f"{name}={value!r} needs worker processes; set num_workers to at least 1.")


def check_batch(settings: Settings, samples: int) -> None:
    """Refuse a batch that an epoch of so many samples cannot fill.

    Raises:
        InvalidSettings: The batch is larger.
    """
    if settings.batch_size > samples:
        raise InvalidSettings(
            f"batch_size={settings.batch_size} is more than the {samples} samples of one epoch, so no batch would be "
            "full; ask for a smaller batch or more samples."
        )


def loader_arguments(settings: Settings, device: torch.device) -> dict[str, Any]:
    """DataLoader keyword arguments for these settings: no workers and pinned memory on CUDA unless asked otherwise.

    Raises:
        InvalidSettings: A combination a DataLoader cannot honour.
    """
    check_workers(settings)
    workers = settings.num_workers or 0
    pin = device.type == "cuda" if settings.pin_memory is None else settings.pin_memory
    if pin and not torch.accelerator.is_available():
        raise InvalidSettings("pin_memory=True needs an accelerator to copy to and none is available; leave it unset.")
    arguments: dict[str, Any] = {"batch_size": settings.batch_size, "num_workers": workers, "pin_memory": pin}
    # Left to torch where unset: 2 batches a worker, workers restarted at each epoch.
    for name in ("prefetch_factor", "persistent_workers") if workers else ():
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
    lengths: Callable[[], Sequence[int]] | None = None,
) -> DataLoader[Any]:
    """A loader over all of ``dataset`` in an order that follows from ``seed``, another one each epoch.

    The last batch of an epoch may be partial. With ``settings.length_bucketing`` the samples of a batch have similar
    lengths, of which ``lengths`` gives one a sample.

    Raises:
        InvalidSettings: No batch of ``settings.batch_size`` can be made, or the loader's settings clash.
    """
    check_batch(settings, len(dataset))  # type: ignore[arg-type]
    order = torch.Generator().manual_seed(seed)
    arguments = loader_arguments(settings, device)
    if settings.length_bucketing and lengths is not None:
        batches = LengthBuckets(lengths(), arguments.pop("batch_size"), order)
        return DataLoader(dataset, batch_sampler=batches, collate_fn=collate, **arguments)
    return DataLoader(dataset, shuffle=True, generator=order, collate_fn=collate, **arguments)


#: Batches whose samples are sorted together: few enough to keep the order mostly random, many enough to find
#: neighbours in length. The same number as transformers' LengthGroupedSampler takes.
BUCKET_BATCHES = 50


class LengthBuckets(Sampler[list[int]]):
    """Batches of samples of similar length, in random order: shuffle, sort within buckets, shuffle the batches.

    Args:
        lengths: one a sample.
        batch_size: samples a batch; the last one of an epoch may be smaller.
        order: draws a new order for each epoch.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, order: torch.Generator) -> None:
        self._lengths = torch.as_tensor(lengths)
        self._batch_size = batch_size
        self._order = order

    def __len__(self) -> int:
        return math.ceil(len(self._lengths) / self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        shuffled = torch.randperm(len(self._lengths), generator=self._order)
        batches: list[torch.Tensor] = []
        for bucket in torch.split(shuffled, self._batch_size * BUCKET_BATCHES):
            alike = bucket[self._lengths[bucket].argsort(stable=True)]
            batches.extend(torch.split(alike, self._batch_size))
        for index in torch.randperm(len(batches), generator=self._order).tolist():
            yield batches[index].tolist()


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
