"""CMP046 in traces: lengths of Fourier transforms, as torch's own profiler and as broken traces tell them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.trace.rules.cmp046_fft_length import SlowTransforms
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

SHARE = "transforms of slow lengths"


def transforms(
    took: float, length: int = 2879, *, shapes: bool = True, device: str = "cpu", **told: Any
) -> TraceBuilder:
    """Steps of 1 ms, so many µs of which are a transform, and 100 another one of a fast length."""
    form = {"Input type": ["float", "", "", ""]}
    slow = {"Input Dims": [[3, 32, length], [], [], []], "Concrete Inputs": ["", "[2]", "0", "True"], **form, **told}
    fast = {"Input Dims": [[3, 32, 2880], [], [], []], "Concrete Inputs": ["", "[2]", "0", "True"], **form}

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::_fft_r2c", start + 10, start + 10 + took, **(slow if shapes else {}))
        builder.operator("aten::_fft_r2c", start + 800, start + 900, **(fast if shapes else {}))

    return repeated(1000, 5, fill, deviceProperties=[])


@pytest.mark.parametrize(
    ("took", "severity"), [(50, None), (200, Severity.INFO), (300, Severity.WARNING)]
)  # of which usually 82 % is won, and surely 44 %: 4, 16 and 25 %; 2, 9 and 13 %
def test_what_is_won_is_mentioned_and_what_is_surely_won_warned_of(
    took: float, severity: Severity | None, tmp_path: Path
) -> None:
    answer = ask(SlowTransforms(), transforms(took).facts(tmp_path))
    if severity is None:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is severity
    assert number(finding, SHARE).value == pytest.approx(took / 10, rel=0.01)
    assert (number(finding, "length of the transforms").value, number(finding, "next fast length").value) == (
        2879,
        2880,
    )
    assert "2,879 numbers (a prime)" in finding.summary
    assert finding.recoverable is not None and finding.recoverable.high <= 0.94 * took / 1000 * 1.01


def test_back_to_real_numbers_the_last_argument_is_the_length(tmp_path: Path) -> None:
    half = transforms(400, 1440, **{"Concrete Inputs": ["", "[2]", "2", "2879"]})
    assert number(found(ask(SlowTransforms(), half.facts(tmp_path))), "length of the transforms").value == 2879


@pytest.mark.parametrize(
    "told",
    [
        {"Concrete Inputs": ["", "[1, 2]", "0", "True"]},  # along two dimensions
        {"Concrete Inputs": ["", "[7]", "0", "True"]},
        {"Concrete Inputs": ["", "[two]", "0", "True"]},
        {"Concrete Inputs": ["", "[2]", "2", "-1"]},
        {"Concrete Inputs": ["", "[2]", "2", str(2**47 - 115)]},
        {"Concrete Inputs": [1, 2, 3, 4]},
        {"Concrete Inputs": "none"},
    ],
)
def test_what_cannot_be_told_is_no_slow_length(told: dict[str, Any], tmp_path: Path) -> None:
    clear(ask(SlowTransforms(), transforms(400, **told).facts(tmp_path)))


def test_without_sizes_or_transforms_nothing_is_said(tmp_path: Path) -> None:
    assert missing(ask(SlowTransforms(), transforms(400, shapes=False).facts(tmp_path))).signal == "input_dims"
    none = repeated(1000, 5, lambda builder, at: builder.operator("aten::mm", at, at + 900), deviceProperties=[])
    assert isinstance(ask(SlowTransforms(), none.facts(tmp_path)), NotApplicable)


@pytest.mark.parametrize("length", [2879, 2880])
def test_torch_tells_lengths_forth_and_back(length: int, tmp_path: Path) -> None:
    signal, kernel = torch.randn(8, 32, 1440), torch.randn(32, 1440, requires_grad=True)
    optimizer = torch.optim.SGD([kernel], lr=0.01)

    def step() -> None:
        product = torch.fft.rfft(signal, n=length) * torch.fft.rfft(kernel, n=length)
        torch.fft.irfft(product, n=length)[..., :1440].square().mean().backward()
        optimizer.step()

    answer = ask(SlowTransforms(), recorded(step, tmp_path))
    if length == 2880:
        assert number(clear(answer), SHARE).value == 0
    else:
        assert number(found(answer), "length of the transforms").value == 2879
