"""CMP028 in traces: LoRA-like layers as torch's own profiler shows them, merged in each forward and not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.diagnose.trace.rules.cmp028_parameters_multiplied_first import WeightsMerged
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import ask
from tests.diagnose.trace.test_nodes_of_torch import recorded

IN, OUT, RANK = 384, 768, 4

Way = Literal["merged", "one after the other", "normalised", "masked", "squashed", "gated", "plain", "no base"]


class Adapted(nn.Module):
    """A frozen layer with two narrow factors, in one way or another."""

    def __init__(self, way: Way) -> None:
        super().__init__()
        self.way, self.base = way, nn.Linear(IN, OUT).requires_grad_(way == "plain")
        self.kept = (torch.rand(OUT, IN) > 0.5).float()
        self.a, self.b = nn.Parameter(torch.randn(RANK, IN)), nn.Parameter(torch.randn(OUT, RANK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "plain":
            return self.base(x)
        if self.way == "one after the other":
            return self.base(x) + 0.5 * functional.linear(functional.linear(x, self.a), self.b)
        if self.way == "no base":
            return functional.linear(x, self.b @ self.a)
        weight = self.base.weight + 0.5 * (self.b @ self.a)
        if self.way == "masked":
            weight = weight * self.kept
        if self.way == "squashed":
            weight = weight.tanh()
        if self.way == "gated":
            weight = self.base.weight * (1 + self.b @ self.a)
        if self.way == "normalised":
            weight = weight / torch.linalg.vector_norm(weight, dim=1, keepdim=True)
        return functional.linear(x, weight, self.base.bias)


def training(way: Way, rows: int) -> Callable[[], None]:
    """Such a layer and a plain one behind it."""
    model, last = Adapted(way), nn.Linear(OUT, 1)
    optimizer = torch.optim.SGD(
        [one for one in (*model.parameters(), *last.parameters()) if one.requires_grad], lr=0.01
    )
    x = torch.randn(rows, IN)

    def step() -> None:
        last(model(x)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def test_a_weight_that_is_merged_for_few_rows_is_told(tmp_path: Path) -> None:
    finding = found(ask(WeightsMerged(), recorded(training("merged", 32), tmp_path)))
    assert f"({OUT}×{RANK} and {RANK}×{IN} for 32 rows)" in finding.summary
    share = number(finding, "merging weights, and the way back").value
    assert isinstance(share, float) and 15 < share < 95
    assert "(x @ A.T) @ B.T" in finding.remedies[0].says
    assert finding.recoverable is not None and finding.recoverable.high <= 1


@pytest.mark.parametrize(
    ("way", "rows"),
    [
        *((way, 32) for way in ("one after the other", "normalised", "masked", "squashed", "gated", "plain")),
        ("merged", 400),
    ],
)
def test_no_other_way_is_told_and_none_where_merging_takes_less(way: Way, rows: int, tmp_path: Path) -> None:
    """Of 384 x 768 the other order takes less up to 255 rows."""
    clear(ask(WeightsMerged(), recorded(training(way, rows), tmp_path)))


def test_of_a_weight_without_a_base_the_layers_own_product_goes_as_well(tmp_path: Path) -> None:
    finding = found(ask(WeightsMerged(), recorded(training("no base", 32), tmp_path, steps=6)))
    assert finding.recoverable is not None
    share = number(finding, "merging weights, and the way back")
    assert share.high is not None and isinstance(share.value, float) and share.high > share.value


def test_products_of_activations_are_no_weights(tmp_path: Path) -> None:
    """Of two narrow layers and a batch as long as they are wide, beside a layer of that size for few rows."""
    narrow, last = nn.Linear(IN, RANK, bias=False), nn.Linear(IN, OUT)
    wide = nn.Linear(RANK, IN, bias=False)
    optimizer = torch.optim.SGD([*narrow.parameters(), *wide.parameters(), *last.parameters()], lr=0.01)
    x = torch.randn(OUT, IN)

    def step() -> None:
        last(wide(narrow(x))[:8]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    clear(ask(WeightsMerged(), recorded(step, tmp_path)))


def test_without_sizes_it_is_not_told(tmp_path: Path) -> None:
    reply = missing(ask(WeightsMerged(), recorded(training("merged", 32), tmp_path, shapes=False)))
    assert reply.signal == "input_dims"
