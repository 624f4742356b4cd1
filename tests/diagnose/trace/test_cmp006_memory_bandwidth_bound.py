"""CMP006 in traces: rows of kernels that each go over memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.rules.cmp006_memory_bandwidth_bound import PassesInARow
from tests.diagnose.answers import changes, clear, found, number
from tests.diagnose.trace.builder import MATRIX, POINTWISE, TraceBuilder, ask, repeated

STEP = 10_000
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>"
INDEX = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<float> >"
SAVED = "part of the step that would go with one kernel for each row"
PART = "passes over memory, of the device's work"


def in_rows(*names: str, each: float, pause: float = 0, update: bool = False) -> TraceBuilder:
    """Steps of 10 ms on a fed device: four times a row of kernels of so many µs, after a product."""

    def fill(builder: TraceBuilder, start: float) -> None:
        at, launched = start, start
        product = STEP / 4 - len(names) * (each + pause)
        if update:
            builder.note("Optimizer.step#SGD.step", start, start + 500)
        for _ in range(4):
            for name, length in ((MATRIX, product), *((name, each) for name in names)):
                end = at + length
                builder.kernel(launched, max(at, start + 30), end, name=name, call_length=2)
                at = end + (0 if length == product else pause)
                launched += 4

    return repeated(STEP, 5, fill)


@pytest.mark.parametrize(("each", "fires"), [(60, False), (150, True)])
def test_a_row_could_be_its_longest_kernel(each: float, fires: bool, tmp_path: Path) -> None:
    # Four rows of four: three of each could go.
    answer = ask(PassesInARow(), in_rows(POINTWISE, NORM, POINTWISE, POINTWISE, each=each).facts(tmp_path))
    saved = 12 * each / STEP
    assert number(answer, SAVED).value == pytest.approx(100 * saved, rel=0.01)
    assert number(answer, PART).value == pytest.approx(1600 * each / STEP, rel=0.01)
    if not fires:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is Severity.INFO and changes(finding) == [{"compile_mode": "default"}]
    assert finding.recoverable is not None and finding.recoverable.low == 0
    assert finding.recoverable.high == pytest.approx(saved, rel=0.02)


@pytest.mark.parametrize(
    "names",
    [
        (POINTWISE,),
        (POINTWISE, MATRIX, POINTWISE, MATRIX),
        (INDEX,) * 4,
        ("triton_per_fused_native_layer_norm_2",) * 4,
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>",) * 4,
        ("two_shot_all_reduce_kernel<c10::BFloat16>",) * 4,
    ],
    ids=["alone", "between products", "by index", "fused already", "parts of products", "collectives"],
)
def test_what_is_no_row_of_passes_saves_nothing(names: tuple[str, ...], tmp_path: Path) -> None:
    answer = clear(ask(PassesInARow(), in_rows(*names, each=300).facts(tmp_path)))
    assert number(answer, SAVED).value == 0


def test_kernels_with_a_pause_between_are_no_row(tmp_path: Path) -> None:
    answer = clear(ask(PassesInARow(), in_rows(POINTWISE, POINTWISE, POINTWISE, each=300, pause=40).facts(tmp_path)))
    assert number(answer, SAVED).value == 0


def test_the_update_is_the_optimizers(tmp_path: Path) -> None:
    clear(ask(PassesInARow(), in_rows(*[POINTWISE] * 4, each=200, update=True).facts(tmp_path)))


def test_what_comes_after_the_backward_is_no_part_of_the_model(tmp_path: Path) -> None:
    """As an average of the weights, or clipping by hand."""
    rows = in_rows(*[POINTWISE] * 4, each=200)
    before = number(found(ask(PassesInARow(), rows.facts(tmp_path))), SAVED).value
    for number_ in range(5):  # two of the four rows are launched by then
        start = number_ * STEP
        rows.operator("autograd::engine::evaluate_function: AddmmBackward0", start, start + 39)
    assert number(ask(PassesInARow(), rows.facts(tmp_path)), SAVED).value == pytest.approx(before / 2, rel=0.01)


def test_where_the_host_sets_the_pace_kernels_do_not(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        for at in range(0, STEP, 100):
            builder.kernel(start + at, start + at + 6, start + at + 95, name=POINTWISE)

    answer = clear(ask(PassesInARow(), repeated(STEP, 5, fill).facts(tmp_path)))
    assert "not kernels alone" in answer.summary
