"""Finds the templates: in a checkout at its root, in a wheel inside the package."""

from __future__ import annotations

from pathlib import Path

from perf_diagnostics.errors import ReportError


def templates_dir() -> Path:
    """The folder of the templates.

    Raises:
        ReportError: neither the package nor a checkout around it holds them.
    """
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "templates", package.parents[1] / "templates"):
        if (folder / "report.html.j2").is_file():
            return folder
    raise ReportError(f"No report templates beside {package}; install the package again.")
