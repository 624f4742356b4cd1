"""Refuses a model, a loss, an optimizer or data that no trial could train, once and before the first trial."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader, Dataset, IterableDataset

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Settings
from perf_diagnostics.trials.here.given_values import shown
from perf_diagnostics.workloads.training_of_parts import count_of, fitted_batches, samples_a_pass


def check_model(model: object) -> None:
    """Refuse what is no module, or is the class of one.

    Raises:
        InvalidSettings: as said.
    """
    if isinstance(model, type):
        raise InvalidSettings(f"model is the class {model.__name__}; give a model made of it: {model.__name__}(…).")
    if not isinstance(model, torch.nn.Module):
        raise InvalidSettings(f"model should be a torch.nn.Module, not {type(model).__name__}.")


def check_loss(loss_fn: object) -> None:
    """Refuse what cannot be called for a loss; None is the model's own.

    Raises:
        InvalidSettings: as said.
    """
    if isinstance(loss_fn, type):
        raise InvalidSettings(f"loss_fn is the class {loss_fn.__name__}; give a loss made of it: {loss_fn.__name__}().")
    if loss_fn is not None and not callable(loss_fn):
        raise InvalidSettings(
            f"loss_fn should be a function or a module, not {type(loss_fn).__name__} ({shown(loss_fn)}), or "
            "None for a model that returns its own loss."
        )


def check_optimizer(optimizer: object) -> None:
    """Refuse what is no optimizer, or the class of one.

    Raises:
        InvalidSettings: as said.
    """
    if isinstance(optimizer, type):
        raise InvalidSettings(
            f"optimizer is the class {optimizer.__name__}; give an optimizer made of it: "
            f"{optimizer.__name__}(model.parameters())."
        )
    if not all(hasattr(optimizer, name) for name in ("param_groups", "step", "zero_grad", "load_state_dict")):
        raise InvalidSettings(
            f"optimizer should be a torch.optim.Optimizer, not {type(optimizer).__name__}; give one over the model's "
            "parameters, such as torch.optim.AdamW(model.parameters())."
        )
    closure = inspect.signature(optimizer.step).parameters.get("closure")  # type: ignore[attr-defined]
    if closure is not None and closure.default is closure.empty:
        raise InvalidSettings(
            f"The optimizer {type(optimizer).__name__} calls the model itself, by a closure that its step must be "
            "given, and the loop here gives none. Measure your own loop with attach(), or give another optimizer."
        )


def check_together(model: torch.nn.Module, loss_fn: object, optimizer: torch.optim.Optimizer) -> None:
    """Refuse parts that cannot be trained together: nothing to train, an optimizer of another model, no copies.

    Raises:
        InvalidSettings: as said.
    """
    check_trained(model, loss_fn)
    own = {id(parameter) for parameter in model.parameters()}
    if not any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
        raise InvalidSettings(
            f"The {type(optimizer).__name__} trains none of the parameters of the {type(model).__name__}; make it "
            "from the parameters of this very model."
        )
    modules = [part for part in (model, loss_fn) if isinstance(part, torch.nn.Module)]
    if any(is_lazy(parameter) for part in modules for parameter in part.parameters()):
        raise InvalidSettings(
            f"The {type(model).__name__} has lazy parameters without a size yet; call it once with a batch before."
        )
    # Their tensors stand for their own copies, so that trying costs no memory.
    kept = {id(tensor): tensor for part in modules for tensor in (*part.parameters(), *part.buffers())}
    kept |= {id(t): t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)}
    try:
        copied(modules, optimizer, memo=dict(kept))
    except WorkloadError as error:
        raise InvalidSettings(str(error)) from error


def check_trained(model: torch.nn.Module, loss_fn: object = None) -> None:
    """Refuse a model of which nothing is trained.

    Raises:
        InvalidSettings: as said.
    """
    modules = [part for part in (model, loss_fn) if isinstance(part, torch.nn.Module)]
    if not any(parameter.requires_grad for part in modules for parameter in part.parameters()):
        raise InvalidSettings(
            f"The {type(model).__name__} has no parameter that requires a gradient, so there is nothing to train; "
            "unfreeze a part of it with requires_grad_(True)."
        )


def copied(modules: Sequence[torch.nn.Module], optimizer: Any, *, memo: dict[int, Any] | None = None) -> Any:
    """Copies of the modules and the optimizer together, so that the copied optimizer holds the copied parameters.

    Raises:
        WorkloadError: a part holds what cannot be copied.
    """
    try:
        return copy.deepcopy((modules, optimizer), memo)
    except torch.OutOfMemoryError:  # no fault of the parts
        raise
    except (RuntimeError, TypeError, AttributeError) as error:
        names = " or ".join(dict.fromkeys(type(part).__name__ for part in (*modules, optimizer)))
        raise WorkloadError(
            f"The {names} cannot be copied, which measuring without touching yours needs; take out what cannot be, or "
            f"make it anew where it is used: {error}"
        ) from error


def check_data(data: object, wanted: Sequence[Settings]) -> None:
    """Refuse data of which no configuration could be given a batch; what only some could not, those tell.

    Args:
        data: what was given as ``dataloader``. The first batch of anything but a DataLoader is looked at.
        wanted: all configurations.

    Raises:
        InvalidSettings: as said.
    """
    kind = type(data).__name__
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        raise InvalidSettings(
            f"dataloader is a data set ({kind}), which has no batches; give DataLoader(dataset, batch_size=…)."
        )
    if not isinstance(data, Iterable) or isinstance(data, str | bytes):
        raise InvalidSettings(f"dataloader={shown(data)} has no batches; give a DataLoader or a list of batches.")
    if isinstance(data, Iterator):
        raise InvalidSettings(
            f"dataloader is a {kind}, which passes only once; give the DataLoader itself, or a list of batches."
        )
    if _empty(data):
        raise InvalidSettings(f"dataloader is an empty {kind}; give one with data.")
    first: InvalidSettings | None = None
    for settings in wanted:
        fault = _fault(data, settings)
        if fault is None:
            return
        first = first or fault
    if first is not None:
        raise first


def _empty(data: Any) -> bool:
    if isinstance(data, DataLoader):
        return samples_a_pass(data) == 0
    return hasattr(data, "__len__") and len(data) == 0


def _fault(data: Iterable[Any], settings: Settings) -> InvalidSettings | None:
    try:
        fitted_batches(data, settings, count_of)
    except InvalidSettings as error:
        return error
    except WorkloadError as error:
        return InvalidSettings(f"dataloader: {error}")
    return None
