"""HST008 in traces: anomaly detection as torch's own profiler shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.rules.hst008_debug_settings import AnomalyDetection
from tests.diagnose.answers import clear, found, number
from tests.diagnose.trace.builder import ask
from tests.diagnose.trace.test_nodes_of_torch import X, net, recorded


def training(*, hook: bool = False) -> Callable[[], None]:
    """With a hook each parameter's gradient is looked at by the script itself."""
    model = net(6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if hook:
        first = next(model.parameters())
        first.register_hook(lambda grad: None if grad.isnan().any() else grad)

    def step() -> None:
        model(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def test_looks_after_each_node_are_anomaly_detection(tmp_path: Path) -> None:
    with torch.autograd.set_detect_anomaly(True):
        facts = recorded(training(), tmp_path)
    finding = found(ask(AnomalyDetection(), facts))
    assert finding.severity is Severity.WARNING and "set_detect_anomaly(False)" in finding.remedies[0].says
    calls = number(finding, "looks for anomalies a step").value
    assert isinstance(calls, float) and calls >= 12  # a product and a function of each layer, at least
    assert finding.recoverable is not None and 0 < finding.recoverable.low < finding.recoverable.high


@pytest.mark.parametrize("hook", [False, True])
def test_without_it_nothing_is_told(hook: bool, tmp_path: Path) -> None:
    clear(ask(AnomalyDetection(), recorded(training(hook=hook), tmp_path)))
