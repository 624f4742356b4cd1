"""What takes the time by name."""

from __future__ import annotations

from perf_diagnostics.diagnose.trace.kernels import Row, top_kernels, top_operators
from tests.diagnose.trace.builder import BACKWARD, MATRIX, POINTWISE, TraceBuilder


def test_kernels_are_summed_by_name_within_the_steps(tmp_path):
    builder = TraceBuilder().step(1, 0, 1000)
    builder.kernel(0, 10, 110).kernel(100, 120, 220).kernel(200, 230, 260, name=POINTWISE)
    facts = builder.kernel(1200, 1210, 9000, name=POINTWISE).facts(tmp_path)  # after the step

    assert top_kernels(facts.launches, facts.steps.windows) == (Row(MATRIX, 2, 200_000), Row(POINTWISE, 1, 30_000))


def test_outermost_operators_own_what_was_launched_in_them(tmp_path):
    builder = TraceBuilder().step(1, 0, 1000)
    builder.operator("aten::linear", 0, 100).operator("aten::addmm", 10, 90).operator("aten::view", 200, 220)
    builder.operator("autograd::engine", 0, 60, tid=BACKWARD)
    builder.kernel(20, 100, 400).kernel(95, 400, 450).kernel(40, 450, 460, tid=BACKWARD).kernel(300, 460, 900)
    facts = builder.facts(tmp_path)

    # The fourth kernel was launched in no operator.
    assert top_operators(facts.launches, facts.steps.windows) == (
        Row("aten::linear", 1, 350_000, 100_000),
        Row("autograd::engine", 1, 10_000, 60_000),
        Row("aten::view", 1, 0, 20_000),
    )


def test_operators_of_the_cpu_are_ordered_by_their_own_time(tmp_path):
    builder = TraceBuilder(deviceProperties=[]).step(1, 0, 1000)
    facts = builder.operator("aten::add", 0, 10).operator("aten::mm", 20, 500).facts(tmp_path)

    assert top_operators(facts.launches, facts.steps.windows) == (
        Row("aten::mm", 1, 0, 480_000),
        Row("aten::add", 1, 0, 10_000),
    )
