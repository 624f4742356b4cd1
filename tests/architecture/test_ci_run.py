"""What continuous integration runs: each test once, but those that need a GPU, and what measures by itself."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.architecture import test_makefile
from tests.architecture.test_makefile import commands

ROOT = Path(__file__).parents[2]
RUN = ROOT / ".ci" / "run"

#: ``beside`` says of planted faults how they are run.
MARKERS = (*test_makefile.MARKERS, "beside")

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def pytest_lines() -> list[str]:
    """The commands that run tests; `make test` is one of them."""
    lines = RUN.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    (fast,) = commands("test")
    assert "make test" in lines
    return [fast, *(line for line in lines if "bin/pytest " in line)]


def selects(line: str, marked: tuple[str, ...]) -> bool:
    """Whether the command runs a test that has these markers, as its ``-m`` says."""
    selection = re.search(r"-m (['\"])(.*)\1", line)
    assert selection is not None, line
    return bool(eval(selection[2], {name: name in marked for name in MARKERS}))


@pytest.mark.parametrize("count", range(len(MARKERS) + 1))
def test_every_test_runs_once_and_none_that_needs_a_gpu(count: int) -> None:
    lines = pytest_lines()
    for marked in itertools.combinations(MARKERS, count):
        if "beside" in marked and "planted" not in marked:
            continue  # it says how those are run
        chosen = [line for line in lines if selects(line, marked)]
        assert len(chosen) == (0 if "gpu" in marked else 1), (marked, chosen)


def test_planted_faults_are_measured_with_nothing_beside_them_or_with_one_other_of_their_kind() -> None:
    (alone,) = (line for line in pytest_lines() if selects(line, ("planted",)))
    assert " -n " not in alone and "numprocesses" not in alone
    (beside,) = (line for line in pytest_lines() if selects(line, ("planted", "beside")))
    assert " -n 2 " in beside


def test_nothing_but_a_planted_fault_is_said_to_bear_another_one_beside_it() -> None:
    holding = [
        path for path in (ROOT / "tests").rglob("test_*.py") if "mark.beside" in path.read_text(encoding="utf-8")
    ]
    assert [path.name for path in holding if path.name != Path(__file__).name] == ["test_plants.py"]


@pytest.mark.parametrize("markers", [("planted",), ("slow", "browser", "office")])
def test_no_test_lies_where_nobody_looks(markers: tuple[str, ...]) -> None:
    """A command that names files finds all that hold its markers; a marker stands in the file of its test only."""
    (line,) = {line for line in pytest_lines() for marker in markers if selects(line, (marker,))}
    told = re.search(r"-m (['\"]).*?\1(.*)", line)
    assert told is not None
    # By name, or as another command tells them.
    words = subprocess.run(["bash", "-c", f"printf '%s\\n' {told[2]}"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    searched = [ROOT / word for word in words.stdout.decode().split()]
    assert searched and all(path.exists() for path in searched)
    holding = {
        path
        for path in (ROOT / "tests").rglob("*.py")
        if any("mark." + marker in path.read_text(encoding="utf-8") for marker in markers)
    }
    assert holding and not {path for path in holding if not path.name.startswith("test_")}
    assert not {path for path in holding if not {path, *path.parents} & set(searched)}


def test_the_fast_tests_are_looked_for_everywhere() -> None:
    (line,) = [line for line in pytest_lines() if selects(line, ())]
    assert " tests" not in line
