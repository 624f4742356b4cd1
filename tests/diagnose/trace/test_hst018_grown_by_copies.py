"""HST018: what a loop joins to itself in each round, as times that grow, and as torch's own profiler shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.trace.grown_cats import grown_cats
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.rules.hst018_grown_by_copies import GrownByCopies
from tests.diagnose.answers import clear, found, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

#: A step, in µs.
STEP = 10_000

Length = Callable[[int], float]


def rounds(count: int, length: Length, *, others: int = 0, backward: bool = False) -> TraceBuilder:
    """Steps of 10 ms on the CPU, in each so many rounds of 100 µs with a join of such lengths, by round.

    ``others`` are further joins of a round, which take 2 µs each; after the loop there are ten short ones.
    """

    def fill(builder: TraceBuilder, start: float) -> None:
        if backward:
            builder.operator(ENGINE + "CatBackward0", start, start + count * 100)
        for place in range(count):
            at = start + place * 100
            for other in range(others):
                builder.operator("aten::cat", at + other * 4, at + other * 4 + 2)
            builder.operator("aten::cat", at + 20, at + 20 + length(place))
        for place in range(10):
            builder.operator("aten::cat", start + 9_000 + place * 10, start + 9_001 + place * 10)
        builder.operator("aten::mm", start + 9_200, start + 9_900)

    return repeated(STEP, 5, fill, deviceProperties=[])


@pytest.mark.parametrize("others", [0, 1, 3])
@pytest.mark.parametrize(
    ("rise", "severity"), [(0.05, None), (0.13, Severity.INFO), (0.25, Severity.WARNING), (0.6, Severity.WARNING)]
)
def test_joins_that_take_longer_from_round_to_round_are_told(
    rise: float, severity: Severity | None, others: int, tmp_path: Path
) -> None:
    answer = ask(GrownByCopies(), rounds(80, lambda place: 1 + rise * place, others=others).facts(tmp_path))
    share = (80 + rise * 79 * 40) / STEP
    assert number(answer, "joining what grows").value == pytest.approx(100 * share, rel=0.02)
    if severity is None:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is severity and "torch.cat(pieces, dim)" in finding.remedies[0].says
    assert number(finding, "rounds of the loop").value == 80
    assert finding.recoverable is not None and finding.recoverable.high > share


@pytest.mark.parametrize(
    ("count", "length"),
    [
        (15, lambda place: 1 + 6 * place),  # too few rounds
        (80, lambda place: 10),
        (80, lambda place: 10 + 0.2 * place),  # the last quarter takes twice as long
        (80, lambda place: 1 + (place * 37) % 80),  # in no order
        (80, lambda place: 81 - place),
    ],
)
def test_joins_that_do_not_grow_are_not_told(count: int, length: Length, tmp_path: Path) -> None:
    facts = rounds(count, length).facts(tmp_path)
    assert grown_cats(facts) is None
    clear(ask(GrownByCopies(), facts))


def test_what_backward_joins_is_not_the_loops(tmp_path: Path) -> None:
    assert grown_cats(rounds(80, lambda place: 1 + 0.6 * place, backward=True).facts(tmp_path)) is None


def test_each_step_has_to_have_it(tmp_path: Path) -> None:
    built = rounds(80, lambda place: 1 + 0.6 * place)
    ends = min(event["ts"] for event in built.events if event["name"] == "aten::cat") + STEP
    built.events = [one for one in built.events if one["name"] != "aten::cat" or one["ts"] > ends]
    assert grown_cats(built.facts(tmp_path)) is None


def test_on_a_device_it_is_not_told(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::cat", start, start + 50).kernel(start + 10, start + 20, start + 900)

    assert isinstance(ask(GrownByCopies(), repeated(STEP, 5, fill).facts(tmp_path)), NotApplicable)


def decoder(*, collects: bool) -> Callable[[], None]:
    """A hundred rounds of a cell, whose outputs are joined in each round, or once behind the loop."""
    cell, out = nn.GRUCell(64, 64), nn.Linear(64, 400)
    given = torch.rand(16, 64)

    def step() -> None:
        hidden, pieces = torch.zeros(16, 64), [torch.zeros(16, 0, 400)]
        for _ in range(100):
            hidden = cell(given, hidden)
            pieces.append(out(hidden).unsqueeze(1))
            if not collects:
                pieces = [torch.cat(pieces, 1)]
        torch.cat(pieces, 1).square().mean().backward()

    return step


def test_what_torch_shows_of_a_decoder_by_the_sizes_that_it_joins(tmp_path: Path) -> None:
    grown = grown_cats(recorded(decoder(collects=False), tmp_path))
    assert grown is not None and grown.rounds == 100
    assert grown_cats(recorded(decoder(collects=True), tmp_path)) is None


def test_layers_that_join_a_list_have_collected_it(tmp_path: Path) -> None:
    """As the later ones of a dense block do, which need all that there is."""
    layers = nn.ModuleList(nn.Linear(64 + 64 * place, 64) for place in range(24))
    given = torch.rand(128, 64)

    def step() -> None:
        pieces = [given]
        for layer in layers:
            pieces.append(layer(torch.cat(pieces, 1)))
        pieces[-1].square().mean().backward()

    assert grown_cats(recorded(step, tmp_path)) is None


def test_longer_inputs_are_no_growth(tmp_path: Path) -> None:
    lengths, first = [torch.rand(200 * place, 64) for place in range(1, 40)], torch.rand(1, 64, requires_grad=True)

    def step() -> None:
        torch.stack([torch.cat([first, one]).mean() for one in lengths]).sum().backward()

    assert grown_cats(recorded(step, tmp_path)) is None
