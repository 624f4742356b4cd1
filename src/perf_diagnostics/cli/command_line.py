"""The commands in reading order, and what becomes of their errors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from perf_diagnostics.cli import (
    compare,
    completion,
    confirm,
    devices,
    diagnose,
    doctor,
    explain,
    export,
    largest_batch,
    live,
    manifest,
    report,
    run,
    runs,
    sweep,
    trace,
    workloads,
)
from perf_diagnostics.cli.exit_codes import BAD_USAGE, INTERRUPTED
from perf_diagnostics.cli.parser import Parser
from perf_diagnostics.cli.streams import ready_streams
from perf_diagnostics.errors import PerfDiagnosticsError

#: Measure, understand, hand on, look up.
COMMANDS = (
    run,
    sweep,
    largest_batch,
    live,
    runs,
    diagnose,
    confirm,
    compare,
    trace,
    report,
    export,
    manifest,
    explain,
    workloads,
    devices,
    doctor,
    completion,
)

_EPILOG = """\
Start with: perf-diagnostics run train.py, then perf-diagnostics diagnose.
COMMAND --help tells the rest.
A RUN is a run's folder, its name under the results folder, or 'latest'.
Exit codes: 0 done, 1 some trials failed (or a manifest does not match),
2 bad usage, 3 a gate failed, 130 interrupted; of `run` they are the script's.
"""


def parser() -> Parser:
    """The whole command line; building it imports no heavy library."""
    top = Parser(
        prog="perf-diagnostics",
        description="Why is my training slow, and what would I gain by changing what?",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for command in COMMANDS:
        command.add(commands)
    return top


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors made on purpose are printed as one line."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    own_output = words[:1] != ["run"]
    ready_streams(own_output=own_output)
    top = parser()
    given, unknown = top.parse_known_args(words)
    if unknown:
        _parser_of(top, given.command).refuse(unknown)
    if given.version:
        from importlib.metadata import version

        print("perf-diagnostics", version("perf-diagnostics"))
        return 0
    if given.command is None:
        top.print_help()
        return BAD_USAGE
    try:
        code: int = given.run(given)
        if own_output:  # a script's own is flushed by the interpreter, which exits with 120 where that fails
            sys.stdout.flush()
    except PerfDiagnosticsError as error:
        print(f"perf-diagnostics {given.command}: {error}", file=sys.stderr)
        return BAD_USAGE
    except KeyboardInterrupt:
        print(f"perf-diagnostics {given.command}: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`); nothing is wrong, but nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(
            f"perf-diagnostics {given.command}: {place}{error.strerror or error}. What was written before is kept; see "
            "to the rights and the space there, and try again.",
            file=sys.stderr,
        )
        return BAD_USAGE
    return code


def _parser_of(top: Parser, command: str | None) -> Parser:
    """The parser of a command; the whole one if none was named."""
    for action in top._actions:  # argparse has no public way to ask for them
        if isinstance(action, argparse._SubParsersAction) and command in action.choices:
            found: Parser = action.choices[command]
            return found
    return top
