"""A run on disk: what is written, what a reader makes of it, and who may write."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from perf_diagnostics.errors import InvalidSettings, RecordError, RunError
from perf_diagnostics.records import STEP_FILES, Environment, Gap, Outcome, Run, Series, StepTable, Trial, TrialResult
from perf_diagnostics.store.find import find_run, list_runs
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.store.trial_folder import STEPS_LOST, SWEEP_ENDED, TrialFolder
from tests.store.examples import NOW, result_of, steps_of, trial_of_batch

PLANNED = tuple(trial_of_batch(size) for size in (32, 8, 16))


def created(
    root: Path, name: str | None = None, *, planned: tuple[Trial, ...] = PLANNED, seconds: int = 0
) -> RunFolder:
    return RunFolder.create(
        root,
        name,
        planned=planned,
        command="perf-diagnostics sweep",
        environment=Environment(host={"cores": 2}),
        tool_version="0.1.0",
        now=NOW + timedelta(seconds=seconds),
        notes=("a note",),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    """A run whose lock is held."""
    run = created(tmp_path / "results", "run")
    with run.lock():
        yield run


def begun(folder: RunFolder, trial: Trial = PLANNED[0]) -> TrialFolder:
    folder.begin(trial, now=NOW, pid=7)
    return TrialFolder(folder.trial_directory(trial))


def tree(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


# --- a whole run -------------------------------------------------------------------------------------------------


def test_a_run_reads_back_as_it_was_written_in_planned_order(folder: RunFolder) -> None:
    power = Series("gpu_power", "W", "NVML GPU-1", np.array([1, 2]), np.array([0.0, 300.0]))
    whole = [result_of(trial, steps=(steps_of(10, 20, warmup=1), steps_of(11)), series=(power,)) for trial in PLANNED]
    for result in reversed(whole):
        begun(folder, result.trial)
        folder.finish(result)
    assert RunFolder.open(folder.path).read() == Run(
        name="run",
        created_at="2026-11-21T02:31:05.000000+00:00",
        tool_version="0.1.0",
        planned=PLANNED,
        results=tuple(whole),
        command="perf-diagnostics sweep",
        environment=Environment(host={"cores": 2}),
        notes=("a note",),
    )
    assert folder.results() == tuple(whole)
    assert folder.pending() == ()
    assert folder.result_of(PLANNED[1].id) == whole[1]


def test_a_run_without_a_trial_is_a_run(tmp_path: Path) -> None:
    run = created(tmp_path, planned=())
    assert run.path.name == "2026-11-21-0231-05"
    assert run.read().results == () == run.pending()


def test_parts_are_joined_in_their_order_past_the_thousandth(folder: RunFolder) -> None:
    trial = begun(folder)
    trial.replace_part(998, steps_of(1))
    paths = folder.write_parts(PLANNED[0], [steps_of(2), steps_of(3), steps_of(4)])
    assert [path.name for path in paths] == [f"steps.rank0-{n}.parquet" for n in ("999", "1000", "1001")]
    assert trial.read_steps()[0][0].wall_ns.tolist() == [1, 2, 3, 4]


def test_a_part_can_be_written_anew(folder: RunFolder) -> None:
    trial = begun(folder)
    trial.write_part(steps_of(1, 2))
    trial.write_part(steps_of(3))
    trial.replace_part(0, steps_of(1, 2, warmup=2))
    ((steps,), gaps) = trial.read_steps()
    assert steps.columns["warmup"].tolist() == [True, True, False]
    assert gaps == ()


def test_finish_keeps_the_parts_that_are_on_disk_and_writes_the_ranks_that_have_none(folder: RunFolder) -> None:
    trial = begun(folder)
    trial.write_part(steps_of(1, 2), rank=0)
    folder.finish(result_of(PLANNED[0], steps=(steps_of(9, 9), steps_of(3))))
    read = folder.result_of(PLANNED[0].id)
    assert read is not None
    assert [table.wall_ns.tolist() for table in read.steps] == [[1, 2], [3]]


def test_a_skipped_trial_needs_no_beginning(folder: RunFolder) -> None:
    skipped = TrialResult(trial=PLANNED[0], outcome=Outcome.SKIPPED_LARGER_THAN_OOM, reason="batch 16 ran out")
    folder.finish(skipped)
    assert folder.read().results == (skipped,)
    assert folder.pending() == PLANNED[1:]


def test_attempts_count_up_and_clear_what_the_last_one_left(folder: RunFolder) -> None:
    assert folder.begin(PLANNED[0], now=NOW) == 1
    trial = TrialFolder(folder.trial_directory(PLANNED[0]))
    trial.write_part(steps_of(1, 2, 3))
    trial.write_measured(result_of(PLANNED[0]))
    (trial.path / "output.txt").write_text("first attempt")
    (trial.path / "notes-of-mine.txt").write_text("kept")
    assert folder.begin(PLANNED[0], now=NOW, pid=77) == 2
    assert sorted(p.name for p in trial.path.iterdir()) == ["notes-of-mine.txt", "started.json"]
    started = trial.read_started()
    assert started is not None
    assert (started.attempt, started.pid, started.trial) == (2, 77, PLANNED[0])
    assert started.started_at == "2026-11-21T02:31:05.000000+00:00"


def test_the_start_is_on_disk_before_begin_returns(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    folder.begin(PLANNED[0], now=NOW)
    directory = folder.trial_directory(PLANNED[0])
    assert [Path(name).parent for name in synced[:1]] == [directory]  # the file, under its temporary name
    assert str(directory) in synced  # its entry
    assert str(directory.parent) in synced  # the entry of its folder


def test_a_plan_grows_at_its_end_and_keeps_what_a_later_version_wrote(folder: RunFolder) -> None:
    path = folder.path / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "carbon": {"g": 1}}))
    new = trial_of_batch(64)
    folder.extend_plan([PLANNED[1], new, new])
    assert folder.header().planned == (*PLANNED, new)
    assert folder.header().notes == ("a note",)
    assert json.loads(path.read_text())["carbon"] == {"g": 1}


def test_a_result_is_never_replaced(folder: RunFolder) -> None:
    begun(folder)
    folder.finish(result_of(PLANNED[0]))
    before = tree(folder.path)
    with pytest.raises(RunError, match="already has a result"):
        folder.finish(result_of(PLANNED[0]))
    with pytest.raises(RunError, match="has a result; only pending trials can begin"):
        folder.begin(PLANNED[0])
    assert tree(folder.path) == before


@pytest.mark.parametrize(
    "deed",
    [
        lambda run: run.begin(PLANNED[0]),
        lambda run: run.finish(result_of(PLANNED[0])),
        lambda run: run.extend_plan([trial_of_batch(64)]),
    ],
)
def test_writing_needs_the_lock(tmp_path: Path, deed: Callable[[RunFolder], object]) -> None:
    run = created(tmp_path, "run")
    before = tree(run.path)
    with pytest.raises(RunError, match=r"must hold its lock: `with folder.lock\(\)"):
        deed(run)
    assert tree(run.path) == before
    with run.lock():
        deed(run)  # the twin: the same deed with the lock


@pytest.mark.parametrize(
    "trial_id", ["../../etc", "0123456789ab/..", "0123456789AB", "", "0123456789a", "0123456789abc"]
)
def test_a_trial_id_from_outside_is_twelve_hexadecimal_digits(folder: RunFolder, trial_id: str) -> None:
    with pytest.raises(RecordError, match="is not a trial id"):
        folder.trial_directory(trial_id)
    with pytest.raises(RecordError, match="is not a trial id"):
        folder.result_of(trial_id)
    assert folder.result_of("0123456789ab") is None


# --- damage ------------------------------------------------------------------------------------------------------


def three_parts(folder: RunFolder) -> TrialFolder:
    trial = begun(folder)
    for first in (1, 10, 100):
        trial.write_part(steps_of(first, first + 1))
    return trial


@pytest.mark.parametrize("complete", [True, False])
def test_a_truncated_part_is_left_out_with_a_gap_and_the_rest_stays(folder: RunFolder, complete: bool) -> None:
    trial = three_parts(folder)
    if complete:
        folder.finish(result_of(PLANNED[0]))
    damaged = trial.path / "steps.rank0-001.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-40])
    (result,) = folder.read().results
    assert result.steps[0].wall_ns.tolist() == [1, 2, 100, 101]
    (gap,) = (gap for gap in result.gaps if gap.signal == STEP_FILES)
    assert gap.why.startswith("a part was left out: steps.rank0-001.parquet is not a whole Parquet file")
    assert result.outcome is (Outcome.COMPLETED if complete else Outcome.INTERRUPTED)


def test_whole_parts_leave_no_gap(folder: RunFolder) -> None:
    three_parts(folder)
    folder.finish(result_of(PLANNED[0]))
    assert folder.read().results[0].gap(STEP_FILES) is None


def test_the_last_part_of_a_complete_trial_cannot_vanish_unnoticed(folder: RunFolder) -> None:
    trial = three_parts(folder)
    folder.finish(result_of(PLANNED[0]))
    (trial.path / "steps.rank0-002.parquet").unlink()
    assert folder.read().results[0].gap(STEP_FILES) == Gap(STEP_FILES, "rank 0: 1 of 3 parts are not on disk")


def test_a_complete_trial_without_any_steps_left_is_no_completed_one(folder: RunFolder) -> None:
    trial = three_parts(folder)
    folder.finish(result_of(PLANNED[0]))
    assert folder.damage() == ()
    for part in trial.path.glob("steps.*"):
        part.unlink()
    result = folder.read().results[0]
    assert (result.outcome, result.stop_reason, result.steady) == (Outcome.INTERRUPTED, STEPS_LOST, False)
    assert "3 of 3 files with its steps are missing" in result.reason and "copy the folder again" in result.reason
    assert "(steps.rank0-000.parquet, steps.rank0-001.parquet, steps.rank0-002.parquet)" in result.reason
    assert folder.damage() == (result.reason,)
    assert folder.pending() == PLANNED[1:]  # what is damaged is not measured again by itself


def test_one_part_that_is_missing_is_told_and_the_rest_counts(folder: RunFolder) -> None:
    trial = three_parts(folder)
    folder.finish(result_of(PLANNED[0]))
    (trial.path / "steps.rank0-001.parquet").unlink()
    (told,) = folder.damage()
    assert "1 of 3 files with its steps is missing" in told and "(steps.rank0-001.parquet)" in told
    assert folder.read().results[0].outcome is Outcome.COMPLETED


def test_one_part_that_is_cut_off_is_told_beside_one_that_is_missing(folder: RunFolder) -> None:
    trial = three_parts(folder)
    folder.finish(result_of(PLANNED[0]))
    damaged = trial.path / "steps.rank0-002.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-40])
    (told,) = folder.damage()
    assert "1 of 3 files with its steps is cut off" in told and "(steps.rank0-002.parquet)" in told
    (trial.path / "steps.rank0-000.parquet").unlink()
    (told,) = folder.damage()
    assert "is missing" in told and "is cut off" in told and "copy the folder again" in told


def test_a_rank_whose_parts_all_vanished_keeps_its_place(folder: RunFolder) -> None:
    trial = begun(folder)
    folder.finish(result_of(PLANNED[0], steps=(steps_of(1), steps_of(2), steps_of(3))))
    for rank in (0, 2):
        (trial.path / f"steps.rank{rank}-000.parquet").unlink()
    result = folder.read().results[0]
    assert [len(table) for table in result.steps] == [0, 1, 0]
    assert [gap.why for gap in result.gaps if gap.signal == STEP_FILES] == [
        "rank 0: 1 of 1 parts are not on disk",
        "rank 2: 1 of 1 parts are not on disk",
    ]


def test_a_column_that_only_some_parts_have_is_told(folder: RunFolder) -> None:
    trial = begun(folder)
    trial.write_part(StepTable({**steps_of(1).columns, "tokens": np.array([5])}))
    trial.write_part(steps_of(2))
    assert trial.read_steps()[1] == (Gap("tokens", "rank 0: only some parts of the step table have it"),)


def test_what_is_read_now_and_then_may_not_have_been_in_a_part(folder: RunFolder) -> None:
    """The first part of a training is of a few steps, and no loss may have been read by then."""
    trial = begun(folder)
    trial.write_part(steps_of(2))
    trial.write_part(StepTable({**steps_of(1).columns, "loss": np.array([0.5])}))
    ((table,), gaps) = trial.read_steps()
    assert gaps == () and np.array_equal(table.columns["loss"], [np.nan, 0.5], equal_nan=True)


def test_damaged_series_become_a_gap(folder: RunFolder) -> None:
    trial = begun(folder)
    folder.finish(result_of(PLANNED[0], series=(Series("cpu_power", "W", "RAPL", np.array([1]), np.array([2.0])),)))
    (trial.path / "series.parquet").write_bytes(b"PAR1")
    result = folder.read().results[0]
    assert result.series == ()
    assert result.gap("series") == Gap("series", result.gaps[-1].why)
    assert "series.parquet is not a whole Parquet file" in result.gaps[-1].why


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\x00\x01", b'{"schema": 1, "kind": "result"}'])
def test_a_damaged_result_is_read_as_interrupted_kept_aside_and_run_again(folder: RunFolder, content: bytes) -> None:
    trial = begun(folder)
    trial.write_part(steps_of(5))
    trial.write_measured(result_of(PLANNED[0]))
    folder.finish(result_of(PLANNED[0]))
    (trial.path / "result.json").write_bytes(content)
    (result,) = folder.read().results
    assert result.outcome is Outcome.INTERRUPTED
    assert result.reason.startswith("its result cannot be read: ")
    assert result.steps[0].wall_ns.tolist() == [5]
    with pytest.raises(RecordError, match=r"result\.json"):
        folder.result_of(PLANNED[0].id)
    assert folder.pending() == PLANNED
    assert folder.begin(PLANNED[0], now=NOW) == 2
    assert (trial.path / "result.damaged-1.json").read_bytes() == content


def test_a_newer_result_is_neither_run_again_nor_replaced(folder: RunFolder) -> None:
    trial = begun(folder)
    folder.finish(result_of(PLANNED[0]))
    path = trial.path / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 2, "tool_version": "9.0"}))
    before = tree(folder.path)
    for deed in (folder.pending, lambda: folder.begin(PLANNED[0]), lambda: folder.finish(result_of(PLANNED[0]))):
        with pytest.raises(RunError, match=r"reads up to 1\. Read it with perf-diagnostics 9\.0 or later"):
            deed()
    assert tree(folder.path) == before
    assert folder.read().results[0].outcome is Outcome.INTERRUPTED


def test_a_result_copied_from_another_trial_is_not_taken_for_this_one(folder: RunFolder) -> None:
    source, target = begun(folder, PLANNED[0]), begun(folder, PLANNED[1])
    folder.finish(result_of(PLANNED[0]))
    (target.path / "result.json").write_bytes((source.path / "result.json").read_bytes())
    with pytest.raises(RecordError, match=f"is the result of trial {PLANNED[0].id}"):
        folder.result_of(PLANNED[1].id)
    assert PLANNED[1] in folder.pending()


def test_a_plan_with_settings_of_a_later_version_can_be_read_but_not_resumed(tmp_path: Path) -> None:
    run = created(tmp_path, "run")
    document = json.loads((run.path / "run.json").read_text())
    document["planned"][0]["settings"]["learning_rate"] = 0.1
    document["planned"][0]["id"] = "0123456789ab"
    (run.path / "run.json").write_text(json.dumps(document))
    assert run.read().planned == PLANNED
    with (
        pytest.raises(RunError, match=r"trial 0123456789ab does not hash.* resume the run with that version"),
        run.lock(),
    ):
        pytest.fail("the lock was given")


def test_files_of_others_are_left_alone(folder: RunFolder) -> None:
    begun(folder)
    folder.finish(result_of(PLANNED[0], steps=(steps_of(1),)))
    trials = folder.path / "trials"
    (folder.path / "report.html").write_text("<p>")
    (trials / ".DS_Store").write_text("x")
    (trials / "my notes").mkdir()
    (trials / "abcdefabcdef").write_text("a file with a trial's name")
    (trials / "abcdefabcde0").mkdir()
    (folder.trial_directory(PLANNED[0]) / "steps.rank0-999999999999.parquet").write_text("x")
    (folder.trial_directory(PLANNED[0]) / "steps.rank0-001.parquet.bak").write_text("x")
    before = tree(folder.path)
    run = folder.read()
    assert run.results == (result_of(PLANNED[0], steps=(steps_of(1),)),)
    assert run.notes == ("a note",)
    assert tree(folder.path) == before


# --- what a broken sweep leaves ----------------------------------------------------------------------------------


def test_a_trial_cut_off_is_read_as_interrupted_with_its_parts_and_nothing_is_written(folder: RunFolder) -> None:
    three_parts(folder)
    before = tree(folder.path)
    (salvaged,) = folder.read().results
    assert salvaged == TrialResult(
        trial=PLANNED[0],
        outcome=Outcome.INTERRUPTED,
        reason=SWEEP_ENDED,
        stop_reason="interrupted",
        steps=(steps_of(1, 2, 10, 11, 100, 101),),
        started_at="2026-11-21T02:31:05.000000+00:00",
        steady=False,
    )
    assert folder.results() == ()
    assert folder.pending() == PLANNED
    assert tree(folder.path) == before


def test_what_the_trial_itself_knew_is_salvaged_too(folder: RunFolder) -> None:
    trial = three_parts(folder)
    trial.write_measured(result_of(PLANNED[0]))
    (salvaged,) = folder.read().results
    expected = dataclasses.replace(
        result_of(PLANNED[0]),
        outcome=Outcome.INTERRUPTED,
        reason=SWEEP_ENDED,
        stop_reason="interrupted",
        steps=(steps_of(1, 2, 10, 11, 100, 101),),
    )
    assert salvaged == expected


def test_who_was_cut_off_and_knew_how_far_it_had_come_is_taken_at_its_word(folder: RunFolder) -> None:
    trial = three_parts(folder)
    cut_off = dataclasses.replace(result_of(PLANNED[0]), outcome=Outcome.INTERRUPTED, reason="only the warm-up")
    trial.write_measured(cut_off)
    assert folder.read().results[0].reason == "only the warm-up"
    trial.write_measured(dataclasses.replace(cut_off, outcome=Outcome.CRASHED))  # it was over, and is so no longer
    assert folder.read().results[0].reason == SWEEP_ENDED
    trial.write_measured(cut_off)
    (trial.path / "result.json").write_bytes(b"{")  # it had come further, and that is lost
    assert folder.read().results[0].reason.startswith("its result cannot be read: ")


def test_a_trial_that_started_and_measured_nothing_is_told_apart_from_one_that_never_started(folder: RunFolder) -> None:
    begun(folder, PLANNED[1])
    (salvaged,) = folder.read().results
    assert (salvaged.trial, salvaged.steps) == (PLANNED[1], ())


def test_damaged_notes_of_a_trial_that_was_cut_off_do_not_stop_the_reader(folder: RunFolder) -> None:
    trial = three_parts(folder)
    for name in ("started.json", "measured.json"):
        (trial.path / name).write_bytes(b"{")
    (salvaged,) = folder.read().results
    assert salvaged.steps[0].wall_ns.tolist() == [1, 2, 10, 11, 100, 101]
    assert salvaged.gap("measured") is not None
    assert folder.begin(PLANNED[0], now=NOW) == 1


def test_results_outside_the_plan_come_last_and_unknown_ones_are_noted(folder: RunFolder) -> None:
    stray = trial_of_batch(64)
    begun(folder, stray)  # started.json says which trial it is
    folder.finish(result_of(PLANNED[2]))
    unknown = folder.path / "trials" / "abcdefabcdef"
    unknown.mkdir()
    TrialFolder(unknown).write_part(steps_of(1))
    run = folder.read()
    assert [result.trial for result in run.results] == [PLANNED[2], stray]
    assert run.notes[-1] == "trials/abcdefabcdef was left out: nothing readable says which trial it is."


# --- locking and creating ----------------------------------------------------------------------------------------

HOLD_LOCK = """
import sys
from pathlib import Path
from perf_diagnostics.store.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])).lock():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_second_sweep_is_told_which_process_writes_until_that_one_is_killed(tmp_path: Path) -> None:
    run = created(tmp_path, "run")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(RunError, match=rf"is being written by pid {other.pid} on "), run.lock():
            pytest.fail("the lock was given twice")
        assert run.read().planned == PLANNED  # reading needs no lock
        other.kill()
    assert f"pid {other.pid} " in (run.path / ".lock").read_text()  # left behind by the dead
    with run.lock():
        assert (run.path / ".lock").read_text().startswith(f"pid {os.getpid()} ")


