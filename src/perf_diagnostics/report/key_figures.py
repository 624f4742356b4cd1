"""The numbers to show large at the top of a report."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.diagnose.facts.asked_for import asked_for, lost_sentinels
from perf_diagnostics.diagnose.facts.facts import Interval, ask
from perf_diagnostics.records import Run
from perf_diagnostics.report.arms import Arm, largest, only_training, throughput
from perf_diagnostics.report.model import KeyFigure
from perf_diagnostics.report.words import Unit, between, byte_unit, time_unit


def key_figures_of(run: Run, arms: Sequence[Arm]) -> tuple[KeyFigure, ...]:
    """The numbers to show large: the recommended batch size of each line with its speed and memory, and what is lost.

    The gain stands with what to change, above them.
    """
    drawn = [arm for arm in arms if arm.points]
    figures = [figure for arm in drawn[:2] for figure in _arm_figures(arm, alone=len(drawn) == 1)]
    lost = _not_completed(run)
    # That all completed stands above the title; that none did, or how the only training ended, is said in words.
    if lost and drawn and only_training(run) is None:
        asked = asked_for(run)
        total = len(asked.results) + len(asked.pending)
        figures.append(KeyFigure("Trials completed", f"{len(asked.completed)} of {total}", "", lost))
    return tuple(figures)


def _arm_figures(arm: Arm, *, alone: bool) -> list[KeyFigure]:
    """Of a configuration that stands alone the step time, too; of several it is in the table of batch sizes."""
    chosen, best = arm.recommended, arm.best
    rate = throughput(chosen) if chosen is not None else None
    if chosen is None or best is None or rate is None:
        return []
    step = ask(lambda: chosen.step_time_s)
    step_unit = time_unit(0.0 if step is None else step.value)
    fastest = "the fastest" if chosen is best else f"fastest: {best.batch_size},"
    of_these = f"{fastest} of {len(arm.rated)} measured"
    if len(arm.rated) == 1:
        of_these = "the only one measured" if len(arm.points) == 1 else "the only one that can be judged"
    memory, where = largest(chosen, "device_memory_peak_reserved"), "held on the device"
    if memory is None:
        memory, where = largest(chosen, "host_memory_peak"), "of the process"
    unit = byte_unit(memory or 0.0)
    return [
        KeyFigure(f"Batch size, {arm.label}", chosen.batch_size, "", of_these),
        *([] if step is None or not alone else [_with_interval(f"Step time, {arm.label}", step, step_unit)]),
        _with_interval(f"Throughput, {arm.label}", rate, Unit("samples/s", 1.0)),
        KeyFigure(f"Peak memory, {arm.label}", unit.of(memory), unit.name, where if memory is not None else ""),
    ]


def _with_interval(label: str, value: Interval, unit: Unit) -> KeyFigure:
    if value.low is None or value.high is None:
        return KeyFigure(label, unit.of(value.value), unit.name, "")
    ends = between(value.low / unit.size, value.high / unit.size)
    return KeyFigure(label, unit.of(value.value), unit.name, f"95 % interval {ends}")


def _not_completed(whole: Run) -> str:
    run = asked_for(whole)
    parts = [
        (sum(result.outcome.failed for result in run.results), "failed"),
        (sum(result.outcome.skipped for result in run.results), "skipped"),
        (len(run.pending), "not run"),
    ]
    told = [f"{count} {word}" for count, word in parts if count]
    return ", ".join([*told, *filter(None, [lost_sentinels(whole)])])
