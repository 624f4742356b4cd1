"""OPT007 in traces: zeros of embedding tables on the device, and the update of their rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.rules.opt007_dense_embedding_gradients import ZerosOfTables
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import BACKWARD, POINTWISE, TraceBuilder, ask, repeated
from tests.diagnose.trace.test_on_the_cpu import plain, trace_of

STEP = 10_000

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >"
TABLE = [100_000, 64]


def tables(
    zeros: float,
    update: float,
    *,
    looked_up: int | None = 10_000,
    kind: str = "SGD",
    tied: bool = False,
    fill_name: str = FILL,
) -> TraceBuilder:
    """Steps of 10 ms on a fed device, so many µs of which fill a table's gradient, and so many update."""

    def fill(builder: TraceBuilder, start: float) -> None:
        at = start + STEP - zeros - update
        told = {} if looked_up is None else {"Input Dims": [TABLE, [looked_up]], "Input type": ["float", "long int"]}
        builder.operator("aten::embedding", start + 1, start + 9, **told)
        builder.kernel(start + 2, start + 10, at, name=POINTWISE)
        if tied:
            builder.product(start + 20, at, at, [[512, 64], [64, 100_000]], kind="float")
        builder.operator(
            "autograd::engine::evaluate_function: EmbeddingBackward0", start + 30, start + 60, tid=BACKWARD
        )
        builder.operator("aten::embedding_dense_backward", start + 35, start + 55, tid=BACKWARD)
        builder.kernel(start + 40, at, at + zeros, name=fill_name, tid=BACKWARD)
        builder.note(f"Optimizer.step#{kind}.step", start + 70, start + 100)
        builder.kernel(start + 80, at + zeros, start + STEP, name=POINTWISE)

    return repeated(STEP, 5, fill)


@pytest.mark.parametrize(
    ("zeros", "severity"), [(100, None), (200, Severity.INFO), (700, Severity.WARNING)]
)  # with three times as much of the update, and 90 % of it: 3.6, 7.2 and 25.2 %
def test_zeros_and_their_update_are_told(zeros: float, severity: Severity | None, tmp_path: Path) -> None:
    answer = ask(ZerosOfTables(), tables(zeros, 4000).facts(tmp_path))
    whole = 4 * zeros / STEP
    assert number(answer, "zeros and their update").value == pytest.approx(90 * whole, rel=0.01)
    assert number(answer, "rows that a step did not touch, at least").value == pytest.approx(90)
    if severity is None:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is severity and "sparse=True: SGD takes" in finding.remedies[0].says
    assert finding.recoverable is not None
    assert finding.recoverable.low == pytest.approx(0.3 * 0.9 * 2.5 * zeros / STEP, rel=0.02)
    assert finding.recoverable.high == pytest.approx(whole, rel=0.02)


def test_the_update_of_tables_takes_no_longer_than_the_update(tmp_path: Path) -> None:
    answer = ask(ZerosOfTables(), tables(1000, 500).facts(tmp_path))
    assert number(answer, "zeros and their update").value == pytest.approx(0.9 * 15, rel=0.01)


@pytest.mark.parametrize(("kind", "moved"), [("AdamW", 7), ("Adagrad", 5), ("Lion", 3)])
def test_what_an_update_moves_goes_by_the_optimizer(kind: str, moved: int, tmp_path: Path) -> None:
    answer = found(ask(ZerosOfTables(), tables(500, 5000, kind=kind).facts(tmp_path)))
    assert number(answer, "zeros and their update").value == pytest.approx(0.9 * 5 * (1 + moved), rel=0.01)
    sparse = "Adagrad takes" if kind == "Adagrad" else "SparseAdam for these tables"
    assert sparse in answer.remedies[0].says


def test_without_sizes_it_is_a_remark_of_which_nothing_is_sure(tmp_path: Path) -> None:
    finding = found(ask(ZerosOfTables(), tables(1000, 4000, looked_up=None).facts(tmp_path)))
    assert finding.severity is Severity.INFO and "may not have been looked up" in finding.summary
    assert finding.recoverable is not None and finding.recoverable.low == 0
    assert finding.recoverable.high == pytest.approx(0.4, rel=0.02)


def test_a_table_whose_rows_may_all_be_looked_up_is_clear(tmp_path: Path) -> None:
    clear(ask(ZerosOfTables(), tables(1000, 4000, looked_up=200_000).facts(tmp_path)))


def test_whether_a_head_of_the_tables_size_is_the_table_is_not_known(tmp_path: Path) -> None:
    finding = found(ask(ZerosOfTables(), tables(1000, 4000, tied=True).facts(tmp_path)))
    assert finding.severity is Severity.INFO and finding.recoverable is not None and finding.recoverable.low == 0


def test_without_a_range_of_the_optimizer_the_zeros_alone_are_told(tmp_path: Path) -> None:
    builder = tables(2000, 1000)
    builder.events = [event for event in builder.events if not event["name"].startswith("Optimizer.step")]
    finding = found(ask(ZerosOfTables(), builder.facts(tmp_path)))
    assert number(finding, "zeros and their update").value == pytest.approx(18, rel=0.01)
    assert finding.summary.endswith("take the device 18 % of each step.")


def test_memory_that_the_driver_sets_counts_as_well(tmp_path: Path) -> None:
    answer = ask(ZerosOfTables(), tables(1000, 500, fill_name="Memset (Device)").facts(tmp_path))
    assert number(found(answer), "zeros and their update").value == pytest.approx(0.9 * 15, rel=0.01)


def test_without_such_a_backward_it_does_not_apply(tmp_path: Path) -> None:
    bare = repeated(STEP, 5, lambda b, start: b.kernel(start, start + 10, start + STEP))
    assert missing(ask(ZerosOfTables(), bare.facts(tmp_path))).signal == "embedding_rows"


@pytest.mark.parametrize(
    ("looking_up", "update", "value"),
    [
        (10.0, 300.0, 0.1 + 0.3),  # the update of SGD moves three numbers for each that is filled
        (10.0, 200.0, 0.1 + 0.2),  # … and takes no longer than it takes
        (60.0, 300.0, 0.12),  # zeros that take less than twice the time are of rows that were looked up
    ],
)
def test_on_the_cpu_zeros_that_take_longer_than_the_look_ups_are_of_other_rows(
    looking_up: float, update: float, value: float, tmp_path: Path
) -> None:
    facts = trace_of(
        tmp_path,
        plain("aten::embedding", 0, looking_up),
        plain("aten::embedding_dense_backward", 400, 520),
        plain("aten::fill_", 410, 510),
        plain("Optimizer.step#SGD.step", 550, 550 + update),
        plain("aten::add_", 550, 550 + update),
    )
    finding = found(ask(ZerosOfTables(), facts))
    assert finding.severity is Severity.INFO and "SGD takes such gradients" in finding.remedies[0].says
    assert finding.recoverable is not None and finding.recoverable.low == 0
    assert finding.recoverable.value == pytest.approx(0.65 * value, rel=0.02)