def test_the_same_folder_object_cannot_be_locked_twice_and_keeps_the_lock_it_has(tmp_path: Path) -> None:
    run = created(tmp_path, "run")
    with run.lock():
        with pytest.raises(RunError, match=f"pid {os.getpid()}"), run.lock():
            pytest.fail("the lock was given twice")
        assert run.begin(PLANNED[0]) == 1
    with pytest.raises(RunError, match="must hold its lock"):
        run.begin(PLANNED[1])


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    run = created(tmp_path, "run")
    (tmp_path / "precious").write_text("precious")
    (run.path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(RunError, match=r"\.lock cannot be opened"), run.lock():
        pytest.fail("the lock was given")
    assert (tmp_path / "precious").read_text() == "precious"


def test_sweeps_that_start_in_the_same_second_get_a_folder_each(tmp_path: Path) -> None:
    start = threading.Barrier(8)
    made: list[RunFolder] = []

    def sweep() -> None:
        start.wait()
        made.append(created(tmp_path / "results"))

    threads = [threading.Thread(target=sweep) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stem = "2026-11-21-0231-05-mlp"
    assert {run.path.name for run in made} == {stem, *(f"{stem}-{n}" for n in range(2, 9))}
    assert all(RunFolder.open(run.path).header().name == run.path.name for run in made)


def test_a_name_that_is_taken_is_refused_and_the_first_run_stays(tmp_path: Path) -> None:
    first = created(tmp_path, "mine")
    before = tree(first.path)
    with pytest.raises(RunError, match="mine is already a run; resume it, or choose another name"):
        created(tmp_path, "mine")
    assert tree(first.path) == before
    (tmp_path / "other").mkdir()
    with pytest.raises(RunError, match="already exists and is no run"):
        created(tmp_path, "other")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file; give a folder"):
        created(tmp_path / "file", "x")


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "a\nb", "=cmd()", "ünï", "", ".x", "a" * 101])
def test_a_hostile_name_makes_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSettings):
        created(tmp_path / "results", name)
    assert list(tmp_path.rglob("*")) == []


