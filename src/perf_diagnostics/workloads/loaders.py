"""Loaders and random numbers all workloads share: a DataLoader from settings, and what a loader is set to."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Json, Settings
from perf_diagnostics.workloads.skipped_samples import skipped_samples
from perf_diagnostics.workloads.streams import splits_stream

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

    Loader settings that are None stay as they are in ``loader``, which is returned itself if nothing would change. A
    batch sampler of somebody's own is kept, and its batches have to be of that size. Where the data set itself gives
    batches (``batch_size=None``), their size is not looked at here. A loader of a class of its own stays of that class,
    with what else it holds.

    Raises:
        InvalidSettings: The batches are of another size and cannot be made anew, the settings clash, or the loader
            passes over another one that it holds.
    """
    asked = {name: getattr(settings, name) for name in _LOADER_SETTINGS if getattr(settings, name) is not None}
    batching = _batching(loader, settings.batch_size)
    fits = loader.batch_size == settings.batch_size or gives_batches(loader) or "batch_sampler" in batching
    if fits and all(getattr(loader, name) == value for name, value in asked.items() if name != "batch_size"):
        return loader
    # Without an accelerator torch pins nothing, whatever the loader says.
    kept: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "pin_memory": loader.pin_memory and torch.accelerator.is_available(),
    }
    if loader.num_workers and asked.get("num_workers") != 0:
        kept.update(prefetch_factor=loader.prefetch_factor, persistent_workers=loader.persistent_workers)
    merged = settings.replace(**{**kept, **asked})
    in_order: dict[str, Any] = {"in_order": loader.in_order} if hasattr(loader, "in_order") else {}  # from torch 2.6 on
    # Where torch still takes it, the accelerator whose memory is pinned; an empty one is torch's own choice.
    pinned = getattr(loader, "pin_memory_device", "")
    if pinned:
        in_order["pin_memory_device"] = pinned
    made: DataLoader[Any] = DataLoader(
        loader.dataset,
        collate_fn=loader.collate_fn,
        timeout=loader.timeout if merged.num_workers else 0,
        worker_init_fn=loader.worker_init_fn,
        # How workers start is most of what a short pass costs, and some data sets cannot be forked.
        multiprocessing_context=loader.multiprocessing_context if merged.num_workers else None,
        generator=loader.generator,
        **{**loader_arguments(merged, device), **batching, **in_order},
    )
    return made if type(loader) is DataLoader else _of_its_class(loader, made)


def _of_its_class(loader: DataLoader[Any], made: DataLoader[Any]) -> DataLoader[Any]:
    """What ``made`` is set to, as a loader of the other one's class with all else that that one holds.

    The class's own ``__init__`` is not called, for nobody knows its arguments: what it has stored is kept.

    Raises:
        InvalidSettings: It holds a loader, whose batches it would go on giving.
    """
    held = [name for name, value in vars(loader).items() if isinstance(value, DataLoader)]
    if held:
        raise InvalidSettings(
            f"The loader is a {type(loader).__name__} around another DataLoader ({held[0]}), which batch size and "
            "workers would have to be changed in. Give that one, or measure your own loop, with attach()."
        )
    same: DataLoader[Any] = object.__new__(type(loader))
    vars(same).update({**vars(loader), **vars(made)})
    return same


def gives_batches(loader: DataLoader[Any]) -> bool:
    """Whether the items of the loader's data set are batches already."""
    return loader.batch_size is None and loader.batch_sampler is None


def sampler_of(loader: DataLoader[Any]) -> Any:
    """What chooses the samples of a loader; a batch sampler of torch's own has it inside."""
    batches = loader.batch_sampler
    return batches.sampler if type(batches) is BatchSampler else loader.sampler


def _batching(loader: DataLoader[Any], batch_size: int) -> dict[str, Any]:
    """The arguments that say which samples come together.

    Raises:
        InvalidSettings: A batch sampler of somebody's own, the batches of which hold another number of samples.
    """
    streamed = isinstance(loader.dataset, IterableDataset)
    sampler = None if streamed else sampler_of(loader)
    if gives_batches(loader):
        return {"batch_size": None, "sampler": sampler}
    batches = loader.batch_sampler
    if streamed or type(batches) is BatchSampler:
        # Given as a batch sampler, torch's own knows whether the rest is dropped, and the loader does not.
        return {"batch_size": batch_size, "sampler": sampler, "drop_last": getattr(batches, "drop_last", False)}
    _check_own_size(batches, batch_size)
    return {"batch_size": 1, "batch_sampler": batches}  # 1: what torch takes for "not given"


#: Batches of a batch sampler of somebody's own that are looked at for their size.
_LOOKED_AT = 8


def _check_own_size(batches: Any, batch_size: int) -> None:
    """Refuse what such a sampler does not give. One of the batches may be smaller: a rest may lie anywhere."""
    own = f"this loader makes its batches in a way of its own ({type(batches).__name__})"
    if isinstance(batches, Iterator):
        raise InvalidSettings(f"{own}, which passes only once; give it as a list, or a sampler of batches.")
    sizes = sorted(len(indices) for indices in itertools.islice(batches, _LOOKED_AT))
    if not sizes:
        raise InvalidSettings(f"batch_size={batch_size}: {own}, and there is none.")
    if len(sizes) > 1 and sizes[1] != sizes[-1]:
        raise InvalidSettings(
            f"batch_size={batch_size}: {own}, of {sizes[0]} to {sizes[-1]} samples, which no batch size describes. "
            "Measure your own loop, with attach(), or give a DataLoader made with batch_size=…."
        )
    if sizes[-1] != batch_size:
        raise InvalidSettings(
            f"batch_size={batch_size}: {own}, of {sizes[-1]} samples. Ask for batch_size={sizes[-1]} alone, or give a "
            "DataLoader made with batch_size=…, which is batched anew."
        )


def batches_a_pass(loader: DataLoader[Any]) -> int | None:
    """How many batches a pass has, as torch's own samplers count it; None of streams and of samplers of somebody's own.

    Such a one may draw its order to tell its length, which nobody has asked it to.
    """
    batches = loader.batch_sampler
    if type(batches) is not BatchSampler or type(batches.sampler) not in (SequentialSampler, RandomSampler):
        return None
    try:
        return len(batches)
    except (TypeError, NotImplementedError):
        return None


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
    if isinstance(loader.dataset, IterableDataset):
        facts["iterable_dataset"] = True
        facts["splits_stream"] = splits_stream(loader)
        skips = skipped_samples(loader)
        if skips:
            facts["skipped_samples"] = skips
    return facts
