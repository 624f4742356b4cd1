"""``report``: write a run's report in the formats that are asked for."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from perf_diagnostics.cli.exit_codes import DONE, GATE_FAILED
from perf_diagnostics.cli.job_summary import add_no_summary, summarise
from perf_diagnostics.cli.parser import examples
from perf_diagnostics.cli.rule_flags import add_threshold, thresholds
from perf_diagnostics.cli.run_arguments import LATEST, add_run, folder_of, make_folder
from perf_diagnostics.cli.values import some_names
from perf_diagnostics.errors import InvalidSettings

FORMATS = ("html", "pdf", "pptx", "md", "json", "plots")


def add(commands: Any) -> None:
    command = commands.add_parser(
        "report",
        help="write a run's report",
        description="Write the report of a run into its folder, or elsewhere. A format whose library is missing is "
        "skipped with the reason, and the rest is written.",
        epilog=examples(
            "perf-diagnostics report --formats html,pdf",
            "perf-diagnostics report base --output to-send",
        ),
        allow_abbrev=False,
    )
    add_run(command)
    command.add_argument(
        "--formats",
        "--format",
        nargs="+",
        default=list(FORMATS),
        metavar="FORMAT",
        help=f"any of {', '.join(FORMATS)}, or 'all' (the default); separated by commas or spaces",
    )
    command.add_argument("--output", "-o", metavar="DIR", help="write there instead of into the run's folder")
    command.add_argument(
        "--seal",
        action="store_true",
        help="then seal the folder; files that were sealed before and have changed keep their earlier checksums, so "
        "that `manifest verify` and every report go on telling it (`manifest create` seals everything as it is)",
    )
    command.add_argument("--strict", action="store_true", help="exit with 3 if a format was skipped")
    add_threshold(command, such_as="PWR006.price_per_hour=2.5")
    add_no_summary(command)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from perf_diagnostics.diagnose.engine import diagnose
    from perf_diagnostics.report.build import build_report
    from perf_diagnostics.report.formats.markdown import render_markdown
    from perf_diagnostics.report.formats.renderer import Skipped, write_report
    from perf_diagnostics.report.seal import broken_seal
    from perf_diagnostics.trials.confirm.experiments import read_experiments

    if given.seal and given.output:
        raise InvalidSettings(f"--seal seals the run's own folder, and --output {given.output} writes elsewhere.")
    names = some_names(_without_run(given), of="--formats")
    formats = FORMATS if "all" in names else tuple(names)
    folder = folder_of(given)
    records = folder.read()
    generated_at = datetime.now(UTC).isoformat(timespec="seconds")
    diagnosis = diagnose(
        records,
        thresholds=thresholds(given.threshold),
        traces=folder.traces(),
        experiments=read_experiments(folder.path),
    )
    alerts = (*broken_seal(folder.path), *folder.damage())
    for alert in alerts:
        print(f"warning: {alert}", file=sys.stderr)
    report = build_report(records, diagnosis, generated_at=generated_at, alerts=alerts)
    directory = Path(given.output) if given.output else folder.path
    make_folder(directory)
    skipped = False
    for outcome in write_report(report, directory, formats):
        if isinstance(outcome, Skipped):
            skipped = True
            print(f"{outcome.format}: skipped: {outcome.why}")
        else:
            print(outcome.path)
    summarise(given, lambda: render_markdown(report))
    if given.seal:
        _seal(folder.path)
    return GATE_FAILED if skipped and given.strict else DONE


def _without_run(given: argparse.Namespace) -> list[str]:
    """The formats. A folder that is named behind them, where several words may stand, is the run."""
    words: list[str] = given.formats
    last = words[-1]
    if len(words) > 1 and given.of_run == LATEST and (Path(last).is_dir() or Path(given.results_dir, last).is_dir()):
        given.of_run = last
        return words[:-1]
    return words


def _seal(directory: Path) -> None:
    from perf_diagnostics.cli.sealing import seal
    from perf_diagnostics.report.seal import made_from_records

    if not seal(directory, written=made_from_records):
        print(f"Sealed {directory}: manifest.json and SHA256SUMS.")