def test_a_workload_with_a_hostile_name_makes_a_plain_folder(tmp_path: Path) -> None:
    trial = dataclasses.replace(PLANNED[0], workload="../../tmp/my.py:=build()")
    run = created(tmp_path, planned=(trial,))
    assert run.path == tmp_path / "2026-11-21-0231-05-tmp-my.py-build"
    assert run.read().planned == (trial,)
    assert created(tmp_path, planned=(*PLANNED, trial)).path.name == "2026-11-21-0231-05-mixed"


# --- finding -----------------------------------------------------------------------------------------------------


def test_latest_is_the_newest_by_its_record_not_by_name_or_folder_time(tmp_path: Path) -> None:
    newest = created(tmp_path, "a", seconds=9)
    created(tmp_path, "z", seconds=1)
    os.utime(tmp_path / "z", (2e9, 2e9))
    assert find_run("latest", tmp_path).path == newest.path
    assert [run.path.name for run in list_runs(tmp_path)] == ["a", "z"]


def test_of_two_runs_of_the_same_moment_the_later_name_is_the_latest(tmp_path: Path) -> None:
    created(tmp_path)
    created(tmp_path)
    assert find_run("latest", tmp_path).path.name == "2026-11-21-0231-05-mlp-2"


def test_latest_reads_the_time_zone_of_each_run(tmp_path: Path) -> None:
    for name, moment in (("a", "2026-11-21T03:00:00+02:00"), ("b", "2026-11-21T02:00:00")):
        path = created(tmp_path, name).path / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "created_at": moment}))
    assert [run.path.name for run in list_runs(tmp_path)] == ["b", "a"]


