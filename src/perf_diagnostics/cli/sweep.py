"""``sweep``: run a workload over devices, batch sizes and other settings, one isolated process a trial."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.exit_codes import DONE, INTERRUPTED, SOME_TRIALS_FAILED
from perf_diagnostics.cli.lists import some_seconds, split_assignment, split_names, split_whole_numbers
from perf_diagnostics.cli.runs import add_results_folder

if TYPE_CHECKING:
    from perf_diagnostics.records import Json
    from perf_diagnostics.store.run_folder import RunFolder
    from perf_diagnostics.trials.plan import Axes
    from perf_diagnostics.trials.sweep import SweepEnd

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
        allow_abbrev=False,
    )
    what = command.add_argument_group("what is trained")
    what.add_argument(
        "--workload",
        "--model",
        metavar="NAME",
        help="distilbert-sst2 (default), mlp, tiny-transformer, or module:function",
    )
    what.add_argument("--weights", choices=("random", "pretrained"), help="the workload's option of that name")
    what.add_argument("--dataset", metavar="NAME", help="the workload's option of that name, such as glue/sst2")
    what.add_argument("--option", action="append", metavar="NAME=VALUE", help="any option of the workload; repeatable")
    axes = command.add_argument_group("what is varied (values separated by commas or spaces)")
    _list(axes, "--devices", "--device", help="cpu, cuda, cuda:1 …, 'gpu' (every GPU) or 'all' (default: cpu)")
    _list(axes, "--batch-sizes", "--batch_sizes", help="default: 1…128 on a CPU, 8…256 on a GPU")
    _list(axes, "--precisions", "--precision", help="float32 (default), tf32, bfloat16, float16")
    _list(axes, "--num-workers", "--num_workers", help="data loader workers")
    _list(axes, "--threads", help="torch's intra-op threads")
    axes.add_argument("--set", action="append", metavar="NAME=V1,V2", help="values of any other setting; repeatable")
    how = command.add_argument_group("how long and how often")
    how.add_argument(
        "--time-budget",
        "--time_budget",
        type=some_seconds,
        metavar="S",
        help="seconds for the whole sweep (default: 240 a device kind)",
    )
    how.add_argument(
        "--trial-timeout",
        "--trial_timeout",
        type=some_seconds,
        metavar="S",
        help="end a trial from outside after so many seconds",
    )
    how.add_argument("--steps", type=int, metavar="N", help="measure exactly N steps a trial")
    how.add_argument(
        "--warmup",
        "--warmup-steps",
        "--warmup_runs",
        "--warmup-runs",
        type=int,
        metavar="N",
        help="least warm-up steps (default: 3)",
    )
    how.add_argument(
        "--min-steps", "--min_steps", type=int, metavar="N", help="steps before spread is looked at (default: 20)"
    )
    how.add_argument("--max-steps", "--max_steps", type=int, metavar="N", help="most steps a trial (default: 1000)")
    how.add_argument(
        "--half-width",
        "--half_width",
        type=float,
        metavar="SHARE",
        help="stop when the mean step time is known to this share (default: 0.02)",
    )
    how.add_argument(
        "--repeats", type=int, metavar="N", help="runs of each configuration, in randomised blocks (default: 1)"
    )
    how.add_argument(
        "--sentinel",
        action=argparse.BooleanOptionalAction,
        help="repeat one cheap configuration between blocks, to see the machine drift (default: in larger sweeps)",
    )
    how.add_argument("--seed", type=int, metavar="N", help="of weights, data and the order of trials (default: 0)")
    how.add_argument(
        "--deep",
        action="store_true",
        help="after the timed steps of each trial, record a few under torch.profiler and let the diagnosis use them",
    )
    how.add_argument("--quick", action="store_true", help="batch sizes 1 4 16, 40 s: to see that it works")
    run_group = command.add_argument_group("the run")
    run_group.add_argument("--name", metavar="NAME", help="name of the run's folder (default: the time)")
    run_group.add_argument(
        "--resume",
        nargs="?",
        const="latest",
        metavar="RUN",
        help="run what is missing in RUN (default: latest) instead of starting anew",
    )
    run_group.add_argument(
        "--config",
        "--config-file",
        metavar="FILE",
        help="JSON or TOML with any of these flags by name; a flag given here wins",
    )
    run_group.add_argument(
        "--allow-failures", action="store_true", help="exit with 0 also if some trials failed; the report says which"
    )
    run_group.add_argument("--quiet", "-q", action="store_true", help="print the run's folder only")
    add_results_folder(command)
    command.set_defaults(run=run)


def _list(group: Any, *flags: str, help: str) -> None:  # noqa: A002
    group.add_argument(*flags, nargs="+", metavar="V", help=help)


def run(given: argparse.Namespace) -> int:
    from perf_diagnostics.cli.config import merged

    chosen = merged(vars(given), QUICK)
    if "resume" in chosen:
        return _resume(chosen)
    devices = _devices(chosen)
    if not devices:
        print("skipped: no GPU")
        return DONE
    budget_s = chosen.get("time_budget", _default_budget_s(devices))
    folder = _create(chosen, _with_sentinel(_axes(chosen, devices), chosen.get("sentinel"), budget_s))
    return _sweep(folder, chosen, budget_s=budget_s)


def _resume(chosen: dict[str, Any]) -> int:
    from perf_diagnostics.store.find import find_run

    folder = find_run(chosen["resume"], Path(chosen["results_dir"]))
    pending = folder.pending()
    if not pending:
        print(f"{folder.path}: every planned trial has a result; nothing to resume.")
        return DONE
    devices = sorted({trial.settings.device for trial in pending})
    return _sweep(folder, chosen, budget_s=chosen.get("time_budget", _default_budget_s(devices)))


def _default_budget_s(devices: list[str]) -> float:
    from perf_diagnostics.trials.plan import TIME_BUDGET_S

    return TIME_BUDGET_S * len({device.split(":")[0] for device in devices})


def _create(chosen: dict[str, Any], axes: Axes) -> RunFolder:
    from datetime import UTC, datetime

    from perf_diagnostics import __version__
    from perf_diagnostics.measure.environment import capture
    from perf_diagnostics.store.run_folder import RunFolder
    from perf_diagnostics.trials.plan import plan
    from perf_diagnostics.workloads import registry

    trials = plan(axes)
    registry.find(axes.workload)  # a name that does not exist is told before a folder is made
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


def _sweep(folder: RunFolder, chosen: dict[str, Any], *, budget_s: float) -> int:
    from perf_diagnostics.cli.progress import progress
    from perf_diagnostics.trials.sweep import Sweep

    quiet = chosen.get("quiet", False)
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
    if end.interrupted:
        print(f"interrupted; go on with: perf-diagnostics sweep --resume {folder.path}", file=sys.stderr)
        return INTERRUPTED
    if not quiet:
        _summarise(folder, end)
    return SOME_TRIALS_FAILED if end.failed and not chosen.get("allow_failures") else DONE


def _summarise(folder: RunFolder, end: SweepEnd) -> None:
    from perf_diagnostics.diagnose.engine import diagnose

    diagnosis = diagnose(folder.read(), traces=folder.traces())
    if diagnosis.verdict is not None:
        print(f"\nVerdict: {diagnosis.verdict.summary} [{diagnosis.verdict.code}]", file=sys.stderr)
    else:
        print(f"\nNo verdict: {diagnosis.no_verdict_because}", file=sys.stderr)
    if end.failed:
        trials = "trial" if len(end.results) == 1 else "trials"
        print(f"{len(end.failed)} of {len(end.results)} {trials} failed; the report says how.", file=sys.stderr)
    print(f"Next: perf-diagnostics report {folder.path}", file=sys.stderr)


def _devices(chosen: dict[str, Any]) -> list[str]:
    """The devices that were asked for by name, with 'all' and 'gpu' spelled out; empty if there is no such GPU."""
    wanted = split_names(chosen.get("devices", ["cpu"]))
    if not any(name in ("all", "gpu") for name in wanted):
        return [("cuda:0" if name == "cuda" else name) for name in wanted]
    from perf_diagnostics.measure.devices import probe_devices

    found = probe_devices()
    for device in found:
        if not device.usable:
            print(f"{device.name}: skipped: {device.why_not}", file=sys.stderr)
    gpus = [device.name for device in found if device.usable and device.kind != "cpu"]
    spelled: list[str] = []
    for name in wanted:
        spelled += {"all": ["cpu", *gpus], "gpu": gpus}.get(name, [name])
    return list(dict.fromkeys(spelled))


def _axes(chosen: dict[str, Any], devices: list[str]) -> Axes:
    from perf_diagnostics.trials.plan import Axes

    others: dict[str, list[Any]] = {}
    if "precisions" in chosen:
        others["precision"] = split_names(chosen["precisions"])
    for name in ("num_workers", "threads"):
        if name in chosen:
            others[name] = split_whole_numbers(chosen[name], of=f"--{name.replace('_', '-')}")
    for text in chosen.get("set", []):
        name, values = split_assignment(text, of="--set")
        others[name.replace("-", "_")] = [parsed_value(value) for value in split_names([values])]
    return Axes(
        workload=chosen.get("workload", "distilbert-sst2"),
        devices=devices,
        batch_sizes=split_whole_numbers(chosen.get("batch_sizes", []), of="--batch-sizes"),
        others=others,
        options=_options(chosen),
        length=_length(chosen),
        seed=chosen.get("seed", 0),
        repeats=chosen.get("repeats", 1),
    )


def _with_sentinel(axes: Axes, asked: bool | None, budget_s: float) -> Axes:
    """The axes with a sentinel where one was asked for, or, if nobody said, where the sweep is long enough for it."""
    from dataclasses import replace

    from perf_diagnostics.trials.plan import worth_a_sentinel

    return replace(axes, sentinel=worth_a_sentinel(axes, budget_s) if asked is None else asked)


def _options(chosen: dict[str, Any]) -> dict[str, Json]:
    options: dict[str, Json] = {name: chosen[name] for name in ("weights", "dataset") if name in chosen}
    given = chosen.get("option", [])
    if isinstance(given, dict):  # from a config file
        return {**options, **given}
    for text in given:
        name, value = split_assignment(text, of="--option")
        options[name] = parsed_value(value)
    return options


def _length(chosen: dict[str, Any]) -> Any:
    from perf_diagnostics.records import Length

    if "steps" in chosen:
        return Length.exactly(chosen["steps"], **({"warmup_steps": chosen["warmup"]} if "warmup" in chosen else {}))
    names = {"warmup": "warmup_steps", "min_steps": "min_steps", "max_steps": "max_steps", "half_width": "half_width"}
    fields = {field: chosen[name] for name, field in names.items() if name in chosen}
    for name in ("min_steps", "max_steps"):
        if name in fields:
            fields["floor_steps"] = max(1, min(fields.get("floor_steps", 3), fields[name]))
    if "max_steps" in fields:
        fields.setdefault("min_steps", min(20, fields["max_steps"]))
    return Length(**fields)


def parsed_value(text: str) -> Any:
    """``true``, ``none``, ``3``, ``0.5`` as what they mean; anything else as text."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
