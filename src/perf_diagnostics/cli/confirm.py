"""``confirm``: try the advice of a run's diagnosis, each change against its base in pairs of processes."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.exit_codes import DONE, INTERRUPTED
from perf_diagnostics.cli.own_name import typed
from perf_diagnostics.cli.run_arguments import add_run, folder_of
from perf_diagnostics.cli.values import at_least_one, seconds, some_names, some_seconds, whole_number

if TYPE_CHECKING:
    from perf_diagnostics.cli.script_to_try import ScriptToTry
    from perf_diagnostics.diagnose.rule_parts.experiments import Candidate
    from perf_diagnostics.store.run_folder import RunFolder
    from perf_diagnostics.trials.confirm.confirm import ConfirmEnd


def add(commands: Any) -> None:
    command = commands.add_parser(
        "confirm",
        help="try the advice, and measure what it really wins",
        description="Try the remedies of a run's findings, each change against its base in interleaved pairs of "
        "processes, and the ceilings that say what a perfect fix could win. Best first, and none is begun that the "
        "time budget cannot bring to a verdict; what was tried is kept in the run's folder under confirm/, and a "
        "second call goes on where the first one ended.",
        allow_abbrev=False,
    )
    add_run(command)
    command.add_argument(
        "--only", nargs="+", default=[], metavar="CODE", help="try the advice of these findings only, such as INP001"
    )
    command.add_argument(
        "--pairs", type=at_least_one, metavar="N", help="pairs of processes for each change (default: 5)"
    )
    command.add_argument(
        "--steps", type=at_least_one, metavar="N", help="measured steps of each trial (default: about 5 s of them)"
    )
    add_budget(command)
    command.add_argument(
        "--trial-timeout",
        "--trial_timeout",
        type=some_seconds,
        metavar="S",
        help="end a trial from outside after so many seconds",
    )
    command.add_argument(
        "--seed", type=whole_number, default=0, metavar="N", help="of the order within pairs (default: 0)"
    )
    command.add_argument("--dry-run", action="store_true", help="list what would be tried, and run nothing")
    command.add_argument("--quiet", "-q", action="store_true", help="print the results only, no progress")
    command.add_argument(
        "--rerun",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT",
        help="the script that `run` has measured, or -m MODULE, with its arguments, all at the end: it is run again "
        "and again, each time for some steps and then ended at once; what it writes until then, it writes again",
    )
    flags = frozenset(option for action in command._actions for option in action.option_strings)
    command.set_defaults(run=run, flags=flags)


def add_budget(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--time-budget",
        "--time_budget",
        type=seconds,
        metavar="S",
        help="seconds for everything that is tried (default: 600)",
    )


def run(given: argparse.Namespace) -> int:
    from perf_diagnostics.cli.script_to_try import ScriptToTry, given_to_the_script
    from perf_diagnostics.cli.tried_text import tried_text
    from perf_diagnostics.diagnose.engine import diagnose
    from perf_diagnostics.diagnose.tried.candidates import candidates
    from perf_diagnostics.diagnose.tried.outcomes import tried_of

    if note := given_to_the_script(given.rerun or (), given.flags):
        print(note, file=sys.stderr)
    folder = _one_run(given)
    records = folder.read()
    wanted = candidates(
        records,
        diagnose(records, traces=folder.traces()),
        only=some_names(given.only, of="--only") if given.only else [],
    )
    if not wanted:
        print(f"{folder.path}: no finding has advice that a change of settings could try.")
        return DONE
    script = None if given.rerun is None else ScriptToTry.of(given.rerun, records, wanted, given.steps)
    if script is not None:
        wanted = script.possible
    if given.dry_run:
        return _plan_only(folder, wanted, given, script)
    end = tried(folder, wanted, given, script)
    print(tried_text(tried_of(end.experiments, of_script=script is not None)))
    if end.interrupted:
        budget = () if given.time_budget is None else ("--time-budget", f"{given.time_budget:g}")
        print(f"interrupted; go on with: {typed('confirm', folder.path, *budget, *_again(given))}", file=sys.stderr)
        return INTERRUPTED
    if end.unfinished:
        print(_unfinished(folder, end, _again(given)), file=sys.stderr)
    print(f"Next: {typed('report', folder.path)}", file=sys.stderr)
    return DONE


def _one_run(given: argparse.Namespace) -> RunFolder:
    """The run that was named.

    Raises:
        RunError: there is none; several with commas between them are none.
    """
    from perf_diagnostics.errors import RunError

    try:
        return folder_of(given)
    except RunError as error:
        if "," not in given.of_run:
            raise
        raise RunError(
            f"{error} confirm reads one run, whose changes it runs itself; what was run several times before a change "
            "and after it is compared: perf-diagnostics compare before-1,before-2,before-3 after-1,after-2,after-3."
        ) from error


def _again(given: argparse.Namespace) -> tuple[str, ...]:
    """What a second call has to be given again: what is tried, how often and how long, and at the end the script."""
    only = _given(given, "only", [])
    flags = {"--pairs": "pairs", "--steps": "steps", "--trial-timeout": "trial_timeout"}
    values = {flag: _given(given, name, None) for flag, name in flags.items()}
    return (
        *(("--only", *only) if only else ()),
        *(word for flag, value in values.items() if value is not None for word in (flag, f"{value:g}")),
        *(() if given.rerun is None else ("--rerun", *given.rerun)),
    )


def _unfinished(folder: RunFolder, end: ConfirmEnd, again: tuple[str, ...]) -> str:
    """What was left for lack of time or of pairs, and how one goes on with it."""
    from perf_diagnostics.diagnose.wording import counted

    need = 10 * math.ceil(1.2 * end.needs_s / 10)  # a fifth more, for nobody knows how busy the machine will be
    lack = "lacks" if end.unfinished == 1 else "lack"
    return (
        f"{counted(end.unfinished, 'change')} {lack} pairs that a verdict needs, which would take about "
        f"{end.needs_s:.0f} s; go on with: {typed('confirm', folder.path, '--time-budget', need, *again)}"
    )


def tried(
    folder: RunFolder, wanted: tuple[Candidate, ...], given: argparse.Namespace, script: ScriptToTry | None = None
) -> ConfirmEnd:
    """Try what is wanted, telling the terminal."""
    from perf_diagnostics.cli.progress import progress
    from perf_diagnostics.cli.sealing import broken_below, seal_again
    from perf_diagnostics.trials.confirm.confirm import TIME_BUDGET_S, Confirm
    from perf_diagnostics.trials.confirm.experiments import FOLDER
    from perf_diagnostics.trials.confirm.pairs import PAIRS

    quiet = _given(given, "quiet", False)
    own = f"{FOLDER}/"
    broken = broken_below(folder.path, own)
    told = progress(quiet=quiet, forecast=True)
    try:
        end = Confirm(
            folder,
            pairs=_given(given, "pairs", PAIRS),
            steps=_given(given, "steps", None) if script is None else script.steps,
            time_budget_s=_given(given, "time_budget", TIME_BUDGET_S),
            trial_timeout_s=_given(given, "trial_timeout", None),
            seed=_given(given, "seed", 0),
            progress=told,
            launch=None if script is None else script.launch,
            own_script=script is not None,
            spare_steps=None if script is None else script.spare_steps,
            refused=() if script is None else script.refused,
        ).run(wanted)
    finally:
        told.close()
    seal_again(folder.path, written=lambda path: path.startswith(own) and path not in broken, quiet=quiet)
    return end


def _given(given: argparse.Namespace, name: str, default: Any) -> Any:
    """A flag's value; ``diagnose --confirm`` has only some of these flags."""
    value = getattr(given, name, None)
    return default if value is None else value


