"""Which hooks on modules are the user's own functions, and on how many modules each of them is."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.record import flush_times
from perf_diagnostics.measure.code.user_hooks import user_hooks


def look(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
    assert output.isfinite().all()


def double(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
    return 2 * output


def log(_name: str, _module: Any, _inputs: Any, _output: Any) -> None:
    return


class Logger:
    def __call__(self, *_given: Any) -> None:
        return None

    def method(self, *_given: Any) -> None:
        return None


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))


def told(of: torch.nn.Module) -> dict[str, Any]:
    return {one["function"]: (one["modules"], one["called"], one["returns"]) for one in user_hooks([of])}  # type: ignore[index, call-overload]


def test_a_model_without_hooks_has_none() -> None:
    assert user_hooks([model()]) == []


def test_functions_are_told_with_their_modules_and_when_they_are_called() -> None:
    net = model()
    for module in net:
        module.register_forward_hook(look)
    net[0].register_forward_hook(double)
    net[2].register_full_backward_hook(look)
    net[2].register_full_backward_hook(look)  # twice on one module
    assert told(net) == {
        "look": (4, ["after forward", "after backward"], False),
        "double": (1, ["after forward"], True),
    }
    (first, _) = user_hooks([net])
    assert isinstance(first, dict)
    assert Path(str(first["file"])).name == "test_user_hooks.py" and first["line"] == look.__code__.co_firstlineno


def test_partials_methods_objects_and_decorated_functions_are_looked_through() -> None:
    net, logger = model(), Logger()
    net[0].register_forward_hook(functools.partial(log, "first"))
    net[0].register_forward_pre_hook(logger)
    net[2].register_forward_hook(logger.method)
    net[2].register_forward_hook(torch.no_grad()(look))
    assert told(net) == {
        "log": (1, ["after forward"], False),
        "Logger.__call__": (1, ["before forward"], False),
        "Logger.method": (1, ["after forward"], False),
        "look": (1, ["after forward"], False),
    }


def test_hooks_of_libraries_are_none_of_the_users() -> None:
    net = model()
    net[0] = torch.nn.utils.spectral_norm(net[0])
    net[2].register_forward_hook(print)
    net[2].register_forward_hook(torch.nn.Identity())
    assert any(module._forward_pre_hooks for module in net)
    assert user_hooks([net]) == []


def test_a_watched_training_tells_them_also_where_they_come_off_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_times, "FIRST_FLUSH_NS", 0)
    net = model()
    handle = net[0].register_forward_hook(look)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with attach(net, optimizer, results_dir=tmp_path, quiet=True) as seen:
        for step in range(6):
            net(torch.randn(4, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 4:
                handle.remove()
    (one,) = seen.run.results[0].facts["user_hooks"]
    assert (one["function"], one["modules"]) == ("look", 1)
