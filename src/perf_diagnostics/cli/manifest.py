"""``manifest``: seal a folder with SHA-256 checksums, and see whether a sealed one is as it was."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from perf_diagnostics.cli.exit_codes import DONE, SOME_TRIALS_FAILED
from perf_diagnostics.cli.run_arguments import add_results_folder


def add(commands: Any) -> None:
    command = commands.add_parser(
        "manifest",
        help="seal a folder with checksums, or verify the seal",
        description="Write manifest.json and SHA256SUMS into a folder, or tell what has changed since. "
        "Exit code 1: something is missing, modified, of the wrong size, or new.",
        allow_abbrev=False,
    )
    command.add_argument("action", choices=("create", "verify"))
    command.add_argument("directory", metavar="DIR", help="a folder, or a RUN")
    add_results_folder(command)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from perf_diagnostics import __version__
    from perf_diagnostics.store.sealed import manifest

    directory = _directory(given)
    if given.action == "create":
        written = manifest.create(directory, tool=f"perf-diagnostics {__version__}", now=datetime.now(UTC))
        print(f"Sealed {directory}: {written.name} and SHA256SUMS.")
        return DONE
    found = manifest.verify(directory)
    for kind in ("missing", "modified", "wrong_size", "extra", "unsafe"):
        for path in getattr(found, kind):
            print(f"{kind.replace('_', ' ')}: {path}")
    print(f"{directory}: " + ("every file is as it was sealed." if found.ok else "NOT as it was sealed."))
    return DONE if found.ok else SOME_TRIALS_FAILED


def _directory(given: argparse.Namespace) -> Path:
    named = Path(given.directory)
    if named.is_dir():
        return named
    from perf_diagnostics.store.find import find_run

    return find_run(given.directory, Path(given.results_dir)).path
