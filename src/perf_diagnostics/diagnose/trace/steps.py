"""The steps of a trace: the windows that the profiler marked, else those of ranges that recur, else the whole span."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.borders import borders_of, handed_over
from perf_diagnostics.diagnose.trace.events import Bool, Kind, Trace
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.diagnose.trace.pace import device_pace
from perf_diagnostics.records import Int64

_STEP = re.compile(r"ProfilerStep#(\d+)$")

#: Set-up (allocation, initialisation, capturing graphs) over more than this share of a window makes it a warm-up.
COLD_SHARE = 0.5


#: A last step with less of the work and of the time than this part of what the others have was cut short by the
#: recording's end: whoever leaves the profiler after profiler.step() leaves such a mark, of some µs (judgement).
_CUT_SHORT = 0.5

#: Fewer windows than this do not show that set-up goes on.
LEAST_TO_GO_ON = 3

#: Parts of an unmarked span, to see whether its allocations go on: a training's start is over in the first ones.
_PARTS = 4


@dataclass(frozen=True, eq=False)
class Steps:
    """Windows of consecutive steps, in ns from the trace's start; ``number`` as the profiler counts them.

    ``marked`` is false where the whole span stands for one step. ``warm_up`` steps before the first were left out.
    ``set_up_share`` is how much of the windows went to setting the device up; with ``churn`` these go on through
    all steps, freeing as well as allocating. ``fault`` says why the windows cannot be trusted.

    ``told_by`` says by what the steps are told apart, where not by the profiler's marks alone. ``launched`` are the
    windows in which the host launched the steps, where the device did them later (None: the same windows).
    """

    windows: Times
    number: Int64
    marked: bool
    warm_up: int
    set_up_share: float
    fault: str = ""
    churn: bool = False
    told_by: str = ""
    launched: Times | None = None

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def cold(self) -> bool:
        return self.set_up_share > COLD_SHARE and not self.churn

    @property
    def on_host(self) -> Times:
        """Where the host's calls and ranges that belong to each step are looked for."""
        return self.windows if self.launched is None else self.launched


def steps_of(launches: Launches) -> Steps:
    """The windows of ``ProfilerStep#``, each from the end of the one before, without leading ones that only set up and
    without a last one that the recording cut short.

    Without marks those between the ends of ranges that recur (:mod:`.borders`), the first partial one left out, else
    one from the first to the last event. Where the host runs ahead of them, by the device's pace (:mod:`.pace`).
    """
    trace, names = launches.trace, launches.names
    runtime = trace.runtime
    calls = runtime.where(names.set_up(runtime))
    calling = Times.union(calls.start_ns, calls.end_ns)
    set_up = calling | launches.capturing | launches.loading
    frees = runtime.start_ns[names.freeing(runtime)]
    start, end, number = _marked(trace)
    told_by, left_out, fault = "", 0, ""
    if start.size:
        fault = _fault(start, end, number)
        start = _from_the_end_before(start, end, number)
        if not fault and _ends_cut_short(launches, Times(start, end)):
            told_by = f"the recording ended within step {number[-1]}, which is left out"
            start, end, number = start[:-1], end[:-1], number[:-1]
    elif (borders := borders_of(launches)) is not None:
        told_by, left_out = f"the profiler marked no steps: they are taken {borders.says}", 1
        start, end, number = borders.at[:-1], borders.at[1:], np.arange(1, borders.at.size)
    else:
        windows = Times(np.zeros(1, np.int64), trace.events.end_ns.max(keepdims=True, initial=0))
        churn = _goes_on(calling, frees, _parts(windows))
        return Steps(windows, np.zeros(1, np.int64), False, 0, _share(set_up, windows), churn=churn)
    churn = _goes_on(calling, frees, Times(start, end))
    cold = set_up.within(Times(start, end)) > COLD_SHARE * (end - start)
    first = int(np.argmin(cold)) if not (churn or cold.all()) else 0
    windows, number = Times(start[first:], end[first:]), number[first:]
    set_up_share = _share(set_up, windows)
    pace = None if fault else device_pace(launches, windows, number)
    if pace is None:
        return Steps(windows, number, True, first + left_out, set_up_share, fault, churn, told_by)
    told_by = "; ".join(filter(None, (told_by, pace.says)))
    number, launched = number[: pace.steps], Times(start[first:][: pace.steps], end[first:][: pace.steps])
    return Steps(pace.windows, number, True, first + left_out, set_up_share, pace.fault, churn, told_by, launched)


def _ends_cut_short(launches: Launches, windows: Times) -> bool:
    """Whether the last window is much shorter than the middle one of the others, and less was handed over in it."""
    if len(windows) < 2:
        return False
    step = windows.containing(handed_over(launches))
    count, took = np.bincount(step[step >= 0], minlength=len(windows)), windows.end - windows.start
    return all(bool(column[-1] < _CUT_SHORT * np.median(column[:-1])) for column in (count, took))


def _parts(span: Times) -> Times:
    borders = np.linspace(span.start[0], span.end[-1], _PARTS + 1).astype(np.int64)
    return Times(borders[:-1], borders[1:])


def _goes_on(set_up: Times, frees: Int64, windows: Times) -> bool:
    """Whether memory is freed in every window, and set-up takes most of each: a start would be over after some.

    The first one may be whatever it likes, and nothing is said of a single one.
    """
    if len(windows) < LEAST_TO_GO_ON:
        return False
    freed = np.bincount(_at(windows, frees), minlength=len(windows)) > 0
    heavy: Bool = set_up.within(windows) > COLD_SHARE * (windows.end - windows.start)
    return bool((freed & heavy)[1:].all())


def _at(windows: Times, points: Int64) -> Int64:
    index = windows.containing(points)
    return index[index >= 0].astype(np.int64)


def _marked(trace: Trace) -> tuple[Int64, Int64, Int64]:
    numbers = np.array([int(m[1]) if (m := _STEP.match(name)) else -1 for name in trace.names], np.int64)
    annotations = trace.of(Kind.ANNOTATION)
    if not len(annotations):
        return annotations.start_ns, annotations.end_ns, annotations.start_ns
    number = numbers[annotations.name]
    chosen = (number >= 0) & (annotations.duration_ns > 0)
    # A step may be noted on several threads; the first is the one that called profiler.step().
    number, first = np.unique(number[chosen], return_index=True)
    start, end = annotations.start_ns[chosen][first], annotations.end_ns[chosen][first]
    return start, end, number


def _fault(start: Int64, end: Int64, number: Int64) -> str:
    """Windows are ordered by their number; time has to agree (to a microsecond, which old traces round to)."""
    back = np.flatnonzero(start[1:] < end[:-1] - 2_000)
    if not back.size:
        return ""
    one, two = number[back[0]], number[back[0] + 1]
    return f"step {two} starts before step {one} ends: the clock ran backwards, or two loops share the trace"


def _from_the_end_before(start: Int64, end: Int64, number: Int64) -> Int64:
    """Starts of steps whose wall time leaves nothing out: what lies between two marks belongs to the later step.

    The profiler's own marks are some 50 µs apart. Marks that a loop sets itself may leave out as much as it likes, and
    would hide it. Steps that do not follow each other by number are kept apart: the profiler slept between them.
    """
    follows = np.append(False, np.diff(number) == 1)
    before = np.append(start[:1], end[:-1])
    return np.where(follows, np.minimum(start, before), start)


def _share(part: Times, windows: Times) -> float:
    whole = windows.total_ns
    return float(part.within(windows).sum()) / whole if whole else 0.0
