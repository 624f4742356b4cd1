"""Plain facts about how a model and its process are set up: what a rule can know without timing anything.

Nothing is hooked, called or changed; shapes, flags and the source text of attention modules are read, once.
"""

from __future__ import annotations

import inspect
import itertools
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

import torch
from torch import nn

from perf_diagnostics.measure.boards.float32_products import float32_products
from perf_diagnostics.measure.module_calls import STANDS_IN_FOR
from perf_diagnostics.records import Json

#: Tensor cores take float16 and bfloat16 in pieces of 16 bytes (NVIDIA, Matrix Multiplication Background, 2023).
ALIGNMENT = 8
#: Layers to name; a model of a thousand odd ones is described by the first.
_NAMED = 8

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_FUSED_ATTENTION = re.compile(r"scaled_dot_product_attention|flash_attn|flex_attention|memory_efficient_attention")
_PLAIN_ATTENTION = re.compile(r"softmax")


def scan(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Json]:
    """Facts by the names that ``TrialResult.facts`` uses; what a model has nothing of is absent.

    Args:
        model: as it is trained, wrappers of compilation and data parallelism included.
        optimizer: with it, whether it updates tensor by tensor is told where its groups say so.
    """
    return {
        **_layers(model),
        **_convolutions(model),
        **_attention(model),
        **_wrappers(model),
        **_process(model),
        **({} if optimizer is None else _update(optimizer)),
    }


