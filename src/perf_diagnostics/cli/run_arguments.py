"""The arguments that name a run, shared by the commands that read one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perf_diagnostics.store.run_folder import RunFolder

RESULTS_DIR = "results"

#: The run that is meant where none is named.
LATEST = "latest"


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
        "of_run", metavar="RUN", nargs="?", default=LATEST, help="a run's folder or name, or 'latest' (the default)"
    )
    add_results_folder(command)


def folder_of(given: argparse.Namespace) -> RunFolder:
    """The run that was named.

    Raises:
        RunError: there is none.
    """
    from perf_diagnostics.store.find import find_run

    return find_run(given.of_run, Path(given.results_dir))


def make_folder(directory: Path) -> None:
    """Make the folder that was asked for, unless it is there.

    Raises:
        InvalidSettings: it cannot be made.
    """
    from perf_diagnostics.errors import InvalidSettings

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSettings(f"{directory} cannot be made: {error.strerror}.") from error
