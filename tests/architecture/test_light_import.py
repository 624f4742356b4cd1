"""What importing the package may load: a command line that answers at once, an import that costs a trainer nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Imports the named packages with all they hold, and prints which module was the first to load a watched library.
WHO_LOADS_WHAT = """
import importlib, json, pkgutil, sys

names, watched = json.loads(sys.argv[1]), set(json.loads(sys.argv[2]))
seen, first = set(), {}
for name in names:
    module = importlib.import_module(name)
    if name != "perf_diagnostics":
        names += [f"{name}.{found.name}" for found in pkgutil.iter_modules(getattr(module, "__path__", []))]
    new = watched & set(sys.modules) - seen
    seen |= new
    if new:
        first[name] = sorted(new)
print(json.dumps(first))
"""


def first_loads(names: list[str], *, watched: list[str], cwd: Path = ROOT) -> dict[str, list[str]]:
    result = subprocess.run(
        [sys.executable, "-c", WHO_LOADS_WHAT, json.dumps(names), json.dumps(watched)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    first: dict[str, list[str]] = json.loads(result.stdout.splitlines()[-1])
    return first


def parts(*names: str) -> list[str]:
    return [f"perf_diagnostics.{name}" for name in names]


def test_the_package_itself_loads_no_library() -> None:
    watched = ["torch", "jinja2", "numpy", "pandas", "matplotlib", "pptx", "weasyprint", "transformers", "pynvml"]

    assert first_loads(["perf_diagnostics"], watched=watched) == {}


def test_reading_diagnosing_and_telling_load_no_torch() -> None:
    without_torch = parts("errors", "records", "store", "diagnose", "report", "cli")

    assert first_loads(without_torch, watched=["torch", "transformers"]) == {}


def test_heavy_libraries_are_loaded_where_they_are_used() -> None:
    everything = parts("measure", "workloads", "store", "diagnose", "trials", "report", "diagnostics", "cli")
    # Not pynvml: torch, which measuring needs, loads it by itself.
    watched = ["weasyprint", "pptx", "matplotlib", "transformers", "pandas"]

    assert first_loads(everything, watched=watched) == {}


def test_a_library_that_is_loaded_is_seen(tmp_path: Path) -> None:
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "__init__.py").touch()
    (tmp_path / "sample" / "clean.py").touch()
    (tmp_path / "sample" / "colourful.py").write_text("import colorsys\n", encoding="utf-8")

    assert first_loads(["sample"], watched=["colorsys", "torch"], cwd=tmp_path) == {"sample.colourful": ["colorsys"]}
