"""What a script says for a change of settings: in plain torch, and where its framework is told."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.finding import Diagnosis, Remedy
from perf_diagnostics.diagnose.framework import Framework, framework_of
from perf_diagnostics.records import Json, Run
from perf_diagnostics.report.in_code import in_code

WORKERS: dict[str, Json] = {"num_workers": 8, "persistent_workers": True}
FUSED: dict[str, Json] = {"optimizer_implementation": "fused"}
BFLOAT16: dict[str, Json] = {"precision": "bfloat16"}
HALF_TWICE: dict[str, Json] = {"batch_size": 4, "accumulation_steps": 2}
CHECKPOINT: dict[str, Json] = {"gradient_checkpointing": True}
COMPILE: dict[str, Json] = {"compile_mode": "reduce-overhead"}
PLAIN = "DataLoader(…, num_workers=8, persistent_workers=True)"

#: What was measured of a training with these frameworks, and the arguments that their records have of it.
MEASURED: dict[str, Json] = {"batch_size": 8, "accumulation_steps": 1, "num_workers": 0}
TRANSFORMERS: dict[str, Json] = {
    **{"dataloader_num_workers": 0, "dataloader_persistent_workers": False, "dataloader_prefetch_factor": None},
    **{"dataloader_pin_memory": True, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1},
    **{"bf16": False, "fp16": False, "torch_compile": False, "torch_compile_mode": None, "optim": "adamw_torch"},
    **{"activation_checkpointing": None, "train_sampling_strategy": "random"},
}
OLD_TRANSFORMERS: dict[str, Json] = {"gradient_checkpointing": False, "group_by_length": False}
SKORCH: dict[str, Json] = {
    **{"iterator_train__num_workers": 0, "iterator_train__persistent_workers": None, "batch_size": 8},
    **{"optimizer__fused": None, "compile": False, "compile__mode": None},
}


def of(name: str, owner: str, arguments: dict[str, Json], **measured: Json) -> Framework:
    return Framework(name=name, owner=owner, arguments=arguments, measured={**MEASURED, **measured})


TRAINER = of("transformers", "TrainingArguments", TRANSFORMERS)
LIGHTNING = of("lightning", "Trainer", {"precision": "32-true", "accumulate_grad_batches": 1})
BY_HAND = of("lightning", "Trainer", {"precision": "32-true"})
ACCELERATOR = of("accelerate", "Accelerator", {"mixed_precision": "no", "gradient_accumulation_steps": 1})
NET = of("skorch", "NeuralNetClassifier", SKORCH)
LEARNER = of("fastai", "dataloaders", {"num_workers": 0, "persistent_workers": None, "bs": 8, "to_bf16": None})


def told(change: dict[str, Json], framework: Framework) -> str:
    diagnosis = Diagnosis(verdict=None, takes_settings=False, framework=framework)
    return in_code(Remedy("Do it.", change), diagnosis)


@pytest.mark.parametrize(
    ("framework", "change", "words"),
    [
        (Framework(), WORKERS, PLAIN),
        (Framework(), {"num_workers": 2, "threads": 1}, "DataLoader(…, num_workers=2); torch.set_num_threads(1)"),
        (Framework(), COMPILE, "model = torch.compile(model, mode='reduce-overhead')"),
        (Framework(), BFLOAT16, ""),
        (TRAINER, WORKERS, "TrainingArguments(…, dataloader_num_workers=8, dataloader_persistent_workers=True)"),
        (
            TRAINER,
            {"num_workers": 0, "persistent_workers": None},
            "TrainingArguments(…, dataloader_num_workers=0, dataloader_persistent_workers=False)",
        ),
        (TRAINER, {"pin_memory": True}, "TrainingArguments(…, dataloader_pin_memory=True)"),
        (TRAINER, FUSED, "TrainingArguments(…, optim='adamw_torch_fused')"),
        (TRAINER, {"optimizer_implementation": "foreach"}, "foreach=True"),
        (TRAINER, BFLOAT16, "TrainingArguments(…, bf16=True)"),
        (TRAINER, COMPILE, "TrainingArguments(…, torch_compile_mode='reduce-overhead')"),
        (TRAINER, {"compile_mode": "default"}, "TrainingArguments(…, torch_compile=True)"),
        (TRAINER, CHECKPOINT, "TrainingArguments(…, activation_checkpointing=True)"),
        (TRAINER, {"length_bucketing": True}, "TrainingArguments(…, train_sampling_strategy='group_by_length')"),
        (TRAINER, {"threads": 2}, "torch.set_num_threads(2)"),
        (
            TRAINER,
            HALF_TWICE,
            "TrainingArguments(…, per_device_train_batch_size=4, gradient_accumulation_steps=2)",
        ),
        (LIGHTNING, BFLOAT16, "Trainer(…, precision='bf16-mixed')"),
        (LIGHTNING, {"precision": "float16"}, "Trainer(…, precision='16-mixed')"),
        (LIGHTNING, {"accumulation_steps": 2}, "Trainer(…, accumulate_grad_batches=2)"),
        (BY_HAND, {"accumulation_steps": 2}, ""),
        (LIGHTNING, WORKERS, PLAIN),
        (LIGHTNING, FUSED, "fused=True"),
        (ACCELERATOR, BFLOAT16, "Accelerator(…, mixed_precision='bf16')"),
        (
            ACCELERATOR,
            {"accumulation_steps": 2},
            "Accelerator(…, gradient_accumulation_steps=2); with accelerator.accumulate(model):",
        ),
        (ACCELERATOR, WORKERS, PLAIN),
        (
            NET,
            WORKERS,
            "NeuralNetClassifier(…, iterator_train__num_workers=8, iterator_train__persistent_workers=True)",
        ),
        (NET, FUSED, "NeuralNetClassifier(…, optimizer__fused=True)"),
        (NET, COMPILE, "NeuralNetClassifier(…, compile=True, compile__mode='reduce-overhead')"),
        (NET, {"batch_size": 16}, "NeuralNetClassifier(…, batch_size=16)"),
        (LEARNER, WORKERS, "dataloaders(…, num_workers=8, persistent_workers=True)"),
        (LEARNER, {"prefetch_factor": 4}, ""),  # its loaders take none
        (LEARNER, BFLOAT16, "learn.to_bf16()"),
        (LEARNER, {"precision": "float16"}, ""),  # this learner has no such method
        (LEARNER, {"batch_size": 16}, "dataloaders(…, bs=16)"),
    ],
)
def test_a_setting_is_said_where_the_framework_takes_it(framework: Framework, change, words: str) -> None:
    assert told(change, framework) == words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (CHECKPOINT, "TrainingArguments(…, gradient_checkpointing=True)"),
        ({"length_bucketing": True}, "TrainingArguments(…, group_by_length=True)"),
        (FUSED, "fused=True"),
        (WORKERS, PLAIN),
    ],
)
def test_only_arguments_are_told_that_the_training_had(change: dict[str, Json], words: str) -> None:
    assert told(change, of("transformers", "TrainingArguments", OLD_TRANSFORMERS)) == words


@pytest.mark.parametrize(
    ("measured", "change", "words"),
    [
        ({"num_workers": 4}, {"num_workers": 8}, "DataLoader(…, num_workers=8)"),
        ({"num_workers": 4}, {"pin_memory": True}, "DataLoader(…, pin_memory=True)"),
        ({"batch_size": 16}, {"batch_size": 32}, ""),  # two devices of 8 each, or a loader of the user's own
        ({"accumulation_steps": 3}, {"accumulation_steps": 6}, ""),
        ({"num_workers": None}, {"num_workers": 8}, "TrainingArguments(…, dataloader_num_workers=8)"),  # not seen
    ],
)
def test_an_argument_that_did_not_decide_what_was_measured_is_not_told(measured, change, words: str) -> None:
    assert told(change, of("transformers", "TrainingArguments", TRANSFORMERS, **measured)) == words


def test_what_the_arguments_refuse_together_is_told_apart() -> None:
    both = {**TRANSFORMERS, "fp16": True, "use_cpu": False}
    assert told(BFLOAT16, of("transformers", "TrainingArguments", both)) == (
        "TrainingArguments(…, bf16=True, fp16=False, use_cpu=True)"
    )
    assert told({"precision": "float16"}, of("transformers", "TrainingArguments", {**TRANSFORMERS, "bf16": True})) == (
        "TrainingArguments(…, fp16=True, bf16=False)"
    )


def with_facts(run: Run, **facts: Json) -> Run:
    return dataclasses.replace(run, results=(dataclasses.replace(run.results[0], facts=facts),))


def test_the_framework_is_read_from_the_record(run: Run) -> None:
    arguments: dict[str, Json] = {"precision": "32-true"}
    facts = {"framework": "pytorch_lightning 2.6.6", "framework_arguments": arguments, "num_workers": 3}
    found = framework_of(with_facts(run, **facts, framework_arguments_of="Trainer"))
    assert (found.name, found.owner, found.arguments) == ("lightning", "Trainer", arguments)
    settings = run.results[0].trial.settings
    assert found.measured == {"batch_size": settings.batch_size, "accumulation_steps": 1, "num_workers": 3}


def test_a_record_of_before_names_no_arguments(run: Run) -> None:
    assert framework_of(with_facts(run)) == Framework()
    assert told(WORKERS, framework_of(with_facts(run, framework="transformers 5.23.0"))) == PLAIN
