"""``runs``: the runs of a results folder, the newest first, as the other commands name them."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.exit_codes import DONE
from perf_diagnostics.cli.run_arguments import add_results_folder

if TYPE_CHECKING:
    from perf_diagnostics.records import Outcome
    from perf_diagnostics.store.run_folder import RunFolder

#: What may have become of a trial, as ``--json`` names it.
ENDINGS = ("completed", "failed", "interrupted", "skipped", "without_result")

#: Columns that how the trials ended needs beside the rest, at least.
_LEAST_ROOM = 24


def add(commands: Any) -> None:
    command = commands.add_parser(
        "runs",
        help="list the runs that there are",
        description="List the runs in the results folder, the newest first: name, when it was made, what was trained, "
        "and how its trials ended. The first one is 'latest'.",
        allow_abbrev=False,
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    add_results_folder(command)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    import json

    from perf_diagnostics.cli.diagnosis_text import terminal_width
    from perf_diagnostics.store.find import list_runs
    from perf_diagnostics.store.run_folder import HOW_TO_MAKE_ONE

    rows = [_row(folder) for folder in list_runs(Path(given.results_dir))]
    if given.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif not rows:
        print(f"There is no run in {given.results_dir} yet; {HOW_TO_MAKE_ONE}.")
    else:
        # What is piped is one line a run, for the program that reads it.
        width = terminal_width() if sys.stdout.isatty() else sys.maxsize
        print("\n".join(_lines(rows, width)))
    return DONE


def _row(folder: RunFolder) -> dict[str, Any]:
    """One run; of what cannot be read, such as what a newer version wrote, ``problem`` says why."""
    from perf_diagnostics.errors import RunError

    row: dict[str, Any] = {"name": folder.path.name, "folder": str(folder.path)}
    try:
        header, outcomes = folder.header(), folder.outcomes()
    except RunError as error:
        return {**row, "problem": " ".join(str(error).split())}
    return {
        **row,
        "made": header.created_at,
        "trained": sorted({trial.workload for trial in header.planned}),
        "trials": len(outcomes),
        "with_result": sum(outcome is not None for outcome in outcomes),
        **{ending: sum(_ending(outcome) == ending for outcome in outcomes) for ending in ENDINGS},
        "being_measured": folder.being_written,
    }


def _ending(outcome: Outcome | None) -> str:
    """What became of a trial; one of :data:`ENDINGS`."""
    if outcome is None:
        return "without_result"
    if outcome == "interrupted":
        return "interrupted"
    return "skipped" if outcome.skipped else "failed" if outcome.failed else "completed"


def _lines(rows: list[dict[str, Any]], width: int) -> list[str]:
    """Name, moment, what was trained, and how its trials ended, in columns.

    What no longer fits into a line of the terminal goes on under its column; where the columns leave no room for it,
    under the name.
    """
    from perf_diagnostics.report.words import plain

    trained = [", ".join(map(plain, row.get("trained", ()))) for row in rows]
    wide = [max(len(row["name"]) for row in rows), max(map(len, trained))]
    lines: list[str] = []
    for row, of in zip(rows, trained, strict=True):
        before, last = f"{row['name']:{wide[0]}}  ", f"unreadable: {row.get('problem')}"
        if "problem" not in row:
            before, last = f"{before}{_made(row)}  {of:{wide[1]}}  ", _endings(row)
        room = width - len(before)
        if room >= min(len(last), _LEAST_ROOM):
            first, *others = textwrap.wrap(last, room)
            lines += [f"{before}{first}", *(f"{'':{len(before)}}{other}" for other in others)]
        else:
            told = " ".join([*before.removeprefix(row["name"]).split(), last])
            lines += [row["name"], *textwrap.wrap(told, width, initial_indent="  ", subsequent_indent="  ")]
    return lines


def _made(row: dict[str, Any]) -> str:
    from datetime import UTC, datetime

    return datetime.fromisoformat(row["made"]).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _endings(row: dict[str, Any]) -> str:
    """``3 trials: 1 completed, 2 failed``, ``3 trials: all completed``, ``1 trial: interrupted``."""
    from perf_diagnostics.diagnose.wording import counted

    told = {name.replace("_", " "): row[name] for name in ENDINGS if row[name]}
    alike = "all " if row["trials"] > 1 else ""
    words = [f"{alike}{name}" if count == row["trials"] else f"{count} {name}" for name, count in told.items()]
    measured = ["being measured"] if row["being_measured"] else []
    return f"{counted(row['trials'], 'trial')}: {', '.join([*words, *measured])}"