@pytest.mark.parametrize(
    "broken",
    ["", '{"kind": "run", "crea', "\0\0\0", "[]", '{"kind": 1}', '{"kind": "run"}', '{"kind":"run","created_at":"?"}'],
)
def test_a_broken_run_is_listed_by_the_time_of_its_file_and_says_why(broken: str, tmp_path: Path) -> None:
    for name, seconds in (("older", 0), ("newer", 20)):
        created(tmp_path, name, seconds=seconds)
    between = (NOW + timedelta(seconds=10)).timestamp()
    file = created(tmp_path, "broken").path / "run.json"
    file.write_text(broken)
    os.utime(file, (between, between))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "run.json").write_text('{"name": "another tool"}')
    newer, unreadable, older = list_runs(tmp_path)
    assert [run.path.name for run in (newer, unreadable, older)] == ["newer", "broken", "older"]
    assert newer.unreadable is None is older.unreadable
    assert unreadable.unreadable is not None and str(file) in unreadable.unreadable
    shutil.rmtree(newer.path)
    # latest must not quietly mean an older run
    with pytest.raises(RunError, match=re.escape(str(file))):
        find_run("latest", tmp_path)


def test_a_file_is_no_folder_of_runs(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(RunError, match="results is a file; give the folder in which the runs lie"):
        list_runs(tmp_path / "results")


def test_a_run_that_is_called_latest_or_test_is_a_run_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "results"
    created(root, "latest", seconds=0)
    created(root, "test", seconds=1)
    created(root, "newest", seconds=2)
    assert find_run("latest", root).path.name == "newest"
    assert find_run("test", root).path.name == "test"
    monkeypatch.chdir(root)
    assert find_run("./latest", root).header().name == "latest"
    assert find_run(Path("latest"), root).header().name == "latest"  # a Path is always a path
    monkeypatch.chdir(tmp_path)
    assert find_run("results/latest", root).header().name == "latest"
    assert find_run(str(root / "latest"), root).header().name == "latest"
    created(root, "after", seconds=-5)
    (root / "newest").rename(tmp_path / "newest")
    (root / "test").rename(tmp_path / "test")
    assert find_run("latest", root).header().name == "latest"  # by its age, not by its name


def test_a_name_means_the_run_in_the_results_folder_before_one_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "results"
    created(root, "both")
    here = created(tmp_path, "both")
    created(tmp_path, "only-here")
    monkeypatch.chdir(tmp_path)
    assert find_run("both", root).path == root / "both"
    assert find_run("./both", root).path.resolve() == here.path
    assert find_run("only-here", root).header().name == "only-here"


def test_a_dot_is_the_working_folder_and_a_tilde_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "results"
    run = created(root, "run")
    monkeypatch.chdir(run.path / "trials")
    assert find_run("..", root).header().name == "run"
    monkeypatch.chdir(run.path)
    assert find_run(".", root).header().name == "run"
    monkeypatch.setenv("HOME", str(run.path))
    monkeypatch.chdir(tmp_path)
    assert find_run("~", root).header().name == "run"


def test_a_linked_run_can_be_read(tmp_path: Path) -> None:
    run = created(tmp_path / "elsewhere", "run")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "link").symlink_to(run.path)
    assert find_run("link", tmp_path / "results").read() == run.read()
    assert find_run("latest", tmp_path / "results").read() == run.read()


