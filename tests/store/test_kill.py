"""A sweep that is killed at any moment loses nothing that was complete, and can always be read and resumed."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.errors import RunError
from perf_diagnostics.records import Environment, Outcome, Series, Trial
from perf_diagnostics.store.files.whole_files import is_temporary
from perf_diagnostics.store.find import find_run
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.store.trial_folder import TrialFolder
from tests.store.examples import NOW, result_of, steps_of, trial_of_batch

ROOT = Path(__file__).parents[2]
FIRST, SECOND, LATER = trial_of_batch(1), trial_of_batch(2), trial_of_batch(4)
POWER = Series("cpu_power", "W", "RAPL", np.array([1, 2]), np.array([3.0, 4.0]))


class Killed(BaseException):
    """Ends the program as a kill does: nothing afterwards touches the disk, ``finally`` blocks included."""


class Death:
    """Lets ``before`` file operations happen and then none; a file being written is cut in half."""

    #: What changes the disk or waits for it. Writing itself has no hook: its prefixes are the cut files.
    DEEDS = ("mkdir", "fsync", "replace", "unlink")

    def __init__(self, patch: pytest.MonkeyPatch, *, before: int) -> None:
        self.left = before
        self.deeds: list[str] = []
        for name in self.DEEDS:
            # The process dies here, not the machine, so what fsync would wait for need not be waited for.
            real = (lambda _handle: None) if name == "fsync" else getattr(os, name)
            patch.setattr(os, name, self._counting(name, real))

    def _counting(self, name: str, real: Any) -> Any:
        def deed(*args: Any, **kwargs: Any) -> Any:
            if self.left <= 0:
                raise Killed
            self.left -= 1
            self.deeds.append(name)
            return real(*args, **kwargs)

        return deed


def sweep(root: Path, acknowledged: list[str]) -> None:
    """Everything a sweep writes; what has been promised to its caller is noted in ``acknowledged``."""
    run = RunFolder.create(
        root, "run", planned=[FIRST, SECOND], command="x", environment=Environment(), tool_version="0.1.0", now=NOW
    )
    acknowledged.append("run")
    with run.lock():
        run_trial(run, FIRST, acknowledged)
        run.begin(SECOND, now=NOW)  # an attempt that fails …
        TrialFolder(run.trial_directory(SECOND)).write_part(steps_of(7, 7))
        run_trial(run, SECOND, acknowledged)  # … and is begun again
        run.extend_plan([LATER])
        acknowledged.append("plan")
        run_trial(run, LATER, acknowledged)


def run_trial(run: RunFolder, trial: Trial, acknowledged: list[str]) -> None:
    run.begin(trial, now=NOW)
    folder = TrialFolder(run.trial_directory(trial))
    folder.write_part(steps_of(10, 20))
    folder.write_part(steps_of(30))
    folder.write_measured(result_of(trial))
    run.finish(dataclasses.replace(result_of(trial), series=(POWER,)))
    acknowledged.append(trial.id)


def whole(trial: Trial) -> Any:
    return dataclasses.replace(result_of(trial), steps=(steps_of(10, 20, 30),), series=(POWER,))


def cut_files_in_half(root: Path) -> None:
    """A killed process may leave any prefix of the file that it was writing; only temporary ones are ever written."""
    for path in root.rglob("*"):
        if is_temporary(path.name):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def operations(tmp_path: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        death = Death(patch, before=10**9)
        sweep(tmp_path / "dry", [])
    return len(death.deeds)


def test_a_kill_after_any_file_operation_loses_nothing_complete_and_can_be_resumed(tmp_path: Path) -> None:
    total = operations(tmp_path)
    assert total > 60
    salvaged_with_steps = 0
    for before in range(total):
        root = tmp_path / str(before)
        acknowledged: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            Death(patch, before=before)
            with pytest.raises(Killed):
                sweep(root, acknowledged)
        cut_files_in_half(root)

        if not (root / "run" / "run.json").exists():
            assert acknowledged == []
            with pytest.raises(RunError, match="makes one"):
                find_run("latest", root)
            continue
        run = find_run("latest", root)
        results = {result.trial.id: result for result in run.read().results}
        complete = {result.trial.id for result in run.results()}
        planned = (
            [FIRST, SECOND]
            if "plan" not in acknowledged and LATER not in run.header().planned
            else [FIRST, SECOND, LATER]
        )
        # A kill between the rename and the return leaves one more trial complete than its caller was told.
        assert {i for i in acknowledged if len(i) == 12} <= complete
        assert [trial for trial in planned if trial.id not in complete] == list(run.pending())
        for trial in (FIRST, SECOND, LATER):
            if trial.id in complete:
                assert results[trial.id] == whole(trial)
        for salvaged in (one for one in run.read().results if one.trial.id not in complete):
            assert salvaged.outcome is Outcome.INTERRUPTED
            walls = [table.wall_ns.tolist() for table in salvaged.steps]
            assert walls in ([], [[10, 20]], [[10, 20, 30]], [[7, 7]]), "parts of two attempts are never mixed"
            salvaged_with_steps += bool(walls)
        with pytest.MonkeyPatch.context() as patch, run.lock():
            Death(patch, before=10**9)
            for trial in run.pending():
                run_trial(run, trial, [])
        assert run.read().results == tuple(whole(trial) for trial in planned)
    assert salvaged_with_steps > 5


SWEEP_FOREVER = """
import dataclasses, sys
from pathlib import Path
from perf_diagnostics.records import Environment
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.store.trial_folder import TrialFolder
from tests.store.examples import NOW, result_of, steps_of, trial_of_batch
trials = [trial_of_batch(size) for size in range(1, 2000)]
run = RunFolder.create(Path(sys.argv[1]), "run", planned=trials, command="x", environment=Environment(),
                       tool_version="0", now=NOW)
