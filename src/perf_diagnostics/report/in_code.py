"""How a change is written: as settings of a sweep, or as what a script of one's own says for it.

A script in a framework says it in another place than one in plain torch: :data:`_IN` has both, by our settings. The
names of arguments are those of transformers 4.46 to 5.23, Lightning 2.4 to 2.6, Accelerate 1.1 to 1.15, skorch 1.4 and
fastai 2.8; one that the record does not say the training had is not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perf_diagnostics.diagnose.finding import Diagnosis, Remedy, Tried
from perf_diagnostics.diagnose.framework import Framework
from perf_diagnostics.records import COMPILE_MODES, Json
from perf_diagnostics.report.words import change_in_code


@dataclass(frozen=True)
class _Says:
    """What a setting is said by: a statement, or arguments of a call (empty: of what takes the framework's).

    ``same`` is the argument that takes the setting's own value. A statement needs ``method`` to be there.
    """

    call: str = ""
    same: str = ""
    arguments: Mapping[str, Json] = field(default_factory=dict)
    statement: str = ""
    method: str = ""

    def written(self, value: Json) -> dict[str, Json]:
        """The arguments with their values."""
        return {self.same: value} if self.same else dict(self.arguments)


def _same(argument: str, call: str = "") -> _Says:
    return _Says(call, argument)


def _set(**arguments: Json) -> _Says:
    return _Says(arguments=arguments)


#: What decides how many workers load decides about the loader's other settings, too.
_OF_THE_LOADER = ("num_workers", "persistent_workers", "pin_memory", "prefetch_factor")

#: What a script says for a setting (``name``), or for one value of it (``name=value``), by framework; the first that
#: the framework has. Plain torch is "".
_IN: Mapping[str, Mapping[str, tuple[_Says, ...]]] = {
    "": {
        **{name: (_same(name, "DataLoader"),) for name in _OF_THE_LOADER},
        "optimizer_implementation=fused": (_Says(statement="fused=True"),),
        "optimizer_implementation=foreach": (_Says(statement="foreach=True"),),
        "threads": (_Says(statement="torch.set_num_threads({})"),),
        "compile_mode=default": (_Says(statement="model = torch.compile(model)"),),
        "compile_mode": (_Says(statement="model = torch.compile(model, mode={!r})"),),
        "masks_from_bits=True": (_Says(statement="perf_diagnostics.masks_from_bits()"),),
        "flush_denormals=True": (_Says(statement="torch.set_flush_denormal(True)"),),
        "keep_freed_memory=True": (_Says(statement="MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 python …"),),
    },
    "transformers": {
        **{name: (_same(f"dataloader_{name}"),) for name in _OF_THE_LOADER},
        "batch_size": (_same("per_device_train_batch_size"),),
        "accumulation_steps": (_same("gradient_accumulation_steps"),),
        "gradient_checkpointing": (_same("activation_checkpointing"), _same("gradient_checkpointing")),
        "length_bucketing=True": (_set(train_sampling_strategy="group_by_length"), _set(group_by_length=True)),
        "precision=bfloat16": (_set(bf16=True),),
        "precision=float16": (_set(fp16=True),),
        "precision=tf32": (_set(tf32=True),),
        "optimizer_implementation=fused": (_set(optim="adamw_torch_fused"),),
        "compile_mode=default": (_set(torch_compile=True),),
        "compile_mode": (_same("torch_compile_mode"),),
    },
    "lightning": {
        "accumulation_steps": (_same("accumulate_grad_batches"),),
        "precision=bfloat16": (_set(precision="bf16-mixed"),),
        "precision=float16": (_set(precision="16-mixed"),),
    },
    "accelerate": {
        "accumulation_steps": (_same("gradient_accumulation_steps"),),
        "precision=bfloat16": (_set(mixed_precision="bf16"),),
        "precision=float16": (_set(mixed_precision="fp16"),),
    },
    "skorch": {
        **{name: (_same(f"iterator_train__{name}"),) for name in _OF_THE_LOADER},
        "batch_size": (_same("batch_size"),),
        "optimizer_implementation=fused": (_set(optimizer__fused=True),),
        "optimizer_implementation=foreach": (_set(optimizer__foreach=True),),
        "compile_mode=default": (_set(compile=True),),
        **{f"compile_mode={mode}": (_set(compile=True, compile__mode=mode),) for mode in COMPILE_MODES[1:]},
    },
    "fastai": {
        **{name: (_same(name),) for name in ("num_workers", "persistent_workers", "pin_memory")},
        "batch_size": (_same("bs"),),
        "precision=bfloat16": (_Says(statement="learn.to_bf16()", method="to_bf16"),),
        "precision=float16": (_Says(statement="learn.to_fp16()", method="to_fp16"),),
    },
}


def in_code(remedy: Remedy | Tried, diagnosis: Diagnosis) -> str:
    """The change that carries a remedy out, in code; "" where its words have to do."""
    setting = diagnosis.setting_of(remedy)
    return change_in_code(setting) if setting else _in_a_script(remedy.change, diagnosis.framework)


def _in_a_script(change: Mapping[str, Json], framework: Framework) -> str:
    """What a script says for settings; "" where there is no saying for one of them.

    >>> _in_a_script({"num_workers": 8, "persistent_workers": True}, Framework())
    'DataLoader(…, num_workers=8, persistent_workers=True)'
    >>> _in_a_script({"optimizer_implementation": "fused"}, Framework()), _in_a_script({"batch_size": 8}, Framework())
    ('fused=True', '')
    """
    calls: dict[str, dict[str, Json]] = {}
    for name, given in change.items():
        value = False if name == "persistent_workers" and given is None else given
        says = _said(name, value, framework)
        if says is None:
            return ""
        if says.statement:
            calls[says.statement.format(value)] = {}
        else:
            calls.setdefault(says.call or framework.owner, {}).update(says.written(value))
    if framework.owner in calls:
        calls |= _besides(calls[framework.owner], framework)
    return "; ".join(f"{call}(…, {change_in_code(given)})" if given else call for call, given in calls.items())


def _said(name: str, value: Json, framework: Framework) -> _Says | None:
    """What the framework is told by, as far as it decides; else what torch is told by."""
    if name in _OF_THE_LOADER:
        first = _OF_THE_LOADER[0]
        theirs = _of_framework(first, framework.measured.get(first), framework)
        if theirs is not None:
            return theirs if name == first else _of_framework(name, value, framework)
        return _known("", name, value)[0]
    return _of_framework(name, value, framework) or next(iter(_known("", name, value)), None)


def _of_framework(name: str, value: Json, framework: Framework) -> _Says | None:
    known = _known(framework.name, name, value) if framework.name else ()
    return next((says for says in known if _decides(says, name, value, framework)), None)


def _decides(says: _Says, name: str, value: Json, framework: Framework) -> bool:
    """Whether the framework has what says it, and the setting is what that was set to."""
    if says.statement:
        return says.method in framework.arguments
    return all(framework.decides(name if says.same else "", argument) for argument in says.written(value))


def _known(framework: str, name: str, value: Json) -> tuple[_Says, ...]:
    said = _IN.get(framework, {})
    return said.get(f"{name}={value}") or said.get(name, ())


def _besides(told: Mapping[str, Json], framework: Framework) -> dict[str, dict[str, Json]]:
    """What has to be said besides, so that what is told can be followed."""
    had = framework.arguments
    more = dict(told)
    for chosen, other in (("bf16", "fp16"), ("fp16", "bf16")):
        if chosen in told and had.get(other):  # TrainingArguments refuses both
            more[other] = False
    if "bf16" in told and had.get("use_cpu") is False:  # nor does it take bf16 on the CPU that it chose itself
        more["use_cpu"] = True
    besides = {framework.owner: more}
    if framework.name == "accelerate" and "gradient_accumulation_steps" in told:  # alone it only divides the loss
        besides["with accelerator.accumulate(model):"] = {}
    return besides
