"""The training of a drawn situation: a model of one of three families, healthy habits, and at most one fault.

A workload of its own (``tests.planted.drawn_training:make``), which shares nothing with ``faulty``. Doses are shares
of the step as this machine takes it, found by training a few steps first. What the fault really took is told by the
training's own stopwatch, under ``planted`` in the trial's facts; the probe has no part in it.
"""

from __future__ import annotations

import functools
import gc
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from perf_diagnostics.records import Json, Settings
from perf_diagnostics.workloads.loaders import LengthBuckets, loader_arguments, random_numbers, shuffled_loader
from perf_diagnostics.workloads.optimizers import make_optimizer
from perf_diagnostics.workloads.tiny_transformer import LanguageModel, Sequences, TransformerOptions, padded
from perf_diagnostics.workloads.tiny_transformer import count as count_tokens
from perf_diagnostics.workloads.tiny_transformer import loss_of as loss_of_tokens
from perf_diagnostics.workloads.workload import BatchCount, Training

#: The stopwatch runs from this batch to the last one that is surely timed: the warm-up is over, and the looks after the
#: timed steps have not begun.
FIRST_BATCH = 12

#: A nap takes some 60 µs longer than it was asked to: shorter ones are taken at once for the whole batch.
LEAST_NAP_S = 0.0005

