"""HST006 in traces: averages of a model's parameters, by their names and all at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.nodes import GRADIENT
from perf_diagnostics.diagnose.trace.rules.hst006_time_outside_phases import OperatorsOutsidePhases
from tests.diagnose.answers import found, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import X, net, recorded

Average = Callable[[nn.Module, nn.Module], None]
AGAIN = "tensors detached again"


@torch.no_grad()
def by_names(average: nn.Module, model: nn.Module) -> None:
    for name in model.state_dict():
        mine, new = average.state_dict()[name], model.state_dict()[name]
        mine.copy_(mine * 0.9 + new * 0.1)


@torch.no_grad()
def of_two_states(average: nn.Module, model: nn.Module) -> None:
    states = average.state_dict(), model.state_dict()
    for name, mine in states[0].items():
        mine.copy_(mine * 0.9 + states[1][name] * 0.1)


@torch.no_grad()
def one_by_one(average: nn.Module, model: nn.Module) -> None:
    for mine, new in zip(average.parameters(), model.parameters(), strict=True):
        for _ in range(8):  # enough of them for a loop
            mine.mul_(0.9).add_(new, alpha=0.1)


def training(average: Average, layers: int = 16) -> Callable[[], None]:
    model = net(layers)
    optimizer, other = torch.optim.SGD(model.parameters(), lr=0.01), copy.deepcopy(model)

    def step() -> None:
        model(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        average(other, model)

    return step


def test_a_state_that_is_asked_for_again_and_again_is_told_first(tmp_path: Path) -> None:
    rule = OperatorsOutsidePhases(info_share=1e-6, warn_share=1e-6, small_s=1.0)
    finding = found(ask(rule, recorded(training(by_names), tmp_path)))
    share, again = (number(finding, one) for one in (finding.evidence[0].metric, AGAIN))
    assert isinstance(share.value, float) and isinstance(again.value, float)
    assert 0 < again.value <= share.value
    assert "detaching tensors again, as state_dict() does" in finding.summary
    assert finding.remedies[0].says.startswith("state_dict() goes through all modules")
    assert finding.recoverable is not None and finding.recoverable.low > 0


@pytest.mark.parametrize(("each", "severity"), [(0.5, Severity.INFO), (2.0, Severity.WARNING)])
def test_what_detaching_again_takes_decides(each: float, severity: Severity, tmp_path: Path) -> None:
    """Ten times twelve tensors one after the other, of a model with one gradient."""

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::linear", start, start + 50, **{"Sequence number": 7})
        builder.operator(f"{ENGINE}AddmmBackward0", start + 60, start + 90, **{"Sequence number": 7})
        builder.operator(ENGINE + GRADIENT, start + 90, start + 95).operator(GRADIENT, start + 91, start + 94)
        builder.note("Optimizer.step#SGD.step", start + 100, start + 120)
        for at in range(10):
            begin = start + 130 + at * 60
            for place in range(12):
                builder.operator("aten::detach", begin + place * each, begin + place * each + each / 2)
            builder.operator("aten::mul", begin + 12 * each, begin + 12 * each + 10)
            builder.operator("aten::mul", begin + 12 * each + 10, begin + 12 * each + 20)

    facts = repeated(1000, 5, fill, deviceProperties=[]).facts(tmp_path)
    finding = found(ask(OperatorsOutsidePhases(info_share=0.02, many=100), facts))
    assert finding.severity is severity
    assert number(finding, AGAIN).value == pytest.approx(12 * each, rel=0.02)


@pytest.mark.parametrize("average", [of_two_states, one_by_one])
def test_of_others_averages_all_at_once_are_the_first_advice(average: Average, tmp_path: Path) -> None:
    finding = found(ask(OperatorsOutsidePhases(info_share=0.001, many=50), recorded(training(average), tmp_path)))
    assert finding.severity is Severity.INFO and "again" not in finding.summary
    assert "torch._foreach_lerp_" in finding.remedies[0].says
    assert finding.recoverable is not None and finding.recoverable.low == 0


def test_a_state_that_is_asked_for_once_is_not_asked_for_again(tmp_path: Path) -> None:
    """Of a body that nobody trains it has many more tensors than there are gradients."""
    body, head = net(40).requires_grad_(requires_grad=False), nn.Linear(128, 4)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01)

    def step() -> None:
        with torch.no_grad():
            features = body(X)
        head(features.flatten(1)[:, :128]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        [one.mean() for one in body.state_dict().values()].clear()

    finding = found(ask(OperatorsOutsidePhases(info_share=1e-6, many=20), recorded(step, tmp_path)))
    assert "again" not in finding.summary
