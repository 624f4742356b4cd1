"""What importing the package may load: a command line that answers at once, and an import that costs a trainer nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Prints which of the watched libraries each module was the first to load.
WHO_LOADS_WHAT = """
import importlib, json, pkgutil, sys

roots, watched = json.loads(sys.argv[1]), json.loads(sys.argv[2])
names = []
for root in roots:
    module = importlib.import_module(root)
    names.append(root)
    if root != "perf_diagnostics" and hasattr(module, "__path__"):
        names += [found.name for found in pkgutil.walk_packages(module.__path__, root + ".")]
loaded = {}
for name in names:
    before = set(sys.modules) if loaded else set()
    importlib.import_module(name)
    new = sorted(library for library in watched if library in sys.modules and library not in before)
    if new:
        loaded[name] = new
print(json.dumps(loaded))
"""


def first_loads(roots: list[str], *, watched: list[str]) -> dict[str, list[str]]:
    result = subprocess.run(
        [sys.executable, "-c", WHO_LOADS_WHAT, json.dumps(roots), json.dumps(watched)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    loads: dict[str, list[str]] = json.loads(result.stdout.splitlines()[-1])
    return loads


def test_the_package_loads_neither_torch_nor_a_report_library() -> None:
    watched = ["torch", "jinja2", "matplotlib", "pandas", "pptx", "weasyprint", "transformers", "pynvml", "numpy"]

    assert first_loads(["perf_diagnostics"], watched=watched) == {}


@pytest.mark.parametrize("part", ["errors", "records", "store", "diagnose", "report", "cli"])
def test_reading_and_telling_needs_no_torch(part: str) -> None:
    assert first_loads([f"perf_diagnostics.{part}"], watched=["torch", "transformers"]) == {}


@pytest.mark.parametrize("part", ["measure", "workloads", "store", "diagnose", "trials", "report", "cli"])
def test_heavy_libraries_are_loaded_where_they_are_used(part: str) -> None:
    watched = ["weasyprint", "pptx", "matplotlib", "pynvml", "transformers", "pandas"]

    assert first_loads([f"perf_diagnostics.{part}"], watched=watched) == {}


def test_the_watch_sees_what_a_module_loads() -> None:
    assert first_loads(["json", "decimal"], watched=["_decimal", "json"]) == {"json": ["json"], "decimal": ["_decimal"]}
