"""The command ``trace``: the verdict first, a waterfall that adds up, and the same as JSON."""

from __future__ import annotations

import json

import pytest

from perf_diagnostics.cli import main
from tests.diagnose.trace.builder import LOADER, TraceBuilder, repeated


@pytest.fixture
def path(tmp_path):
    def fill(builder: TraceBuilder, start: float) -> None:
        for at in range(0, 6_000, 100):  # 6 of 10 ms computing, 4 in the loader
            builder.kernel(start + max(0, at - 200), start + at, start + at + 100)
        builder.note(LOADER, start + 5_000, start + 10_000)

    return repeated(10_000, 5, fill, distributedInfo={"rank": 2}).write(tmp_path / "trace.json.gz")


def test_text_says_the_verdict_then_the_waterfall_then_the_rest(path, capsys):
    assert main(["trace", str(path)]) == 0

    text = capsys.readouterr().out
    assert text.startswith("Verdict: 40 % of each step is waiting for the next batch")
    assert "rank 2: 5 steps of 10.0 ms" in text
    assert "  waiting for input             4.00 ms   40.0 %  ############\n" in text
    assert "  together                     10.00 ms  100.0 %\n" in text
    assert "  exposed copies                0.00 ms" in text  # measured, and zero
    assert "of the kernels start within 20 µs of their launch (f20)" in text
    order = [
        text.index(part) for part in ("Verdict:", "waiting for input", "CRITICAL input-bound", "Does not apply here:")
    ]
    assert order == sorted(order)


def test_without_a_device_its_parts_are_left_out_and_not_zero(tmp_path, capsys):
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::mm", start, start + 6_000)

    assert main(["trace", str(repeated(10_000, 5, fill, deviceProperties=[]).write(tmp_path / "cpu.json"))]) == 0
    text = capsys.readouterr().out
    assert "  compute                       6.00 ms" in text and "  other host work               4.00 ms" in text
    assert "  between operators             0.00 ms" in text  # measured: the next operator is 4 ms away
    assert "  waiting for input                –" in text  # no loader left a range: nobody knows
    assert "exposed copies" not in text and "launch overhead" not in text and "f20" not in text


def test_json_is_that_of_diagnose_and_a_waterfall(path, capsys):
    assert main(["trace", str(path), str(path), "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["verdict"]["code"] == "INP001"
    ranks = document["waterfall"]["ranks"]
    assert [rank["rank"] for rank in ranks] == [2, 2]
    assert ranks[0]["step_ms"] == 10.0
    assert sum(part["ms"] for part in ranks[0]["parts"]) == pytest.approx(10.0, abs=1e-6)
    assert {part["part"]: part["share"] for part in ranks[0]["parts"]}["waiting_for_input"] == pytest.approx(0.4)
    assert ranks[0]["f20"] == pytest.approx(1 / 60)  # only the first of a step starts at once
    assert all(part["measured"] for part in ranks[0]["parts"])
    assert ranks[0]["communication_overlap"] is None  # nothing communicates; 0 would say that nothing is hidden


def test_json_tells_what_could_not_be_seen_from_a_measured_zero(tmp_path, capsys):
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::mm", start, start + 6_000)

    assert (
        main(["trace", str(repeated(10_000, 5, fill, deviceProperties=[]).write(tmp_path / "t.json")), "--json"]) == 0
    )
    (rank,) = json.loads(capsys.readouterr().out)["waterfall"]["ranks"]
    # Without a device and without a loader's range; the interpreter between operators takes no time here.
    assert {part["part"] for part in rank["parts"] if part["measured"]} == {
        "compute", "launch_overhead", "other_host_work",
    }  # fmt: skip


def test_a_broken_file_is_one_line_and_exit_code_2(tmp_path, capsys):
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph"', encoding="utf-8")

    assert main(["trace", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"perf-diagnostics trace: {path} cannot be read from character 17")


def test_a_trace_that_cannot_be_trusted_has_no_waterfall(tmp_path, capsys):
    builder = TraceBuilder().step(1, 0, 1000).event("kernel", "k", 0, 500, tid=7, correlation=1)

    assert main(["trace", str(builder.write(tmp_path / "t.json")), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["waterfall"] == {"ranks": [None]}
    assert document["verdict"] is None
    assert all(
        answer["signal"] == "runtime_calls"
        for answer in document["unchecked"]
        if answer["code"] not in ("COM002", "COM004")
    )


@pytest.mark.parametrize(("operator", "says"), [("aten::mm", True), ("autograd::engine::evaluate_function: X", False)])
def test_a_trace_without_backward_and_update_is_called_inference(tmp_path, capsys, operator, says):
    def fill(builder: TraceBuilder, start: float) -> None:  # kernels of 20 µs, every 100 µs, each as it is launched
        for at in range(0, 1_000, 100):
            builder.operator(operator, start + at, start + at + 90).kernel(start + at, start + at + 6, start + at + 26)

    path = repeated(1_000, 5, fill).write(tmp_path / "trace.json")
    assert main(["trace", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Verdict: For 79 %")  # waits for launches
    assert ("inference or evaluation, no training" in text) is says
    assert ("fused optimizer" in text) is not says and ("learning rate" in text) is not says
    assert main(["trace", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["waterfall"]["ranks"][0]["forward_only"] is says


def test_what_a_graph_does_is_not_called_inference(tmp_path, capsys):
    builder = TraceBuilder().step(1, 0, 100).operator("aten::copy_", 0, 5).kernel(10, 20, 90, call="cudaGraphLaunch")
    assert main(["trace", str(builder.write(tmp_path / "trace.json"))]) == 0
    assert "inference" not in capsys.readouterr().out


def test_exposed_communication_is_a_part_on_the_cpu_where_collectives_left_ranges(tmp_path, capsys):
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::mm", start, start + 6_000).note("gloo:all_reduce", start + 6_000, start + 9_000, tid=7)

    assert main(["trace", str(repeated(10_000, 5, fill, deviceProperties=[]).write(tmp_path / "cpu.json"))]) == 0
    assert "  exposed communication         3.00 ms   30.0 %  #########\n" in capsys.readouterr().out
