"""What can be told about a user's training without asking: batch counts, model size, precision, loader, optimizer."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from perf_diagnostics.integrations.model.texts import count_texts
from perf_diagnostics.measure.boards.devices import model_of
from perf_diagnostics.measure.boards.float32_products import float32_products
from perf_diagnostics.measure.environment import usable_cores
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.host import memory
from perf_diagnostics.measure.model_scan import class_name, scan
from perf_diagnostics.records import Json, Precision, Quantity
from perf_diagnostics.workloads.optimizers import optimizer_facts
from perf_diagnostics.workloads.workload import BatchCount

_DEEPEST_BATCH = 4

#: So many things of one kind in a list are samples; fewer may be the parts of a batch, as two views of it.
_LEAST_SAMPLES = 3

#: What lies there is computed elsewhere, where anything lies elsewhere: in the host's memory, or on a disk.
_NO_ACCELERATORS = ("cpu", "meta")

_HALF: dict[torch.dtype, Precision] = {torch.bfloat16: "bfloat16", torch.float16: "float16"}


def count_batch(batch: Any, *, depth: int = 0) -> BatchCount | None:
    """Samples (and tokens) of a batch by its shapes, None where they cannot be told; never waits for a device.

    The samples are the rows of the first tensor or the length of the first list; of an object what it says itself
    (``num_graphs`` and ``batch_size`` of PyTorch Geometric, ``batch_size`` of a TensorDict) or else what its
    attributes hold. A list with a tensor for each sample, as a detector's images, has as many as it is long, and so has
    one of objects (flair's sentences, graphs that were not joined) or of mappings that hold more than tensors
    (detectron2). Tokens and padding are those of a mapping's texts, see :func:`.texts.count_texts`.
    """
    if isinstance(batch, torch.Tensor):
        return _rows(batch.size(0)) if batch.ndim else None
    if type(batch) in (list, tuple) and batch and isinstance(batch[0], torch.Tensor):  # the usual (x, y), fast
        return _rows(batch[0].size(0)) if batch[0].ndim else None
    if depth >= _DEEPEST_BATCH or batch is None or isinstance(batch, str | bytes):
        return None
    if isinstance(batch, Mapping):
        texts = count_texts(batch)
        if texts is not None:
            return texts
        batch = list(batch.values())
    if isinstance(batch, Sequence) and batch:
        first = batch[0]
        if isinstance(first, str | int | float):
            return BatchCount(len(batch))
        if type(first) in (list, tuple) and _one_by_one(first, batch[1:]):
            return _rows(len(first))
        return BatchCount(len(batch)) if _are_samples(batch) else count_batch(first, depth=depth + 1)
    return _count_object(batch, depth)


def _are_samples(batch: Sequence[Any]) -> bool:
    """Whether a list holds an object or a mapping for each sample, and not the parts of a batch."""
    first = batch[0]
    if type(batch) is not list or len(batch) < _LEAST_SAMPLES or any(type(one) is not type(first) for one in batch):
        return False
    if isinstance(first, Mapping):
        only_tensors = all(isinstance(value, torch.Tensor) for value in first.values())
        return not only_tensors and all(one.keys() == first.keys() for one in batch)
    # What tells its own rows is a batch, and an array or a tensor of another library has them, too.
    return not isinstance(first, Sequence) and not hasattr(type(first), "__array__") and _told_count(first) is None


def _one_by_one(first: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether these are tensors of one sample each, by what lies beside them; else each has a row for every sample.

    Targets of as many samples, each a mapping or a tensor of its own (boxes, a mask), say so, or a tensor with as many
    rows; not one that has the rows of the first of them.
    """
    if not first or not isinstance(first[0], torch.Tensor):
        return False
    rows = first[0].size(0) if first[0].ndim else None
    sizes = [one.size(0) for one in others if isinstance(one, torch.Tensor) and one.ndim]
    if rows in sizes:
        return False
    lists = [one for one in others if type(one) in (list, tuple) and len(one) == len(first)]
    return len(first) in sizes or any(not all(_has_rows(one, rows) for one in beside) for beside in lists)


def _has_rows(one: object, rows: int | None) -> bool:
    return isinstance(one, torch.Tensor) and one.ndim > 0 and one.size(0) == rows


def _told_count(batch: object) -> int | None:
    """What a batch that is an object of its own class says itself."""
    for name in ("num_graphs", "batch_size"):
        told: object = None
        with contextlib.suppress(*FAULTS):  # it may be a property, and is then the object's own code
            told = getattr(batch, name, None)
        if isinstance(told, tuple) and told:  # a torch.Size
            told = told[0]
        if isinstance(told, int) and not isinstance(told, bool):
            return told
    return None


def _count_object(batch: object, depth: int) -> BatchCount | None:
    """Of a batch that is an object of its own class."""
    told = _told_count(batch)
    if told is not None:
        return BatchCount(told)
    held = [value for name, value in getattr(batch, "__dict__", {}).items() if not name.startswith("_")]
    first = next((value for value in held if isinstance(value, torch.Tensor | list | tuple | Mapping)), None)
    return count_batch(first, depth=depth + 1)


@functools.lru_cache
def _rows(samples: int) -> BatchCount:
    return BatchCount(samples)


def count_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    """Samples in one call of a model, by its inputs; None where they cannot be told.

    They are the rows of the first tensor. One of shape ``[N]`` may be one sample (its features, the tokens of a
    sequence) or N of them: N where the model is called with another one of whole numbers of that shape, as with users
    and their items, and else unknown. Where a recurrent state ``[layers, B, width]`` beside an input ``[T, B, ...]``
    says that time comes first, they are B.
    """
    if kwargs and not args:
        ids = kwargs.get("input_ids")
        args, kwargs = (ids,) if isinstance(ids, torch.Tensor) else tuple(kwargs.values()), {}
    first = args[0] if args else None
    if not isinstance(first, torch.Tensor) or not first.ndim:
        found = count_batch(args)
        return None if found is None else found.samples
    beside = (*args[1:], *kwargs.values())
    if first.ndim == 1:
        return first.size(0) if any(_ids_of_shape(first, one) for one in beside) else None
    return first.size(1) if any(_state_of_time_first(first, one) for one in beside) else first.size(0)


def _ids_of_shape(first: torch.Tensor, beside: object) -> bool:
    return isinstance(beside, torch.Tensor) and beside.shape == first.shape and not beside.is_floating_point()


def _state_of_time_first(first: torch.Tensor, beside: object) -> bool:
    """Whether this is a recurrent state, or those of an LSTM, of as many samples as the input has columns."""
    if type(beside) is tuple or type(beside) is list:
        return bool(beside) and all(_state_of_time_first(first, one) for one in beside)
    if not isinstance(beside, torch.Tensor) or beside.ndim != 3:
        return False
    # An encoder's output, [B, S, width] or [S, B, width], has one of these sizes in front.
    return beside.size(1) == first.size(1) and beside.size(0) not in first.shape[:2] and first.size(0) != first.size(1)


def device_of(parameters: Sequence[torch.Tensor]) -> torch.device:
    """The accelerator of most parameters, even where more lie on the host, such as a large embedding; else the CPU."""
    sizes: dict[torch.device, int] = {}
    for parameter in parameters:
        sizes[parameter.device] = sizes.get(parameter.device, 0) + parameter.numel()
    return max(
        sizes, key=lambda device: (device.type not in _NO_ACCELERATORS, sizes[device]), default=torch.device("cpu")
    )


def device_name(device: torch.device) -> str:
    """``cuda`` is one particular board; results of two boards must never be mixed up."""
    if str(device) == "cuda":
        return f"cuda:{torch.cuda.current_device()}"
    return str(device)


def precision_of(parameters: Sequence[torch.Tensor], device: torch.device, autocast: torch.dtype | None) -> Precision:
    """What the products are computed in: the autocast region's type, the parameters', or TF32 where it is allowed.

    Parameters of 64 bits are computed with in float64 inside of an autocast region, too, which leaves them alone.
    """
    own = {parameter.dtype for parameter in parameters if parameter.is_floating_point()}
    if own == {torch.float64}:
        return "float64"
    dtype = autocast or (parameters[0].dtype if parameters else torch.float32)
    if dtype in _HALF:
        return _HALF[dtype]
    allowed = device.type == "cuda" and float32_products() != "highest"
    return "tf32" if allowed and torch.cuda.get_device_capability(device) >= (8, 0) else "float32"


def autocast_dtype(kind: str) -> torch.dtype | None:
    """The type of the autocast region the caller is in, for a kind of device, or None."""
    known = torch.amp.is_autocast_available(kind)  # of other kinds torch refuses to say whether it is enabled
    return torch.get_autocast_dtype(kind) if known and torch.is_autocast_enabled(kind) else None


def sizes(parameters: Sequence[torch.nn.Parameter], device: torch.device) -> list[Quantity]:
    """How large the model is, and the memories around it and their peaks so far."""
    numbers: list[tuple[str, float, str, str]] = [
        ("host_memory_total", memory.memory_limit_bytes(), "bytes", "MemTotal and cgroup limits")
    ]
    if parameters:
        total = sum(p.numel() for p in parameters)
        trained = sum(p.numel() for p in parameters if p.requires_grad)
        weight = sum(p.numel() * p.element_size() for p in parameters)
        numbers += [
            ("parameters", total, "1", "model.parameters()"),
            ("trainable_parameters", trained, "1", "model.parameters()"),
            ("parameter_bytes", weight, "bytes", "model.parameters()"),
        ]
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        numbers.append(("device_memory_total", total, "bytes", "torch.cuda.get_device_properties"))
        with contextlib.suppress(RuntimeError):  # an allocator that somebody plugged in counts nothing
            numbers += [
                (
                    "device_memory_peak_allocated",
                    torch.cuda.max_memory_allocated(device),
                    "bytes",
                    "torch.cuda.max_memory_allocated, since the process began",
                ),
                (
                    "device_memory_peak_reserved",
                    torch.cuda.max_memory_reserved(device),
                    "bytes",
                    "torch.cuda.max_memory_reserved, since the process began",
                ),
            ]
    return [Quantity(name, float(value), unit, source) for name, value, unit, source in numbers]


def facts_of(
    models: Sequence[torch.nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    device: torch.device,
    *,
    checkpoints: bool,
) -> dict[str, Json]:
    """Plain values by the names of ``TrialResult.facts``; of several optimizers the first one's, and the others' names.

    Args:
        models: what is trained.
        optimizers: what trains it.
        device: where it lies.
        checkpoints: whether torch.utils.checkpoint was seen to be called.
    """
    facts: dict[str, Json] = {
        "threads": torch.get_num_threads(),
        "cpu_count": usable_cores(),
        "device_name": model_of(device),
    }
    if models:
        facts["model"] = ", ".join(dict.fromkeys(class_name(model) for model in models))
        facts |= scan(models[0], optimizers[0] if optimizers else None)
    if checkpoints:
        facts["gradient_checkpointing"] = True
    elif facts.get("compiled") or any("_orig_mod" in part._modules for model in models for part in model.modules()):
        facts.setdefault("gradient_checkpointing", None)  # in a compiled graph it is an operator, which nobody sees
    if optimizers:
        facts |= optimizer_facts(optimizers[0])
    if others := [type(one).__name__ for one in optimizers[1:]]:
        facts["other_optimizers"] = [*dict.fromkeys(others)]
    return facts
