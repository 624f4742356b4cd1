"""A Training from the four parts people have at hand: a model, an optimizer, a loader and a loss function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads.loaders import gives_batches, loader_facts, rebatched, sampler_of
from perf_diagnostics.workloads.optimizers import optimizer_facts
from perf_diagnostics.workloads.options import refuse_settings
from perf_diagnostics.workloads.workload import BatchCount, Training

_LOADER_SETTINGS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
LossOf = Callable[[torch.nn.Module, Any], torch.Tensor]


def training_of(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Iterable[Any],
    loss_fn: Callable[..., torch.Tensor] | None,
    *,
    settings: Settings,
) -> Training:
    """A training of these parts under ``settings``; the model is moved to the device in place, its optimizer with it.

    Args:
        model: On any device.
        optimizer: Over this very model's parameters.
        loader: Re-iterable. A DataLoader is batched anew where it differs from the settings; of any other iterable
            the first batch must hold ``settings.batch_size`` samples.
        loss_fn: See :func:`loss_from`.
        settings: What the trial asks for.

    Raises:
        WorkloadError: Parts that do not fit together.
        InvalidSettings: Settings these parts cannot honour.
    """
    device = torch.device(settings.device)
    own = {id(parameter) for parameter in model.parameters()}
    if not any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
        raise WorkloadError(
            f"The {type(optimizer).__name__} trains none of the parameters of the {type(model).__name__}; "
            "make it from the parameters of this very model."
        )
    model.to(device).train()
    if isinstance(loss_fn, torch.nn.Module):
        loss_fn.to(device)  # class weights and the like
    if optimizer.state:
        # State made on another device would meet gradients on this one; loading moves it to where each parameter is.
        optimizer.load_state_dict(optimizer.state_dict())
    training = Training(model=model, optimizer=optimizer, batches=loader, loss_of=loss_from(loss_fn), count=count_of)
    return fitted(training, settings)


def fitted(training: Training, settings: Settings) -> Training:
    """The same training with its batches as ``settings`` ask for, and the facts its parts tell.

    Raises:
        WorkloadError: The batches can be passed through only once.
        InvalidSettings: Loader or optimizer settings that these parts cannot honour, or a batch that a pass over the
            data cannot fill.
    """
    training.batches = fitted_batches(training.batches, settings, training.count)
    training.count = _count_under(training, settings)
    facts = optimizer_facts(training.optimizer)
    wanted = settings.optimizer_implementation
    if wanted is not None and facts.get("optimizer_implementation") != wanted:
        raise InvalidSettings(
            f"optimizer_implementation={wanted!r} was asked for, and the optimizer is "
            f"{facts['optimizer']} ({facts.get('optimizer_implementation', 'of one implementation only')}). "
            "Let the function take settings and make the optimizer accordingly, or leave the setting unset."
        )
    told = {"model": type(training.model).__name__, **facts, **loader_facts(training.batches)}
    training.facts = {**told, **training.facts}
    return training


def fitted_batches(batches: Iterable[Any], settings: Settings, count: Callable[[Any], BatchCount]) -> Iterable[Any]:
    """The same data in batches as ``settings`` ask for: a DataLoader batched anew, anything else as it is.

    So is a DataLoader whose batches its data set or a batch sampler of somebody's own makes.

    A pass over the data may end with a batch that is not full, but has to begin with a full one.

    Raises:
        WorkloadError: The batches can be passed through only once, or there are none.
        InvalidSettings: Batches that the settings do not describe, and that cannot be made so.
    """
    if not isinstance(batches, DataLoader):
        _check_iterable(batches, settings, count)
        return batches
    loader = rebatched(batches, settings, torch.device(settings.device))
    if gives_batches(loader):
        instead = "give one made with batch_size=…, which is batched anew"
        _check_size(_first_batch(loader), settings, count, kind="DataLoader with batch_size=None", instead=instead)
        return loader
    samples = samples_a_pass(loader)
    if samples is not None and settings.batch_size > samples:
        raise InvalidSettings(_never_full(settings.batch_size, f"one pass over the data has {samples} samples"))
    return loader


def samples_a_pass(loader: DataLoader[Any]) -> int | None:
    """How many samples one pass draws, as the loader's sampler says.

    None of streams, of samplers without an end, and where the data set gives batches of a size of their own.
    """
    if isinstance(loader.dataset, IterableDataset) or gives_batches(loader):
        return None
    try:
        return len(sampler_of(loader))
    except (TypeError, NotImplementedError):
        return None


class _CountOfStream:
    """Counts batches, and refuses a stream whose first one is short: it ended, or its worker's share of it did.

    Nothing knows a stream's length beforehand. Of batches that torch's own collation made, the count tells.
    """

    def __init__(self, count: Callable[[Any], BatchCount], batch_size: int) -> None:
        self.count = count
        self._batch_size = batch_size
        self._began = False

    def __call__(self, batch: Any) -> BatchCount:
        counted = self.count(batch)
        if not self._began and counted.samples < self._batch_size:
            raise InvalidSettings(_never_full(self._batch_size, f"the stream's first one holds {counted.samples}"))
        self._began = True
        return counted


def _count_under(training: Training, settings: Settings) -> Callable[[Any], BatchCount]:
    # Parts that a function returns at each trial may be one and the same object.
    count = training.count.count if isinstance(training.count, _CountOfStream) else training.count
    loader = training.batches
    if not isinstance(loader, DataLoader) or not isinstance(loader.dataset, IterableDataset):
        return count
    return _CountOfStream(count, settings.batch_size) if loader.collate_fn is default_collate else count


def _never_full(batch_size: int, why: str) -> str:
    return f"batch_size={batch_size}: no batch would be full, for {why}; ask for a smaller batch, or give more data."


def loss_from(loss_fn: Callable[..., torch.Tensor] | None) -> LossOf:
    """``loss_of(model, batch)`` from what people call a loss function.

    - A callable whose first parameter is named ``model`` is that function already.
    - Any other callable is a criterion: ``loss_fn(model(x), y)``, for batches that are pairs ``(x, y)``.
    - ``None`` takes ``model(**batch).loss``, for transformers' models and batches that are mappings.

    Raises:
        WorkloadError: A class of losses, which would make a loss of the model's output instead of computing one.
    """
    if loss_fn is None:
        return _loss_of_output
    given: object = loss_fn  # whatever the annotation says
    if isinstance(given, type) and issubclass(given, torch.nn.Module):
        raise WorkloadError(f"The loss function is the class {given.__name__}; give {given.__name__}() instead.")
    try:
        first = next(iter(inspect.signature(loss_fn).parameters), "")
    except (TypeError, ValueError):  # a builtin without a signature takes tensors, not a model
        first = ""
    if first == "model":
        return loss_fn

    def criterion(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        if not isinstance(batch, Sequence) or len(batch) != 2:
            raise WorkloadError(
                f"The criterion {getattr(loss_fn, '__name__', type(loss_fn).__name__)} needs batches that are pairs "
                f"(x, y); this one is a {type(batch).__name__}. Give a loss function with parameters (model, batch)."
            )
        x, y = batch
        return loss_fn(model(x), y)

    return criterion


def count_of(batch: Any) -> BatchCount:
    """What a batch on the host holds, read off its shapes.

    The samples are the rows of its first tensor (of a pair ``(x, y)``: of x), or the length of its first list.
    Tokens are counted where a mapping has ``input_ids``, padding where it has ``attention_mask`` too.
    """
    if isinstance(batch, torch.Tensor):
        return BatchCount(samples=batch.shape[0] if batch.ndim else 1)
    if isinstance(batch, Mapping):
        ids, mask = batch.get("input_ids"), batch.get("attention_mask")
        if isinstance(ids, torch.Tensor):
            padding = ids.numel() - int(mask.sum()) if isinstance(mask, torch.Tensor) else None
            return BatchCount(ids.shape[0], tokens=ids.numel(), padding_tokens=padding)
        batch = list(batch.values())
    if isinstance(batch, Sequence) and not isinstance(batch, str) and batch:
        first = batch[0]
        if isinstance(first, list | tuple):
            return BatchCount(samples=len(first))
        return count_of(first)
    raise WorkloadError(
        f"The samples in a batch of type {type(batch).__name__} cannot be counted: it holds no tensor first. "
        "Return a Training with a count function of its own."
    )


def _loss_of_output(model: torch.nn.Module, batch: Mapping[str, Any]) -> torch.Tensor:
    if not hasattr(batch, "keys"):
        raise WorkloadError(
            f"Without a loss function the model is called as model(**batch), and the batch is a {type(batch).__name__};"
            " give a loss function, or batches that are mappings."
        )
    loss: torch.Tensor | None = model(**batch).loss
    if loss is None:
        raise WorkloadError("The model's output has no loss; add labels to the batches, or give a loss function.")
    return loss


def _check_iterable(batches: Iterable[Any], settings: Settings, count: Callable[[Any], BatchCount]) -> None:
    kind = type(batches).__name__
    if isinstance(batches, Iterator):
        raise WorkloadError(f"The batches are a {kind}, which passes only once; give a DataLoader or a list.")
    refuse_settings(settings, _LOADER_SETTINGS, workload="these batches", why=f"a {kind} is no DataLoader")
    instead = "give a DataLoader, which is batched anew"
    _check_size(next(iter(batches), None), settings, count, kind=kind, instead=instead)


def _first_batch(loader: DataLoader[Any]) -> Any:
    """The first batch of a loader whose data set gives batches, made here: no worker process is begun for it."""
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset):
        given = next(iter(dataset), None)
    else:
        index = next(iter(loader.sampler), None)
        given = None if index is None else dataset[index]
    return None if given is None else loader.collate_fn(given)


def _check_size(first: Any, settings: Settings, count: Callable[[Any], BatchCount], *, kind: str, instead: str) -> None:
    if first is None:
        raise WorkloadError(f"The {kind} is empty: it gives no batch.")
    samples = count(first).samples
    if samples != settings.batch_size:
        raise InvalidSettings(
            f"batch_size={settings.batch_size} was asked for, and the {kind} holds batches of {samples}. Ask for "
            f"that, {instead}, or have the function take settings and make its batches accordingly."
        )
