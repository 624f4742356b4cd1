"""Trained models that are called in an autocast region, in a script that has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch

from perf_diagnostics.integrations.again.autocast_calls import AutocastCalls


class Model(torch.nn.Module):
    """Gives what it computes, its type, and something that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.seen: list[torch.dtype] = []

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y = self.layer(x)
        self.seen.append(y.dtype)
        return {"of": [y, "text"], "rows": torch.arange(2)}


class RegionInside(Model):
    enabled = True

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.enabled):
            return super().forward(x)


@pytest.fixture
def patches() -> Iterator[ExitStack]:
    with ExitStack() as patches:
        yield patches


@pytest.fixture
def told() -> list[torch.dtype]:
    return []


@pytest.fixture
def calls(patches: ExitStack, told: list[torch.dtype]) -> AutocastCalls:
    return AutocastCalls(torch.bfloat16, told.append, patches)


def test_a_model_computes_in_16_bits_and_gives_32(calls: AutocastCalls, told: list[torch.dtype]) -> None:
    model, x = Model(), torch.ones(1, 2)
    calls.put_into(model)
    assert calls.without_effect == "no call of a trained model was met"
    for _ in range(2):
        given = model(x)
        y, text = given["of"]
        assert (y.dtype, text, given["rows"].dtype) == (torch.float32, "text", torch.int64)
        y.sum().backward()
    assert model.seen == [torch.bfloat16] * 2 and told == [torch.bfloat16]
    assert model.layer.weight.grad is not None and model.layer.weight.grad.dtype == torch.float32
    assert not torch.is_autocast_enabled("cpu")
    assert not calls.without_effect


def test_a_model_inside_another_one_gives_what_it_computes(calls: AutocastCalls) -> None:
    inner = torch.nn.Linear(2, 2)
    outer = torch.nn.Sequential(inner)
    calls.put_into(inner)
    calls.put_into(outer)
    seen: list[torch.dtype] = []
    inner.register_forward_hook(lambda _module, _given, y: seen.append(y.dtype))
    assert outer(torch.ones(1, 2)).dtype == torch.float32
    assert seen == [torch.bfloat16] and not calls.without_effect


def test_a_region_of_the_script_around_its_model_stays_the_only_one(calls: AutocastCalls) -> None:
    model = Model()
    calls.put_into(model)
    with torch.autocast("cpu", dtype=torch.float16):
        assert model(torch.ones(1, 2))["of"][0].dtype == torch.float16
    assert calls.without_effect == "the script has an autocast region of its own"


@pytest.mark.parametrize(("enabled", "why"), [(True, "the script has an autocast region of its own"), (False, "")])
def test_a_region_of_the_script_inside_its_model_is_told(enabled: bool, why: str, calls: AutocastCalls) -> None:
    model = RegionInside()
    model.enabled = enabled
    calls.put_into(model)
    model(torch.ones(1, 2))
    assert calls.without_effect == why


def test_parameters_in_16_bits_are_told(calls: AutocastCalls) -> None:
    model = torch.nn.Linear(2, 2).bfloat16()
    calls.put_into(model)
    model(torch.ones(1, 2))
    assert calls.without_effect == "the model has parameters in bfloat16"


def test_a_call_that_raises_leaves_no_region_behind(calls: AutocastCalls) -> None:
    model = Model()
    calls.put_into(model)
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 3))
    assert not torch.is_autocast_enabled("cpu")
    model(torch.ones(1, 2))
    assert model.seen == [torch.bfloat16]


def test_regions_are_looked_for_no_longer_afterwards(patches: ExitStack, calls: AutocastCalls) -> None:
    replaced = torch.autocast.__enter__
    patches.close()
    assert torch.autocast.__enter__ is not replaced