def parameters_of(
    models: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]
) -> list[torch.nn.Parameter]:
    """Every parameter of the models and optimizers, once."""
    trained = (p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"])
    return list({id(p): p for p in (*(p for model in models for p in model.parameters()), *trained)}.values())


def class_name(model: torch.nn.Module) -> str:
    """The model's own class, without the wrappers of torch.compile and data parallelism."""
    return type(unwrapped(model)).__name__


def trained_by(models: Iterable[torch.nn.Module], held: Collection[int]) -> str:
    """What an optimizer trains that holds parameters of these identities: models, or parts of them by their names."""
    found: list[str] = []
    for model in models:
        inner, name = unwrapped(model), class_name(model)
        if all(id(parameter) in held for parameter in inner.parameters()):
            found.append(name)
        else:
            parts = ((part, module.parameters()) for part, module in inner.named_children())
            found += [f"{name}.{part}" for part, has in parts if any(id(parameter) in held for parameter in has)]
    return ", ".join(dict.fromkeys(found))


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    inner: Any = model
    for attribute in ("_orig_mod", "module"):
        held = getattr(inner, "_modules", {}).get(attribute)
        inner = inner if held is None else held
    return cast(torch.nn.Module, inner)


def _layers(model: nn.Module) -> dict[str, Json]:
    """Matrix dimensions that do not suit tensor cores, and the size of the vocabulary."""
    total = sum(p.numel() for p in model.parameters())
    odd: dict[str, list[int]] = {}
    odd_parameters = 0
    counted: set[int] = set()
    vocabulary = 0
    for name, module in model.named_modules():
        sizes = _matrix(module)
        if isinstance(module, nn.Embedding):
            vocabulary = max(vocabulary, module.num_embeddings)
        weight = getattr(module, "weight", None)
        if sizes is None or not isinstance(weight, torch.Tensor) or id(weight) in counted:
            continue
        counted.add(id(weight))
        if any(size % ALIGNMENT for size in sizes):
            odd[name or type(module).__name__] = list(sizes)
            odd_parameters += weight.numel()
    facts: dict[str, Json] = {}
    if counted and total:
        facts["misaligned_parameter_share"] = odd_parameters / total
        facts["misaligned_layers"] = {name: list(sizes) for name, sizes in itertools.islice(odd.items(), _NAMED)}
    if vocabulary:
        facts["vocabulary"] = vocabulary
    return facts


def _matrix(module: nn.Module) -> tuple[int, int] | None:
    """The two fixed dimensions of a layer that multiplies matrices: inputs and outputs."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if type(module).__name__ == "Conv1D" and getattr(module, "nf", None):  # transformers' GPT-2
        weight: Any = module.weight
        return int(weight.shape[0]), int(weight.shape[1])
    return None


def _convolutions(model: nn.Module) -> dict[str, Json]:
    found = [module for module in model.modules() if isinstance(module, _CONVOLUTIONS)]
    if not found:
        return {}
    total = sum(p.numel() for p in model.parameters())
    facts: dict[str, Json] = {
        "convolutions": len(found),
        "convolution_parameter_share": sum(module.weight.numel() for module in found) / total,
        "conv_bias_before_norm": sum(1 for first, second in _neighbours(model) if _wasted_bias(first, second)),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }
    layout = conv_memory_format(model)
    if layout is not None:
        facts["conv_memory_format"] = layout
    return facts


def conv_memory_format(model: nn.Module) -> str | None:
    """``channels_last`` or ``contiguous``, as most filters for images lie; None without any that tells."""
    filters = [one.weight for one in model.modules() if isinstance(one, nn.Conv2d) and min(one.weight.shape[2:]) > 1]
    last = [one for one in filters if one.is_contiguous(memory_format=torch.channels_last) and not one.is_contiguous()]
    if not filters:
        return None
    return "channels_last" if 2 * len(last) > len(filters) else "contiguous"


def _neighbours(model: nn.Module) -> Iterable[tuple[nn.Module, nn.Module]]:
    """Modules that stand next to each other in the same parent, in the order in which it names them."""
    for parent in model.modules():
        yield from itertools.pairwise(parent.children())


def _wasted_bias(first: nn.Module, second: nn.Module) -> bool:
    """A bias that the normalisation behind it takes away again with the mean."""
    return (
        isinstance(first, _CONVOLUTIONS)
        and isinstance(second, _NORMS)
        and first.bias is not None
        and second.num_features == first.out_channels
    )


def _attention(model: nn.Module) -> dict[str, Json]:
    """``attention`` is ``eager`` where it computes softmax itself, else the name of what it uses; absent: unknown."""
    for module in model.modules():
        named = getattr(getattr(module, "config", None), "_attn_implementation", None)
        if isinstance(named, str):
            return {"attention": named}
    kinds = {type(module) for module in model.modules() if _is_attention(module)}
    if not kinds:
        return {}
    encoder = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    if kinds == {nn.MultiheadAttention}:
        # Inside torch's own layers it is asked for no weights, and then takes the fused operator.
        return {"attention": "sdpa"} if any(isinstance(m, encoder) for m in model.modules()) else {}
    sources = [_source(kind) for kind in sorted(kinds - {nn.MultiheadAttention}, key=lambda kind: kind.__name__)]
    if any(_FUSED_ATTENTION.search(text) for text in sources):
        return {"attention": "sdpa"}
    return {"attention": "eager"} if any(_PLAIN_ATTENTION.search(text) for text in sources) else {}


def _is_attention(module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower()


def _source(kind: type[nn.Module]) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # typed into a console, or compiled away
        return ""


def _wrappers(model: nn.Module) -> dict[str, Json]:
    """What is wrapped around the model: compilation, data parallelism; and whether it recomputes activations."""
    facts: dict[str, Json] = {"compiled": _compiled(model)}
    for module in model.modules():
        if isinstance(module, nn.DataParallel):
            facts["data_parallel"] = "DataParallel"
        elif isinstance(module, nn.parallel.DistributedDataParallel):
            facts["data_parallel"] = "DistributedDataParallel"
            for option in ("find_unused_parameters", "gradient_as_bucket_view", "static_graph"):
                facts[f"ddp_{option}"] = bool(getattr(module, option, False))
        if getattr(module, "gradient_checkpointing", None) is True or "CheckpointWrapper" in type(module).__name__:
            facts["gradient_checkpointing"] = True
    return facts


def _compiled(model: nn.Module) -> bool:
    """Whether it was compiled, as a whole or in parts that hold all of its parameters."""
    if _compiled_whole(model):
        return True
    parts = [part for part in model.modules() if _compiled_whole(part)]
    held = {id(parameter) for part in parts for parameter in part.parameters()}
    return bool(held) and all(id(parameter) in held for parameter in model.parameters())


def _compiled_whole(model: nn.Module) -> bool:
    # torch.compile(model) wraps; model.compile() keeps the module and its call, which carries dynamo's mark. Whoever
    # watches a loop may have put a call of its own there, which says what it stands in for.
    call = getattr(model, "_compiled_call_impl", None)
    while call is not None and not hasattr(call, "_torchdynamo_orig_callable"):
        call = getattr(call, STANDS_IN_FOR, None)
    return "_orig_mod" in model._modules or call is not None


def _process(model: nn.Module, environment: Mapping[str, str] = os.environ) -> dict[str, Json]:
    """Settings of this process that cost time everywhere."""
    types = sorted({str(p.dtype).removeprefix("torch.") for p in model.parameters()})
    return {
        "parameter_types": list(types),
        "matmul_precision": float32_products(),
        "anomaly_detection": torch.is_anomaly_enabled(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "autograd_profiler": bool(torch._C._autograd._profiler_enabled()),
        "cuda_launch_blocking": environment.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"),
        "distributed_debug": environment.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper(),
    }


def _update(optimizer: torch.optim.Optimizer) -> dict[str, Json]:
    groups = [group for group in optimizer.param_groups if len(group["params"])]
    return {
        "optimizer_tensors": sum(len(group["params"]) for group in groups),
        "optimizer_groups": len(groups),
        "optimizer_group_settings": len({_settings_of(group) for group in groups}),
    }


def _settings_of(group: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What a group's parameters are updated with, so that equal ones can be told; its name is none of it."""
    names = sorted(name for name in group if name not in ("params", "param_names", "name"))
    # A learning rate that is a tensor is each group's own, which its scheduler writes into.
    return tuple(
        (name, f"{id(value)}" if isinstance(value, torch.Tensor) else repr(value))
        for name in names
        for value in [group[name]]
    )
