"""Slow steps and why: the outliers of the configuration the verdict is about, by what their extra time went to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perf_diagnostics.diagnose.facts.facts import ask
from perf_diagnostics.diagnose.facts.outliers import Cause, Outliers
from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.report.arms import Arm
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries, ReportTable, TableColumn
from perf_diagnostics.report.words import counted, percent

SECTION = "Slow steps and why"

#: The rule that finds long steps that return after always the same number of steps.
PERIODIC = "STB004"

CAUSE_WORDS = {
    Cause.GC: "Python's garbage collector",
    Cause.EPOCH_EDGE: "an epoch began",
    Cause.LOADER_STALL: "the loader was late",
    Cause.COMPILE: "compiling",
    Cause.ALLOC_RETRY: "the allocator had to empty its cache",
    Cause.THROTTLE: "the device's clock was held down",
    Cause.OUTSIDE: "other processes had the processor",
    Cause.UNEXPLAINED: "not explained",
}


def slow_steps_chart(arms: Sequence[Arm], diagnosis: Diagnosis) -> Chart | None:
    """What each cause lost, as a share of all time; only where there is more than one cause to compare."""
    found, _, where = _found(arms)
    shares = lost_by_cause(found)
    if len(shares) < 2:
        return None
    words = _cause_words(arms, diagnosis, shares)
    first, share = next(iter(shares.items()))
    return Chart(
        key="slow_steps",
        kind=ChartKind.LYING_BAR,
        title=f"Time lost in slow steps, {where}",
        x_label="Cause",
        y_label="Lost beyond the median step (% of all time)",
        unit="%",
        categories=tuple(words[cause] for cause in shares),
        series=(ChartSeries("lost", tuple(100 * share for share in shares.values())),),
        takeaway=f"{percent(sum(shares.values()))} of all time was lost in slow steps. The largest part, "
        f"{percent(share)}: {words[first]}.",
        section=SECTION,
    )


def slow_steps_table(arms: Sequence[Arm], diagnosis: Diagnosis) -> ReportTable:
    """One row a cause: the steps in which it mattered, what it took, and the share of all time that this was."""
    found, steps, where = _found(arms)
    total_s = sum(one.total_s for one in found)
    shares = lost_by_cause(found)
    words = _cause_words(arms, diagnosis, shares)
    rows = [
        (
            words[cause],
            sum(cause in one.causes_of(index) for one in found for index in range(len(one))),
            sum(one.cause_s.get(cause, 0.0) for one in found),
            100 * share,
        )
        for cause, share in shares.items()
    ]
    count = sum(len(one) for one in found)
    lost = sum(float(one.excess_s.sum()) for one in found) / total_s if total_s > 0 else 0.0
    return ReportTable(
        key="slow_steps",
        title=f"Slow steps by cause, {where}",
        columns=(
            TableColumn("Cause", numeric=False),
            TableColumn("Steps"),
            TableColumn("Lost", "s"),
            TableColumn("Of all time", "%"),
        ),
        rows=tuple(rows),
        note=f"{counted(count, 'step')} of {steps:,} took longer than those around, by {percent(lost)} of all time "
        "together. Throughput and means count them like any other step. A step may have several causes, each with a "
        "fifth of its excess or more; the shares add up.",
        section=SECTION,
    )


def lost_by_cause(found: Sequence[Outliers]) -> dict[Cause, float]:
    """The share of all time that each cause took beyond the steps around, the largest first, over all repeats."""
    total_s = sum(one.total_s for one in found)
    sums = {cause: sum(one.cause_s.get(cause, 0.0) for one in found) for cause in Cause}
    known = {cause: seconds / total_s for cause, seconds in sums.items() if seconds > 0 and total_s > 0}
    return {cause: known[cause] for cause in sorted(known, key=lambda one: -known[one])}


def _cause_words(arms: Sequence[Arm], diagnosis: Diagnosis, shares: Mapping[Cause, float]) -> dict[Cause, str]:
    """What each cause is called; what none of them explains is not called unexplained where a rule found its rhythm."""
    words = dict(CAUSE_WORDS)
    if 2 * shares.get(Cause.UNEXPLAINED, 0.0) < sum(shares.values()):
        return words
    chosen = arms[0].recommended if arms else None
    if chosen is None:
        return words
    for finding in diagnosis.findings:
        here = finding.group == arms[0].group.label
        if finding.code == PERIODIC and here and chosen.batch_size in (finding.batch_sizes or (chosen.batch_size,)):
            period = next((item.value for item in finding.evidence if item.metric == "period"), None)
            every = "work that returns" if not isinstance(period, int | float) else f"work every {period:g} steps"
            words[Cause.UNEXPLAINED] = f"mostly {every} ({PERIODIC})"
    return words


def _found(arms: Sequence[Arm]) -> tuple[list[Outliers], int, str]:
    """The outliers of each repeat at the first line's recommended batch size, of how many steps, and where that is."""
    chosen = arms[0].recommended if arms else None
    if chosen is None:
        return [], 0, ""
    asked = [(trial.steps, ask(lambda t=trial: t.outliers)) for trial in chosen.trials]  # type: ignore[misc]
    known = [(steps, one) for steps, one in asked if one is not None]
    where = f"{arms[0].label}, batch size {chosen.batch_size}"
    return [one for _, one in known], sum(steps for steps, _ in known), where