@pytest.mark.parametrize("root_exists", [True, False])
def test_without_a_run_the_error_says_how_to_make_one(tmp_path: Path, root_exists: bool) -> None:
    root = tmp_path / "results"
    if root_exists:
        (root / "no-run").mkdir(parents=True)
        (root / "README.md").write_text("x")
        (root / "foreign").mkdir()
        (root / "foreign" / "run.json").write_text('{"name": "another tool"}')
    for spec in ("latest", "mine", str(root / "no-run")):
        with pytest.raises(RunError, match="`perf-diagnostics sweep` makes one"):
            find_run(spec, root)


def test_a_name_of_a_folder_or_file_that_is_no_run_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "inside").mkdir(parents=True)
    (tmp_path / "something").mkdir()
    (tmp_path / "train.py").touch()
    for name, why in (
        ("something", "something is a folder, but not a run: it holds no run.json"),
        ("inside", f"{Path('results', 'inside')} is a folder, but not a run: it holds no run.json"),
        ("train.py", "train.py is a file; a run is a folder"),
    ):
        with pytest.raises(RunError, match=re.escape(why)):
            find_run(name, "results")


def test_a_wrong_name_is_answered_with_the_nearest_ones(tmp_path: Path) -> None:
    created(tmp_path, "distilbert-1")
    created(tmp_path, "mlp")
    with pytest.raises(
        RunError, match=r"no run 'distilbert-2' in .*: there is distilbert-1, and 1 more \(`perf-diagnostics runs`\)\.$"
    ):
        find_run("distilbert-2", tmp_path)


@pytest.mark.parametrize("spec", ["", "../x", "..", "/", "/nonexistent", "a\0b", "a\nb", "=cmd()", "~nobody-here/x"])
def test_a_hostile_spec_is_no_run(tmp_path: Path, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError):
        find_run(spec, tmp_path / "results")


def test_a_newer_or_foreign_run_is_refused_with_the_reason(tmp_path: Path) -> None:
    created(tmp_path, "old", seconds=-9)
    path = created(tmp_path, "run").path / "run.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "schema": 2, "tool_version": "9.0"}))
    # latest must not quietly mean an older run
    with pytest.raises(RunError, match=r"run\.json has schema 2; .* Read it with perf-diagnostics 9\.0 or later"):
        find_run("latest", tmp_path)
    path.write_text(json.dumps({key: value for key, value in document.items() if key != "planned"}))
    with pytest.raises(RunError, match=r"run\.json: the key 'planned' is missing"):
        RunFolder.open(path.parent)
