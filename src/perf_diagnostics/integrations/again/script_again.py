"""Runs a script of the user's as a trial: in a process of its own, for some steps, with the trial's settings forced.

What it measures goes into a run folder inside the trial's, from where the steps and what is known of them are moved to
where a trial's own process would have written them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from perf_diagnostics.errors import PerfDiagnosticsError
from perf_diagnostics.measure.code.code_watch import OFF_VARIABLE
from perf_diagnostics.records import Json, Settings, Trial
from perf_diagnostics.store.files import codec
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.store.trial_folder import TrialFolder

_RUNS, _RUN = "own", "again"


class Wanted(Protocol):
    """What is to be run: a trial in its canonical form, and the folder for what comes of it."""

    @property
    def trial(self) -> dict[str, Json]: ...

    @property
    def directory(self) -> str: ...


class ScriptAgain:
    """Starts a script again and again, each time as the trial that is asked for.

    Args:
        words: the script and its arguments, as ``perf-diagnostics run`` takes them (``-m`` first for a module).
        base: what the script did when it was measured; a trial's settings that are others are forced on it.
        forced: settings that were forced on it then, and are each time.
    """

    def __init__(self, words: Sequence[str], base: Settings, forced: Mapping[str, Json] | None = None) -> None:
        self._words = tuple(words)
        self._base = base.canonical()
        self._forced = dict(forced or {})

    def start(self, request: Wanted) -> ScriptProcess:
        """Start the script; returns at once."""
        trial = codec.decode(Trial, request.trial, where="the request")
        directory = Path(request.directory)
        shutil.rmtree(directory / _RUNS, ignore_errors=True)  # what a killed attempt left, whose name is taken
        command = [sys.executable, "-m", "perf_diagnostics", "run", "--quiet", "--parent", str(os.getpid())]
        command += ["--results-dir", str(directory / _RUNS), "--name", _RUN]
        command += ["--steps", str(trial.length.max_steps), "--warm-up-steps", str(trial.length.warmup_steps)]
        for name, value in self._changed(trial.settings.canonical()).items():
            command += ["--with", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
        with (directory / "output.txt").open("ab") as output:
            process = subprocess.Popen(
                [*command, *self._words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, OFF_VARIABLE: "0"},
            )
        return ScriptProcess(process, directory)

    def close(self) -> None:
        """Nothing is kept."""

    def _changed(self, settings: Mapping[str, Json]) -> dict[str, Json]:
        changed = {name: value for name, value in settings.items() if self._base.get(name) != value}
        return self._forced | changed


class ScriptProcess:
    """A script under way."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._directory = directory
        self._moved = False

    def wait(self, timeout_s: float) -> int | None:
        """The exit code (negative: the signal it died of) once it has ended, else None after ``timeout_s``."""
        try:
            code = self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None
        if not self._moved:
            self._moved = True
            _move(self._directory)
        return code


def _move(directory: Path) -> None:
    """Put what the script's own run holds where the trial's is expected; nothing where it measured nothing."""
    runs, folder = directory / _RUNS, TrialFolder(directory)
    with contextlib.suppress(PerfDiagnosticsError):
        for result in RunFolder.open(runs / _RUN).read().results:
            for rank, table in enumerate(result.steps):
                folder.write_part(table, rank=rank)
            folder.write_measured(result)
    shutil.rmtree(runs, ignore_errors=True)
