"""``compare``: one run against another, and limits that a change must not exceed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.exit_codes import DONE, GATE_FAILED
from perf_diagnostics.cli.job_summary import add_no_summary, summarise
from perf_diagnostics.cli.parser import examples
from perf_diagnostics.cli.run_arguments import add_results_folder
from perf_diagnostics.cli.values import some_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perf_diagnostics.diagnose.compare.comparison import Comparison
    from perf_diagnostics.diagnose.compare.gates import Check
    from perf_diagnostics.store.run_folder import RunFolder

_DESCRIPTION = """\
Compare run NEW with run BASE, configuration by configuration (equal workload, options and settings), by step time,
throughput, peak memory and, where it was measured, energy per sample. Each repeat of a configuration is one process and
one value, so both runs need several: measure them with `sweep --repeats 5`, or run a script of your own several times
and name its runs with commas between them. Two runs measured one after the other also differ by what else the machine
did meanwhile; keep it idle.
"""


def add(commands: Any) -> None:
    command = commands.add_parser(
        "compare",
        help="say what a change did: one run against another",
        description=_DESCRIPTION,
        epilog=examples(
            "perf-diagnostics compare base new",
            "perf-diagnostics compare base new --fail-on step_time:5% --fail-on missing --strict --junit compare.xml",
            "perf-diagnostics compare base new --vary precision",
            "perf-diagnostics compare before-1,before-2,before-3 after-1,after-2,after-3",
        ),
        allow_abbrev=False,
    )
    command.add_argument(
        "base",
        metavar="BASE",
        help="the run to compare with: a folder, a name, or 'latest'; of a script "
        "of your own several, with commas between them",
    )
    command.add_argument("new", metavar="NEW", help="the run after the change; likewise")
    add_results_folder(command)
    how = command.add_argument_group("what is compared")
    how.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="NAME",
        help="match configurations that differ in this setting or option (or 'workload'); repeatable",
    )
    how.add_argument(
        "--threshold", default="2%", metavar="SHARE%", help="differences below do not matter (default: 2%%)"
    )
    how.add_argument(
        "--allow-mismatch", action="store_true", help="compare different devices or versions of torch all the same"
    )
    gates = command.add_argument_group("gates")
    gates.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="METRIC:SHARE%",
        help="exit with 3 if a metric (step_time, throughput, peak_memory, energy) got worse, significantly and by "
        "more than this, or a configuration no longer completes; 'missing' for the latter alone; repeatable",
    )
    gates.add_argument("--strict", action="store_true", help="exit with 3 also if a gate could not be decided")
    output = command.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--markdown", metavar="FILE", help="write Markdown, too")
    output.add_argument("--junit", metavar="FILE", help="write JUnit XML, too")
    add_no_summary(output)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    from perf_diagnostics.diagnose.compare.gates import check, failing, parse_gates

    gates = parse_gates(some_names(given.fail_on, of="--fail-on") if given.fail_on else [])
    comparison = _compared(given)
    checks = check(comparison, gates)
    _print(given, comparison, checks)
    _write(given, comparison, checks)
    failed = failing(checks, strict=given.strict)
    _tell_gates(checks, failed)
    return GATE_FAILED if failed else DONE


def _compared(given: argparse.Namespace) -> Comparison:
    """The comparison, if one makes sense.

    Raises:
        InvalidSettings: a threshold of no such form, a run against itself, or runs that cannot be compared.
    """
    from perf_diagnostics.diagnose.compare.comparing import compare
    from perf_diagnostics.diagnose.compare.gates import share_of
    from perf_diagnostics.diagnose.compare.surroundings import refusal
    from perf_diagnostics.diagnose.several_runs import together
    from perf_diagnostics.errors import InvalidSettings

    threshold = share_of(given.threshold)
    if threshold is None:
        raise InvalidSettings(f"--threshold {given.threshold!r} is not a percentage such as 2%.")
    base, new = (_runs_of(names, Path(given.results_dir)) for names in (given.base, given.new))
    both = {folder.path.resolve() for folder in base} & {folder.path.resolve() for folder in new}
    if both:
        shown = next(folder.path for folder in base if folder.path.resolve() in both)
        raise InvalidSettings(f"BASE and NEW are both {shown}; a run equals itself. Name two runs.")
    comparison = compare(
        together([folder.read() for folder in base]),
        together([folder.read() for folder in new]),
        vary=some_names(given.vary, of="--vary") if given.vary else [],
        threshold=threshold,
    )
    if comparison.surroundings.mismatches and not given.allow_mismatch:
        raise InvalidSettings(refusal(comparison.surroundings.mismatches))
    return comparison


def _runs_of(names: str, results_dir: Path) -> list[RunFolder]:
    """The runs of one side: one, or several with commas between them.

    Raises:
        RunError: there is no such run.
    """
    from perf_diagnostics.store.find import find_run

    one = not names.strip(",") or (Path(names) / "run.json").is_file()  # a folder's name may have commas
    return [find_run(name, results_dir) for name in ([names] if one else names.split(",")) if name or one]


def _print(given: argparse.Namespace, comparison: Comparison, checks: Sequence[Check]) -> None:
    from perf_diagnostics.diagnose.compare.comparison import Verdict

    if given.json:
        import json

        from perf_diagnostics.report.comparison.comparison_json import comparison_json

        print(json.dumps(comparison_json(comparison, checks), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        from perf_diagnostics.report.comparison.comparison_text import comparison_text

        print(comparison_text(comparison, checks))
    own = comparison.base.of_own_training or comparison.new.of_own_training
    if own and comparison.with_verdict(Verdict.NOT_ENOUGH_RUNS):
        print(
            "A loop of your own is repeated by running it several times; name these runs with commas between them: "
            "perf-diagnostics compare before-1,before-2,before-3 after-1,after-2,after-3",
            file=sys.stderr,
        )


def _write(given: argparse.Namespace, comparison: Comparison, checks: Sequence[Check]) -> None:
    from perf_diagnostics.report.comparison.comparison_markdown import comparison_markdown
    from perf_diagnostics.report.formats.renderer import write_file

    if given.junit:
        from perf_diagnostics.report.comparison.junit import junit_xml

        write_file(Path(given.junit), junit_xml(comparison, checks, strict=given.strict))
    if given.markdown:
        write_file(Path(given.markdown), comparison_markdown(comparison, checks))
    summarise(given, lambda: comparison_markdown(comparison, checks))


def _tell_gates(checks: Sequence[Check], failed: Sequence[Check]) -> None:
    """What the exit code says, on stderr, so that it is seen where the output goes to a file."""
    from perf_diagnostics.diagnose.compare.gates import State

    undecided = sum(one.state is State.UNDECIDED for one in checks)
    if failed:
        print(f"{len(failed)} of {len(checks)} checks failed.", file=sys.stderr)
    elif undecided:
        print(
            f"warning: {undecided} of {len(checks)} checks could not be decided; --strict fails on them.",
            file=sys.stderr,
        )
