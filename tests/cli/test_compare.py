"""``compare`` as it is typed: exit codes, refusals, and the files it writes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.records import OWN_TRAINING, Outcome, TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from tests.diagnose.two_runs import ended, machine, on, processes
from tests.store.examples import NOW

ABOUT_1_S = (0.99, 1.01, 1.0, 0.995, 1.005)


def times(factor: float, **trial: Any) -> list[TrialResult]:
    return on(machine(), processes(*(factor * seconds for seconds in ABOUT_1_S), **trial))


def write(name: str, results: Sequence[TrialResult], *notes: str) -> RunFolder:
    """A run on disk, as a sweep leaves it."""
    folder = RunFolder.create(
        Path("results"),
        name,
        planned=[result.trial for result in results],
        command="perf-diagnostics sweep",
        environment=machine(),
        tool_version="0.1.0",
        now=NOW,
        notes=notes,
    )
    with folder.lock():
        for result in results:
            folder.begin(result.trial)
            folder.write_parts(result.trial, result.steps)
            folder.finish(result)
    return folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


@pytest.fixture
def runs() -> None:
    """``before`` at 1 s a step, ``after`` at 1.1 s, ``single`` with one process."""
    write("before", times(1.0))
    write("after", times(1.1))
    write("single", times(1.1)[:1])


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["before", "after"], 0),  # slower, but nobody asked for a gate
        (["before", "after", "--fail-on", "step_time:5%"], 3),
        (["before", "after", "--fail-on", "step_time:20%"], 0),
        (["before", "after", "--fail-on", "step_time:20%,throughput:3%"], 3),
        (["before", "after", "--fail-on", "step_time:20%", "--fail-on", "throughput:3%"], 3),
        (["after", "before", "--fail-on", "step_time:5%"], 0),
        (["before", "single", "--fail-on", "step_time:5%"], 0),
        (["before", "single", "--fail-on", "step_time:5%", "--strict"], 3),
        (["results/before", "results/after", "--fail-on", "missing"], 0),
    ],
)
def test_the_exit_code(arguments: list[str], code: int):
    assert main(["compare", *arguments]) == code


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["before", "after", "--fail-on", "step_time"], "'step_time' is not METRIC:SHARE%, such as step_time:5%"),
        (["before", "after", "--threshold", "2"], "--threshold '2' is not a percentage such as 2%"),
        (["before", "after", "--vary", "thread"], "--vary 'thread': known here are"),
        (["before", "before"], "a run equals itself"),
        (["before", "results/before"], "a run equals itself"),
        (["before", "befor"], "There is no run 'befor'"),
    ],
)
def test_bad_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    assert main(["compare", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.usefixtures("runs")
def test_a_gate_nobody_can_decide_is_a_warning(capsys: pytest.CaptureFixture[str]):
    assert main(["compare", "before", "single", "--fail-on", "step_time:5%"]) == 0
    told = capsys.readouterr()
    assert "warning: 1 of 2 checks could not be decided; --strict fails on them." in told.err
    assert "loop of your own" not in told.err  # both are sweeps
    why = "not enough runs to compare (5 against 1): measure each several times (sweep --repeats 5)"
    assert why in " ".join(told.out.split())


def own_loops(name: str, factor: float) -> list[str]:
    """The same script run five times, as ``run`` leaves it: five runs of one trial each, all of the same id."""
    names = []
    for number, result in enumerate(times(factor)):
        once = dataclasses.replace(result.trial, repeat=0)
        began = f"2026-01-0{number + 1}T00:00:00Z"
        write(f"{name}-{number}", [dataclasses.replace(result, trial=once, started_at=began)], OWN_TRAINING)
        names.append(f"{name}-{number}")
    return names


def test_runs_of_a_script_of_ones_own_are_repeats_of_each_other(capsys: pytest.CaptureFixture[str]):
    before, after = own_loops("before", 1.0), own_loops("after", 1.1)
    gate = ["--fail-on", "step_time:5%", "--strict"]
    assert main(["compare", ",".join(before), ",".join(after), *gate, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    (row,) = (row for row in document["rows"] if row["metric"] == "step_time")
    assert (row["base_processes"], row["new_processes"]) == (5, 5) and row["ratio"] == pytest.approx(1.1)
    assert document["base"]["trials"] == document["base"]["completed"] == 5

    assert main(["compare", ",".join(before), "after-0"]) == 0
    told = capsys.readouterr()
    assert "running it several times; name these runs with commas" in told.err
    assert "not enough runs" in told.out and "(5 against 1): measure each several times" in " ".join(told.out.split())
    base, new = (line for line in told.out.splitlines() if line.startswith(("BASE", "NEW :")))
    assert base.endswith(", 5 of 5 trainings completed") and new.endswith(", 1 of 1 training completed")
    for base, new, why in [
        ("before-0,after-0", "after-0,after-1", "a run equals itself"),
        ("before-0,before-0", "after-0", "is given twice"),
        ("before-0,nowhere", "after-0", "There is no run 'nowhere'"),
        (",", "after-0", "There is no run ','"),
    ]:
        assert main(["compare", base, new]) == 2
        assert why in capsys.readouterr().err


def test_another_torch_is_refused_unless_it_is_allowed(capsys: pytest.CaptureFixture[str]):
    write("before", times(1.0))
    write("after", on(machine(torch="2.14.0"), times(1.1)))
    assert main(["compare", "before", "after"]) == 2
    refused = capsys.readouterr()
    assert "torch version: 2.13.0 in BASE, 2.14.0 in NEW" in refused.err
    assert refused.out == ""
    assert main(["compare", "before", "after", "--allow-mismatch"]) == 0
    assert "NOT COMPARABLE: torch version: 2.13.0 in BASE, 2.14.0 in NEW" in capsys.readouterr().out


def test_what_crashes_in_new_fails_a_gate(capsys: pytest.CaptureFixture[str]):
    write("before", [*times(1.0), *times(1.0, batch_size=64)])
    broken = [ended(Outcome.OUT_OF_MEMORY_HOST, "40 GiB", repeat=r, batch_size=64) for r in range(5)]
    write("after", [*times(1.0), *on(machine(), broken)])
    assert main(["compare", "before", "after"]) == 0
    assert main(["compare", "before", "after", "--fail-on", "throughput:50%"]) == 3
    assert "synthetic cpu batch 64: 5 of 5 trials in NEW: out of memory host: 40 GiB" in capsys.readouterr().out


def test_settings_can_be_varied(capsys: pytest.CaptureFixture[str]):
    write("one", times(1.0, settings={"threads": 1}))
    write("two", times(0.6, settings={"threads": 2}))
    assert main(["compare", "one", "two"]) == 2
    assert "--vary threads would match them" in capsys.readouterr().err
    assert main(["compare", "one", "two", "--vary", "threads"]) == 0
    assert "NEW is better: synthetic cpu batch 8 faster (step time -40.0 %)" in capsys.readouterr().out


@pytest.mark.usefixtures("runs")
def test_json_goes_to_stdout_alone(capsys: pytest.CaptureFixture[str]):
    main(["compare", "before", "after", "--json", "--fail-on", "step_time:5%"])
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][0]["ratio"] == pytest.approx(1.1)
    assert [(gate["gate"], gate["state"]) for gate in document["gates"]] == [
        ("missing", "held"),
        ("step_time", "failed"),
    ]


@pytest.mark.usefixtures("runs")
def test_files_are_written_also_where_a_gate_fails():
    files = ["--markdown", "out/compare.md", "--junit", "out/junit.xml"]
    assert main(["compare", "before", "after", "--fail-on", "step_time:5%", *files]) == 3
    assert Path("out/compare.md").read_text(encoding="utf-8").startswith("## Training performance compared\n")
    assert ElementTree.parse("out/junit.xml").getroot().attrib["failures"] == "1"
    assert sorted(path.name for path in Path("out").iterdir()) == ["compare.md", "junit.xml"]


@pytest.mark.usefixtures("runs")
def test_a_file_that_cannot_be_written_is_told(capsys: pytest.CaptureFixture[str]):
    Path("taken").touch()
    assert main(["compare", "before", "after", "--junit", "taken/junit.xml"]) == 2
    assert "taken/junit.xml could not be written" in capsys.readouterr().err


@pytest.mark.usefixtures("runs")
def test_the_job_s_summary_page_is_written_where_there_is_one(monkeypatch: pytest.MonkeyPatch):
    page = Path("summary.md")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    main(["compare", "before", "after", "--no-summary"])
    assert not page.exists()
    page.write_text("# mine\n", encoding="utf-8")
    main(["compare", "before", "after"])
    assert page.read_text(encoding="utf-8").startswith("# mine\n\n## Training performance compared\n")


@pytest.mark.slow
@pytest.mark.usefixtures("shared_server")
def test_two_sweeps_of_the_same_thing(capsys: pytest.CaptureFixture[str]):
    """Measured, not made up: two repeats a side of a tiny model on this machine."""
    tiny = ["--workload", "mlp", "--option", "width=16", "--option", "depth=1", "--batch-sizes", "8", "--warmup", "1"]
    for name in ("one", "two"):
        assert main(["sweep", *tiny, "--steps", "4", "--repeats", "2", "--name", name, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["compare", "one", "two", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["mismatches"] == []
    assert document["missing"] == []
    rows = {row["metric"]: row for row in document["rows"]}
    assert list(rows) == ["step_time", "throughput", "peak_memory"]
    assert {(row["base_processes"], row["new_processes"]) for row in rows.values()} == {(2, 2)}
    # Throughput is samples over time, so the ratios are each other's inverse; every step has 8 samples.
    assert rows["step_time"]["ratio"] * rows["throughput"]["ratio"] == pytest.approx(1.0)
    assert rows["throughput"]["base"] == pytest.approx(8 / rows["step_time"]["base"])
    assert 0.8 < rows["peak_memory"]["ratio"] < 1.25
