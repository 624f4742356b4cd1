"""The arguments that name a run, shared by the commands that read one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perf_diagnostics.store.run_folder import RunFolder

RESULTS_DIR = "results"


def add_results_folder(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--results-dir",
        "--results_dir",
        default=RESULTS_DIR,
        metavar="DIR",
        help=f"where runs lie (default: {RESULTS_DIR})",
    )


def add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "of_run", metavar="RUN", nargs="?", default="latest", help="a run's folder or name, or 'latest' (the default)"
    )
    add_results_folder(command)


def folder_of(given: argparse.Namespace) -> RunFolder:
    """The run that was named.

    Raises:
        RunError: there is none.
    """
    from perf_diagnostics.store.find import find_run

    return find_run(given.of_run, Path(given.results_dir))
