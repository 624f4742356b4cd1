"""When forward, backward and the optimizer went on, by ranges and by the numbers that autograd gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.diagnose.trace.kernels import Row
from perf_diagnostics.diagnose.trace.phases import Phases, phase_rows
from perf_diagnostics.diagnose.trace.rules.cmp019_gradients_in_forward import GradientsInForward
from tests.diagnose.trace.builder import BACKWARD, MAIN, TraceBuilder, ask, repeated

ENGINE = "autograd::engine::evaluate_function: "


def test_phases_come_from_annotations_and_the_backward_pass_also_from_autograd(tmp_path: Path) -> None:
    builder = TraceBuilder().step(1, 0, 1000).note("## forward ##", 0, 200).note("Optimizer.step#SGD.step", 600, 700)
    builder.operator(f"{ENGINE}MmBackward0", 250, 400, tid=BACKWARD)
    builder.operator(f"{ENGINE}AddBackward0", 450, 500, tid=BACKWARD)
    builder.kernel(10, 100, 300).kernel(300, 310, 600, tid=BACKWARD).kernel(610, 650, 660)

    # The loss, up to the backward, is of the forward.
    assert phase_rows(builder.facts(tmp_path)) == (
        Row("forward", 1, 200_000, 250_000),
        Row("backward", 1, 290_000, 250_000),
        Row("optimizer", 1, 10_000, 100_000),
    )


def test_without_annotations_no_phase_is_made_up(tmp_path: Path) -> None:
    assert phase_rows(TraceBuilder().step(1, 0, 1000).kernel(10, 100, 300).facts(tmp_path)) == ()


@pytest.mark.parametrize("thread", [MAIN, BACKWARD])  # of backward: a device has one of its own
def test_a_forward_begins_with_the_operator_that_made_the_first_node(thread: int, tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        first = int(start) // 100  # numbers go on from step to step
        for name, begin, end, number in (
            ("aten::index", 0, 90, first),  # waits for the same number, and makes no node
            ("aten::linear", 100, 190, first),
            ("aten::relu", 200, 290, first + 1),
            ("aten::mse_loss", 300, 380, first + 2),
        ):
            builder.operator(name, start + begin, start + end, **{"Sequence number": number})
        for number, begin in ((2, 400), (1, 500), (0, 600)):
            told = {"Sequence number": first + number, "Fwd thread id": 1}
            builder.operator(f"{ENGINE}XBackward0", start + begin, start + begin + 90, tid=thread, **told)
        builder.note("Optimizer.step#SGD.step", start + 700, start + 800)
        builder.operator("aten::add_", start + 700, start + 800)

    facts = repeated(1000, 3, fill, deviceProperties=[]).facts(tmp_path)
    phases = Phases.of(facts)
    at = [0, 1_000_000, 2_000_000]
    assert phases.forward.start.tolist() == [100_000 + each for each in at]
    assert phases.forward.end.tolist() == phases.backward.start.tolist() == [400_000 + each for each in at]
    assert phases.backward.end.tolist() == [690_000 + each for each in at]
    # Rules that ask for operators by phase need no ranges any more.
    assert ask(GradientsInForward(), facts).evidence[0].value == 0


def test_what_a_framework_calls_inside_of_the_optimizers_step_is_none_of_it(tmp_path: Path) -> None:
    builder = TraceBuilder(deviceProperties=[]).step(1, 0, 1000).note("Optimizer.step#SGD.step", 0, 900)
    builder.note("training_step", 100, 400).note("backward", 400, 700).operator("aten::mm", 100, 400)
    assert {row.name: row.host_ns for row in phase_rows(builder.facts(tmp_path))} == {
        "forward": 300_000,
        "backward": 300_000,
        "optimizer": 300_000,
    }
