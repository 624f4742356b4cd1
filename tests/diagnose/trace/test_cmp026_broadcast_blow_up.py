"""CMP026 in traces: all pairs of rows, written out by spreading, as torch's own profiler shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp026_broadcast_blow_up import BroadcastBlowUp
from perf_diagnostics.diagnose.trace.blow_ups import blow_ups
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.rules.cmp026_broadcast_blow_up import SpreadToBeAddedUp
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

SHARE = "spreading, and adding up again"
ROWS, OTHERS, WIDTH = 60, 50, 16

Pairs = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def training(pairs: Pairs, *, gradient: bool = True) -> Callable[[], None]:
    layer, given, others = nn.Linear(8, WIDTH), torch.rand(ROWS, 8), torch.rand(OTHERS, WIDTH)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        rows = layer(given)
        with torch.set_grad_enabled(gradient):
            found = pairs(rows, others).mean()
        (rows.square().mean() + found).backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize(
    ("pairs", "advice"),
    [
        (lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1), "torch.cdist(a, b) ** 2"),
        (lambda a, b: (a[:, None] - b[None]).pow(2).mean(2), "torch.cdist(a, b) ** 2"),
        (lambda a, b: (a[:, None] - b[None]).abs().sum(-1), "with p=1"),
        (lambda a, b: (a[:, None] - b[None]).norm(dim=-1), "torch.cdist(a, b)"),
        (lambda a, b: (a.unsqueeze(1) * b.unsqueeze(0)).sum(2), "a @ b.T"),
        (lambda a, b: functional.cosine_similarity(a.unsqueeze(1), b.unsqueeze(0), dim=-1), "cosine similarity"),
        (lambda a, b: functional.cosine_similarity(a[:, None], b[None], 2), "cosine similarity"),
        (lambda a, b: functional.pairwise_distance(a[:, None], b[None]), "torch.cdist(a, b)"),
        (lambda a, b: (a[:, None].expand(-1, OTHERS, -1) - b.expand(ROWS, -1, -1)).square().sum(2), "torch.cdist"),
    ],
)
def test_all_pairs_that_are_added_up_at_once_are_told(
    pairs: Pairs, advice: str, gradient: bool, tmp_path: Path
) -> None:
    facts = recorded(training(pairs, gradient=gradient), tmp_path)
    spread = blow_ups(facts)
    assert spread is not None
    assert (spread.size, spread.left, spread.calls) == ((ROWS, OTHERS, WIDTH), 1 / WIDTH, 1)
    assert (spread.nodes.total_ns > 0) is gradient
    finding = found(ask(SpreadToBeAddedUp(BroadcastBlowUp(info_share=1e-9)), facts))
    assert any(advice in remedy.says for remedy in finding.remedies)


def read_twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    apart = a[:, None] - b[None]
    return apart.square().sum(-1, keepdim=True).exp() * apart


def with_one_row_for_all(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a[:, None].expand(-1, OTHERS, -1) - b[:1].expand(ROWS, OTHERS, -1)).square().sum(1)


def with_a_number_a_row(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a[:, None, :1].expand(-1, OTHERS, WIDTH) * b.expand(ROWS, -1, -1)).sum(-1)


def read_much_later(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    apart = a[:, None] - b[None]
    near = apart.square().sum(-1)
    for _ in range(8):
        near = near.tanh().sin()
    return near[..., None] * apart


@pytest.mark.parametrize(
    "pairs",
    [
        read_much_later,
        with_one_row_for_all,
        with_a_number_a_row,
        lambda a, b: (a[:, :, None] - a[:, None, :]).abs().mean((1, 2)),  # the pairs are the result (CRPS)
        read_twice,
        lambda a, b: (a[:, None] - b[None]).tanh().sum(-1),  # a network of pairs
        lambda a, b: (a[:, None] - b[None]).amax(-1),
        lambda a, b: ((a - b[0]) ** 2).sum(-1),  # one row for all of them
        lambda a, b: (a[:OTHERS] - b).square().sum(-1),
        torch.cdist,
        lambda a, b: (a[:, None] - b[None, :3]).square().sum(-1),  # to less than four times
        lambda a, b: ((a[:, None] - b[None]) ** 2).sum(),
        lambda a, b: functional.cosine_similarity(a[:OTHERS], b),
        lambda a, b: functional.cosine_similarity(a[:, None], b[None, :3], -1),
        lambda a, b: functional.pairwise_distance(a, b[:1]),  # one row for all of them
    ],
)
def test_what_is_needed_or_small_is_not_told(pairs: Pairs, tmp_path: Path) -> None:
    facts = recorded(training(pairs), tmp_path)
    assert blow_ups(facts) is None
    clear(ask(SpreadToBeAddedUp(), facts))


def test_both_ways_of_a_chamfer_distance_are_two(tmp_path: Path) -> None:
    def both(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        one = ((a[:, None] - b[None]) ** 2).sum(-1).amin(1).mean()
        return one + ((b[:, None] - a[None]) ** 2).sum(-1).amin(1).mean()

    spread = blow_ups(recorded(training(both), tmp_path))
    assert spread is not None and spread.calls == 2


def test_without_sizes_nobody_knows(tmp_path: Path) -> None:
    step = training(lambda a, b: (a[:, None] - b[None]).norm(dim=-1))
    assert missing(ask(SpreadToBeAddedUp(), recorded(step, tmp_path, shapes=False))).signal == "input_dims"


def spread_for(takes: float, node: float) -> TraceBuilder:
    """Steps of 1 ms: a difference, its square and sum for so many µs together, and so many of nodes."""
    about = {"Input type": ["float", "float"]}

    def fill(builder: TraceBuilder, start: float) -> None:
        at, number = start, int(start) // 100
        for name, sizes, numbers in (
            ("sub", [[40, 1, 8], [1, 40, 8]], ["", "", "1"]),
            ("pow", [[40, 40, 8], []], ["", "2"]),
            ("sum", [[40, 40, 8], [], []], ["", "[-1]", "False"]),
        ):
            told = about | {"Input Dims": sizes, "Concrete Inputs": numbers, "Sequence number": number}
            builder.operator(f"aten::{name}", at, at + takes / 3, **told)
            at, number = at + takes / 3, number + 1
        for back, name in enumerate(("Sum", "Pow", "Sub")):
            begin = start + 500 + back * node / 3
            builder.operator(
                f"{ENGINE}{name}Backward0", begin, begin + node / 3, **{"Sequence number": number - 1 - back}
            )
        builder.operator("aten::mm", start + 900, start + 990)

    return repeated(1000, 5, fill, deviceProperties=[])


@pytest.mark.parametrize(
    ("takes", "node", "severity"), [(30, 24, None), (30, 60, Severity.INFO), (60, 120, Severity.WARNING)]
)
def test_what_is_left_after_adding_up_does_not_count(
    takes: float, node: float, severity: Severity | None, tmp_path: Path
) -> None:
    answer = ask(SpreadToBeAddedUp(), spread_for(takes, node).facts(tmp_path))
    if severity is None:
        clear(answer)
    else:
        assert found(answer).severity is severity
    assert number(answer, SHARE).value == pytest.approx((takes + node) * 7 / 8 / 10, rel=0.01)
