"""One list of what is needed (pyproject.toml), one of versions (constraints.txt), and no third."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NEEDED = [
    *PYPROJECT["project"]["dependencies"],
    *PYPROJECT["dependency-groups"]["dev"],
    *PYPROJECT["build-system"]["requires"],
    "pip>=25.1",  # the first that knows dependency groups
]


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


@pytest.mark.parametrize("needed", NEEDED)
def test_what_is_needed_has_one_version_that_fits(needed: str) -> None:
    requirement = Requirement(needed)

    assert pins()[canonicalize_name(requirement.name)] in requirement.specifier


def test_no_version_names_a_build() -> None:
    # "torch==2.13.0+cpu" could be installed from one index only, and on no machine with a GPU.
    assert {name: str(version) for name, version in pins().items() if version.local is not None} == {}


def test_the_conda_environment_takes_its_versions_from_the_constraints() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    *conda, pip = environment["dependencies"]

    assert [name for name in conda if "=" in name] == ["python=3.11"]
    assert pip == {"pip": ["--constraint constraints.txt", "--editable ."]}


def test_commit_hooks_run_the_tools_of_the_environment() -> None:
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in configuration["repos"] for hook in repository["hooks"]]
    tools = [Path(hook["entry"].split()[0]) for hook in hooks]

    assert {repository["repo"] for repository in configuration["repos"]} == {"local"}
    assert {tool.parent.as_posix() for tool in tools} == {".venv/bin"}
    assert [tool.name for tool in tools if shutil.which(tool.name, path=Path(sys.executable).parent) is None] == []
