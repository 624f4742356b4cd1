"""``sweep``: run a workload over devices, batch sizes and other settings, one isolated process a trial."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.config import STEPS_LEFT_OPEN, merged
from perf_diagnostics.cli.exit_codes import DONE, INTERRUPTED, SOME_TRIALS_FAILED
from perf_diagnostics.cli.own_name import typed
from perf_diagnostics.cli.parser import examples
from perf_diagnostics.cli.sweep_axes import axes_of, device_names
from perf_diagnostics.cli.sweep_flags import add_flags
from perf_diagnostics.errors import InvalidSettings, WorkloadError

if TYPE_CHECKING:
    from perf_diagnostics.records import Trial
    from perf_diagnostics.store.run_folder import RunFolder
    from perf_diagnostics.trials.plan import Axes
    from perf_diagnostics.trials.sweep import SweepEnd

#: What may be said when a run is gone on with, and what every command carries.
WITH_RESUME = frozenset(
    ("resume", "time_budget", "trial_timeout", "deep", "allow_failures", "quiet", "config", "results_dir")
) | {"command", "run", "version"}

#: ``--quick``: enough to see whether everything works, not enough for a verdict.
QUICK = {"batch_sizes": ["1", "4", "16"], "time_budget": 40.0, "min_steps": 5, "warmup": 2, "sentinel": False}


def add(commands: Any) -> None:
    command = commands.add_parser(
        "sweep",
        help="measure a workload over devices and batch sizes",
        description="Measure a workload over devices, batch sizes and other settings, one isolated process a trial, "
        "into a new run folder. Ctrl-C leaves a run that can be reported, and resumed with --resume.",
        # argparse.SUPPRESS: what was not given is absent, so that a config file is overridden by given flags only.
        argument_default=argparse.SUPPRESS,
        epilog=examples(
            "perf-diagnostics sweep --quick --workload mlp",
            "perf-diagnostics sweep --workload train:make --batch-sizes 8,16,32 --precisions float32,bfloat16",
            "perf-diagnostics sweep --workload train:make --set num_workers=0,2,4 --repeats 5 --name base",
            "perf-diagnostics sweep --resume",
        ),
        allow_abbrev=False,
    )
    add_flags(command)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    typed = vars(given)
    check_flags(typed)
    chosen = merged(typed, QUICK)
    if "resume" in chosen:
        return _resume(chosen)
    devices = device_names(chosen)
    if not devices:
        print("skipped: no GPU")
        return DONE
    budget_s = chosen.get("time_budget", _default_budget_s(devices))
    folder = _create(chosen, axes_of(chosen, devices, budget_s))
    return _sweep(folder, chosen, budget_s=budget_s)


def check_flags(typed: Mapping[str, Any]) -> None:
    """Refuse flags that contradict each other.

    Raises:
        InvalidSettings: two ways to say how many steps, or something new for a run that was planned already.
    """
    bounds = [name for name in STEPS_LEFT_OPEN if name in typed]
    if "steps" in typed and bounds:
        raise InvalidSettings(
            f"--steps {typed['steps']} fixes the number of steps, and --{bounds[0].replace('_', '-')} leaves it open; "
            "give one of the two."
        )
    new = sorted(set(typed) - WITH_RESUME)
    if "resume" in typed and new:
        raise InvalidSettings(
            f"--resume runs what {typed['resume']} was planned to run, so --{new[0].replace('_', '-')} cannot be given "
            "with it; leave it out, or start a new run."
        )


def _resume(chosen: dict[str, Any]) -> int:
    from perf_diagnostics.store.find import find_run

    folder = find_run(chosen["resume"], Path(chosen["results_dir"]))
    pending = folder.pending()
    if not pending:
        print(f"{folder.path}: every planned trial has a result; nothing to resume.{_out_of_time(folder)}")
        return DONE
    try:
        _check_resumed(folder, pending)  # before anything is begun: a new attempt removes what the last one has left
    except WorkloadError as error:
        raise WorkloadError(
            f"{folder.path} cannot be gone on with: {error} What `run` and `attach` measure is gone on with by running "
            "that training again."
        ) from error
    devices = sorted({trial.settings.device for trial in pending})
    return _sweep(folder, chosen, budget_s=chosen.get("time_budget", _default_budget_s(devices)), pending=pending)


def _check_resumed(folder: RunFolder, pending: Sequence[Trial]) -> None:
    from perf_diagnostics.trials import preflight

    if folder.header().of_own_training:  # a workload of the script's name would be another training
        raise WorkloadError("it was measured inside a training of your own.")
    preflight.check(pending)


def _out_of_time(folder: RunFolder) -> str:
    """What of a run that has nothing left to resume was not measured all the same, and what to do about it."""
    from perf_diagnostics.records import Outcome

    skipped = [r.trial.settings for r in folder.results() if r.outcome is Outcome.SKIPPED_OVER_TIME_BUDGET]
    if not skipped:
        return ""
    sizes = " ".join(str(size) for size in dict.fromkeys(settings.batch_size for settings in skipped))
    were = "1 was skipped" if len(skipped) == 1 else f"{len(skipped)} were skipped"
    return f" {were} for lack of time: measure batch {sizes} in a new sweep with a larger --time-budget."


def _default_budget_s(devices: list[str]) -> float:
    from perf_diagnostics.trials.plan import TIME_BUDGET_S

    return TIME_BUDGET_S * len({device.split(":")[0] for device in devices})


def _create(chosen: dict[str, Any], axes: Axes) -> RunFolder:
    from datetime import UTC, datetime

    from perf_diagnostics import __version__
    from perf_diagnostics.measure.environment import capture
    from perf_diagnostics.store.run_folder import RunFolder
    from perf_diagnostics.trials import preflight
    from perf_diagnostics.trials.plan import plan

    trials = plan(axes)
    preflight.check(trials)  # what no trial could run is told before a folder is made
    environment = capture(command=["perf-diagnostics", *sys.argv[1:]])
    command = environment.command.get("line")
    return RunFolder.create(
        Path(chosen["results_dir"]),
        chosen.get("name"),
        planned=trials,
        command=command if isinstance(command, str) else shlex.join(["perf-diagnostics", *sys.argv[1:]]),
        environment=environment,
        tool_version=__version__,
        now=datetime.now(UTC),
    )


def _sweep(folder: RunFolder, chosen: dict[str, Any], *, budget_s: float, pending: Sequence[Trial] = ()) -> int:
    """Run what is pending, and tell how it ended; ``pending`` is named where the run is gone on with."""
    from perf_diagnostics.cli.progress import progress
    from perf_diagnostics.cli.sealing import broken_below, seal_again
    from perf_diagnostics.trials.sweep import Sweep

    quiet = chosen.get("quiet", False)
    broken = broken_below(folder.path, "trials/")
    told = progress(quiet=quiet)
    try:
        end = Sweep(
            folder,
            time_budget_s=budget_s,
            trial_timeout_s=chosen.get("trial_timeout"),
            progress=told,
            deep=chosen.get("deep", False),
        ).run()
    finally:
        told.close()
    print(folder.path)
    if pending:
        own = tuple(f"trials/{trial.id}/" for trial in _begun(pending, end))
        seal_again(folder.path, written=lambda path: path.startswith(own) and path not in broken, quiet=quiet)
    if end.interrupted:
        print(f"interrupted; go on with: {typed('sweep', '--resume', folder.path)}", file=sys.stderr)
        return INTERRUPTED
    if not quiet:
        _summarise(folder, end)
    return SOME_TRIALS_FAILED if end.failed and not chosen.get("allow_failures") else DONE


def _begun(pending: Sequence[Trial], end: SweepEnd) -> list[Trial]:
    """The trials of which the sweep replaced the files: all that it ran, and the one that was under way at the end."""
    left_out = {trial.id for trial, _ in end.left_out}
    reached = [trial for trial in pending if trial.id not in left_out][: len(end.results) + int(end.interrupted)]
    skipped = {result.trial.id for result in end.results if result.outcome.skipped}
    return [trial for trial in reached if trial.id not in skipped]


def _summarise(folder: RunFolder, end: SweepEnd) -> None:
    from perf_diagnostics.diagnose.engine import diagnose
    from perf_diagnostics.diagnose.verdict_place import verdict_words
    from perf_diagnostics.report.reading_order import less_sure
    from perf_diagnostics.trials.confirm.experiments import read_experiments

    diagnosis = diagnose(folder.read(), traces=folder.traces(), experiments=read_experiments(folder.path))
    label = "No verdict" if diagnosis.verdict is None else "Verdict"
    print(f"\n{label}: {' '.join(verdict_words(diagnosis).split())}", file=sys.stderr)
    if doubts := less_sure(diagnosis):
        print(f"Less sure: {doubts}", file=sys.stderr)
    if end.failed:
        trials = "trial" if len(end.results) == 1 else "trials"
        print(f"{len(end.failed)} of {len(end.results)} {trials} failed; the report says how.", file=sys.stderr)
    if end.left_out:
        print(
            f"{len(end.left_out)} more {'trial was' if len(end.left_out) == 1 else 'trials were'} not run: two other "
            "batch sizes had failed alike before their first step. Mend that, then: "
            f"{typed('sweep', '--resume', folder.path)}",
            file=sys.stderr,
        )
    print(f"Next: {typed('diagnose', folder.path)}\n  or: {typed('report', folder.path)}", file=sys.stderr)
