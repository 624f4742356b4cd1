"""The flags of ``sweep``: what is trained, what is varied, how long and how often, and the run it goes to."""

from __future__ import annotations

import argparse
from typing import Any

from perf_diagnostics.cli.run_arguments import add_results_folder
from perf_diagnostics.cli.values import number, some_seconds, whole_number


def add_flags(command: argparse.ArgumentParser) -> None:
    """Add all flags to the command; building them imports no heavy library."""
    _what(command.add_argument_group("what is trained"))
    _axes(command.add_argument_group("what is varied (values separated by commas or spaces)"))
    _how(command.add_argument_group("how long and how often"))
    _run(command.add_argument_group("the run"))
    add_results_folder(command)


def _what(what: Any) -> None:
    what.add_argument(
        "--workload",
        "--model",
        metavar="WORKLOAD",
        help="distilbert-sst2 (default), mlp, tiny-transformer, or module:function; `workloads` lists them",
    )
    what.add_argument("--weights", choices=("random", "pretrained"), help="the workload's option of that name")
    what.add_argument("--dataset", metavar="NAME", help="the workload's option of that name, such as glue/sst2")
    what.add_argument("--option", action="append", metavar="NAME=VALUE", help="any option of the workload; repeatable")


def _axes(axes: Any) -> None:
    _list(axes, "--devices", "--device", help="cpu, cuda, cuda:1 …, 'gpu' (every GPU) or 'all' (default: cpu)")
    _list(axes, "--batch-sizes", "--batch_sizes", help="default: 1…128 on a CPU, 8…256 on a GPU")
    _list(axes, "--precisions", "--precision", help="float32 (default), tf32, bfloat16, float16")
    _list(axes, "--num-workers", "--num_workers", help="data loader workers")
    _list(axes, "--threads", help="torch's intra-op threads")
    axes.add_argument("--set", action="append", metavar="NAME=V1,V2", help="values of any other setting; repeatable")


def _how(how: Any) -> None:
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
    how.add_argument("--steps", type=whole_number, metavar="N", help="measure exactly N steps a trial")
    how.add_argument(
        "--warmup",
        "--warmup-steps",
        "--warmup_runs",
        "--warmup-runs",
        type=whole_number,
        metavar="N",
        help="least warm-up steps (default: 3)",
    )
    how.add_argument(
        "--min-steps",
        "--min_steps",
        type=whole_number,
        metavar="N",
        help="steps before spread is looked at (default: 20)",
    )
    how.add_argument(
        "--max-steps", "--max_steps", type=whole_number, metavar="N", help="most steps a trial (default: 1000)"
    )
    how.add_argument(
        "--half-width",
        "--half_width",
        type=number,
        metavar="SHARE",
        help="stop when the mean step time is known to this share (default: 0.02)",
    )
    how.add_argument(
        "--repeats",
        type=whole_number,
        metavar="N",
        help="runs of each configuration, in randomised blocks (default: 1)",
    )
    how.add_argument(
        "--sentinel",
        action=argparse.BooleanOptionalAction,
        help="repeat one cheap configuration between blocks, to see the machine drift (default: in larger sweeps)",
    )
    how.add_argument(
        "--seed", type=whole_number, metavar="N", help="of weights, data and the order of trials (default: 0)"
    )
    how.add_argument(
        "--deep",
        action="store_true",
        help="after the timed steps of each trial, record a few under torch.profiler and let the diagnosis use them",
    )
    how.add_argument("--quick", action="store_true", help="batch sizes 1 4 16, 40 s: to see that it works")


def _run(group: Any) -> None:
    group.add_argument("--name", metavar="NAME", help="name of the run's folder (default: the time)")
    group.add_argument(
        "--resume",
        nargs="?",
        const="latest",
        metavar="RUN",
        help="run what is missing in RUN (default: latest) instead of starting anew",
    )
    group.add_argument(
        "--config",
        "--config-file",
        metavar="FILE",
        help="JSON or TOML with any of these flags by name; a flag given here wins",
    )
    group.add_argument(
        "--allow-failures", action="store_true", help="exit with 0 also if some trials failed; the report says which"
    )
    group.add_argument("--quiet", "-q", action="store_true", help="print the run's folder only")


def _list(group: Any, *flags: str, help: str) -> None:  # noqa: A002
    group.add_argument(*flags, nargs="+", metavar="V", help=help)
