"""``run``: run a training script unchanged, measure it, and say what limits it."""

from __future__ import annotations

import argparse
import atexit
import os
import signal
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.exit_codes import DONE, INTERRUPTED
from perf_diagnostics.cli.launchers import in_between
from perf_diagnostics.cli.live import beside
from perf_diagnostics.cli.own_name import typed
from perf_diagnostics.cli.parser import examples
from perf_diagnostics.cli.run_arguments import add_results_folder
from perf_diagnostics.cli.values import assignments, at_least_one, parsed_value
from perf_diagnostics.measure.host.standard_streams import flush_streams, print_error

#: What to do about a fault of ours.
REPORT_IT = (
    "a fault in perf-diagnostics and not in the script: please report it with this line and the output of "
    "`perf-diagnostics doctor`"
)

if TYPE_CHECKING:
    from perf_diagnostics.diagnose.finding import Diagnosis
    from perf_diagnostics.integrations.again.again import Again
    from perf_diagnostics.integrations.record.telling import Recorded
    from perf_diagnostics.integrations.run_script import Session


def add(commands: Any) -> None:
    command = commands.add_parser(
        "run",
        help="run a training script unchanged and measure it",
        usage="perf-diagnostics run [OPTION ...] (SCRIPT | -m MODULE) [ARGUMENT ...]",
        description="Run a training script as python would, and measure each of its training steps into a new run. "
        "What it prints, how it ends and its exit code are the script's own; a few lines on standard error name the "
        "run, the verdict, and what to change first. PERF_DIAGNOSTICS_DISABLED=1 runs the script without measuring.",
        epilog=examples(
            "perf-diagnostics run train.py --lr 0.1",
            "perf-diagnostics run --live -m package.train --lr 0.1",
            "torchrun --nproc-per-node 2 -m perf_diagnostics run train.py      # all ranks in one run",
            "srun --ntasks 2 perf-diagnostics run train.py                     # likewise",
        ),
        allow_abbrev=False,
    )
    command.when_refused = "What is for the script stands after it: perf-diagnostics run train.py --lr 0.1."
    command.add_argument("--name", help="name of the run (default: the time and the script's name)")
    add_results_folder(command)
    command.add_argument(
        "--live", action="store_true", help="show phases, throughput and the verdict so far on standard error"
    )
    command.add_argument(
        "--deep",
        action="store_true",
        help="once enough steps were measured, record a few more under torch.profiler, which count in nothing: what "
        "forward and backward do inside",
    )
    command.add_argument(
        "--quiet", "-q", action="store_true", help="do not print the lines with the run, the verdict and what to try"
    )
    command.add_argument(
        "--with",
        dest="forced",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="make the script use a setting in place of its own, to see what that changes, such as num_workers=4, "
        "pin_memory=true, threads=2 or optimizer_implementation=fused; may be given several times",
    )
    command.add_argument(
        "--steps",
        type=at_least_one,
        metavar="N",
        help="end the script after so many measured steps, with the processes it has started, at once: what it does at "
        "its end does not happen",
    )
    # Of a trial, which ends with who measures it.
    command.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    command.add_argument("--warm-up-steps", type=int, default=0, help=argparse.SUPPRESS)
    command.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module, as python -m does"
    )
    command.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the script and its own arguments")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    from perf_diagnostics.errors import InvalidSettings
    from perf_diagnostics.integrations.run_script import print_traceback, run_watched

    if given.parent is not None:
        from perf_diagnostics.measure.host.parent import die_with

        die_with(given.parent)
    as_module = given.module is not None
    words = given.module if as_module else given.script
    if not as_module and words[:1] == ["--"]:
        words = words[1:]
    if not words:
        raise InvalidSettings("name a script, or a module with -m, such as: perf-diagnostics run train.py --lr 0.1")
    if wrong := in_between(words, as_module=as_module):
        raise InvalidSettings(wrong)
    if given.live:
        given.name = given.name or _new_name(words[0], as_module=as_module)
    session = _session(given, words)
    last = _LastAct()
    try:
        with beside(Path(given.results_dir).absolute() / given.name) if _shown(given, session) else nullcontext():
            code = run_watched(words[0], words[1:], as_module=as_module, session=session)
    except KeyboardInterrupt as error:
        print_traceback(error)
        last.interrupted = True
        code = INTERRUPTED
    finally:
        if session is not None:
            session.say()
    return DONE if code is None else code


def _shown(given: argparse.Namespace, session: Session | None) -> bool:
    return given.live and session is not None and session.speaks


def _new_name(target: str, *, as_module: bool) -> str:
    """The name the run would get anyway, chosen now, so that whoever shows it knows where it will lie."""
    from datetime import UTC, datetime

    from perf_diagnostics.store.files.whole_files import new_run_name

    return new_run_name(datetime.now(UTC), (), suffix=f"{_workload(target, as_module=as_module)}-{os.getpid()}")


def _workload(target: str, *, as_module: bool) -> str:
    return target.rpartition(".")[2] if as_module else Path(target).resolve().stem


class _LastAct:
    """After Ctrl-C the process dies of the signal, at its very end, as Python does: so a shell's loop stops."""

    def __init__(self) -> None:
        self.interrupted = False
        atexit.register(self._act)  # before the script's own, so that it runs after them

    def _act(self) -> None:
        if self.interrupted:
            flush_streams()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)


