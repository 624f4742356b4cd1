"""The import contracts of pyproject.toml: the source keeps them, and each is broken by the fault it is there for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("cli", "trials", "report", "integrations", "measure", "workloads", "store", "diagnose")
MODULES = ("diagnostics", "batch_means", "parsed_python", "prime_factors", "records", "errors")

FLOORS = "Floors: an arrow only points down, and siblings do not know each other"
NO_DRAWING = "What measures, stores or diagnoses does not draw, render or print"
NO_CIRCLES = "No circles, at any depth"


def lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()", "--no-cache"],
        cwd=project,
        env={"PYTHONPATH": str(project / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """A project of our floors and contracts whose modules import nothing at all."""
    package = tmp_path / "src" / "perf_diagnostics"
    package.mkdir(parents=True)
    for module in ("__init__", *MODULES):
        (package / f"{module}.py").touch()
    for name in PACKAGES:
        (package / name).mkdir()
        (package / name / "__init__.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_source_keeps_every_contract() -> None:
    result = lint_imports(ROOT)

    assert result.returncode == 0, result.stdout + result.stderr


def test_modules_that_import_nothing_keep_every_contract(skeleton: Path) -> None:
    result = lint_imports(skeleton)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("planted", "broken"),
    [
        pytest.param({"errors.py": "import perf_diagnostics.records"}, FLOORS, id="an arrow that points up"),
        pytest.param({"diagnose/rule.py": "import perf_diagnostics.store"}, FLOORS, id="a sibling that is known"),
        pytest.param({"helpers.py": ""}, FLOORS, id="a module that stands on no floor"),
        pytest.param({"measure/probe.py": "import rich"}, NO_DRAWING, id="a probe that prints"),
        pytest.param({"store/page.py": "def page():\n    import jinja2"}, NO_DRAWING, id="a store that renders"),
        pytest.param(
            {
                "measure/clock.py": "import perf_diagnostics.measure.probe",
                "measure/probe.py": "import perf_diagnostics.measure.clock",
            },
            NO_CIRCLES,
            id="a circle within a package",
        ),
    ],
)
def test_a_planted_fault_breaks_its_contract(skeleton: Path, planted: dict[str, str], broken: str) -> None:
    for path, source in planted.items():
        (skeleton / "src" / "perf_diagnostics" / path).write_text(source + "\n", encoding="utf-8")

    result = lint_imports(skeleton)

    assert result.returncode == 1
    assert f"{broken} BROKEN" in result.stdout
    assert result.stdout.count(" KEPT") == 2
