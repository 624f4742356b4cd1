"""Plain facts about models: shapes, layouts, attention, wrappers, flags; and that looking leaves nothing behind."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure import model_scan
from perf_diagnostics.measure.model_scan import scan
from perf_diagnostics.measure.module_calls import TimedCalls


def test_odd_sizes_by_their_part_of_the_parameters() -> None:
    model = nn.Sequential(nn.Linear(16, 32, bias=False), nn.Linear(32, 7, bias=False))
    facts = scan(model)
    # 512 parameters in an even layer, 224 in an odd one.
    assert facts["misaligned_parameter_share"] == pytest.approx(224 / 736)
    assert facts["misaligned_layers"] == {"1": [32, 7]}


def test_even_sizes_are_zero_and_no_linear_layer_is_absent() -> None:
    assert scan(nn.Linear(16, 32))["misaligned_parameter_share"] == 0
    assert "misaligned_parameter_share" not in scan(nn.BatchNorm1d(5))


def test_a_tied_table_counts_once_and_gives_the_vocabulary() -> None:
    table, scores = nn.Embedding(101, 16), nn.Linear(16, 101, bias=False)
    scores.weight = table.weight
    facts = scan(nn.ModuleList([table, scores]))
    assert facts["vocabulary"] == 101
    assert facts["misaligned_parameter_share"] == 1.0


def test_many_odd_layers_are_named_by_the_first() -> None:
    named = scan(nn.Sequential(*(nn.Linear(3, 3) for _ in range(50))))["misaligned_layers"]
    assert isinstance(named, dict) and len(named) == 8


@pytest.mark.parametrize(
    ("layout", "says"), [(torch.contiguous_format, "contiguous"), (torch.channels_last, "channels_last")]
)
def test_memory_format_of_filters(layout: torch.memory_format, says: str) -> None:
    model: Any = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
    assert scan(model.to(memory_format=layout))["conv_memory_format"] == says


def test_one_by_one_filters_have_no_format() -> None:
    assert "conv_memory_format" not in scan(nn.Conv2d(3, 8, 1))


def test_biases_before_norms() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),  # wasted
        nn.Conv2d(8, 8, 3, bias=False),
        nn.BatchNorm2d(8),  # right
        nn.Conv2d(8, 4, 3),
        nn.ReLU(),
        nn.BatchNorm2d(4),  # not next to it
    )
    facts = scan(model)
    assert facts["conv_bias_before_norm"] == 1
    assert facts["convolutions"] == 3
    assert "convolutions" not in scan(nn.Linear(8, 8))


class EagerAttention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.transpose(-1, -2), -1) @ x


class FusedAttention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(x, x, x)


class Configured(nn.Module):
    config = SimpleNamespace(_attn_implementation="flash_attention_2")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (nn.Sequential(EagerAttention()), "eager"),
        (nn.Sequential(FusedAttention()), "sdpa"),
        (Configured(), "flash_attention_2"),
        (nn.TransformerEncoderLayer(8, 2), "sdpa"),
        (nn.MultiheadAttention(8, 2), None),  # depends on whether its caller wants the weights
        (nn.Linear(8, 8), None),
    ],
)
def test_attention_by_what_is_written(model: nn.Module, says: str | None) -> None:
    assert scan(model).get("attention") == says


def test_wrappers() -> None:
    layer: Any = nn.Linear(8, 8)
    assert scan(layer)["compiled"] is False
    assert scan(torch.compile(layer, backend="eager"))["compiled"] is True  # type: ignore[arg-type]
    own: Any = nn.Linear(8, 8)
    own.compile(backend="eager")
    assert scan(own)["compiled"] is True
    # In parts: where they hold all parameters, what calls them calls nothing else of weight.
    assert scan(nn.Sequential(own, nn.ReLU()))["compiled"] is True
    assert scan(nn.Sequential(own, nn.Linear(8, 8)))["compiled"] is False
    assert scan(nn.Sequential(own, torch.compile(layer, backend="eager")))["compiled"] is True  # type: ignore[arg-type]
    assert scan(nn.Sequential(nn.ReLU()))["compiled"] is False
    assert scan(nn.DataParallel(layer))["data_parallel"] == "DataParallel"
    assert "data_parallel" not in scan(layer)


def test_a_call_that_somebody_watches_is_not_compiled() -> None:
    model = nn.Linear(8, 8)

    def watched(*args: Any) -> Any:
        return model._call_impl(*args)

    model._compiled_call_impl = watched  # type: ignore[assignment]
    assert scan(model)["compiled"] is False


def test_a_compiled_call_that_is_watched_stays_compiled() -> None:
    model: Any = nn.Linear(8, 8)
    model.compile(backend="eager")
    compiled = model._compiled_call_impl
    timed = TimedCalls(model, functools.partial(compiled))
    assert model._compiled_call_impl is not compiled and scan(model)["compiled"] is True
    timed()
    assert model._compiled_call_impl is compiled


def test_checkpointing_by_transformers_flag() -> None:
    model = nn.Linear(8, 8)
    assert "gradient_checkpointing" not in scan(model)
    model.gradient_checkpointing = True  # type: ignore[assignment]
    assert scan(model)["gradient_checkpointing"] is True


def test_flags_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = scan(nn.Linear(1, 1))
    assert [quiet[name] for name in ("anomaly_detection", "deterministic_algorithms", "autograd_profiler")] == [
        False
    ] * 3
    assert quiet["matmul_precision"] == "highest" and quiet["parameter_types"] == ["float32"]
    with torch.autograd.set_detect_anomaly(True), torch.profiler.profile():
        loud = scan(nn.Linear(1, 1))
    assert loud["anomaly_detection"] is True and loud["autograd_profiler"] is True
    shell = {"CUDA_LAUNCH_BLOCKING": "1", "TORCH_DISTRIBUTED_DEBUG": "detail"}
    found = model_scan._process(nn.Linear(1, 1), shell)
    assert found["cuda_launch_blocking"] is True and found["distributed_debug"] == "DETAIL"
    assert model_scan._process(nn.Linear(1, 1), {"CUDA_LAUNCH_BLOCKING": "0"})["cuda_launch_blocking"] is False


def test_the_optimizer_by_its_tensors() -> None:
    model = nn.Linear(8, 8)
    facts = scan(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert facts["optimizer_tensors"] == 2
    assert facts["optimizer_groups"] == facts["optimizer_group_settings"] == 1


def test_groups_with_the_same_settings_are_told() -> None:
    layers = [nn.Linear(8, 8) for _ in range(4)]
    groups = [
        {"params": [one], "lr": 0.1 * (1 + number // 2), "weight_decay": float(one.ndim > 1), "name": f"{number}"}
        for number, layer in enumerate(layers)
        for one in layer.parameters()
    ]
    facts = scan(nn.Sequential(*layers), torch.optim.AdamW(groups))
    assert (facts["optimizer_groups"], facts["optimizer_group_settings"]) == (8, 4)


def test_looking_leaves_nothing_behind() -> None:
    model = nn.Sequential(nn.Linear(8, 8), EagerAttention())
    before = [{name: id(value) for name, value in vars(module).items()} for module in model.modules()]
    scan(model)
    assert [{name: id(value) for name, value in vars(module).items()} for module in model.modules()] == before
