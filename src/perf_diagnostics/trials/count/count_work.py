"""Counts what a training step computes and moves, operator by operator, without the arithmetic where that is possible.

Never in the process that is timed: counting needs the model uncompiled, and slows a compiled one for good
(pytorch#140909). :mod:`~perf_diagnostics.trials.count.counts` has a process started for it, which calls :func:`main`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Json, Trial
from perf_diagnostics.store.files import codec
from perf_diagnostics.store.files.whole_files import to_json, write_atomic
from perf_diagnostics.trials.count.counts import FILE, SIGNAL, Work
from perf_diagnostics.trials.count.operators import Operators
from perf_diagnostics.trials.steps.endless_batches import EndlessBatches
from perf_diagnostics.workloads import registry
from perf_diagnostics.workloads.workload import Training

#: Batches looked at, and different shapes counted among them, at most.
_BATCHES = 64
_SHAPES = 16

FAKE = "operators on fake tensors"
REAL = "operators of a real step"


@dataclass(frozen=True)
class _Sums:
    flops: float
    recomputed: float
    attention: float
    other: float
    traffic: float
    uncounted: frozenset[str]


def main(request: dict[str, Json]) -> int:
    """The counting process: build the workload on the CPU, count its first batches, write down what was found."""
    began_s = time.monotonic()
    trial = codec.decode(Trial, request["trial"], where="the request")
    limit_s = float(str(request["budget_s"]))
    observations = Observations()
    body: dict[str, Json] = {}
    with observations.guard(SIGNAL):
        workload = registry.find(trial.workload)
        training = workload.build(trial.settings, options=trial.options, seed=trial.seed)
        training.model.train()
        # The parent ends this process at its limit; what is counted by then must be on disk before.
        left_s = 0.6 * limit_s - (time.monotonic() - began_s)
        work = count_work(training, trial.settings.precision, seconds=left_s)
        body = {"work": {**dataclasses.asdict(work), "uncounted": list(work.uncounted)}}
    if observations.gaps:
        body = {"why": observations.gaps[0].why}
    write_atomic(Path(str(request["directory"])) / FILE, to_json(body), fsync=False)
    return 0


def count_work(
    training: Training,
    precision: str,
    *,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> Work:
    """Count the first batches of a training, each different shape once, until ``seconds`` are over.

    The model must live on the CPU and not be compiled. Its arithmetic is left out (fake tensors), unless it looks at
    the values of what it computes: then each shape costs a real forward and backward pass, which changes no weight.

    Raises:
        WorkloadError: the data has no batch.
    """
    began = clock()
    observations = Observations()
    by_shape: dict[object, _Sums] = {}
    sums: list[_Sums] = []
    samples, tokens, counted_tokens = 0, 0, True
    method = FAKE
    update = _count_update(training, observations)
    batches = EndlessBatches(training.batches, on_epoch=lambda _epoch: None)
    for _ in range(_BATCHES):
        if sums and clock() - began > seconds:
            break
        batch = next(batches)
        shape = _shape(batch)
        if shape not in by_shape:
            if len(by_shape) >= _SHAPES:
                continue
            found = _faked_batch(training, batch, precision, observations) if method == FAKE else None
            if found is None:
                method = REAL
                found = _counted_batch(training, batch, precision)
            by_shape[shape] = found
        count = training.count(batch)
        samples += count.samples
        counted_tokens = counted_tokens and count.tokens is not None
        tokens += count.tokens or 0
        sums.append(by_shape[shape])
    all_tokens = tokens if counted_tokens else None
    return Work(
        batches=len(sums),
        shapes=len(by_shape),
        samples=samples,
        tokens=all_tokens,
        flops=sum(one.flops for one in sums),
        recomputed_flops=sum(one.recomputed for one in sums),
        attention_flops=sum(one.attention for one in sums),
        other_operations=sum(one.other for one in sums),
        traffic_bytes=sum(one.traffic for one in sums),
        update_flops=update.flops if update is not None else 0.0,
        update_bytes=None if update is None else update.traffic,
        six_n_flops=None if all_tokens is None else _six_n(training.model, all_tokens),
        method=method,
        uncounted=tuple(sorted(frozenset(itertools.chain.from_iterable(one.uncounted for one in sums)))),
    )


def _faked_batch(training: Training, batch: Any, precision: str, observations: Observations) -> _Sums | None:
    """The count of a batch without its arithmetic; None where the model cannot run so."""
    with observations.guard("fake_tensors") as attempt, _faked(training.model) as mode, mode:
        found = _counted_batch(training, batch, precision)
    return None if attempt.problem is not None else found


def _counted_batch(training: Training, batch: Any, precision: str) -> _Sums:
    """Forward and backward of one batch; gradients are gone afterwards, weights as they were."""
    cast: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if precision == "bfloat16":
        cast = torch.autocast("cpu", dtype=torch.bfloat16)
    try:
        with torch.compiler.set_stance("force_eager"), _without_onednn(), Operators() as operators:
            with cast:
                loss = training.loss_of(training.model, batch)
            operators.backward = True
            loss.backward()  # type: ignore[no-untyped-call]
    finally:
        for parameter in training.model.parameters():
            parameter.grad = None
    return _sums(operators)


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    """Without it a recurrent layer is the products it consists of, and not one operator that has no formula."""
    # Not torch.backends.mkldnn.flags: it also sets what only Intel GPUs have, and warns where there is none.
    set_flags: Any = torch.backends.mkldnn.set_flags
    before = set_flags(_enabled=False)
    try:
        yield
    finally:
        set_flags(_enabled=before[0])


def _sums(operators: Operators) -> _Sums:
    return _Sums(
        flops=operators.flops,
        recomputed=operators.recomputed_flops,
        attention=operators.attention_flops,
        other=operators.other_operations,
        traffic=operators.traffic_bytes,
        uncounted=frozenset(operators.uncounted),
    )


@contextlib.contextmanager
def _faked(model: torch.nn.Module) -> Iterator[FakeTensorMode]:
    """The model with fake parameters and buffers: shapes and types without memory. Put back afterwards."""
    # Batches, and tensors that a module keeps as plain attributes, stay real and are taken as they come.
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes: dict[int, torch.Tensor] = {}
    before: list[tuple[torch.nn.Module, str, dict[str, Any], torch.Tensor]] = []
    for module in model.modules():
        for store in (module._parameters, module._buffers):
            for name, tensor in store.items():
                if tensor is None:
                    continue
                before.append((module, name, store, tensor))
                if id(tensor) not in fakes:  # tied weights stay tied
                    fake = mode.from_tensor(tensor.detach())
                    fakes[id(tensor)] = (
                        torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
                        if isinstance(tensor, torch.nn.Parameter)
                        else fake
                    )
    try:
        for module, name, store, tensor in before:
            _put(module, name, store, fakes[id(tensor)])
        yield mode
    finally:
        for module, name, store, tensor in before:
            _put(module, name, store, tensor)


def _put(module: torch.nn.Module, name: str, store: dict[str, Any], tensor: torch.Tensor) -> None:
    if isinstance(module, torch.nn.RNNBase):
        setattr(module, name, tensor)  # it keeps a second list of its weights, which follows assignment only
    else:
        store[name] = tensor


def _count_update(training: Training, observations: Observations) -> _Sums | None:
    """One optimizer update on tensors without memory; None where the optimizer cannot run so.

    Its counters of steps stay real. A fused update is counted as what it is: parameter, gradient and state read,
    parameter and state written.
    """
    optimizer = training.optimizer
    groups = [(group, list(group["params"]), group.get("fused")) for group in optimizer.param_groups]
    made: list[torch.nn.Parameter] = []
    found: _Sums | None = None
    try:
        for group, parameters, _ in groups:
            group["params"] = [_without_memory(parameter) for parameter in parameters]
            made += group["params"]
            if "fused" in group:
                group["fused"] = False
        with observations.guard("optimizer_traffic"):
            with Operators() as operators:
                if training.clip_grad_norm is not None:
                    torch.nn.utils.clip_grad_norm_(made, training.clip_grad_norm)
                optimizer.step()
            found = _sums(operators)
            if any(fused for _, _, fused in groups):
                fused_bytes = float(sum(_fused_bytes(optimizer, parameter) for parameter in made))
                found = dataclasses.replace(found, traffic=fused_bytes)
    finally:
        for group, parameters, fused in groups:
            group["params"] = parameters
            if "fused" in group:
                group["fused"] = fused
        for parameter in made:
            optimizer.state.pop(parameter, None)
    return found


def _without_memory(parameter: torch.Tensor) -> torch.nn.Parameter:
    bare = torch.nn.Parameter(
        torch.empty_like(parameter, device="meta", requires_grad=False), requires_grad=parameter.requires_grad
    )
    if bare.requires_grad:
        bare.grad = torch.empty_like(bare, requires_grad=False)
    return bare


def _fused_bytes(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> int:
    if parameter.grad is None:
        return 0
    state = optimizer.state.get(parameter, {}).values()
    kept = sum(one.nbytes for one in state if isinstance(one, torch.Tensor) and one.numel() == parameter.numel())
    return 2 * (parameter.nbytes + kept) + parameter.grad.nbytes


def _six_n(model: torch.nn.Module, tokens: int) -> float | None:
    """6·N·tokens of a dense language model (Kaplan et al., 2020, section 2.1), None for other models.

    N are the parameters that take part in products: an embedding that is only looked up computes nothing, one that is
    tied to the output layer does. Forward takes 2·N a token, the gradient of the inputs 2·N, and that of the weights
    2 for each that is trained.
    """
    kinds = list(model.modules())
    looked_up = {id(m.weight) for m in kinds if isinstance(m, torch.nn.Embedding)}
    if not looked_up or any(isinstance(m, torch.nn.modules.conv._ConvNd) for m in kinds):
        return None
    multiplied = {
        id(p) for m in kinds if not isinstance(m, torch.nn.Embedding) for p in m._parameters.values() if p is not None
    }
    taking_part = [p for p in model.parameters() if id(p) in multiplied or id(p) not in looked_up]
    every = sum(p.numel() for p in taking_part)
    trained = sum(p.numel() for p in taking_part if p.requires_grad)
    return float(tokens) * (4 * every + 2 * trained)


def _shape(batch: Any, depth: int = 0) -> object:
    """What two batches that cost the same have in common: shapes and types of their tensors, and their structure."""
    if isinstance(batch, torch.Tensor):
        return (tuple(batch.shape), batch.dtype)
    if depth > 8 or batch is None or isinstance(batch, str | bytes | int | float | bool | type):
        return type(batch)
    if isinstance(batch, list | tuple):
        return tuple(_shape(item, depth + 1) for item in batch)
    items = batch.items() if hasattr(batch, "items") else sorted(getattr(batch, "__dict__", {}).items())
    return (type(batch), *((key, _shape(value, depth + 1)) for key, value in items))