def _session(given: argparse.Namespace, words: Sequence[str]) -> Session | None:
    from perf_diagnostics.integrations.attached import check_name
    from perf_diagnostics.integrations.record.recording import disabled, recorded_here
    from perf_diagnostics.integrations.run_script import Session

    results_dir = Path(given.results_dir)
    if recorded_here():
        check_name(given.name, results_dir)
    if disabled():
        return None
    as_module = given.module is not None
    workload = _workload(words[0], as_module=as_module)
    said = None if given.quiet else partial(tell, words=["-m", *words] if as_module else words)
    again = _again(given)
    return Session(workload=workload, name=given.name, results_dir=results_dir, deep=given.deep, tell=said, again=again)


def _again(given: argparse.Namespace) -> Again | None:
    """What is to be different from the script as it is.

    Raises:
        InvalidSettings: a setting that cannot be forced on a script.
    """
    if not given.forced and given.steps is None:
        return None
    from perf_diagnostics.integrations.again.again import Again
    from perf_diagnostics.integrations.again.forcible import check_forced

    settings = {name: parsed_value(value) for name, value in assignments(given.forced, of="--with").items()}
    check_forced(settings)
    return Again(settings, given.steps, given.warm_up_steps)


def tell(session: Session, words: Sequence[str]) -> None:
    """Say on standard error what a process has measured; also in those that the script starts as ranks.

    Args:
        session: what has measured.
        words: the script and its arguments, as they were typed.
    """
    with session.faults.guard("verdict") as told:
        _tell(session, words)
    if told.problem is not None:
        print_error(f"perf-diagnostics: no verdict, for telling failed: {told.problem!r}")


def _tell(session: Session, words: Sequence[str]) -> None:
    """The run and the verdict, what to change first, and what says more."""
    from perf_diagnostics.integrations.ranks.started_trainings import notes_on_processes
    from perf_diagnostics.integrations.record.telling import say, tell

    recorded: list[Recorded] = [*session.started]
    if session.watch is not None and (session.watch.recording.run is not None or not recorded):
        recorded.insert(0, session.watch.recording)
    if recorded:
        observations = session.faults if session.watch is None else session.watch.observations
        failed = [f"Measuring failed {why} ({REPORT_IT})." for why in session.failed]
        diagnosis = tell(recorded[0], observations, [*notes_on_processes(recorded), *failed])
        if diagnosis is not None:
            _tell_more(diagnosis, recorded[0], words)
    elif session.faults.gaps:
        why = " ".join(session.faults.gaps[0].why.split())
        say(f"nothing was measured, for watching failed: {why} ({REPORT_IT})")
    else:
        say("no training step was measured: torch was not imported")


def _tell_more(diagnosis: Diagnosis, recording: Recorded, words: Sequence[str]) -> None:
    """What to change first and what it would win, and the commands that say more, or measure it."""
    from perf_diagnostics.integrations.again.forcible import forced_on
    from perf_diagnostics.integrations.record.telling import say
    from perf_diagnostics.integrations.told_paths import told_path
    from perf_diagnostics.report.changes import changes_of
    from perf_diagnostics.report.gains import gain
    from perf_diagnostics.report.reading_order import less_sure

    if recording.run is not None and (forced := forced_on(recording.run)):
        say(f"Put into the script: {', '.join(f'{name}={value}' for name, value in forced.items())}")
    if doubts := less_sure(diagnosis):
        say(f"Less sure: {doubts}")
    first = changes_of(diagnosis)[:1]
    unpriced = _unpriced_advice(diagnosis)
    if unpriced:
        say(f"Try: {unpriced} What that would win was not measured.")
    for change in first:
        code = f" [{change.code}]" if change.code else ""
        say(f"Try: {change.says}{code} A fix {gain(change.gain)}.")
    if recording.folder is not None:
        where = told_path(recording.folder.path)
        if _can_be_tried(diagnosis, recording):
            what = "it wins" if first else "settings would win that no fault asks for"
            say(f"To measure what {what}, in the script as it is: {typed('confirm', where, '--rerun', *words)}")
        say(f"Evidence: {typed('diagnose', where)}; to pass on: {typed('report', where)}")


def _unpriced_advice(diagnosis: Diagnosis) -> str:
    """What to do first about a fault that is the verdict and has no price; empty where it has one."""
    from perf_diagnostics.diagnose.verdict_place import verdict_finding

    fault = verdict_finding(diagnosis) if diagnosis.verdict is not None and diagnosis.verdict.fault else None
    return "" if fault is None or fault.recoverable is not None or not fault.remedies else fault.remedies[0].says


def _can_be_tried(diagnosis: Diagnosis, recording: Recorded) -> bool:
    """Whether some of the advice is a setting that can be forced on the script."""
    from perf_diagnostics.diagnose.tried.candidates import candidates
    from perf_diagnostics.integrations.again.forcible import why_not_forced

    run = recording.run
    return run is not None and any(
        not (one.ceiling or why_not_forced(one.change) or one.base.options.get("ranks"))
        for one in candidates(run, diagnosis)
    )
