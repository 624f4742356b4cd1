"""The make targets: their names are an interface, each says what it does, and each can be made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = """
    help setup smoke list-devices
    benchmark benchmark-cpu benchmark-gpu benchmark-quick benchmark-all
    analyse analyse-plots analyse-insights analyse-compare confirm largest-batch
    report report-pdf report-pptx report-full quick-report
    manifest verify-manifest release
    test test-all test-planted test-analysis test-reporting lint check
    clean setup-pre-commit kaggle-notebook kaggle-dataset
""".split()  # noqa: SIM905 - a line a group reads better than 35 lines

#: What is slow, or needs something that a fresh machine lacks.
MARKERS = ("slow", "planted", "gpu", "browser", "office")

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str) -> str:
    """What make prints; it has to end well, and without a warning such as that of a target defined twice."""
    # Nothing of a `make test VENV=...` that started these tests is to reach the make they start.
    bare = {"PATH": os.environ["PATH"]}
    result = subprocess.run(["make", *arguments], cwd=ROOT, env=bare, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def commands(target: str, *variables: str) -> list[str]:
    """The project's own commands a target would run, one line each, white space made even."""
    joined = make("--dry-run", target, *variables).replace("\\\n", " ")
    lines = [" ".join(line.split()) for line in joined.splitlines()]
    return [line.removeprefix(".venv/bin/") for line in lines if line.startswith(".venv/bin/")]


def test_help_is_what_make_alone_prints() -> None:
    assert make() == make("help")


def test_help_explains_every_target() -> None:
    explained = dict(re.findall(r"^  ([a-z-]+) +(\S.*)$", make("help"), flags=re.MULTILINE))

    assert sorted(explained) == sorted(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_can_be_made(target: str) -> None:
    assert make("--dry-run", target).strip()


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"help", "clean"}))
def test_the_first_target_used_makes_the_environment(target: str, tmp_path: Path) -> None:
    planned = make("--dry-run", target, f"VENV={tmp_path}/new")

    assert planned.splitlines()[0] == f"scripts/set-up-environment.sh '{tmp_path}/new' ''"


@pytest.mark.parametrize("target", ["help", "clean"])
def test_asking_and_cleaning_up_need_no_environment(target: str, tmp_path: Path) -> None:
    assert "set-up-environment" not in make("--dry-run", target, f"VENV={tmp_path}/new")


def test_what_was_measured_is_what_is_reported() -> None:
    assert commands("benchmark-all") == ["perf-diagnostics sweep --allow-failures --devices all"]
    assert commands("report-full") == [
        "perf-diagnostics report 'latest' --formats html,pdf,pptx,md,json,plots --seal",
    ]


def test_variables_reach_the_command_line() -> None:
    given = ["WORKLOAD=mlp", "BATCH_SIZES=1 2", "TIME_BUDGET=9", "RESULTS=out", "ARGS=--seed 3"]

    assert commands("benchmark-cpu", *given) == [
        "perf-diagnostics sweep --allow-failures --devices cpu --workload 'mlp' --batch-sizes 1 2 --time-budget 9 "
        "--results-dir 'out' --seed 3"
    ]
    assert commands("verify-manifest", "RUN=monday", "RESULTS=out") == [
        "perf-diagnostics manifest verify 'monday' --results-dir 'out'"
    ]


def test_a_release_is_measured_analysed_reported_sealed_and_verified_in_this_order() -> None:
    steps = [" ".join(line.split()[1:3]) for line in commands("release", "--jobs=4")]

    assert steps == [
        "sweep --allow-failures",
        "diagnose 'latest'",
        "report 'latest'",
        "report 'latest'",
        "manifest verify",
    ]
    assert sum("--seal" in line for line in commands("release")) == 1


@pytest.mark.parametrize("marker", MARKERS)
def test_the_fast_tests_leave_out_what_is_slow_or_needs_more(marker: str) -> None:
    (pytest_line,) = commands("test")
    selection = re.search(r"-m '(.*)'", pytest_line)

    assert selection is not None
    assert not eval(selection[1], {name: name == marker for name in MARKERS})
    assert eval(selection[1], dict.fromkeys(MARKERS, False))
