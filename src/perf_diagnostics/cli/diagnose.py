"""``diagnose``: what the rules say about a run, in words or as JSON."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.confirm import add_budget
from perf_diagnostics.cli.exit_codes import DONE, INTERRUPTED
from perf_diagnostics.cli.parser import examples
from perf_diagnostics.cli.rule_flags import add_all, add_threshold, thresholds
from perf_diagnostics.cli.run_arguments import add_run, folder_of

if TYPE_CHECKING:
    from perf_diagnostics.store.run_folder import RunFolder


def add(commands: Any) -> None:
    command = commands.add_parser(
        "diagnose",
        help="say why a run's training is as fast as it is",
        description="Run every rule over a run's records and print the verdict, the findings with their evidence and "
        "what to try; with --all also what was cleared and what could not be checked, and why.",
        epilog=examples(
            "perf-diagnostics diagnose",
            "perf-diagnostics diagnose base --all",
            "perf-diagnostics diagnose two-ranks --with one-rank",
        ),
        allow_abbrev=False,
    )
    add_run(command)
    command.add_argument(
        "--with",
        dest="others",
        action="append",
        default=[],
        metavar="RUN",
        help="read this run together with the first, such as the same training with other numbers of ranks (COM005); "
        "may be given several times",
    )
    add_all(command)
    command.add_argument("--json", action="store_true", help="print JSON, which holds everything")
    add_threshold(command, such_as="INP001.warn_share=0.15")
    command.add_argument(
        "--confirm", action="store_true", help="try the advice first (see the command confirm), then say what it won"
    )
    add_budget(command)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    import json
    import sys

    from perf_diagnostics.cli.diagnosis_text import diagnosis_text, terminal_width
    from perf_diagnostics.diagnose.engine import diagnose, diagnosis_to_json
    from perf_diagnostics.diagnose.several_runs import together
    from perf_diagnostics.store.find import find_run
    from perf_diagnostics.trials.confirm.experiments import read_experiments

    folder = folder_of(given)
    limits = thresholds(given.threshold)
    for damage in folder.damage():
        print(f"perf-diagnostics: {damage}", file=sys.stderr)
    if given.confirm and not _confirmed(folder, limits, given):
        return INTERRUPTED
    others = [find_run(other, given.results_dir).read() for other in given.others]
    diagnosis = diagnose(
        together([folder.read(), *others]),
        thresholds=limits,
        traces=folder.traces(),
        experiments=read_experiments(folder.path),
    )
    if given.json:
        print(json.dumps(diagnosis_to_json(diagnosis), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(diagnosis_text(diagnosis, terminal_width(), every_rule=given.all))
    return DONE


def _confirmed(folder: RunFolder, limits: dict[str, dict[str, float]], given: argparse.Namespace) -> bool:
    """Try what the rules advise; false if that was interrupted."""
    from perf_diagnostics.cli.confirm import tried
    from perf_diagnostics.diagnose.engine import diagnose
    from perf_diagnostics.diagnose.tried.candidates import candidates

    records = folder.read()
    wanted = candidates(records, diagnose(records, thresholds=limits, traces=folder.traces()))
    return not (wanted and tried(folder, wanted, given).interrupted)
