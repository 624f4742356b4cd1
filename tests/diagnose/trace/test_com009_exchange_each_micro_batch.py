"""COM009 in traces: gradients that are exchanged after each of the batches that one update accumulates."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.trace import diagnose_traces
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.nodes import GRADIENT
from perf_diagnostics.diagnose.trace.rules.com009_exchange_each_micro_batch import ExchangedForNothing
from tests.diagnose.answers import found, number
from tests.diagnose.trace.builder import MATRIX, NCCL, TraceBuilder, ask, repeated

GLOO = 300
AN_UPDATE, ALONE, WHOLE = "exchanges an update", "needless exchanges", "needless exchanges, beside computing or not"


def micro_batch(
    builder: TraceBuilder, at: float, *, added: bool, exchange: float, hands_over: float = 5, node: bool = True
) -> None:
    """A forward of 100 µs, a pass of 105 µs with one gradient, and so many µs from its end of an all-reduce.

    The all-reduce begins within the pass, and the host hands over to it for ``hands_over`` µs.
    """
    builder.operator("aten::linear", at, at + 100, **{"Sequence number": 7})
    if node:
        builder.operator(ENGINE + "AddmmBackward0", at + 105, at + 200)
        builder.operator(ENGINE + GRADIENT, at + 200, at + 210)
        builder.operator(GRADIENT, at + 201, at + 205)
        if added:
            builder.operator("aten::add_", at + 202, at + 204)
    if exchange:
        builder.operator("c10d::allreduce_", at + 210, at + 210 + hands_over)
        builder.note("gloo:all_reduce", at + 205, at + 210 + exchange, tid=GLOO)


def ranks(
    batches: int = 4,
    *,
    exchange: float = 50,
    without: int = 0,
    updates: int = 1,
    clears: str = "",
    adds: bool = True,
    node: bool = True,
) -> TraceBuilder:
    """Steps of 2 ms on the CPU, of so many accumulated batches; the first ``without`` exchange nothing.

    ``clears`` is what is called between them, after which gradients are not (``adds``) those before.
    """

    def fill(builder: TraceBuilder, start: float) -> None:
        for place in range(batches):
            at = start + 10 + place * 400
            first = place * updates % batches < updates
            takes = exchange if place >= without else 0
            micro_batch(builder, at, added=adds and not first, exchange=takes, node=node)
            if clears.startswith("Optimizer"):
                builder.note(clears, at + 380, at + 385)
            elif clears:
                builder.operator(clears, at + 380, at + 385)
            if (place + 1) * updates % batches < updates:
                builder.note("Optimizer.step#SGD.step", at + 386, at + 395)

    return repeated(2000, 5, fill, deviceProperties=[], distributedInfo={"rank": 0, "world_size": 2})


@pytest.mark.parametrize(
    ("batches", "exchange", "severity"),
    [(4, 20, Severity.INFO), (4, 60, Severity.WARNING), (2, 60, Severity.INFO), (2, 120, Severity.WARNING)],
)
def test_all_but_the_last_exchange_of_an_update_are_needless(
    batches: int, exchange: float, severity: Severity, tmp_path: Path
) -> None:
    finding = found(ask(ExchangedForNothing(), ranks(batches, exchange=exchange).facts(tmp_path)))
    assert finding.severity is severity and "no_sync" in finding.remedies[0].says
    assert number(finding, AN_UPDATE).value == batches
    # Handing over is an operator, beside which nothing is exposed: it goes with the exchange all the same.
    assert number(finding, ALONE).value == pytest.approx((batches - 1) * exchange / 20, rel=0.01)
    assert number(finding, WHOLE).value == pytest.approx((batches - 1) * (exchange + 5) / 20, rel=0.01)
    assert finding.recoverable is not None
    assert finding.recoverable.low < (batches - 1) * exchange / 2000 < finding.recoverable.high


def test_exchanges_of_the_last_batch_alone_are_well(tmp_path: Path) -> None:
    assert isinstance(ask(ExchangedForNothing(), ranks(without=3).facts(tmp_path)), NotApplicable)
    # With two of four one of the two is for nothing.
    finding = found(ask(ExchangedForNothing(), ranks(without=2).facts(tmp_path)))
    assert number(finding, AN_UPDATE).value == 2 and number(finding, ALONE).value == pytest.approx(2.5, rel=0.01)


def test_batches_with_an_update_each_are_not_accumulated(tmp_path: Path) -> None:
    """As those of two models that are trained in turn, or of steps that somebody marks once in four."""
    assert isinstance(ask(ExchangedForNothing(), ranks(updates=4, adds=False).facts(tmp_path)), NotApplicable)
    answer = ask(ExchangedForNothing(), ranks(updates=2).facts(tmp_path))
    assert number(found(answer), AN_UPDATE).value == 2


@pytest.mark.parametrize("clears", ["Optimizer.zero_grad#SGD.zero_grad", "aten::zero_"])
def test_what_is_cleared_in_between_is_no_sum(clears: str, tmp_path: Path) -> None:
    assert isinstance(ask(ExchangedForNothing(), ranks(clears=clears).facts(tmp_path)), NotApplicable)


def test_gradients_of_other_parameters_have_an_exchange_of_their_own(tmp_path: Path) -> None:
    assert isinstance(ask(ExchangedForNothing(), ranks(adds=False).facts(tmp_path)), NotApplicable)


def test_without_nodes_nobody_knows_the_passes(tmp_path: Path) -> None:
    assert isinstance(ask(ExchangedForNothing(), ranks(node=False).facts(tmp_path)), NotMeasured)
    assert isinstance(ask(ExchangedForNothing(), ranks(exchange=0).facts(tmp_path)), NotApplicable)


def test_steps_without_an_update_are_batches_of_one(tmp_path: Path) -> None:
    """Who marks a step for each batch may record less than one update."""

    def fill(builder: TraceBuilder, start: float) -> None:
        micro_batch(builder, start + 10, added=True, exchange=60)

    built = repeated(500, 5, fill, deviceProperties=[], distributedInfo={"rank": 0, "world_size": 2})
    built.note("Optimizer.step#SGD.step", 2600, 2700)
    finding = found(ask(ExchangedForNothing(), built.facts(tmp_path)))
    assert number(finding, AN_UPDATE).value == 5


def test_what_is_reduced_beside_the_passes_is_no_exchange_of_gradients(tmp_path: Path) -> None:
    """A loss to be logged, of each batch, beside gradients that are exchanged with the last one alone."""

    def fill(builder: TraceBuilder, start: float) -> None:
        for place in range(4):
            at = start + 10 + place * 400
            micro_batch(builder, at, added=place > 0, exchange=60 if place == 3 else 0)
            builder.operator("c10d::allreduce_", at + 300, at + 305)
            builder.note("gloo:all_reduce", at + 302, at + 380, tid=GLOO)
        builder.note("Optimizer.step#SGD.step", start + 1700, start + 1800)

    built = repeated(2000, 5, fill, deviceProperties=[], distributedInfo={"rank": 0, "world_size": 2})
    assert isinstance(ask(ExchangedForNothing(), built.facts(tmp_path)), NotApplicable)


def test_it_is_the_cause_of_what_communicates_alone(tmp_path: Path) -> None:
    diagnosis = diagnose_traces([ranks(exchange=150).write(tmp_path / "t.json")]).diagnosis
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "COM009"
    (alone,) = (finding for finding in diagnosis.findings if finding.code == "COM001")
    assert "COM009" in alone.symptom_of


def test_on_a_device_kernels_that_run_alone_count(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        for place in range(2):
            at = start + place * 500
            micro_batch(builder, at, added=place == 1, exchange=0)
            builder.kernel(at + 110, at + 120, at + 300, name=MATRIX)
            builder.kernel(at + 205, at + 250, at + 400, name=NCCL, stream=20)
        builder.note("Optimizer.step#SGD.step", start + 800, start + 850)

    finding = found(ask(ExchangedForNothing(), repeated(1000, 5, fill).facts(tmp_path)))
    assert number(finding, AN_UPDATE).value == 2
    assert number(finding, ALONE).value == pytest.approx(10, abs=0.5)
    assert number(finding, WHOLE).value == pytest.approx(15, abs=0.5)
