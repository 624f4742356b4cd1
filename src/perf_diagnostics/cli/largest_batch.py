"""``largest-batch``: search for the largest batch that fits, each attempt in a fresh process; the answer has run."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.exit_codes import DONE, INTERRUPTED, SOME_TRIALS_FAILED
from perf_diagnostics.cli.own_name import typed
from perf_diagnostics.cli.run_arguments import add_results_folder
from perf_diagnostics.cli.values import assignments, number, parsed_value, precision, some_seconds, whole_number

if TYPE_CHECKING:
    from perf_diagnostics.records import Trial
    from perf_diagnostics.store.run_folder import RunFolder
    from perf_diagnostics.trials.largest_batch import Bounds, LargestBatch, Tried

#: Seconds for the whole search when nothing is said: some 15 attempts.
TIME_BUDGET_S = 600.0


def add(commands: Any) -> None:
    command = commands.add_parser(
        "largest-batch",
        help="find the largest batch that fits, by running it",
        description="Double the batch until it does not fit, then bisect; each attempt is a trial of a few full steps, "
        "with the optimizer and the longest sequences the workload offers, in a process of its own. What is returned "
        "has run. Attempts that the host's memory would not hold are refused. The attempts are a run like any other.",
        allow_abbrev=False,
    )
    what = command.add_argument_group("what is trained")
    what.add_argument("--workload", "--model", default="distilbert-sst2", metavar="WORKLOAD", help="as for sweep")
    what.add_argument("--device", default="cpu", metavar="NAME", help="cpu (default), cuda, cuda:1 …")
    what.add_argument(
        "--precision", default="float32", metavar="NAME", help="float32 (default), tf32, bfloat16, float16"
    )
    what.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="any option of the workload; repeatable"
    )
    what.add_argument("--set", action="append", default=[], metavar="NAME=V", help="any other setting; repeatable")
    where = command.add_argument_group("where to search")
    where.add_argument("--start", type=whole_number, default=1, metavar="N", help="the first size (default: 1)")
    where.add_argument("--max", type=whole_number, metavar="N", help="try no size above this one")
    where.add_argument(
        "--granularity",
        type=whole_number,
        default=1,
        metavar="N",
        help="tell sizes apart down to this (default: 1 sample)",
    )
    where.add_argument(
        "--resolution", type=number, default=0.02, metavar="SHARE", help="or to this share of them (default: 0.02)"
    )
    where.add_argument(
        "--margin", type=number, default=0.05, metavar="SHARE", help="stay so much below the largest (default: 0.05)"
    )
    where.add_argument(
        "--time-budget",
        "--time_budget",
        type=some_seconds,
        default=TIME_BUDGET_S,
        metavar="S",
        help=f"seconds for the whole search (default: {TIME_BUDGET_S:.0f})",
    )
    run_group = command.add_argument_group("the run")
    run_group.add_argument("--seed", type=whole_number, default=0, metavar="N", help="of weights and data (default: 0)")
    run_group.add_argument("--name", metavar="NAME", help="name of the run's folder (default: the time)")
    run_group.add_argument(
        "--resume",
        nargs="?",
        const="latest",
        metavar="RUN",
        help="go on with a search that was cut off (default: latest); its workload and settings hold, its bounds are "
        "to be given again",
    )
    run_group.add_argument("--quiet", "-q", action="store_true", help="print the result only, no progress")
    add_results_folder(command)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    from perf_diagnostics.cli.progress import progress
    from perf_diagnostics.trials.batch_trials import BatchTrials
    from perf_diagnostics.trials.largest_batch import Fit, search
    from perf_diagnostics.trials.launch.launcher import launcher, preload_for

    bounds = _bounds(given)
    folder = _folder(given)
    trial = folder.header().planned[0]
    told = progress(quiet=given.quiet)
    launch = launcher(preload=preload_for([trial.workload]))
    try:
        found = search(
            BatchTrials(folder, trial, launch, time_budget_s=given.time_budget, progress=told),
            bounds,
        )
    finally:
        told.close()
        launch.close()
    print("\n".join(answer(found, bounds)))
    print(folder.path)
    if found.ended_by is not None and found.ended_by.fit is Fit.INTERRUPTED:
        print(
            f"interrupted; go on with: {typed('largest-batch', '--resume', folder.path, *_again(given))}",
            file=sys.stderr,
        )
        return INTERRUPTED
    return DONE if found.recommended is not None else SOME_TRIALS_FAILED


def answer(found: LargestBatch, bounds: Bounds) -> list[str]:
    """What the search found, in sentences; only sizes that have run are recommended."""
    largest, chosen, fastest = found.largest, found.recommended, found.fastest
    lines: list[str] = []
    if found.ended_by is not None:
        lines.append(f"The search ended early at batch {found.ended_by.size}: {found.ended_by.why}")
    if largest is None:
        if found.too_large is not None:
            lines.append(f"No batch size fits; batch {found.too_large.size}: {found.too_large.why}")
        return lines or ["No batch size was tried."]
    lines.append(f"Largest batch that ran: {_sized(largest)}.")
    if found.too_large is not None:
        lines.append(f"Smallest that did not run: batch {found.too_large.size}: {found.too_large.why}")
        if found.too_large.refused:
            lines.append("Memory did not come to its end: a larger batch may fit.")
    elif found.ended_by is None:
        lines.append(f"That is the most that was to be tried ({bounds.most}); larger ones may fit.")
    if chosen is not None:
        lines.append(f"To train with, {bounds.margin:.0%} below it, and run: {_sized(chosen)}.")
    if fastest is not None and chosen is not None and fastest.size != chosen.size:
        lines.append(f"The largest size that fits may be slower. Fastest over three steps: {_sized(fastest)}.")
    return lines


def _sized(one: Tried) -> str:
    """``batch 64 (1.25 GiB on the host, 812 samples/s)``."""
    from perf_diagnostics.cli.diagnosis_text import legible

    known = [
        *([] if one.device_peak_bytes is None else [f"{one.device_peak_bytes / 2**30:.3g} GiB on the device"]),
        *([] if one.host_peak_bytes is None else [f"{one.host_peak_bytes / 2**30:.3g} GiB on the host"]),
        *([] if one.samples_per_s is None else [f"{legible(one.samples_per_s)} samples/s"]),
    ]
    return f"batch {one.size}" + (f" ({', '.join(known)})" if known else "")


def _bounds(given: argparse.Namespace) -> Bounds:
    from perf_diagnostics.trials.largest_batch import Bounds

    return Bounds(
        start=given.start,
        most=given.max,
        granularity=given.granularity,
        resolution=given.resolution,
        margin=given.margin,
    )


def _again(given: argparse.Namespace) -> tuple[str, ...]:
    """What a search has to be given again to go on as it was: where it looks, and for how long."""
    names = ("start", "max", "granularity", "resolution", "margin", "time_budget")
    values = {f"--{name.replace('_', '-')}": getattr(given, name) for name in names}
    return tuple(word for flag, value in values.items() if value is not None for word in (flag, f"{value:g}"))


def _folder(given: argparse.Namespace) -> RunFolder:
    """The run that the attempts are written to: a new one, or the one to go on with."""
    from datetime import UTC, datetime

    from perf_diagnostics import __version__
    from perf_diagnostics.measure.environment import capture
    from perf_diagnostics.records import BATCH_SEARCH
    from perf_diagnostics.store.find import find_run
    from perf_diagnostics.store.run_folder import RunFolder

    if given.resume is not None:
        return _search_in(find_run(given.resume, Path(given.results_dir)))
    trial = _first_trial(given)
    environment = capture(command=["perf-diagnostics", *sys.argv[1:]])
    command = environment.command.get("line")
    return RunFolder.create(
        Path(given.results_dir),
        given.name,
        planned=[trial],
        command=command if isinstance(command, str) else shlex.join(["perf-diagnostics", *sys.argv[1:]]),
        environment=environment,
        tool_version=__version__,
        now=datetime.now(UTC),
        notes=(BATCH_SEARCH,),
    )


def _search_in(folder: RunFolder) -> RunFolder:
    """The run itself, if it is a search and no sweep, whose plan a search must not extend.

    Raises:
        InvalidSettings: it is no search.
    """
    from perf_diagnostics.errors import InvalidSettings
    from perf_diagnostics.trials.batch_trials import LENGTH

    planned = folder.header().planned
    if not planned or any(trial.length != LENGTH for trial in planned):
        raise InvalidSettings(
            f"{folder.path} is no search for the largest batch, so it cannot be gone on with; name one that is, or "
            "leave --resume out to start one."
        )
    return folder


def _first_trial(given: argparse.Namespace) -> Trial:
    from perf_diagnostics.cli.sweep_axes import setting_name
    from perf_diagnostics.errors import InvalidSettings
    from perf_diagnostics.records import Settings, Trial
    from perf_diagnostics.trials import preflight
    from perf_diagnostics.trials.batch_trials import LENGTH, with_longest_sequences
    from perf_diagnostics.workloads import registry

    settings = Settings(
        batch_size=given.start,
        device="cuda:0" if given.device == "cuda" else given.device,
        precision=precision(given.precision, of="--precision"),
    )
    for text, value in assignments(given.set, of="--set").items():
        name = setting_name(text)
        if name == "batch_size":
            raise InvalidSettings(
                f"--set {text}={value}: the batch size is searched for; bound it by --start and --max."
            )
        settings = settings.replace(**{name: parsed_value(value)})
    options = {name: parsed_value(value) for name, value in assignments(given.option, of="--option").items()}
    trial = Trial(
        workload=given.workload,
        settings=settings,
        options=with_longest_sequences(registry.find(given.workload), options),
        length=LENGTH,
        seed=given.seed,
    )
    preflight.check([trial])
    return trial