_CLASSES = 10
_VOCABULARY = 500
_IMAGE = 16


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is trained, and how; all of it drawn.

    ``fault`` and ``mild`` name what is planted, ``share`` and ``mild_share`` the part of the step that it is to take.
    ``place`` says where a fault in the loop stands: before or inside of the transfer. ``until`` is the last batch that
    the stopwatch counts.
    """

    family: str
    width: int
    depth: int
    samples: int
    until: int
    length: int = 1
    optimizer: str = "sgd"
    pad_to: int = 0
    fault: str = ""
    share: float = 0.0
    every: int = 1
    place: str = "loop"
    mild: str = ""
    mild_share: float = 0.0
    evaluate_every: int = 0
    log_every: int = 0


@dataclass
class Stopwatch:
    """The training's own clock: how long its steps take, and how much of that what is planted takes.

    How long they wait for a batch runs from the end of the optimizer's step to the batch, with the few lines between.

    ``told`` is filled when the last counted batch begins, and stays as it is from then on.
    """

    until: int
    told: dict[str, Json] = field(default_factory=dict)
    batches: int = 0
    spent_s: float = 0.0
    waited_s: float = 0.0
    tokens: int = 0
    padding: int = 0
    _began_s: float = 0.0
    _before_s: float = 0.0
    _updated_s: float | None = None

    def next_batch(self, count: BatchCount) -> None:
        self.batches += 1
        now = time.perf_counter()
        if self._updated_s is not None and self.batches > FIRST_BATCH:
            self.waited_s += now - self._updated_s
        self.tokens += count.tokens or 0
        self.padding += count.padding_tokens or 0
        if self.batches == FIRST_BATCH:
            self._began_s, self._before_s = now, self.spent_s
        if self.batches == self.until:
            steps = self.until - FIRST_BATCH
            self.told["steps"] = steps
            self.told["step_s"] = (now - self._began_s) / steps
            self.told["fault_s"] = (self.spent_s - self._before_s) / steps
            self.told["wait_s"] = self.waited_s / steps
            if self.tokens:
                self.told["padding_share"] = self.padding / self.tokens

    def updated(self, *_: object) -> None:
        """Called by the optimizer when it has stepped."""
        self._updated_s = time.perf_counter()

    def spend(self, how: Callable[[], object]) -> None:
        """Do what is planted, and count how long it takes."""
        began = time.perf_counter()
        how()
        self.spent_s += time.perf_counter() - began


def make(settings: Settings, options: Mapping[str, Json], seed: int) -> Training:
    """The training of a recipe, whose fields are the options."""
    given: dict[str, Any] = dict(options)
    recipe = Recipe(**given)
    parts = _FAMILIES[recipe.family](recipe, settings, seed)
    kind, more = (
        (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9})
        if recipe.optimizer == "sgd"
        else (torch.optim.AdamW, {"lr": 1e-3})
    )
    optimizer = make_optimizer(kind, parts.model.parameters(), settings, **more)
    sample = parts.collate(_fetched(parts.data, range(settings.batch_size)))
    pace_s = _pace_s(parts, optimizer, sample)
    watch = Stopwatch(recipe.until)
    optimizer.register_step_post_hook(watch.updated)
    watch.told["pace_s"] = pace_s
    data = _slowed(parts.data, recipe, watch, pace_s / settings.batch_size)
    habits = Habits(recipe, parts, watch, pace_s, sample, np.random.default_rng(seed))
    return Training(
        model=parts.model,
        optimizer=optimizer,
        batches=_loader(data, parts, settings, seed),
        loss_of=parts.loss_of,
        count=habits.count,
        to_device=habits.to_device if recipe.place == "transfer" else None,
        facts={"model": f"{recipe.family}, {recipe.depth} x {recipe.width}", "planted": watch.told},
    )


# -- the three families


@dataclass(frozen=True)
class Parts:
    """A model with its data, its loss, and how batches are made and counted."""

    model: torch.nn.Module
    data: Dataset[Any]
    collate: Callable[[Any], Any]
    loss_of: Callable[[torch.nn.Module, Any], torch.Tensor]
    count: Callable[[Any], BatchCount]
    lengths: Callable[[], Sequence[int]] | None = None


@dataclass(frozen=True)
class Rows(Dataset[Any]):
    """Inputs and classes in memory; a batch is two look-ups."""

    inputs: torch.Tensor
    classes: torch.Tensor

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])

    def __getitems__(self, indices: list[int]) -> Any:
        return self.inputs[indices], self.classes[indices]


def _vectors(recipe: Recipe, settings: Settings, seed: int) -> Parts:
    layers: list[torch.nn.Module] = []
    for inputs in [64, *[recipe.width] * (recipe.depth - 1)]:
        layers += [torch.nn.Linear(inputs, recipe.width), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(recipe.width, _CLASSES))
    return _of_rows(model, recipe, (64,), seed)


def _images(recipe: Recipe, settings: Settings, seed: int) -> Parts:
    layers: list[torch.nn.Module] = []
    for channels in [3, *[recipe.width] * (recipe.depth - 1)]:
        layers += [torch.nn.Conv2d(channels, recipe.width, 3, padding=1), torch.nn.ReLU()]
    head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(recipe.width, _CLASSES)]
    return _of_rows(torch.nn.Sequential(*layers, *head), recipe, (3, _IMAGE, _IMAGE), seed)


def _of_rows(model: torch.nn.Module, recipe: Recipe, shape: tuple[int, ...], seed: int) -> Parts:
    numbers = random_numbers(seed, "drawn")
    inputs = torch.from_numpy(numbers.standard_normal((recipe.samples, *shape), dtype="float32"))
    classes = torch.from_numpy(numbers.integers(0, _CLASSES, recipe.samples))
    return Parts(model.train(), Rows(inputs, classes), _as_it_is, _loss_of_rows, _count_rows)


def _sentences(recipe: Recipe, settings: Settings, seed: int) -> Parts:
    chosen = TransformerOptions(
        vocabulary=_VOCABULARY, dim=recipe.width, heads=4, layers=recipe.depth, samples=recipe.samples
    )
    model = LanguageModel(chosen, recipe.length, recompute=False).train()
    data = Sequences.generated(chosen, recipe.length, seed)
    if not recipe.pad_to:
        # As long as each other: what is padded would be a fault of its own.
        data = Sequences(data.tokens, range(0, (recipe.samples + 1) * recipe.length // 2, recipe.length // 2))
    collate = functools.partial(padded, least=recipe.pad_to)
    return Parts(model, data, collate, loss_of_tokens, count_tokens, lambda: data.lengths)


_FAMILIES: Mapping[str, Callable[[Recipe, Settings, int], Parts]] = {
    "vectors": _vectors,
    "images": _images,
    "sentences": _sentences,
}


def _loader(data: Dataset[Any], parts: Parts, settings: Settings, seed: int) -> DataLoader[Any]:
    collate = functools.partial(_collated, parts.collate)
    if settings.length_bucketing and parts.lengths is not None:
        order = torch.Generator().manual_seed(seed)
        alike = InTurn(LengthBuckets(parts.lengths(), settings.batch_size, order))
        more = loader_arguments(settings, torch.device(settings.device))
        return DataLoader(data, sampler=alike, collate_fn=collate, **more)
    return shuffled_loader(data, settings, device=torch.device(settings.device), seed=seed, collate=collate)


@dataclass(frozen=True)
class InTurn(Sampler[int]):
    """The samples of whole batches one by one, for a loader that is given its batch size."""

    batches: LengthBuckets

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(self.batches)


def _as_it_is(batch: Any) -> Any:
    return batch


def _loss_of_rows(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    inputs, classes = batch
    return torch.nn.functional.cross_entropy(model(inputs), classes)


def _count_rows(batch: Any) -> BatchCount:
    return BatchCount(samples=len(batch[1]))


def _fetched(data: Dataset[Any], indices: Sequence[int]) -> Any:
    """What a loader gives its collate function for these samples."""
    at_once = getattr(data, "__getitems__", None)
    return [data[index] for index in indices] if at_once is None else at_once(list(indices))


def _collated(collate: Callable[[Any], Any], samples: Any) -> Any:
    return collate(samples)


def _pace_s(parts: Parts, optimizer: torch.optim.Optimizer, batch: Any) -> float:
    """How long the fastest of a few steps on one batch takes, in s."""
    took = []
    for _ in range(8):
        began = time.perf_counter()
        parts.loss_of(parts.model, batch).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        took.append(time.perf_counter() - began)
    return min(took[2:])


# -- what is planted in the loader


@dataclass(frozen=True)
class Slowed(Dataset[Any]):
    """Another dataset of which each item takes so much longer; in a worker nobody reads the stopwatch."""

    data: Dataset[Any]
    pause: Callable[[float], object]
    item_s: float
    watch: Stopwatch
    counted: bool

    def __len__(self) -> int:
        return len(self.data)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])

    def __getitems__(self, indices: list[int]) -> Any:
        at_once = len(indices) if self.item_s < LEAST_NAP_S else 1
        for _ in range(0, len(indices), at_once):
            if self.counted:
                self.watch.spend(lambda: self.pause(self.item_s * at_once))
            else:
                self.pause(self.item_s * at_once)
        return _fetched(self.data, indices)


def _slowed(data: Dataset[Any], recipe: Recipe, watch: Stopwatch, pace_s: float) -> Dataset[Any]:
    """The data as the recipe's fault and its mild disturbance leave it; ``pace_s`` is that of one sample."""
    for name, share, counted in ((recipe.mild, recipe.mild_share, False), (recipe.fault, recipe.share, True)):
        if name in _ITEM:
            data = Slowed(data, _ITEM[name], pace_s * share / (1 - share), watch, counted)
    return data


