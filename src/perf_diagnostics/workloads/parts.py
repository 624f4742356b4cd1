"""A Training from the four parts people have at hand: a model, an optimizer, a loader and a loss function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads.data import loader_facts, rebatched
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
        InvalidSettings: Loader or optimizer settings that these parts cannot honour.
    """
    batches = training.batches
    if isinstance(batches, DataLoader):
        training.batches = rebatched(batches, settings, torch.device(settings.device))
    else:
        _check_iterable(training, settings)
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


def loss_from(loss_fn: Callable[..., torch.Tensor] | None) -> LossOf:
    """``loss_of(model, batch)`` from what people call a loss function.

    - A callable whose first parameter is named ``model`` is that function already.
    - Any other callable is a criterion: ``loss_fn(model(x), y)``, for batches that are pairs ``(x, y)``.
    - ``None`` takes ``model(**batch).loss``, for transformers' models and batches that are mappings.
    """
    if loss_fn is None:
        return _loss_of_output
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
    loss: torch.Tensor | None = model(**batch).loss
    if loss is None:
        raise WorkloadError("The model's output has no loss; add labels to the batches, or give a loss function.")
    return loss


def _check_iterable(training: Training, settings: Settings) -> None:
    batches = training.batches
    kind = type(batches).__name__
    if isinstance(batches, Iterator):
        raise WorkloadError(f"The batches are a {kind}, which passes only once; give a DataLoader or a list.")
    refuse_settings(settings, _LOADER_SETTINGS, workload="these batches", why=f"a {kind} is no DataLoader")
    first = next(iter(batches), None)
    if first is None:
        raise WorkloadError(f"The {kind} of batches is empty.")
    samples = training.count(first).samples
    if samples != settings.batch_size:
        raise InvalidSettings(
            f"batch_size={settings.batch_size} was asked for, and the {kind} holds batches of {samples}. "
            "Let the function take settings and make its batches accordingly, or return a DataLoader."
        )
