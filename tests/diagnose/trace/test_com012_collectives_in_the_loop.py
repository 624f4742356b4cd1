"""COM012 in traces: buffers that DistributedDataParallel sends before each forward, on the CPU and on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.trace import diagnose_traces
from perf_diagnostics.diagnose.trace.rules.com012_collectives_in_the_loop import BuffersSent
from tests.diagnose.answers import clear, found, number
from tests.diagnose.trace.builder import MATRIX, NCCL, POINTWISE, TraceBuilder, ask, repeated

SHARE = "sending buffers before forward"
GLOO = 300


def ranks(
    piece: float, message: float, back: float, *, wrapped: bool = True, sends: bool = True, graph: bool = True
) -> TraceBuilder:
    """Steps of 1 ms on the CPU: so many µs for one piece of the buffers, for its way, and for the copies back.

    Without a ``graph`` the model's own operators have no numbers, as under no_grad().
    """

    def fill(builder: TraceBuilder, start: float) -> None:
        if wrapped:
            builder.note("DistributedDataParallel.forward", start + 10, start + 700)
        if sends:
            builder.operator("aten::flatten_dense_tensors", start + 20, start + 20 + piece)
            builder.note("gloo:broadcast", start + 20 + piece, start + 20 + piece + message, tid=GLOO)
            sent = start + 20 + piece + message
            builder.operator("aten::copy_", sent, sent + back)
        # The model's own: what is computed without a graph between its layers is no buffer.
        builder.operator("aten::linear", start + 500, start + 600, **({"Sequence number": 7} if graph else {}))
        builder.operator("aten::flatten_dense_tensors", start + 600, start + 650)
        builder.operator("aten::mm", start + 710, start + 990)

    return repeated(1000, 5, fill, deviceProperties=[], distributedInfo={"rank": 0, "world_size": 2})


@pytest.mark.parametrize(
    ("piece", "message", "back", "severity"),
    [
        (10, 20, 10, None),
        (20, 40, 10, Severity.INFO),
        (50, 50, 50, Severity.WARNING),
        (150, 150, 50, Severity.WARNING),
        (200, 150, 100, Severity.CRITICAL),
    ],
)
def test_one_piece_its_way_and_the_copies_back_count(
    piece: float, message: float, back: float, severity: Severity | None, tmp_path: Path
) -> None:
    answer = ask(BuffersSent(), ranks(piece, message, back).facts(tmp_path))
    assert number(answer, SHARE).value == pytest.approx((piece + message + back) / 10, rel=0.01)
    if severity is None:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is severity and "broadcast_buffers=False" in finding.remedies[0].says
    assert number(finding, "of it no communication").value == pytest.approx((piece + back) / 10, rel=0.01)
    assert finding.recoverable is not None
    assert finding.recoverable.low == pytest.approx(0.3 * (piece + back) / 1000, rel=0.01)


def test_of_a_call_without_a_graph_no_more_counts(tmp_path: Path) -> None:
    answer = ask(BuffersSent(), ranks(50, 50, 50, graph=False).facts(tmp_path))
    assert number(answer, SHARE).value == pytest.approx(15, rel=0.01)


def test_a_wait_for_a_late_rank_is_no_fault_of_it(tmp_path: Path) -> None:
    finding = found(ask(BuffersSent(), ranks(10, 350, 10).facts(tmp_path)))
    assert finding.severity is Severity.INFO
    assert finding.recoverable is not None and finding.recoverable.low < 0.01


@pytest.mark.parametrize("other", [{"sends": False}, {"wrapped": False}])
def test_what_others_make_one_piece_of_is_no_buffer(other: dict[str, Any], tmp_path: Path) -> None:
    answer = ask(BuffersSent(), ranks(150, 150, 50, **other).facts(tmp_path))
    if other.get("wrapped") is False:
        assert isinstance(answer, NotApplicable)
    else:  # the model's own, behind its first layer
        assert number(clear(answer), SHARE).value == 0


def test_it_is_the_cause_of_what_communicates_alone(tmp_path: Path) -> None:
    path = ranks(150, 300, 50).write(tmp_path / "t.json")
    diagnosis = diagnose_traces([path]).diagnosis
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "COM012"
    (alone,) = (finding for finding in diagnosis.findings if finding.code == "COM001")
    assert "COM012" in alone.symptom_of


def test_on_a_device_what_is_launched_before_the_models_own_counts(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.note("DistributedDataParallel.forward", start + 10, start + 200)
        builder.operator("aten::flatten_dense_tensors", start + 20, start + 40)
        builder.kernel(start + 25, start + 100, start + 150, name=POINTWISE)
        builder.operator("record_param_comms", start + 41, start + 60)
        builder.kernel(start + 45, start + 150, start + 250, name=NCCL.replace("AllReduce", "Broadcast"), stream=20)
        builder.operator("aten::copy_", start + 61, start + 80)
        builder.kernel(start + 65, start + 250, start + 300, name=POINTWISE)
        builder.operator("aten::linear", start + 90, start + 110, **{"Sequence number": 7})
        builder.kernel(start + 95, start + 300, start + 1100, name=MATRIX)

    finding = found(ask(BuffersSent(), repeated(1000, 5, fill).facts(tmp_path)))
    assert number(finding, SHARE).value == pytest.approx(20, abs=1)
    assert number(finding, "of it no communication").value == pytest.approx(10, abs=1)
