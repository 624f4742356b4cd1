"""Runs the arms of plants: real trials from one warm server, scripts under the command, made-up records and traces."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.trace import diagnose_traces
from perf_diagnostics.records import Environment, Length, Run, Settings, Trial
from perf_diagnostics.store.find import find_run
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.trials.launch.launcher import ForkServer, Launcher
from perf_diagnostics.trials.sweep import Sweep
from tests.planted.plant import Arm, Plant, Records, Script, Seen, Torchrun, Trace, Trials

_SCRIPTS = Path(__file__).parent / "scripts"
_HOG = "while True: pass"
_SCRIPT_TIMEOUT_S = 180.0

#: Stands in the folder of an arm whose runs are whole.
_DONE = "done"


@dataclass(frozen=True)
class Turn:
    """What one turn of a plant's arms brought."""

    faulty: Seen
    control: Seen | None = None
    fix: Seen | None = None

    @property
    def gain(self) -> float | None:
        """The part of the time a sample takes that the fix saves; None without one, or where an arm broke off."""
        if self.fix is None or not all(seen.run and seen.run.completed for seen in (self.faulty, self.fix)):
            return None
        return 1 - self.fix.s_per_sample / self.faulty.s_per_sample


def mean_gain(turns: Sequence[Turn]) -> float | None:
    """The gain over all turns, by the geometric mean of what is left; None without a fix."""
    left = [1 - gain for turn in turns if (gain := turn.gain) is not None]
    return 1 - math.prod(left) ** (1 / len(left)) if left else None


def _arms(plant: Plant) -> dict[str, Arm]:
    """The arms of a plant that differ."""
    return {repr(arm): arm for arm in (plant.control, plant.faulty, plant.fix) if arm is not None}


def _turn(plant: Plant, number: int) -> str:
    return f"{plant.name} {number}"


def _sizes(arm: Arm) -> int:
    """How many runs an arm takes."""
    return len(arm.batch_sizes) if isinstance(arm, Trials) else 1


def _key(arm: Arm, seed: int, turn: str) -> str:
    return f"{arm!r} {seed} {turn}".rstrip()


class Starter(Protocol):
    """How scripts are started; see ``WarmStart`` in ``warm.py``, and ``FreshStart``."""

    def run(
        self, words: Sequence[str], environments: Sequence[Mapping[str, str]], *, said: Path, timeout_s: float
    ) -> list[int]: ...

    def close(self) -> None: ...


class FreshStart:
    """Starts each process as a new interpreter, as users do."""

    def run(
        self, words: Sequence[str], environments: Sequence[Mapping[str, str]], *, said: Path, timeout_s: float
    ) -> list[int]:
        started = []
        for number, environment in enumerate(environments):
            with (said / str(number)).open("wb") as errors:
                command = [sys.executable, "-m", "perf_diagnostics", *words]
                started.append(
                    subprocess.Popen(command, env=dict(environment), stdout=subprocess.DEVNULL, stderr=errors)
                )
        try:
            return [process.wait(timeout=timeout_s) for process in started]
        finally:
            for process in started:
                process.kill()

    def close(self) -> None:
        """Nothing is kept."""


