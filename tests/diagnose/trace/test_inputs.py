"""Inputs of operators and messages of collectives, as the reader keeps them: each kind once, and nothing broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.diagnose.trace import diagnose_traces, inputs
from perf_diagnostics.diagnose.trace.inputs import COMMUNICATION, Inputs, Message
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.reader import read_trace
from tests.diagnose.trace.builder import NCCL, TraceBuilder, repeated

SIZES = {"Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}
ALL_REDUCE = {"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 1000, "Out msg nelems": 1000}


def test_equal_inputs_are_kept_once_and_point_to_their_operators(tmp_path: Path) -> None:
    builder = TraceBuilder().operator("aten::mm", 0, 1, **SIZES).operator("aten::gelu", 2, 3, **SIZES)
    builder.operator("aten::mm", 4, 5, **SIZES).operator("aten::mm", 6, 7)  # the last: record_shapes was off
    trace = read_trace(builder.write(tmp_path / "t.json"))
    assert trace.inputs == (Inputs(((4, 8), (8, 2)), ("float", "float")),)
    assert trace.events.told.tolist() == [0, -1, 0, -1]  # of aten::gelu nothing is asked


def test_a_bias_and_two_factors_are_kept_of_longer_lists(tmp_path: Path) -> None:
    told = {
        "Input Dims": [[8], [136, 8], [8, 8], [], []],
        "Input type": ["float", "float", "float", "Scalar", "Scalar"],
        "Input Strides": [[1], [8, 1], [1, 8], [], []],
    }
    trace = read_trace(TraceBuilder().operator("aten::addmm", 0, 1, **told).write(tmp_path / "t.json"))
    assert trace.inputs == (Inputs(((8,), (136, 8), (8, 8)), ("float",) * 3, ((1,), (8, 1), (1, 8))),)


@pytest.mark.parametrize(
    "told",
    [
        {"Input Dims": [[4, 8], [8, 2]]},  # no types
        {"Input Dims": "none", "Input type": []},
        {"Input Dims": [4, 8], "Input type": ["float", "float"]},
        {"Input Dims": [[[4]], [8, 2]], "Input type": ["float", "float"]},
        {"Input Dims": [[-4, 8], [8, 2]], "Input type": ["float", "float"]},
        {"Input Dims": [[4.5, 8], [8, 2]], "Input type": ["float", "float"]},
        {"Input Dims": [[2**60, 8], [8, 2]], "Input type": ["float", "float"]},
        {"Input Dims": [[1] * 9, [8, 2]], "Input type": ["float", "float"]},
        {"Input Dims": [[4, 8], [8, 2]], "Input type": [1, 2]},
    ],
)
def test_broken_inputs_are_not_kept_and_the_operator_is(told: dict[str, Any], tmp_path: Path) -> None:
    trace = read_trace(TraceBuilder().operator("aten::mm", 0, 1, **told).write(tmp_path / "t.json"))
    assert trace.inputs == () and trace.events.told.tolist() == [-1]


def test_endless_kinds_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MOST_KINDS", 3)
    builder = TraceBuilder()
    for n in range(1, 6):
        builder.operator("aten::mm", n, n + 1, **{**SIZES, "Input Dims": [[n, 8], [8, 2]]})
    assert read_trace(builder.write(tmp_path / "t.json")).events.told.tolist() == [0, 1, 2, -1, -1]


def test_a_message_counts_the_bytes_of_its_larger_side(tmp_path: Path) -> None:
    gather = {"Collective name": "_allgather_base", "dtype": "Float", "In msg nelems": 10, "Out msg nelems": 80}
    builder = TraceBuilder().kernel(0, 5, 6, name=NCCL, **ALL_REDUCE)
    builder.operator("record_param_comms", 7, 9, **gather)
    trace = read_trace(builder.write(tmp_path / "t.json"))
    # 1000 elements of 2 bytes; 80 of 4
    assert trace.messages == (Message("allreduce", 2000), Message("_allgather_base", 320))
    assert trace.events.told.tolist() == [-1, 0, 1]


@pytest.mark.parametrize("change", [{"dtype": "Quaternion"}, {"In msg nelems": -1, "Out msg nelems": "x"}])
def test_a_message_of_unknown_size_is_none(change: dict[str, Any], tmp_path: Path) -> None:
    trace = read_trace(TraceBuilder().kernel(0, 5, 6, name=NCCL, **{**ALL_REDUCE, **change}).write(tmp_path / "t.json"))
    assert trace.messages == () and trace.events.told.tolist() == [-1, -1]


def test_an_empty_message_is_a_measured_zero(tmp_path: Path) -> None:
    empty = {**ALL_REDUCE, "In msg nelems": 0, "Out msg nelems": 0}
    trace = read_trace(TraceBuilder().kernel(0, 5, 6, name=NCCL, **empty).write(tmp_path / "t.json"))
    assert trace.messages == (Message("allreduce", 0),)


def test_no_rule_takes_the_message_of_a_collective_for_inputs(tmp_path: Path) -> None:
    """Its number is one among messages, of which there may be more than kinds of inputs."""
    told = {"Collective name": "allreduce", "dtype": "Float"}

    def fill(builder: TraceBuilder, start: float) -> None:
        for place in range(6):
            at = start + place * 20
            builder.operator(
                COMMUNICATION, at, at + 5, **told, **{"In msg nelems": 10 + place, "Out msg nelems": 10 + place}
            )
            builder.operator("aten::exp", at + 6, at + 8, **{"Sequence number": place})
        builder.operator("aten::linear", start + 130, start + 300, **SIZES, **{"Sequence number": 7})
        builder.operator(f"{ENGINE}AddmmBackward0", start + 310, start + 600, **{"Sequence number": 7})
        builder.note("Optimizer.step#SGD.step", start + 700, start + 900)

    path = repeated(1000, 5, fill, deviceProperties=[]).write(tmp_path / "t.json")
    answers = diagnose_traces([path]).diagnosis
    assert [one.code for one in answers.unchecked if one.signal == "rule"] == []
