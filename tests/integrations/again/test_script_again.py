"""How a script is started as a trial, and where what it measured goes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
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


#: Starts a script as a trial, says as which process, and waits for it.
STARTS = """
import sys
from types import SimpleNamespace
from perf_diagnostics.integrations.again.script_again import ScriptAgain
from perf_diagnostics.records import Settings, Trial
from perf_diagnostics.store.files import codec

base = Settings(batch_size=8)
trial = codec.encode(Trial(workload="train", settings=base))
process = ScriptAgain(["train.py"], base).start(SimpleNamespace(trial=trial, directory="."))
print(process.pid, flush=True)
process.wait(1000)
"""


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
    trial = Trial(
        workload="train",
        settings=base.replace(num_workers=2, pin_memory=True),
        length=Length.exactly(30, warmup_steps=7),
    )
    ScriptAgain(["-m", "pkg.train", "--lr", "0.1"], base).start(Asked(codec.encode(trial), str(tmp_path)))
    (command,) = started.commands
    assert command[command.index("--parent") + 1] == str(os.getpid())
    assert command[-4:] == ["-m", "pkg.train", "--lr", "0.1"]
    assert command[command.index("--steps") + 1] == "30" and command[command.index("--warm-up-steps") + 1] == "7"
    forced = [command[at + 1] for at, word in enumerate(command) if word == "--with"]
    assert sorted(forced) == ["num_workers=2", "pin_memory=true"]


def test_what_was_forced_when_it_was_measured_is_forced_again(tmp_path: Path, started: Started) -> None:
    base = Settings(batch_size=8, num_workers=2)
    again = ScriptAgain(["train.py"], base, {"num_workers": 2})
    for settings in (base, base.replace(pin_memory=True), base.replace(num_workers=4)):
        again.start(Asked(codec.encode(Trial(workload="train", settings=settings)), str(tmp_path)))
    forced = [[word for at, word in enumerate(one) if one[at - 1] == "--with"] for one in started.commands]
    assert forced == [["num_workers=2"], ["num_workers=2", "pin_memory=true"], ["num_workers=4"]]


def test_what_a_killed_attempt_left_does_not_stand_in_the_way(tmp_path: Path, started: Started) -> None:
    left = tmp_path / "own" / "again"
    left.mkdir(parents=True)
    (left / "run.json").write_text("{}")
    base = Settings(batch_size=8)
    ScriptAgain(["train.py"], base).start(Asked(codec.encode(Trial(workload="train", settings=base)), str(tmp_path)))
    assert len(started.commands) == 1 and not left.exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells a process that its parent is gone")
def test_a_script_does_not_outlive_who_measures_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "runs")
    (tmp_path / "train.py").write_text("import signal\nopen('runs', 'w').write('it does')\nsignal.pause()\n")
    with subprocess.Popen([sys.executable, "-c", STARTS], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as measures:
        assert measures.stdout is not None
        script = int(measures.stdout.readline())
        ended = os.pidfd_open(script)
        try:
            assert (tmp_path / "runs").read_text() == "it does"
            measures.kill()
            assert select.select([ended], [], [], 30)[0]
        finally:
            measures.kill()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(ended, signal.SIGKILL)
            os.close(ended)
