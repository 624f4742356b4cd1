"""The names the package promises: one more is a line in the change log, one less breaks somebody's code."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import perf_diagnostics

PUBLIC_NAMES = [
    *("BottleneckReport", "OwnLoop", "PerformanceDiagnostics", "__version__"),
    *("analyze_gpu_utilization", "attach", "masks_from_bits", "run_kaggle_analysis"),
]


def test_the_public_names_are_these() -> None:
    assert sorted(perf_diagnostics.__all__) == PUBLIC_NAMES


# Importing a submodule sets an attribute of the package, and a lazy name that is called like a submodule would be the
# object at first and the module from then on. So each name is asked of a package of which nothing is loaded yet; what
# it takes of other packages stays, for that takes seconds.
ASK_EACH = """
import json, sys
changed = []
for name in json.loads(sys.argv[1]):
    for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == "perf_diagnostics"]:
        del sys.modules[loaded]
    import perf_diagnostics
    first = getattr(perf_diagnostics, name)
    import perf_diagnostics.cli
    if getattr(perf_diagnostics, name) is not first:
        changed.append(name)
print(json.dumps(changed))
"""


def test_a_public_name_stays_what_it_is() -> None:
    command = [sys.executable, "-c", ASK_EACH, json.dumps(PUBLIC_NAMES)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == []


def test_the_version_stands_in_pyproject_too() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))

    assert perf_diagnostics.__version__ == pyproject["project"]["version"]