def burn(seconds: float) -> None:
    """Compute until this thread had so much processor time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(200))


def _sleep_in_first_worker(seconds: float) -> None:
    worker = get_worker_info()
    if worker is not None and worker.id == 0:
        time.sleep(seconds)


_ITEM: Mapping[str, Callable[[float], object]] = {
    "item-sleep": time.sleep,
    "item-burn": burn,
    "slow-worker": _sleep_in_first_worker,
}


# -- what is planted in the loop


@dataclass
class Habits:
    """What this training's loop does beside its phases: its healthy habits, and the fault if it stands here."""

    recipe: Recipe
    parts: Parts
    watch: Stopwatch
    pace_s: float
    sample: Any
    dice: np.random.Generator
    heap: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.recipe.fault == "collector":
            self._fill_heap()

    def count(self, batch: Any) -> BatchCount:
        """Called by the loop between the wait for a batch and its transfer."""
        counted = self.parts.count(batch)
        self.watch.next_batch(counted)
        self._healthy()
        if self.recipe.mild in _LOOP:
            _LOOP[self.recipe.mild](self, self.recipe.mild_share)
        if self.recipe.fault in _LOOP and self.recipe.place == "loop":
            self.watch.spend(lambda: _LOOP[self.recipe.fault](self, self.recipe.share))
        return counted

    def to_device(self, batch: Any, device: torch.device) -> Any:
        self.watch.spend(lambda: _LOOP[self.recipe.fault](self, self.recipe.share))
        return batch

    def every(self, steps: int) -> bool:
        return steps > 0 and self.watch.batches % steps == 0

    def _healthy(self) -> None:
        if self.every(self.recipe.evaluate_every):
            self.parts.model.eval()
            with torch.no_grad():
                self.parts.loss_of(self.parts.model, self.sample)
            self.parts.model.train()
        if self.every(self.recipe.log_every):
            with Path(os.devnull).open("w", encoding="utf-8") as log:
                log.write(json.dumps({"batch": self.watch.batches}))

    def _fill_heap(self) -> None:
        """As many containers as take a collection the dose, by what 50,000 take; torch's own are left out."""
        gc.collect()
        gc.freeze()
        self.heap = [[number] for number in range(50_000)]
        began = time.perf_counter()
        gc.collect()
        each_s = (time.perf_counter() - began) / len(self.heap)
        count = min(1_500_000, round(self.seconds(self.recipe.share) * self.recipe.every / each_s))
        self.heap = [[number] for number in range(count)]

    def seconds(self, share: float) -> float:
        """What takes this share of a step beside the pace of one."""
        return self.pace_s * share / (1 - share)


def _work(habits: Habits, share: float) -> None:
    burn(habits.seconds(share))


def _wait(habits: Habits, share: float) -> None:
    time.sleep(habits.seconds(share))


def _save(habits: Habits, share: float) -> None:
    """Every so many steps the weights are written, and the disk takes what is left of the dose."""
    if not habits.every(habits.recipe.every):
        return
    ends = time.perf_counter() + habits.seconds(share) * habits.recipe.every
    with tempfile.TemporaryFile() as file:
        torch.save(habits.parts.model.state_dict(), file)
    time.sleep(max(0.0, ends - time.perf_counter()))


def _stall(habits: Habits, share: float) -> None:
    """Now and then, one step in so many by chance."""
    if habits.dice.random() < 1 / habits.recipe.every:
        time.sleep(habits.seconds(share) * habits.recipe.every)


def _collect(habits: Habits, share: float) -> None:
    if habits.every(habits.recipe.every):
        gc.collect()


_LOOP: Mapping[str, Callable[[Habits, float], None]] = {
    "work-in-loop": _work,
    "wait-in-loop": _wait,
    "save": _save,
    "stall": _stall,
    "collector": _collect,
}
