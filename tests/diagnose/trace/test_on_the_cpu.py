"""Traces of the CPU: what operators take themselves, and the rules that go by their names; traces made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rules.cmp002_compute_bound import Computing
from perf_diagnostics.diagnose.trace.rules.cmp009_unfused_attention import WrittenScores
from perf_diagnostics.diagnose.trace.rules.cmp011_conv_layout import LayoutChanges
from perf_diagnostics.diagnose.trace.rules.cmp016_double_precision import DoubleProducts
from perf_diagnostics.diagnose.trace.rules.opt001_optimizer_heavy import LaunchesInOptimizer
from perf_diagnostics.diagnose.trace.rules.opt007_dense_embedding_gradients import ZerosOfTables
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated

#: A step, in µs.
STEP = 1000

TABLE = [100_000, 64]


def trace_of(tmp_path: Path, *spans: tuple[str, float, float, dict[str, object]], steps: int = 5) -> TraceFacts:
    """Steps of 1 ms of the CPU alone, with these operators (name, from, to, arguments) in each."""

    def fill(builder: TraceBuilder, start: float) -> None:
        for name, begin, end, told in spans:
            if name.startswith("Optimizer.step#"):
                builder.note(name, start + begin, start + end)
            else:
                builder.operator(name, start + begin, start + end, **told)

    return repeated(STEP, steps, fill, deviceProperties=[]).facts(tmp_path)


def plain(name: str, begin: float, end: float) -> tuple[str, float, float, dict[str, object]]:
    return name, begin, end, {}


def product(kind: str, begin: float, end: float) -> tuple[str, float, float, dict[str, object]]:
    return "aten::mm", begin, end, {"Input Dims": [[64, 256], [256, 256]], "Input type": [kind, kind]}


def test_an_operators_own_time_is_without_those_that_it_calls(tmp_path: Path) -> None:
    facts = trace_of(
        tmp_path,
        plain("aten::linear", 0, 500),
        plain("aten::t", 10, 20),
        plain("aten::addmm", 100, 450),
        plain("aten::copy_", 110, 160),
        plain("autograd::engine::evaluate_function: AddmmBackward0", 600, 900),
        plain("aten::mm", 650, 850),
    )
    own = {one.name: one for one in facts.own_times.by_name}
    # linear 500 less 10 and 350; addmm 350 less 50; autograd's node is no operator.
    shares = {name: round(one.share, 3) for name, one in own.items()}
    assert shares == {"aten::addmm": 0.3, "aten::mm": 0.2, "aten::linear": 0.14, "aten::copy_": 0.05, "aten::t": 0.01}
    assert own["aten::mm"].calls == 1 and next(iter(own)) == "aten::addmm"


def test_own_times_are_right_whatever_lies_in_what(tmp_path: Path) -> None:
    # The reckoning by depths against one that takes the operators one by one; some calls take no time.
    dice = np.random.default_rng(0)
    for _ in range(20):
        spans: list[tuple[str, float, float, dict[str, object]]] = []
        calls_in(0, 900, spans, dice)
        expected: dict[str, float] = {}
        for name, begin, end, _ in spans:
            expected[name] = expected.get(name, 0.0) + end - begin
        for at, (_, begin, end, _) in enumerate(spans):
            # Who called it was listed before it: the last of those that hold all of it.
            callers = [one for one in spans[:at] if one[1] <= begin and end <= one[2] and one[2] > one[1]]
            if callers:
                expected[callers[-1][0]] -= end - begin
        told = {one.name: one.share * STEP for one in trace_of(tmp_path, *spans, steps=1).own_times.by_name}
        assert told == pytest.approx(expected, abs=0.01)


def calls_in(
    begin: int, end: int, spans: list[tuple[str, float, float, dict[str, object]]], dice: np.random.Generator
) -> None:
    """Operators one after another in a time, each of which calls others; whoever calls is listed first."""
    at = begin
    while at < end and dice.random() < 0.8:
        until = int(dice.integers(at, end + 1))
        spans.append(plain(f"aten::op{dice.integers(6)}", at, until))
        if until < end or at > begin:  # no two of one length
            calls_in(at, until, spans, dice)
        at = until + int(dice.integers(1, 3))


def test_where_a_step_on_the_cpu_goes_is_told_by_its_operators(tmp_path: Path) -> None:
    facts = trace_of(tmp_path, plain("aten::sort", 0, 400), plain("aten::mm", 400, 900), plain("aten::add", 900, 920))
    finding = ask(Computing(), facts)
    assert isinstance(finding, Finding)
    assert finding.summary == ("92 % of a step of 1.00 ms is operators on the CPU: 50 % aten::mm and 40 % aten::sort.")


@pytest.mark.parametrize(("kind", "severity"), [("float", None), ("double", Severity.WARNING)])
def test_products_of_64_bits_are_told_by_the_types_in_the_trace(
    kind: str, severity: Severity | None, tmp_path: Path
) -> None:
    answer = ask(DoubleProducts(), trace_of(tmp_path, product(kind, 0, 600), plain("aten::silu", 600, 900)))
    if severity is None:
        assert isinstance(answer, Cleared)
        return
    assert isinstance(answer, Finding) and answer.severity is severity
    assert answer.recoverable is not None and answer.evidence[0].value == pytest.approx(60)
    # Half of the products is sure to three tenths; at most six tenths of all that computes goes.
    assert answer.recoverable.low == pytest.approx(0.3 * 0.5 * 0.6)
    assert answer.recoverable.high == pytest.approx(0.6 * 0.9) and "no product has others" in answer.summary


def test_beside_products_of_32_bits_only_those_of_64_can_win(tmp_path: Path) -> None:
    finding = ask(DoubleProducts(), trace_of(tmp_path, product("double", 0, 600), product("float", 600, 900)))
    assert isinstance(finding, Finding) and "no product has others" not in finding.summary
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.6 * 0.6)


@pytest.mark.parametrize(("kind", "sizes"), [("double", [8, 64]), ("c10::complex<double>", [8, 33])])
def test_other_operators_on_tensors_of_64_bits_count_where_products_have_few(
    kind: str, sizes: list[int], tmp_path: Path
) -> None:
    promoted = {"Input Dims": [sizes, []], "Input type": [kind, "Scalar"]}
    spans = [product("float", 0, 300), ("aten::mul", 300.0, 550.0, promoted), plain("aten::copy_", 310, 320)]
    finding = ask(DoubleProducts(), trace_of(tmp_path, *spans))
    assert isinstance(finding, Finding) and finding.severity is Severity.WARNING
    assert finding.evidence[0].metric == "operators of 64 bits" and finding.evidence[0].value == pytest.approx(25)
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.6 * 0.25)
    assert "torch promotes" in finding.summary


@pytest.mark.parametrize(
    "told",
    [
        {"Input Dims": [[8, 64], []], "Input type": ["float", "double"]},  # one number, which promotes nothing
        {"Input Dims": [[8, 64], []], "Input type": ["float", "Scalar"]},
        {"Input Dims": "odd", "Input type": ["double"]},
        {"Input Dims": [[8]], "Input type": "double"},
        {"Input type": ["double"]},
        {"Input Dims": [[8, 64]], "Input type": [["double"]]},
    ],
)
def test_a_number_of_64_bits_is_no_tensor_of_such(told: dict[str, object], tmp_path: Path) -> None:
    answer = ask(DoubleProducts(), trace_of(tmp_path, product("float", 0, 300), ("aten::mul", 300.0, 900.0, told)))
    assert isinstance(answer, Cleared) and "0" in answer.summary


def test_the_message_of_a_collective_is_no_input(tmp_path: Path) -> None:
    message = {"Collective name": "allreduce", "dtype": "Double", "In msg nelems": 64, "Out msg nelems": 64}
    talks = ("record_param_comms", 600.0, 900.0, message)
    answer = ask(DoubleProducts(), trace_of(tmp_path, plain("aten::mul", 0, 500), talks))
    assert isinstance(answer, NotMeasured) and "record_shapes=True" in answer.why
    answer = ask(DoubleProducts(), trace_of(tmp_path, product("double", 0, 100), talks))
    assert isinstance(answer, Cleared) and "10 %" in answer.summary


def test_what_is_done_to_batches_while_they_are_loaded_is_no_computing_in_64_bits(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, start + 500)
        told = {"Input Dims": [[8, 64]], "Input type": ["double"]}
        builder.operator("aten::_to_copy", start + 100, start + 400, **told)
        builder.operator("aten::mul", start + 500, start + 650, **told)
        builder.operator("aten::relu", start + 650, start + 900)

    answer = ask(DoubleProducts(), repeated(STEP, 5, fill, deviceProperties=[]).facts(tmp_path))
    assert isinstance(answer, Cleared) and "15 %" in answer.summary


def test_without_shapes_nothing_is_said_of_products(tmp_path: Path) -> None:
    answer = ask(DoubleProducts(), trace_of(tmp_path, plain("aten::mm", 0, 600)))
    assert isinstance(answer, NotMeasured) and "record_shapes=True" in answer.why


@pytest.mark.parametrize(
    ("looked_up", "severity"), [(10_000, Severity.WARNING), (None, Severity.INFO)]
)  # of a table of 100,000 rows
def test_gradients_of_tables_are_told_with_the_update_at_most(
    looked_up: int | None, severity: Severity, tmp_path: Path
) -> None:
    told = {} if looked_up is None else {"Input Dims": [TABLE, [looked_up]], "Input type": ["float", "long int"]}
    facts = trace_of(
        tmp_path,
        ("aten::embedding", 0.0, 10.0, told),
        plain("aten::mm", 10, 500),
        plain("aten::embedding_dense_backward", 500, 700),
        plain("aten::fill_", 510, 690),
        plain("Optimizer.step#SGD.step", 700, 900),
        plain("aten::add_", 700, 900),
    )
    finding = ask(ZerosOfTables(), facts)
    assert isinstance(finding, Finding) and finding.severity is severity
    assert finding.evidence[0].value == pytest.approx(20) and "sparse=True" in finding.remedies[0].says
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.4)
    assert ("most of them zeros" in finding.summary) is (looked_up is not None)
    # 90 % of the rows were not looked up, where that is known.
    assert finding.recoverable.low == pytest.approx(0.0 if looked_up is None else 0.3 * 0.9 * 0.2)


def test_a_table_whose_gradient_costs_little_is_cleared(tmp_path: Path) -> None:
    facts = trace_of(tmp_path, plain("aten::mm", 0, 900), plain("aten::embedding_dense_backward", 900, 920))
    assert isinstance(ask(ZerosOfTables(), facts), Cleared)
    assert isinstance(ask(ZerosOfTables(), trace_of(tmp_path, plain("aten::mm", 0, 900))), NotApplicable)


@pytest.mark.parametrize(("softmax", "severity"), [(200, Severity.WARNING), (20, Severity.INFO)])
def test_attention_by_hand_is_told_by_its_operators(softmax: float, severity: Severity, tmp_path: Path) -> None:
    facts = trace_of(
        tmp_path,
        plain("aten::matmul", 0, 120),
        plain("aten::bmm", 10, 110),
        plain("aten::add", 120, 140),
        plain("aten::_softmax", 140, 140 + softmax),
        plain("aten::bmm", 400, 500),
        plain("aten::mm", 500, 900),
    )
    finding = ask(WrittenScores(), facts)
    assert isinstance(finding, Finding) and finding.severity is severity
    work, scores = finding.evidence[0].value, finding.evidence[1].value
    # Two products of 100 µs, the sum's 20 and the softmax; what calls the first product lies before it.
    assert work == pytest.approx((220 + softmax) / 10) and scores == pytest.approx((20 + softmax) / 10)
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(work / 100)
    assert finding.recoverable.low == pytest.approx(0.3 * scores / 100)


def test_fused_attention_on_the_cpu_is_cleared(tmp_path: Path) -> None:
    fused = plain("aten::_scaled_dot_product_flash_attention_for_cpu", 0, 300)
    assert isinstance(ask(WrittenScores(), trace_of(tmp_path, fused, plain("aten::mm", 300, 900))), Cleared)


@pytest.mark.parametrize(("until", "severity"), [(20, None), (60, Severity.INFO), (160, Severity.WARNING)])
def test_copies_into_another_order_beside_convolutions_are_told(
    until: float, severity: Severity | None, tmp_path: Path
) -> None:
    copies = plain("aten::contiguous", 0, until), plain("aten::clone", 0, until), plain("aten::copy_", 0, until)
    # What copies elsewhere is no change of layout.
    other = plain("aten::copy_", 300, 600)
    answer = ask(LayoutChanges(), trace_of(tmp_path, *copies, other, plain("aten::mkldnn_convolution", 600, 900)))
    assert answer.evidence[0].value == pytest.approx(until / 10)
    if severity is None:
        assert isinstance(answer, Cleared)
        return
    assert isinstance(answer, Finding) and answer.severity is severity and answer.recoverable is not None
    assert (answer.recoverable.low, answer.recoverable.high) == (0.0, pytest.approx(1.3 * until / 1000))
    assert isinstance(ask(LayoutChanges(), trace_of(tmp_path, *copies, plain("aten::mm", 600, 900))), NotApplicable)


@pytest.mark.parametrize(
    ("kind", "until", "severity"),
    [
        ("AdamW", 300, Severity.WARNING),  # 13 of 20 passes over 30 % of the step: 19.5 %
        ("AdamW", 200, Severity.INFO),
        ("SGD", 300, Severity.INFO),
        ("AdamW", 40, None),
    ],
)
def test_an_update_that_is_not_fused_is_told_with_its_passes(
    kind: str, until: float, severity: Severity | None, tmp_path: Path
) -> None:
    facts = trace_of(
        tmp_path,
        plain(f"Optimizer.step#{kind}.step", 0, until),
        plain("aten::addcdiv_", 0, until / 2),
        plain("aten::addcdiv_", until / 2, until),
        plain("aten::mm", 300, 1000),
    )
    answer = ask(LaunchesInOptimizer(), facts)
    if severity is None:
        assert isinstance(answer, Cleared)
        return
    assert isinstance(answer, Finding) and answer.severity is severity
    assert f"({kind}) takes {until / 10:.0f} % of each step, with 2 operators for 2 tensors" in answer.summary
    assert answer.remedies[0].change == {"optimizer_implementation": "fused"}
    assert answer.recoverable is not None and answer.recoverable.high == pytest.approx(until / 1000)
    assert answer.recoverable.low == pytest.approx(0.8 * 0.65 * until / 1000 if kind == "AdamW" else 0.0)


@pytest.mark.parametrize(
    ("decomposes", "until", "severity"),
    [(200, 300, Severity.WARNING), (100, 300, Severity.INFO), (20, 300, Severity.INFO), (20, 100, None)],
)
def test_of_others_what_they_decompose_in_each_step_is_told(
    decomposes: float, until: float, severity: Severity | None, tmp_path: Path
) -> None:
    facts = trace_of(
        tmp_path,
        plain("Optimizer.step#Shampoo.step", 0, until),
        plain("aten::linalg_eigh", 0, decomposes),
        plain("aten::mul_", decomposes, until),
        plain("aten::mm", until, 1000),
    )
    answer = ask(LaunchesInOptimizer(), facts)
    if severity is None:
        assert isinstance(answer, Cleared)
        return
    assert isinstance(answer, Finding) and answer.severity is severity
    assert "(Shampoo) takes 30 % of each step" in answer.summary
    seldom = decomposes >= 50
    assert ("Decompose every ten" in answer.remedies[0].says) is seldom
    assert (answer.recoverable is not None) is seldom
    if answer.recoverable is not None:
        assert answer.recoverable.high == pytest.approx(until / 1000)


def test_a_fused_update_is_as_fast_as_it_gets(tmp_path: Path) -> None:
    facts = trace_of(
        tmp_path,
        plain("Optimizer.step#AdamW.step", 0, 300),
        plain("aten::_fused_adamw_", 0, 300),
        plain("aten::mm", 300, 1000),
    )
    answer = ask(LaunchesInOptimizer(), facts)
    assert isinstance(answer, Cleared) and "fused" in answer.summary
