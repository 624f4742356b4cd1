"""Runs the arms of plants: real trials from one warm server, scripts under the command, made-up records and traces."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.trace import diagnose_traces
from perf_diagnostics.records import Environment, Length, Run, Settings, Trial
from perf_diagnostics.store.find import find_run
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.trials.launcher import ForkServer, Launcher
from perf_diagnostics.trials.sweep import Sweep
from tests.planted.plant import Arm, Records, Script, Seen, Trace, Trials

_SCRIPTS = Path(__file__).parent / "scripts"
_HOG = "while True: pass"

#: Stands in the folder of an arm whose runs are whole.
_DONE = "done"


@dataclass
class Workbench:
    """A folder for runs, one warm server for all trials, and what has been seen of each arm already.

    With ``keep`` the runs of real arms are found again in a folder that was used before, and not run anew.
    """

    root: Path
    keep: bool = False
    launch: Launcher = field(default_factory=ForkServer)
    _seen: dict[str, Seen] = field(default_factory=dict)

    def see(self, arm: Arm, seed: int = 0) -> Seen:
        """Run an arm (once for all plants that share it) and diagnose it."""
        key = f"{arm!r} {seed}"
        if key not in self._seen:
            self._seen[key] = self._look(arm, seed)
        return self._seen[key]

    def close(self) -> None:
        self.launch.close()

    def _look(self, arm: Arm, seed: int) -> Seen:
        if isinstance(arm, Trace):
            return Seen(None, diagnose_traces(arm.build(self.folder())).diagnosis)
        run = self._run(arm, seed)
        return Seen(run, diagnose(run))

    def _run(self, arm: Trials | Script | Records, seed: int) -> Run:
        if isinstance(arm, Records):
            return arm.build(seed)
        return self.trials(arm, seed) if isinstance(arm, Trials) else self.script(arm, seed)

    def trials(self, arm: Trials, seed: int) -> Run:
        """A sweep of real trials; a failed one is an outcome and no error."""
        planned = [
            Trial(
                workload=arm.workload,
                settings=Settings(batch_size=size).replace(**arm.settings),
                options=arm.options,
                length=Length.exactly(arm.steps, warmup_steps=8),
                seed=seed,
            )
            for size in arm.batch_sizes
        ]
        kept = self._kept(arm, seed)
        if (kept / _DONE).exists():
            return RunFolder.open(kept / "run").read()
        folder = RunFolder.create(
            kept,
            "run",
            planned=planned,
            command="planted",
            environment=Environment(),
            tool_version="0",
            now=datetime.now(UTC),
        )
        with hogs(arm.hogs):
            Sweep(folder, launch=self.launch, trial_timeout_s=120.0).run()
        (kept / _DONE).touch()
        return folder.read()

    def script(self, arm: Script, seed: int) -> Run:
        """A training script, unchanged, under the command."""
        results = self._kept(arm, seed)
        if (results / _DONE).exists():
            return find_run("latest", results).read()
        words = [sys.executable, "-m", "perf_diagnostics", "run", "--quiet", "--results-dir", str(results)]
        words += [str(_SCRIPTS / "train.py"), "--fault", arm.fault, "--steps", str(arm.steps), "--seed", str(seed)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=180)
        if done.returncode:
            raise RuntimeError(f"{words} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        (results / _DONE).touch()
        return find_run("latest", results).read()

    def _kept(self, arm: Trials | Script, seed: int) -> Path:
        """The folder of an arm's runs; empty, unless they are kept and whole."""
        if not self.keep:
            return self.folder()
        path = self.root / f"{hashlib.sha256(f'{arm!r} {seed}'.encode()).hexdigest()[:16]}"
        if path.exists() and not (path / _DONE).exists():
            shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def folder(self) -> Path:
        """A new, empty folder."""
        self.root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self.root))


@contextlib.contextmanager
def hogs(count: int) -> Iterator[None]:
    """So many processes that do nothing but compute, for as long as the block lasts."""
    environment = {"PATH": os.environ.get("PATH", "")}
    running = [subprocess.Popen([sys.executable, "-S", "-c", _HOG], env=environment) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
