"""``completion``: what a word may become, and that a shell gets it."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.cli.command_line import COMMANDS, parser
from perf_diagnostics.cli.completion import SCRIPTS, WITHOUT_COMMAND, words
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of
from tests.diagnose.two_runs import machine
from tests.store.examples import NOW


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place, name in (("results", "before-1"), ("results", "before-2"), ("elsewhere", "after")):
        planned = [trial_of(forward=0.1).trial]
        RunFolder.create(
            Path(place), name, planned=planned, command="", environment=machine(), tool_version="0", now=NOW
        )


def of(line: str) -> list[str]:
    """Of what is typed, up to the end of it."""
    (commands,) = (one for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    return words(commands.choices, line.split(" "))


@pytest.mark.parametrize(("line", "found"), [
    ("dia", ["diagnose"]),
    ("r", ["run", "runs", "report"]),
    ("--v", ["--version"]),
    ("diagnose --t", ["--threshold", "--time-budget"]),  # not --time_budget
    ("diagnose before-2 --j", ["--json"]),
    ("diagnose be", ["before-2", "before-1"]),
    ("diagnose ", ["before-2", "before-1", "latest"]),
    ("diagnose --results-dir elsewhere ", ["after", "latest"]),
    ("diagnose before-1 ", []),  # it takes one
    ("diagnose --with bef", ["before-2", "before-1"]),
    ("diagnose --time-budget ", []),
    ("diagnose --time-budget 5 bef", ["before-2", "before-1"]),
    ("compare before-1,bef", ["before-1,before-2", "before-1,before-1"]),
    ("compare before-1 lat", ["latest"]),
    ("compare before-1 before-2 ", []),
    ("export --to chrome,p", ["chrome,parquet", "chrome,prometheus"]),
    ("export --to csv ten", ["tensorboard"]),
    ("export --to csv --o", ["--output"]),
    ("report --formats p", ["pdf", "pptx", "plots"]),
    ("sweep --weights ", ["random", "pretrained"]),
    ("sweep --resume bef", ["before-2", "before-1"]),
    ("sweep --resume before-1 --qu", ["--quick", "--quiet"]),
    ("manifest v", ["verify"]),
    ("manifest verify ", []),
    ("run --l", ["--live"]),
    ("run --name one --l", ["--live"]),
    ("run train.py --l", []),  # of the script
    ("run -m package.train --l", []),
    ("explain inp001 ", []),
    ("workloads ml", ["mlp"]),
    ("sweep --workload ml", ["mlp"]),
    ("completion ", ["bash", "zsh", "fish"]),
    ("nonsense --", []),
])  # fmt: skip
def test_what_a_word_may_become(line: str, found: list[str]) -> None:
    assert of(line) == found


def test_every_command_and_every_rule_is_offered() -> None:
    assert len(of("")) == len(COMMANDS)
    assert tuple(option for action in parser()._actions for option in action.option_strings) == WITHOUT_COMMAND
    codes = of("explain ")
    assert len(codes) > 90 and {"INP001", "CMP022"} <= set(codes)
    assert of("confirm --only INP00") == [code for code in codes if code.startswith("INP00")]


@pytest.mark.parametrize("shell", list(SCRIPTS))
def test_the_script_is_printed_and_completes_both_names(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script == SCRIPTS[shell]
    assert "perf-diagnostics" in script and "perfdiag" in script and " completion words " in script


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "tcsh"])
    assert "'tcsh' is not one of bash, zsh, fish" in capsys.readouterr().err


def test_a_word_that_is_a_flag_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "words", "diagnose", "--js"]) == 0
    assert capsys.readouterr().out == "--json\n"
    assert main(["completion", "words"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "run"


#: What each shell does when the key is pressed: asks the function for the last of these words.
_PRESSES = {
    "bash": 'source {script}; COMP_WORDS=(perf-diagnostics diagnose "be"); COMP_CWORD=2; _perf_diagnostics; '
    'printf "%s\\n" "${{COMPREPLY[@]}}"',
    "fish": "source {script}; complete -C 'perf-diagnostics diagnose be'",
    "zsh": "compdef() {{ :; }}; compadd() {{ shift; print -l -- $@; }}; source {script}; "
    "words=(perf-diagnostics diagnose be); CURRENT=3; _perf_diagnostics",
}


@pytest.mark.parametrize("shell", list(SCRIPTS))
def test_a_shell_gets_the_words(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is missing: install it to see its completion tried")
    script, program = tmp_path / f"script.{shell}", tmp_path / "bin" / "perf-diagnostics"
    script.write_text(SCRIPTS[shell])
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m perf_diagnostics "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    command = [found, "-c", _PRESSES[shell].format(script=script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.split() == ["before-2", "before-1"], done.stderr
