"""CMP041 in traces of the CPU: what drawing masks takes, as an observation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.rules.cmp041_dropout_masks import DropoutMasks
from perf_diagnostics.diagnose.trace.rules.cmp041_dropout_masks import MasksDrawn
from tests.diagnose.answers import clear, found, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded
from tests.diagnose.trace.test_on_the_cpu import STEP, plain, trace_of

SAVED = "drawing masks, beyond what it has to take"


@pytest.mark.parametrize(("takes", "told"), [(90, False), (110, True), (500, True)])
def test_half_of_what_drawing_takes_can_be_saved(takes: float, told: bool, tmp_path: Path) -> None:
    answer = ask(MasksDrawn(), trace_of(tmp_path, plain("aten::bernoulli_", 0, takes), plain("aten::mm", 500, 900)))
    assert number(answer, SAVED).value == pytest.approx(takes / 20)
    if not told:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is Severity.INFO
    assert dict(finding.remedies[0].change) == {"masks_from_bits": True}
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(takes / STEP)


@pytest.mark.parametrize(("p", "calls"), [(0.5, 4), (0.0, 0)])
def test_what_torch_draws_for_dropout_is_seen(p: float, calls: int, tmp_path: Path) -> None:
    layers = [part for _ in range(4) for part in (nn.Linear(64, 64), nn.Dropout(p))]
    model, given = nn.Sequential(*layers), torch.rand(32, 64)
    answer = ask(MasksDrawn(DropoutMasks(info_share=1e-9)), recorded(lambda: model(given).sum().backward(), tmp_path))
    if calls:
        assert number(found(answer), "masks drawn a step").value == calls
    else:
        clear(answer)


def test_on_a_device_it_is_not_asked(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::bernoulli_", start, start + 50).kernel(start + 10, start + 20, start + 900)

    assert isinstance(ask(MasksDrawn(), repeated(STEP, 5, fill).facts(tmp_path)), NotApplicable)
