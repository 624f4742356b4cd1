"""The names the package promises: one more is a line in the change log, one less breaks somebody's code."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import perf_diagnostics

PUBLIC_NAMES = [
    *("BottleneckReport", "OwnLoop", "PerformanceDiagnostics", "__version__"),
    *("analyze_gpu_utilization", "attach", "run_kaggle_analysis"),
]


def test_the_public_names_are_these() -> None:
    assert sorted(perf_diagnostics.__all__) == PUBLIC_NAMES


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_a_public_name_stays_what_it_is(name: str) -> None:
    # In an interpreter of its own: importing a submodule sets an attribute of the package, and a lazy name that is
    # called like a submodule would be the object at first and the module from then on.
    script = f"import perf_diagnostics as p; first = p.{name}; import perf_diagnostics.cli; assert p.{name} is first"

    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr


def test_the_version_stands_in_pyproject_too() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))

    assert perf_diagnostics.__version__ == pyproject["project"]["version"]
