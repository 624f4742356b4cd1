"""Dose-response tables: how often each limit of a rule fires, from no dose to four times its limit."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from benchmarks.progress import Progress
from tests.planted.bench import Workbench
from tests.planted.dosed_all import DOSES, not_dosed_yet
from tests.planted.doses import MULTIPLES, table
from tests.planted.real_doses import REAL_DOSES, Tried, tried


def section(title: str, lines: list[str]) -> list[str]:
    """A heading and what follows it."""
    return ["", f"## {title}", "", *lines]


def made_up_curves(seeds: int) -> tuple[Mapping[str, Mapping[str, float]], list[str]]:
    """The rate at each dose over made-up records, by limit, and the table of it, what is not as expected first."""
    curves: dict[str, dict[float, float]] = {}
    wrong: list[str] = []
    for dose in DOSES:
        curve = dose.curve(range(seeds))
        curves[dose.name] = curve
        wrong += [said for multiple, rate in curve.items() if (said := dose.complaint(multiple, rate))]
        print(f"{dose.name}: {curve}", file=sys.stderr, flush=True)
    kept = {name: {f"{multiple:g}": rate for multiple, rate in curve.items()} for name, curve in curves.items()}
    said = [f"Not as expected: {'; '.join(wrong)}.", ""] if wrong else []
    fresh = not_dosed_yet()
    said += [f"Not dosed yet: {', '.join(fresh)}.", ""] if fresh else []
    return kept, [f"{len(DOSES)} limits, {seeds} records a dose.", "", *said, *table(curves)]


def real_runs(seeds: int) -> int:
    """How many runs the doses in real trainings take at most: each dose, its control, and two to find the dose by."""
    return seeds * sum(len(series.multiples) + 2 for series in REAL_DOSES)


def real_curves(bench: Workbench, seeds: int, progress: Progress) -> tuple[Mapping[str, object], list[str]]:
    """The same in real trainings: the dose that was aimed at, the one that a clock found, and how often it fired."""
    rows: dict[str, list[Tried]] = {}
    for series in REAL_DOSES:
        for seed in range(seeds):
            progress.say(f"doses of {series.name}, seed {seed}")
            for one in tried(series, bench, seed):
                rows.setdefault(series.name, []).append(one)
                print(f"{series.name} {seed}: {one}", file=sys.stderr, flush=True)
            progress.done(len(series.multiples) + 2)
    lines = ["| dose | limit | " + " | ".join(f"{m:g} τ" for m in MULTIPLES) + " |", "|---" * 6 + "|"]
    for series in REAL_DOSES:
        cells = [_cell([one for one in rows.get(series.name, ()) if one.multiple == m]) for m in MULTIPLES]
        lines.append(
            f"| {series.name} | {' or '.join(series.codes)} {series.threshold:g} | " + " | ".join(cells) + " |"
        )
    kept = {name: [vars(one) for one in found] for name, found in rows.items()}
    return kept, [
        "Fired of tried, and the dose that a clock found; what missed its dose by half is left out.",
        "",
        *lines,
    ]


def _cell(found: list[Tried]) -> str:
    bit = [one for one in found if one.bit]
    if not bit:
        return "missed" if found else ""
    reached = ", ".join(f"{one.reached:.2g}" for one in bit)
    return f"{sum(one.fired for one in bit)} of {len(bit)} ({reached})"
