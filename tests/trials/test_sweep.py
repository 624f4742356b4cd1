"""Whole sweeps in isolated processes: every ending is an outcome, and nothing measured is lost."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.errors import RunError
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.records import Environment, Json, Length, Outcome, Phase, Settings, Trial, TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.trials.launch.launcher import ForkServer, FreshInterpreter, Launcher, Request
from perf_diagnostics.trials.plan import Axes, plan
from perf_diagnostics.trials.sweep import Sweep, SweepEnd, skipped
from tests.outlives import Outlives
from tests.trials.pretended import Pretended

SHORT = Length.exactly(10, warmup_steps=2)


@pytest.fixture(scope="module")
def warm() -> Iterator[Launcher]:
    """One fork server for all tests of this file, as one sweep would keep it."""
    launch = ForkServer(("tests.trials_with_small_ceilings",))
    launch._warm_channel()  # started here and now: no test has changed the folder yet
    yield launch
    launch.close()


def trial(workload: str = "mlp", *, batch_size: int = 8, length: Length = SHORT, **options: Json) -> Trial:
    small: dict[str, Json] = {"width": 16, "depth": 1, "samples": 256}
    return Trial(
        workload=workload, settings=Settings(batch_size=batch_size), options={**small, **options}, length=length
    )


def run_folder(root: Path, *trials: Trial, name: str = "run") -> RunFolder:
    return RunFolder.create(
        root,
        name,
        planned=trials,
        command="test",
        environment=Environment(),
        tool_version="0",
        now=datetime.now(UTC),
    )


def sweep(root: Path, launch: Launcher, *trials: Trial, **arguments: float) -> tuple[RunFolder, SweepEnd]:
    folder = run_folder(root, *trials)
    return folder, Sweep(folder, launch=launch, **arguments).run()  # type: ignore[arg-type]


def by_batch(folder: RunFolder) -> dict[int, TrialResult]:
    return {result.trial.settings.batch_size: result for result in folder.read().results}


def test_a_trial_comes_home_with_everything(tmp_path: Path, warm: Launcher) -> None:
    folder, end = sweep(tmp_path, warm, trial(length=Length.exactly(60)))
    (result,) = folder.read().results
    assert result.outcome is Outcome.COMPLETED and not end.failed
    table = result.steps[0].steady
    assert len(table) >= 30
    assert sum(int(table.host_ns(phase).sum()) for phase in Phase) == int(table.wall_ns.sum())
    # Steps against an independent reading of the clock around each block.
    assert table.wall_ns.sum() / 1e9 == pytest.approx(result.value("measured_wall_s"), rel=1e-3)
    assert result.value("host_memory_peak") > 50e6
    assert result.series_named("host_memory").values.max() > 50e6
    assert result.environment.python["version"] == sys.version.split()[0]
    assert result.provenance["device_clock"] == "host"
    assert result.value("process_cpu_s") > 0
    assert result.gap("loop_run_delay_share") or 0 <= result.value("loop_run_delay_share") < 1
    assert result.gap("loop_cpu_share") or 0 < result.value("loop_cpu_share") <= 1
    assert "least steps" in result.facts["warmup_ended"]
    began_s = result.value("steps_began_s")
    assert 0 < began_s < result.series_named("host_memory").times_ns[-1] / 1e9
    assert result.gap("energy_cpu") or result.value("energy_cpu") is not None


def test_a_started_trial_is_on_disk_before_it_runs(tmp_path: Path, warm: Launcher) -> None:
    folder = run_folder(tmp_path, trial())

    class Looking:
        def start(self, request: Request) -> object:
            assert (Path(request.directory) / "started.json").exists()
            assert not (Path(request.directory) / "result.json").exists()
            return warm.start(request)

        def close(self) -> None: ...

    Sweep(folder, launch=Looking()).run()  # type: ignore[arg-type]
    assert (folder.trial_directory(trial()) / "result.json").exists()


@pytest.mark.parametrize(
    ("options", "outcome", "words"),
    [
        ({"crash_after": 5}, Outcome.CRASHED, "RuntimeError"),
        ({"exit_after": 5}, Outcome.CRASHED, "SIGKILL"),
        ({"nan_after": 5}, Outcome.NAN_LOSS, "nan at step 5"),
        ({"oom_above": 4}, Outcome.OUT_OF_MEMORY_DEVICE, "OutOfMemoryError"),
    ],
)
def test_what_goes_wrong_is_an_outcome_with_its_reason(
    tmp_path: Path, warm: Launcher, options: dict[str, Json], outcome: Outcome, words: str
) -> None:
    folder, end = sweep(tmp_path, warm, trial("faulty", **options), trial(batch_size=16))
    results = by_batch(folder)
    assert results[8].outcome is outcome
    assert words in results[8].reason
    assert results[16].outcome is Outcome.COMPLETED  # the sweep went on
    assert [result.trial.settings.batch_size for result in end.failed] == [8]


@pytest.mark.slow
def test_a_hanging_trial_is_ended_by_its_deadline(tmp_path: Path, warm: Launcher) -> None:
    hanging = trial("faulty", hang_after=3, length=Length.exactly(50))
    folder, _ = sweep(tmp_path, warm, hanging, trial(batch_size=16), trial_timeout_s=3, grace_s=0.3)
    results = by_batch(folder)
    assert results[8].outcome is Outcome.TIMEOUT
    assert "killed" in results[8].reason
    assert results[16].outcome is Outcome.COMPLETED


def test_settings_that_cannot_be_run_say_what_there_is(tmp_path: Path, warm: Launcher) -> None:
    nowhere = Trial(workload="mlp", settings=Settings(batch_size=8, device="cuda:7"), length=SHORT)
    folder, _ = sweep(tmp_path, warm, nowhere)
    (result,) = folder.read().results
    assert result.outcome is Outcome.INVALID_SETTINGS
    assert "cuda:7" in result.reason


def test_a_trials_record_says_on_which_device_it_ran(tmp_path: Path) -> None:
    gpu = DeviceInfo(name="cuda:0", kind="cuda", model="Tesla T4", uuid="GPU-bb", pci_bus_id="0000:3b:00")
    there = Trial(workload="mlp", settings=Settings(batch_size=8, device="cuda:0"), length=SHORT)
    folder = run_folder(tmp_path, trial(), there)
    Sweep(folder, launch=Pretended(lambda _settings: 0.01), devices=[gpu], examine=False).run()
    found = {result.trial.settings.device: result.environment.devices for result in folder.read().results}
    assert found["cpu"] == ()
    assert [(one["model"], one["uuid"]) for one in found["cuda:0"]] == [("Tesla T4", "GPU-bb")]


def test_after_out_of_memory_larger_batches_are_skipped_and_smaller_ones_run(tmp_path: Path, warm: Launcher) -> None:
    sizes = (64, 128, 16, 256, 8)
    folder, _ = sweep(tmp_path, warm, *(trial("faulty", batch_size=size, oom_above=32) for size in sizes))
    outcomes = {size: result.outcome for size, result in by_batch(folder).items()}
    assert outcomes == {
        64: Outcome.OUT_OF_MEMORY_DEVICE,
        128: Outcome.SKIPPED_LARGER_THAN_OOM,
        16: Outcome.COMPLETED,
        256: Outcome.SKIPPED_LARGER_THAN_OOM,
        8: Outcome.COMPLETED,
    }


def test_sentinels_run_in_their_places_and_come_home(tmp_path: Path, warm: Launcher) -> None:
    options: dict[str, Json] = {"width": 16, "depth": 1, "samples": 256}
    axes = Axes(workload="mlp", batch_sizes=(8, 16), options=options, length=SHORT, sentinel=True)
    folder, end = sweep(tmp_path, warm, *plan(axes))
    roles = [result.trial.role for result in sorted(folder.read().results, key=lambda result: result.started_at)]
    assert roles == ["sentinel", "", "", "sentinel"]
    assert not end.failed and folder.pending() == ()


def test_what_runs_out_of_memory_as_a_sentinel_need_not_be_tried_again() -> None:
    planned = plan(Axes(workload="mlp", batch_sizes=(8, 16, 32), sentinel=True))
    failed = TrialResult(trial=planned[0], outcome=Outcome.OUT_OF_MEMORY_HOST)
    known = {one.settings.batch_size: skipped(one, [failed], None) for one in planned if not one.role}
    assert planned[0].settings.batch_size == 8 and all(known.values())
    large = dataclasses.replace(failed, trial=next(t for t in planned if t.settings.batch_size == 32))
    assert skipped(planned[-1], [large], None) is None


def test_trials_skipped_for_lack_of_time_have_one_reason_however_long_ago_it_ended() -> None:
    trial = plan(Axes(workload="mlp", batch_sizes=(8,)))[0]
    ended = [skipped(trial, [], left_s) for left_s in (0.0, -3.2, -60.0)]
    assert {one and one.reason for one in ended} == {"the sweep's time budget was used up"}
    assert skipped(trial, [], 0.1) is None


def test_a_spent_budget_skips_what_is_left(tmp_path: Path, warm: Launcher) -> None:
    folder, end = sweep(tmp_path, warm, trial(), trial(batch_size=16), time_budget_s=-1.0)
    assert {result.outcome for result in folder.read().results} == {Outcome.SKIPPED_OVER_TIME_BUDGET}
    assert not end.failed


@pytest.mark.slow
def test_a_dead_server_is_started_again(tmp_path: Path) -> None:
    launch = ForkServer()
    try:
        sweep(tmp_path / "1", launch, trial())
        os.kill(launch._server.pid, signal.SIGKILL)  # type: ignore[union-attr]
        launch._server.wait()  # type: ignore[union-attr]
        folder, _ = sweep(tmp_path / "2", launch, trial())
        assert folder.read().results[0].outcome is Outcome.COMPLETED
    finally:
        launch.close()


@pytest.mark.slow
def test_without_forks_trials_run_in_fresh_interpreters(tmp_path: Path) -> None:
    folder, _ = sweep(tmp_path, FreshInterpreter(), trial())
    assert folder.read().results[0].outcome is Outcome.COMPLETED


def test_two_sweeps_cannot_write_one_run_and_two_runs_do_not_meet(tmp_path: Path, warm: Launcher) -> None:
    first, second = run_folder(tmp_path, trial(), name="a"), run_folder(tmp_path, trial(), name="b")
    with first.lock():
        with pytest.raises(RunError, match="being written by pid"):
            Sweep(RunFolder.open(first.path), launch=warm).run()
        Sweep(second, launch=warm).run()
    assert second.read().results[0].outcome is Outcome.COMPLETED
    assert not first.read().results


ROOT = Path(__file__).parents[2]
SIZES = ["1", "2", "4", "8", "16"]


def swept(sizes: list[str], steps: int) -> list[str]:
    """The command that sweeps so many sizes."""
    tiny = ["--workload", "mlp", "--option", "width=16", "--no-sentinel", "--name", "run", "--quiet"]
    return ["sweep", *tiny, "--batch-sizes", *sizes, "--steps", str(steps)]


RESUMED = ["sweep", "--resume", "run", "--quiet"]


def family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def started(words: list[str], cwd: Path) -> subprocess.Popen[bytes]:
    """The command in a process of its own, with a server of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "tests.trials.briefly", *words]
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def here(tmp_path: Path, warm: ForkServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a command in this process finds the runs of others; it has the warm server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("perf_diagnostics.trials.sweep.launcher", lambda preload: Outlives(warm))
    return tmp_path


def written(root: Path, name: str) -> dict[Path, int]:
    """When each trial's file of this name was written, in ns."""
    return {path: path.stat().st_mtime_ns for path in root.glob(f"results/run/trials/*/{name}")}


def wait_for(happened: Callable[[], object], process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None, f"it ended by itself, with {process.returncode}"
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.01)


@pytest.mark.slow
def test_kill_9_at_random_moments_then_resume(here: Path) -> None:
    """Nothing complete is run twice or lost, and no trial outlives its sweep."""
    randomly = random.Random(5)
    complete: dict[Path, int] = {}
    words = swept(SIZES, 200)
    for in_a_trial in (True, False, True):
        begun = written(here, "started.json")
        process = started(words, here)
        if in_a_trial:
            wait_for(lambda before=begun: written(here, "started.json") != before, process)
            time.sleep(randomly.uniform(0.0, 0.5))
        else:
            time.sleep(randomly.uniform(0.0, 3.0))  # while it starts, most likely
        children = family(process.pid)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive, "a trial outlived the sweep that was killed"
        now = written(here, "result.json")
        assert complete.items() <= now.items(), "a complete trial was lost or run again"
        complete = now
        RunFolder.open(here / "results/run").read()  # readable at every moment
        words = RESUMED
    assert len(complete) < len(SIZES)  # something is left
    assert main(RESUMED) == 0
    assert complete.items() <= written(here, "result.json").items()
    run = RunFolder.open(here / "results/run").read()
    assert [result.outcome for result in run.results] == [Outcome.COMPLETED] * len(SIZES)


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_can_be_reported_and_resumed(here: Path) -> None:
    process = started(swept(["1", "2"], 3000), here)
    wait_for(lambda: written(here, "steps.rank0-001.parquet"), process)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130
    run = RunFolder.open(here / "results/run").read()
    interrupted = [result for result in run.results if result.outcome is Outcome.INTERRUPTED]
    assert len(interrupted) == 1 and len(interrupted[0].steps[0]) > 0
    assert main(["report", "run", "--formats", "md"]) == 0
    assert "interrupted" in (here / "results/run/performance_report.md").read_text().lower()
    complete = written(here, "result.json")
    assert main(RESUMED) == 0
    assert complete.items() <= written(here, "result.json").items()
    run = RunFolder.open(here / "results/run").read()
    assert [result.outcome for result in run.results] == [Outcome.COMPLETED] * 2
