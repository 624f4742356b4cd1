"""``trace``: what an existing trace of the PyTorch profiler says, in words or as JSON."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.exit_codes import DONE
from perf_diagnostics.cli.rule_flags import add_all, add_threshold, thresholds

if TYPE_CHECKING:
    from perf_diagnostics.diagnose.trace.waterfall import Waterfall

_BAR = 30

#: The parts that a step has without a device as well, and what they are called there; the others are not measured
#: there, and no zeros.
_ON_CPU = {
    "compute": "compute",
    "waiting_for_input": "waiting for input",
    "exposed_communication": "exposed communication",
    "launch_overhead": "between operators",
    "other_host_work": "other host work",
}


def add(commands: Any) -> None:
    command = commands.add_parser(
        "trace",
        help="diagnose a trace of the PyTorch profiler",
        description="Say where the steps of an existing trace of torch.profiler went and why: verdict, a waterfall "
        "that adds up to the step, and findings; with --all also what was cleared and what could not be checked, and "
        "why. Several files are the ranks of one job.",
        allow_abbrev=False,
    )
    command.add_argument("files", metavar="FILE", nargs="+", help="a trace, .json or .json.gz; one for each rank")
    add_all(command)
    command.add_argument("--json", action="store_true", help="print JSON, which holds everything")
    add_threshold(command, such_as="HST001.warn_share=0.2")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    import json

    from perf_diagnostics.cli.diagnosis_text import diagnosis_text, terminal_width
    from perf_diagnostics.diagnose.diagnosis_json import diagnosis_to_json
    from perf_diagnostics.diagnose.trace import diagnose_traces, waterfall_json

    result = diagnose_traces(given.files, thresholds=thresholds(given.threshold))
    if given.json:
        ranks = [None if w is None else waterfall_json(w) for w in result.waterfalls]
        document = {**diagnosis_to_json(result.diagnosis), "waterfall": {"ranks": ranks}}
        print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
        return DONE
    text = diagnosis_text(result.diagnosis, terminal_width(), every_rule=given.all)
    verdict, _, rest = text.partition("\n\n")
    tables = ["\n".join(waterfall_lines(w)) for w in result.waterfalls if w is not None]
    print("\n\n".join(part for part in (verdict, *tables, rest) if part))
    return DONE


def waterfall_lines(waterfall: Waterfall) -> list[str]:
    """The parts of a step as a table that adds up, and what takes most of the device's time."""
    import textwrap

    from perf_diagnostics.diagnose.wording import counted, percent

    each = 1e6 * waterfall.steps
    steps = counted(waterfall.steps, "step") if waterfall.marked else "no steps marked: the whole span"
    left_out = f", {waterfall.warm_up} before them left out as warm-up" if waterfall.warm_up else ""
    lines = [f"{waterfall.label}: {steps} of {waterfall.wall_ns / each:.1f} ms{left_out}"]
    if waterfall.told_by:
        lines += textwrap.wrap(f"({waterfall.told_by})", 98, initial_indent="  ", subsequent_indent="   ")
    if waterfall.forward_only:
        lines.append("  (neither a backward pass nor an update is in the trace: inference or evaluation, no training)")
    for part, ns, share in waterfall.parts:
        name = part.replace("_", " ") if waterfall.on_device else _ON_CPU.get(part)
        if name is None or (part == "exposed_communication" and not waterfall.measured(part)):
            continue
        if part == "waiting_for_input" and not waterfall.loader_seen:
            lines.append(f"  {name:24}{'–':>10}               no loader left a range: in other host work, if anywhere")
            continue
        bar = "#" * round(share.value * _BAR)
        lines.append(f"  {name:24}{ns / each:10.2f} ms {share.value * 100:6.1f} %  {bar}".rstrip())
    lines.append(f"  {'together':24}{waterfall.wall_ns / each:10.2f} ms {100:6.1f} %")
    if waterfall.prompt_share is not None and waterfall.delay_s is not None:
        lines.append(
            f"  {percent(waterfall.prompt_share)} of the kernels start within 20 µs of their launch (f20); from launch "
            f"to start {waterfall.delay_s * 1e6:,.0f} µs on average"
        )
    if waterfall.devices:
        shares = ", ".join(f"device {name} {percent(share.value)}" for name, share in waterfall.devices.shares)
        together = percent(waterfall.devices.together.value)
        lines.append(f"  computing, of the steps' time: {shares}; more than one of them at once {together}")
    for row in waterfall.phases:
        launched = f", {row.device_ns / each:.1f} ms of device work launched" if waterfall.on_device else ""
        lines.append(f"  {row.name}: {(row.host_ns or 0) / each:.1f} ms of host time{launched}")
    lines += [f"  {row.device_ns / each:8.2f} ms  {row.count:5} x  {_short(row.name)}" for row in waterfall.kernels[:5]]
    return lines


def _short(name: str) -> str:
    return name if len(name) <= 72 else f"{name[:71]}…"
