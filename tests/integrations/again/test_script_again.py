"""How a script is started as a trial, and where what it measured goes."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.integrations.again.script_again import ScriptAgain
from perf_diagnostics.records import Json, Length, Settings, Trial
from perf_diagnostics.store.files import codec


@dataclass
class Asked:
    """A request for a trial."""

    trial: dict[str, Json]
    directory: str


@dataclass
class Started:
    """Stands for the processes that would be started."""

    commands: list[list[str]] = field(default_factory=list)
    pid: int = 1

    def __call__(self, command: list[str], **_: Any) -> Started:
        self.commands.append(command)
        return self


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    started = Started()
    monkeypatch.setattr(subprocess, "Popen", started)
    return started


def test_only_what_differs_from_the_script_is_forced_on_it(tmp_path: Path, started: Started) -> None:
    base = Settings(batch_size=8, precision="float32")
    trial = Trial(workload="train", settings=base.replace(num_workers=2, pin_memory=True), length=Length.exactly(30))
    ScriptAgain(["-m", "pkg.train", "--lr", "0.1"], base).start(Asked(codec.encode(trial), str(tmp_path)))
    (command,) = started.commands
    assert command[-4:] == ["-m", "pkg.train", "--lr", "0.1"]
    assert command[command.index("--steps") + 1] == "30"
    forced = [command[at + 1] for at, word in enumerate(command) if word == "--with"]
    assert sorted(forced) == ["num_workers=2", "pin_memory=true"]


def test_what_a_killed_attempt_left_does_not_stand_in_the_way(tmp_path: Path, started: Started) -> None:
    left = tmp_path / "own" / "again"
    left.mkdir(parents=True)
    (left / "run.json").write_text("{}")
    base = Settings(batch_size=8)
    ScriptAgain(["train.py"], base).start(Asked(codec.encode(Trial(workload="train", settings=base)), str(tmp_path)))
    assert len(started.commands) == 1 and not left.exists()