@dataclass
class Workbench:
    """A folder for runs, one warm server for all trials, and what has been seen of each arm already.

    With ``keep`` the runs of real arms are found again in a folder that was used before, and not run anew.
    """

    root: Path
    keep: bool = False
    launch: Launcher = field(default_factory=ForkServer)
    start: Starter = field(default_factory=FreshStart)
    #: How many real runs were made, and not found again.
    ran: int = 0
    _seen: dict[str, Seen] = field(default_factory=dict)
    _turn: str = ""

    def see(self, arm: Arm, seed: int = 0, *, turn: str = "") -> Seen:
        """Run an arm and diagnose it: once for all plants that share it, or once for each ``turn``."""
        self._turn = turn
        key = _key(arm, seed, turn)
        if key not in self._seen:
            self._seen[key] = self._look(arm, seed)
        return self._seen[key]

    def abba(self, plant: Plant, seed: int) -> tuple[Turn, Turn]:
        """Each arm of a real plant twice, in fresh processes: control, faulty, fix, fix, faulty, control.

        A machine that gets slower all the while does so to all arms alike. Every second seed begins with the fix. Two
        arms that are the same run once a turn.
        """
        arms = _arms(plant)
        order = list(arms) if seed % 2 == 0 else list(arms)[::-1]
        seen = [
            {name: self.see(arms[name], seed, turn=_turn(plant, turn)) for name in names}
            for turn, names in enumerate((order, order[::-1]))
        ]
        first, second = (
            Turn(found[repr(plant.faulty)], found.get(repr(plant.control)), found.get(repr(plant.fix)))
            for found in seen
        )
        return first, second

    def once(self, plant: Plant, seed: int) -> Turn:
        """Each arm of a plant once, and not again where another plant has the same one."""
        control, fix = (None if arm is None else self.see(arm, seed) for arm in (plant.control, plant.fix))
        return Turn(self.see(plant.faulty, seed), control, fix)

    def missing(self, plant: Plant, seed: int, *, once: bool = False) -> int:
        """How many runs :meth:`abba`, or :meth:`once`, would make that are not there yet.

        None for made-up records and traces.
        """
        if not plant.real:
            return 0
        turns = [""] if once else [_turn(plant, turn) for turn in range(2)]
        places = [
            self._place(arm, seed, turn) for arm in _arms(plant).values() for turn in turns for _ in range(_sizes(arm))
        ]
        return sum(not (self.keep and (place / _DONE).exists()) for place in places)

    def close(self) -> None:
        self.launch.close()
        self.start.close()

    def _look(self, arm: Arm, seed: int) -> Seen:
        if isinstance(arm, Trace):
            return Seen(None, diagnose_traces(arm.build(self.folder())).diagnosis)
        run = self._run(arm, seed)
        return Seen(run, diagnose(run))

    def _run(self, arm: Trials | Script | Torchrun | Records, seed: int) -> Run:
        if isinstance(arm, Records):
            return arm.build(seed)
        if isinstance(arm, Torchrun):
            return self.torchrun(arm, seed)
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
        self.ran += _sizes(arm)
        (kept / _DONE).touch()
        return folder.read()

    def script(self, arm: Script, seed: int) -> Run:
        """A training script, unchanged, under the command."""
        return self._script(arm.file, arm, seed, [os.environ], deep=arm.deep)

    def torchrun(self, arm: Torchrun, seed: int) -> Run:
        """As torchrun starts it: a process a rank, which find each other by the variables that torchrun sets."""
        for_all = {**os.environ, "WORLD_SIZE": str(arm.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        of_ranks = [for_all | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(arm.ranks)]
        return self._script("ranks.py", arm, seed, of_ranks)

    def _script(
        self,
        name: str,
        arm: Script | Torchrun,
        seed: int,
        environments: Sequence[Mapping[str, str]],
        *,
        deep: bool = False,
    ) -> Run:
        results = self._kept(arm, seed)
        if (results / _DONE).exists():
            return find_run("latest", results).read()
        words = ["run", "--quiet", "--results-dir", str(results), *(["--deep"] * deep)]
        words += [str(_SCRIPTS / name), "--fault", arm.fault, "--steps", str(arm.steps), "--seed", str(seed)]
        with tempfile.TemporaryDirectory() as said:
            codes = self.start.run(words, environments, said=Path(said), timeout_s=_SCRIPT_TIMEOUT_S)
            if any(codes):
                lines = [path.read_text()[-2000:] for path in sorted(Path(said).iterdir())]
                raise RuntimeError(f"{words} ended with {codes}:\n{lines}")
        self.ran += 1
        (results / _DONE).touch()
        return find_run("latest", results).read()

    def _kept(self, arm: Trials | Script | Torchrun, seed: int) -> Path:
        """The folder of an arm's runs; empty, unless they are kept and whole."""
        if not self.keep:
            return self.folder()
        path = self._place(arm, seed, self._turn)
        if path.exists() and not (path / _DONE).exists():
            shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _place(self, arm: Arm, seed: int, turn: str) -> Path:
        return self.root / hashlib.sha256(_key(arm, seed, turn).encode()).hexdigest()[:16]

    def folder(self) -> Path:
        """A new, empty folder."""
        self.root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self.root))


def free_port() -> str:
    """A port of this machine that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


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
