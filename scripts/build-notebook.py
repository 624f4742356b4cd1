"""Builds kaggle/performance_diagnostics.ipynb from the percent-format source beside it; --check only compares them."""

from __future__ import annotations

import sys
from pathlib import Path

import jupytext
import nbformat

SOURCE = Path(__file__).resolve().parent.parent / "kaggle" / "performance_diagnostics.py"
TARGET = SOURCE.with_suffix(".ipynb")


def built() -> str:
    """The notebook's text, without outputs: equal for equal sources, so that a build changes no committed line."""
    notebook = jupytext.read(SOURCE)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return str(nbformat.writes(notebook)) + "\n"


def main(arguments: list[str]) -> int:
    """Exit code 1: --check found the committed notebook to differ from its source."""
    if "--check" not in arguments:
        TARGET.write_text(built(), encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != built():
        print(f"{TARGET.name} was not built from {SOURCE.name}; run: make kaggle-notebook", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
