"""The summary page of a GitHub Actions job, to which ``report`` and ``compare`` append what they say."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path


def add_no_summary(command: argparse._ActionsContainer) -> None:
    """The flag that leaves the page alone."""
    command.add_argument(
        "--no-summary",
        action="store_true",
        help="do not append to the job's summary page in GitHub Actions (GITHUB_STEP_SUMMARY)",
    )


def summarise(given: argparse.Namespace, markdown: Callable[[], str]) -> None:
    """Append to the page where there is one and nobody has said not to; the text is made only then.

    Raises:
        ReportError: the page cannot be written.
    """
    page = "" if given.no_summary else os.environ.get("GITHUB_STEP_SUMMARY", "")
    if page:
        from perf_diagnostics.report.formats.github_summary import append_summary

        append_summary(Path(page), markdown())
