"""Trained models that are compiled in place, in a script that does not compile."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from perf_diagnostics.integrations.again import compiled_calls
from perf_diagnostics.integrations.again.compiled_calls import CompiledCalls
from perf_diagnostics.measure.module_calls import is_compiled


class Graphs:
    """Stands for torch's counter of graphs."""

    count = 0

    def __call__(self) -> int:
        return self.count


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    graphs = Graphs()
    monkeypatch.setattr(compiled_calls, "CompiledGraphs", lambda: graphs)
    return graphs


@pytest.fixture(autouse=True)
def modes(monkeypatch: pytest.MonkeyPatch, graphs: Graphs) -> list[str]:
    """The modes of what was compiled; what stands for torch.compile makes a graph with each call."""
    modes: list[str] = []

    def compiled(function: Callable[..., Any], *, mode: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            graphs.count += 1
            return function(*args, **kwargs)

        modes.append(mode)
        return call

    monkeypatch.setattr(torch, "compile", compiled)
    return modes


def test_a_model_is_compiled_where_it_lies(modes: list[str]) -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.ones(1, 2)
    alone = model(x)
    calls = CompiledCalls("max-autotune")
    calls.put_into(model)
    assert calls.without_effect == "no call of a trained model was met"
    assert torch.equal(model(x), alone)
    assert modes == ["max-autotune"] and is_compiled(model) and not calls.without_effect


def test_a_model_is_compiled_once_and_so_is_what_is_around_it(modes: list[str]) -> None:
    inner = torch.nn.Linear(2, 2)
    calls = CompiledCalls("default")
    calls.put_into(inner)
    calls.put_into(inner)
    calls.put_into(torch.nn.Sequential(inner))
    inner(torch.ones(1, 2))
    assert modes == ["default"] and not calls.without_effect


def test_a_script_that_compiles_its_model_or_a_part_of_it_is_left_alone(modes: list[str]) -> None:
    part = torch.nn.Linear(2, 2)
    part.compile(mode="of its own")
    calls = CompiledCalls("default")
    calls.put_into(torch.nn.Sequential(part))
    assert modes == ["of its own"] and calls.without_effect == "the script compiles by itself"


def test_a_script_that_has_compiled_functions_is_left_alone(graphs: Graphs, modes: list[str]) -> None:
    calls, graphs.count = CompiledCalls("default"), 1
    calls.put_into(torch.nn.Linear(2, 2))
    assert not modes and calls.without_effect == "the script compiles by itself"


def test_a_model_of_which_no_graph_is_made_was_not_compiled(graphs: Graphs) -> None:
    model = torch.nn.Linear(2, 2)
    calls = CompiledCalls("default")
    calls.put_into(model)
    model(torch.ones(1, 2))
    graphs.count = 0
    assert calls.without_effect == "torch.compile made no graph of the model"


def test_a_model_that_the_script_lets_go_is_gone() -> None:
    model = torch.nn.Linear(2, 2)
    calls, gone = CompiledCalls("default"), weakref.ref(model)
    calls.put_into(model)
    del model
    gc.collect()
    assert gone() is None


def test_copies_of_a_model_are_not_compiled(modes: list[str]) -> None:
    calls = CompiledCalls("default")
    calls.put_into(torch.nn.DataParallel(torch.nn.Linear(2, 2)))
    assert not modes and calls.without_effect == "DataParallel copies the model for each call"


def test_what_lies_in_a_wrapper_for_several_ranks_is_compiled(modes: list[str]) -> None:
    wrapper = DistributedDataParallel.__new__(DistributedDataParallel)  # without the process group that it needs
    torch.nn.Module.__init__(wrapper)
    wrapper.module = torch.nn.Linear(2, 2)
    CompiledCalls("default").put_into(wrapper)
    assert modes == ["default"] and is_compiled(wrapper.module) and not is_compiled(wrapper)