def _plan_only(
    folder: RunFolder, wanted: tuple[Candidate, ...], given: argparse.Namespace, script: ScriptToTry | None
) -> int:
    """Tell what a call would do now, after what earlier ones have done."""
    from perf_diagnostics.cli.tried_text import planned_text
    from perf_diagnostics.trials.confirm.confirm import TIME_BUDGET_S, Confirm
    from perf_diagnostics.trials.confirm.confirm_order import least_pairs
    from perf_diagnostics.trials.confirm.pairs import PAIRS

    pairs = _given(given, "pairs", PAIRS)
    budget_s = _given(given, "time_budget", TIME_BUDGET_S)
    steps = _given(given, "steps", None) if script is None else script.steps
    confirm = Confirm(
        folder,
        pairs=pairs,
        steps=steps,
        time_budget_s=budget_s,
        own_script=script is not None,
        spare_steps=None if script is None else script.spare_steps,
    )
    ahead = confirm.foresee(wanted)
    print(planned_text(wanted, ahead))
    fit = sum(one.decides for one in ahead)
    print(
        f"About {sum(one.missing_s for one in ahead):.0f} s in all; a time budget of {budget_s:.0f} s gives {fit} of "
        f"{len(ahead)} the {least_pairs(pairs)} pairs that a verdict needs; nothing was run."
        if any(one.missing for one in ahead)
        else "No pair is left to run; nothing was run.",
        file=sys.stderr,
    )
    return DONE