with run.lock():
    for trial in trials:
        run.begin(trial, now=NOW)
        folder = TrialFolder(run.trial_directory(trial))
        for _ in range(3):
            folder.write_part(steps_of(10, 20))
        folder.write_measured(result_of(trial))
        run.finish(result_of(trial))
        print(trial.id, flush=True)
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_a_sweep_killed_for_real_keeps_every_result_it_had_reported(tmp_path: Path, seed: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SWEEP_FOREVER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        reported = [process.stdout.readline().strip() for _ in range(4)]
        time.sleep(random.Random(seed).uniform(0.0, 0.05))
        process.send_signal(signal.SIGKILL)
        reported += process.stdout.read().split()
    run = find_run("latest", tmp_path)
    done = [result.trial.id for result in run.results()]
    assert done[: len(reported)] == reported
    assert len(done) - len(reported) in (0, 1)
    assert all(result.steps[0].wall_ns.tolist() == [10, 20] * 3 for result in run.results())
    assert len(run.pending()) == 1999 - len(done)
    assert len(run.read().results) - len(done) in (0, 1)
    with run.lock():  # the dead process's lock is no obstacle
        run_trial(run, run.pending()[0], [])


def test_every_file_appears_by_a_rename_and_result_json_after_all_it_completes_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: set[str] = set()
    renamed: dict[str, set[str]] = {}  # the last rename to a path, and what had reached the disk by then
    real_replace = os.replace

    def replace(source: Path, target: Path) -> None:
        renamed[str(target)] = set(on_disk) | ({str(target)} if str(source) in on_disk else set())
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda handle: on_disk.add(str(Path(f"/proc/self/fd/{handle}").readlink())))
    monkeypatch.setattr(os, "replace", replace)
    sweep(tmp_path, [])
    files = {str(path) for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    assert files == set(renamed)
    for path in files:
        if Path(path).name in ("run.json", "started.json", "result.json"):
            assert path in renamed[path], "its own content is on disk before its name is"
        if Path(path).name == "result.json":
            others = {other for other in files if Path(other).parent == Path(path).parent} - {path}
            assert len(others) == 5
            parts = {other for other in others if not other.endswith("started.json")}  # on disk by its temporary name
            assert parts <= renamed[path]
