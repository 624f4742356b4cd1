"""Which framework's loop trains, as its calls on the stack tell, and what its arguments are set to."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from perf_diagnostics.measure.code.own_code import Kind, OwnCode
from perf_diagnostics.records import Json

#: Arguments of transformers' TrainingArguments that decide on speed; some versions have only some of them.
_OF_TRANSFORMERS = (
    *("dataloader_num_workers", "dataloader_persistent_workers", "dataloader_prefetch_factor", "dataloader_pin_memory"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "bf16", "fp16", "tf32"),
    *("torch_compile", "torch_compile_mode", "train_sampling_strategy", "group_by_length"),
)

_OF_A_LOADER = ("num_workers", "persistent_workers", "prefetch_factor", "pin_memory")


def driving_framework(frame: FrameType | None) -> dict[str, Json]:
    """Facts on the framework whose loop has called this far; none where the loop is the user's own.

    What is merely imported has called nothing. Accelerate is told only where no other framework's loop uses it. Where a
    library trains by a class that it has derived from the framework's (SetFit from transformers' Trainer), it makes the
    arguments, too; its user gives others, so they are left out.
    """
    accelerated: dict[str, Json] = {}
    while frame is not None:
        known = _LOOPS.get((frame.f_globals.get("__name__", ""), frame.f_code.co_name))
        if known is not None:
            trains = frame.f_locals["self"]
            facts = known(trains)
            if known is not _of_wrapped_optimizer:
                return {"framework": facts["framework"]} if _is_a_librarys(trains, frame) else facts
            accelerated = accelerated or facts
        frame = frame.f_back
    return accelerated


def _is_a_librarys(trains: object, loop: FrameType) -> bool:
    """Whether a library has derived the class of what trains, and calls it by itself.

    Args:
        trains: the object whose loop it is.
        loop: the frame of the framework's method that is around all steps. Frames further out are asked for no
            variables, which would keep them alive.
    """
    framework, package = _package_of(loop), type(trains).__module__.partition(".")[0]
    caller = loop.f_back
    while caller is not None and (_package_of(caller) == framework or _is_method(caller, type(trains))):
        caller = caller.f_back
    if caller is None or package == framework or _package_of(caller) != package:
        return False
    return OwnCode().kind_of(caller.f_code.co_filename) is Kind.LIBRARY


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_method(frame: FrameType, kind: type) -> bool:
    """Whether a frame runs a method of this class: one that stands in for the framework's and calls it."""
    name = frame.f_code.co_name
    methods = (inspect.unwrap(vars(one)[name]) for one in kind.__mro__ if callable(vars(one).get(name)))
    return any(getattr(method, "__code__", None) is frame.f_code for method in methods)


def of_transformers(trainer: Any) -> dict[str, Json]:
    """Facts on a ``transformers.Trainer`` that trains: those of its arguments that are in effect."""
    given = trainer.args
    arguments: dict[str, Json] = {name: getattr(given, name) for name in _OF_TRANSFORMERS if hasattr(given, name)}
    if given.device.type == "cpu":
        arguments["use_cpu"] = given.use_cpu
    for name in ("activation_checkpointing", "gradient_checkpointing"):
        # The Trainer asks the model to do it; what has no such method it cannot checkpoint.
        if hasattr(given, name) and hasattr(trainer.model, f"{name}_enable"):
            arguments[name] = getattr(given, name)
            break
    if _makes_adamw(trainer):
        arguments["optim"] = "adamw_torch"
    return _facts("transformers", type(given).__name__, arguments)


def _makes_adamw(trainer: Any) -> bool:
    """Whether the Trainer made its optimizer by ``optim="adamw_torch"``, and did not get another one."""
    if str(getattr(trainer.args.optim, "value", trainer.args.optim)) != "adamw_torch":
        return False
    kind, given = trainer.get_optimizer_cls_and_kwargs(trainer.args)
    made = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    return type(made) is kind and all(made.defaults.get(name) == value for name, value in given.items())


def of_lightning(trainer: Any) -> dict[str, Json]:
    """Facts on a Trainer of ``lightning`` or ``pytorch_lightning`` that fits."""
    modules = (kind.__module__ for kind in type(trainer).__mro__)
    package = next(name.partition(".")[0] for name in modules if name.endswith(".trainer.trainer"))
    arguments: dict[str, Json] = {"precision": str(trainer.precision)}
    if trainer.lightning_module.automatic_optimization:  # else the Trainer refuses to accumulate
        arguments["accumulate_grad_batches"] = trainer.accumulate_grad_batches
    return _facts(package, "Trainer", arguments)


def of_accelerate(*, mixed_precision: str, accumulated: int) -> dict[str, Json]:
    """Facts on an ``accelerate.Accelerator`` by what it computes in, and how many batches it accumulates."""
    arguments: dict[str, Json] = {"mixed_precision": mixed_precision, "gradient_accumulation_steps": accumulated}
    return _facts("accelerate", "Accelerator", arguments)


def _of_wrapped_optimizer(optimizer: Any) -> dict[str, Json]:
    return of_accelerate(
        mixed_precision=optimizer.accelerator_state.mixed_precision, accumulated=optimizer.gradient_state.num_steps
    )


def _of_skorch(net: Any) -> dict[str, Json]:
    loader, optimizer, compiled = (net.get_params_for(name) for name in ("iterator_train", "optimizer", "compile"))
    return _facts(
        "skorch",
        type(net).__name__,
        {
            **{f"iterator_train__{name}": loader.get(name) for name in _OF_A_LOADER},
            "iterator_train__num_workers": loader.get("num_workers", 0),
            **({} if "batch_size" in loader else {"batch_size": net.batch_size}),
            "optimizer__fused": optimizer.get("fused"),
            "optimizer__foreach": optimizer.get("foreach"),
            "compile": bool(net.compile),
            "compile__mode": compiled.get("mode"),
        },
    )


def _of_fastai(learner: Any) -> dict[str, Json]:
    loader = learner.dls.train
    workers = getattr(getattr(loader, "fake_l", None), "num_workers", None)  # torch's own DataLoader has none
    arguments: dict[str, Json] = {}
    if workers is not None:
        arguments = {"num_workers": workers, "persistent_workers": None, "pin_memory": loader.pin_memory}
        arguments["bs"] = loader.bs
    for name in ("to_bf16", "to_fp16"):
        if hasattr(learner, name):  # fastai.callback.fp16 puts it there
            arguments[name] = None
    return _facts("fastai", "dataloaders", arguments)


def _facts(package: str, owner: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
    version = getattr(sys.modules.get(package), "__version__", "")
    return {
        "framework": f"{package} {version}".strip(),
        "framework_arguments": dict(arguments),
        "framework_arguments_of": owner,
    }


#: The method that is around all steps of a training, or each of them, by its module and name. None of these holds a
#: batch: what a frame's variables are read of may keep them alive for as long as it runs.
_LOOPS: Mapping[tuple[str, str], Callable[[Any], dict[str, Json]]] = {
    ("transformers.trainer", "train"): of_transformers,
    ("lightning.pytorch.trainer.trainer", "fit"): of_lightning,
    ("pytorch_lightning.trainer.trainer", "fit"): of_lightning,
    ("skorch.net", "partial_fit"): _of_skorch,
    ("fastai.learner", "fit"): _of_fastai,
    ("accelerate.optimizer", "step"): _of_wrapped_optimizer,
}
