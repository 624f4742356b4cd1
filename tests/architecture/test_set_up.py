"""The set-up scripts, with programs that only pretend to install: what an interruption, a second make or apt leaves."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Answers as python does where the scripts ask, and notes each call. What goes wrong is told by files in $STATE.
PRETENDED_PYTHON = """#!/usr/bin/env bash
echo "python $*" >>"$STATE/calls"
case "$1 ${2:-}" in
    "-m venv") sleep 0.3; mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo >"$3/pyvenv.cfg" ;;
    "-m pip") if [ -e "$STATE/network-is-down" ]; then exit 1; fi ;;
    "-c import"*) if [ -e "$STATE/python-is-old" ]; then exit 1; fi ;;
    "--version ") echo "Python 3.9.18" ;;
    "- ") cat >/dev/null; if [ -e "$STATE/pango-is-missing" ]; then exit 1; fi; echo complete ;;
esac
"""
PRETENDED_APT = """#!/usr/bin/env bash
echo "apt-get $*" >>"$STATE/calls"
if [ -e "$STATE/network-is-down" ]; then exit 100; fi
rm -f "$STATE/pango-is-missing"
"""
PRETENDED_ID = """#!/usr/bin/env bash
if [ -e "$STATE/not-root" ]; then echo 1000; else echo 0; fi
"""


@dataclass(frozen=True)
class Machine:
    """A checkout and the programs of a machine on which nothing is really installed."""

    checkout: Path
    state: Path

    def say(self, *facts: str) -> None:
        for fact in facts:
            (self.state / fact).touch()

    def unsay(self, fact: str) -> None:
        (self.state / fact).unlink()

    def start(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [f"scripts/{script}.sh", *arguments],
            cwd=self.checkout,
            env={"PATH": f"{self.state / 'bin'}:{os.environ['PATH']}", "STATE": str(self.state)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, script: str, *arguments: str) -> tuple[int, str]:
        process = self.start(script, *arguments)
        said, _ = process.communicate()
        return process.returncode, said

    def calls(self, of: str) -> list[str]:
        noted = self.state / "calls"
        return [line for line in noted.read_text().splitlines() if line.startswith(of)] if noted.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    checkout, state = tmp_path / "check out", tmp_path / "state"  # a space, as in many a home directory
    (state / "bin").mkdir(parents=True)
    programs = {
        "python3.11": PRETENDED_PYTHON,
        "python3": PRETENDED_PYTHON,
        "apt-get": PRETENDED_APT,
        "id": PRETENDED_ID,
    }
    for name, source in programs.items():
        (state / "bin" / name).write_text(source, encoding="utf-8")
        (state / "bin" / name).chmod(0o755)
    shutil.copytree(ROOT / "scripts", checkout / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, checkout)
    return Machine(checkout, state)


def test_a_finished_set_up_is_not_repeated(machine: Machine) -> None:
    first, _ = machine.run("set-up-environment", ".venv")
    calls = machine.calls("python")
    second, _ = machine.run("set-up-environment", ".venv")

    assert (first, second) == (0, 0)
    assert (machine.checkout / ".venv" / ".stamp").exists()
    assert machine.calls("python") == calls


def test_every_installation_keeps_to_the_constraints(machine: Machine) -> None:
    machine.run("set-up-environment", ".venv")
    installations = machine.calls("python -m pip install")

    assert len(installations) == 2
    assert all("--constraint constraints.txt" in line for line in installations)
    assert installations[-1].endswith("--editable . --group dev")


def test_a_failed_set_up_leaves_no_stamp_and_is_begun_anew(machine: Machine) -> None:
    machine.say("network-is-down")
    failed, _ = machine.run("set-up-environment", ".venv")
    half_a_package = machine.checkout / ".venv" / "half-a-package"
    half_a_package.touch()
    stamped_after_failure = (machine.checkout / ".venv" / ".stamp").exists()
    machine.unsay("network-is-down")
    succeeded, _ = machine.run("set-up-environment", ".venv")

    assert (failed != 0, stamped_after_failure) == (True, False)
    assert (succeeded, half_a_package.exists()) == (0, False)
    assert (machine.checkout / ".venv" / ".stamp").exists()
    assert not (machine.checkout / ".venv" / ".unfinished").exists()


def test_an_environment_somebody_made_is_never_emptied(machine: Machine) -> None:
    theirs = machine.checkout / "theirs"
    (theirs / "bin").mkdir(parents=True)
    shutil.copy(machine.state / "bin" / "python3.11", theirs / "bin" / "python")
    (theirs / "their-package").touch()
    machine.say("network-is-down")
    failed, _ = machine.run("set-up-environment", "theirs")
    machine.unsay("network-is-down")
    succeeded, _ = machine.run("set-up-environment", "theirs")

    assert (failed != 0, succeeded) == (True, 0)
    assert (theirs / "their-package").exists()
    assert machine.calls("python -m venv") == []


def test_changed_constraints_update_the_environment_in_place(machine: Machine) -> None:
    machine.run("set-up-environment", ".venv")
    installed = machine.checkout / ".venv" / "installed-package"
    installed.touch()
    stamp = machine.checkout / ".venv" / ".stamp"
    later = stamp.stat().st_mtime + 60
    os.utime(machine.checkout / "constraints.txt", (later, later))
    code, _ = machine.run("set-up-environment", ".venv")

    assert code == 0
    assert installed.exists()
    assert len(machine.calls("python -m venv")) == 1
    assert len(machine.calls("python -m pip install")) == 4  # two at first, two after the change


@pytest.mark.skipif(shutil.which("flock") is None, reason="without flock(1) set-ups are not kept apart")
def test_of_two_at_once_one_works_and_the_other_waits(machine: Machine) -> None:
    both = [machine.start("set-up-environment", ".venv") for _ in range(2)]
    ends = [(process.communicate(), process.returncode)[1] for process in both]

    assert ends == [0, 0]
    assert len(machine.calls("python -m venv")) == 1


def test_an_interpreter_that_is_too_old_is_named_and_nothing_made(machine: Machine) -> None:
    machine.say("python-is-old")
    code, said = machine.run("set-up-environment", ".venv")

    assert code != 0
    assert "needs CPython 3.11 or newer" in said
    assert "python3: Python 3.9.18" in said
    assert not (machine.checkout / ".venv").exists()


def test_where_pdf_works_nothing_is_installed(machine: Machine) -> None:
    assert machine.run("native-libraries", "python3.11") == (0, "")
    assert machine.calls("apt-get") == []


def test_root_gets_the_missing_libraries(machine: Machine) -> None:
    machine.say("pango-is-missing")
    code, said = machine.run("native-libraries", "python3.11")
    (installation,) = machine.calls("apt-get")

    assert code == 0
    assert "will be skipped" not in said
    assert installation.endswith("libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core")


@pytest.mark.parametrize(
    ("facts", "because", "attempts"),
    [
        (["not-root"], "only root may install system packages", 0),
        (["network-is-down"], "apt-get failed", 2),  # install, update
    ],
)
def test_libraries_that_cannot_be_installed_are_named_and_nothing_fails(
    machine: Machine, facts: list[str], because: str, attempts: int
) -> None:
    machine.say("pango-is-missing", *facts)
    code, said = machine.run("native-libraries", "python3.11")

    assert code == 0
    assert because in said
    assert "sudo apt-get install libpango-1.0-0" in said
    assert len(machine.calls("apt-get")) == attempts
