"""``runs``: the runs of a results folder, the newest first, as the other commands name them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.exit_codes import DONE
from perf_diagnostics.cli.run_arguments import add_results_folder

if TYPE_CHECKING:
    from perf_diagnostics.store.run_folder import RunFolder


def add(commands: Any) -> None:
    command = commands.add_parser(
        "runs",
        help="list the runs that there are",
        description="List the runs in the results folder, the newest first: name, when it was made, what was trained, "
        "and how many of its trials have a result. The first one is 'latest'.",
        allow_abbrev=False,
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    add_results_folder(command)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    import json

    from perf_diagnostics.store.find import list_runs
    from perf_diagnostics.store.run_folder import HOW_TO_MAKE_ONE

    rows = [_row(folder) for folder in list_runs(Path(given.results_dir))]
    if given.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif not rows:
        print(f"There is no run in {given.results_dir} yet; {HOW_TO_MAKE_ONE}.")
    else:
        print("\n".join(_lines(rows)))
    return DONE


def _row(folder: RunFolder) -> dict[str, Any]:
    """One run; what cannot be read, such as what a newer version wrote, is said in ``problem``."""
    from perf_diagnostics.errors import PerfDiagnosticsError

    row: dict[str, Any] = {"name": folder.path.name, "folder": str(folder.path)}
    try:
        header = folder.header()
        done = len(header.planned) - len(folder.pending())
    except PerfDiagnosticsError as error:
        return {**row, "problem": " ".join(str(error).split())}
    trained = sorted({trial.workload for trial in header.planned})
    return {**row, "made": header.created_at, "trained": trained, "trials": len(header.planned), "with_result": done}


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    wide = max(len(row["name"]) for row in rows)
    return [f"{row['name']:{wide}}  {_about(row)}" for row in rows]


def _about(row: dict[str, Any]) -> str:
    if "problem" in row:
        return str(row["problem"])
    from datetime import UTC, datetime

    from perf_diagnostics.diagnose.wording import counted
    from perf_diagnostics.report.words import plain

    made = datetime.fromisoformat(row["made"]).astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    trials = f"{row['with_result']} of {counted(row['trials'], 'trial')}"
    return f"{made} UTC  {trials:14}  {', '.join(map(plain, row['trained']))}".rstrip()
