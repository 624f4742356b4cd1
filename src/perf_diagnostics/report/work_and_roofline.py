"""Work and what the hardware could do: operations, the share of the ceilings, and the roofline they lie under.

After Williams, Waterman & Patterson, CACM 52(4), 2009. All numbers come from
:mod:`perf_diagnostics.diagnose.facts.roofline`, as the rules see them: what would exceed its ceiling is not shown at
all, and the table says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, Point, TrialFacts, ask
from perf_diagnostics.report.arms import Arm, mean_of
from perf_diagnostics.report.charts.by_size import sizes_of, values_by_size
from perf_diagnostics.report.model import (
    Cell,
    Chart,
    ChartKind,
    ChartLine,
    ChartSeries,
    ReportTable,
    TableColumn,
    filled,
)
from perf_diagnostics.report.words import Unit, listing, number, operation_unit, percent, plain

SECTION = "Work and what the hardware could do"

#: More configurations than these are left to the table.
_DRAWN = 4

#: The signals under which a share above its ceiling is refused.
_CONTRADICTED = ("hfu", "mfu")

#: Large copies and products reach most of what a sheet promises; below this part of it something held the device back.
_FAR_BELOW = 0.50

#: How far the roof is drawn beyond the points and the ridge.
_BEYOND = 2.5


def work_charts(arms: Sequence[Arm]) -> list[Chart]:
    """A roofline for each configuration with two batch sizes under a measured roof; else the shares as bars."""
    drawn = [arm for arm in arms if arm.points]
    roofs = [chart for index, arm in enumerate(drawn[:_DRAWN]) if (chart := roofline_chart(arm, index)) is not None]
    if roofs:
        return roofs
    shares = ceiling_chart(drawn[:_DRAWN])
    return [] if shares is None else [shares]


def roofline_chart(arm: Arm, index: int) -> Chart | None:
    """Operations a second against operations for each byte, under the fastest product and the fastest copy."""
    points = [
        (point, intensity, rate.value)
        for point in arm.points
        if (rate := achieved(point)) is not None and (intensity := mean_of(point, roofline.intensity)) is not None
    ]
    points = [one for one in points if one[1] > 0 and one[2] > 0]  # a logarithm has no place for nothing
    ceiling, bandwidth = _highest(arm, "matmul_ceiling"), _highest(arm, "memory_bandwidth")
    if len(points) < 2 or ceiling is None or bandwidth is None:
        return None
    unit = operation_unit(ceiling)
    ridge = ceiling / bandwidth
    low = min(ridge, *(x for _, x, _ in points)) / _BEYOND
    high = max(ridge, *(x for _, x, _ in points)) * _BEYOND
    roof = ((low, low * bandwidth / unit.size), (ridge, ceiling / unit.size), (high, ceiling / unit.size))
    return Chart(
        key=f"roofline_{index + 1}",
        kind=ChartKind.ROOFLINE,
        title=f"Roofline, {arm.label}",
        x_label="Operations for each byte that operators read or write (FLOP/byte)",
        y_label=f"Operations a second ({unit.name}/s), by batch size",
        unit=f"{unit.name}/s",
        categories=tuple(str(point.batch_size) for point, _, _ in points),
        x=tuple(x for _, x, _ in points),
        x_scale="log10",
        series=(
            ChartSeries(
                arm.label,
                tuple(rate / unit.size for _, _, rate in points),
                highlight="" if arm.recommended is None else str(arm.recommended.batch_size),
            ),
        ),
        lines=(ChartLine("measured roof (copy, then product)", roof),),
        takeaway=_takeaway(arm, points, ridge, bandwidth),
        section=SECTION,
    )


def _takeaway(arm: Arm, points: Sequence[tuple[Point, float, float]], ridge: float, bandwidth: float) -> str:
    chosen = arm.recommended
    size = None if chosen is None else chosen.batch_size
    point, intensity, _ = next((shown for shown in points if shown[0].batch_size == size), points[0])
    share = ask(lambda: point.pooled(roofline.ceiling_share))
    words = f"At batch size {point.batch_size} "
    words += "" if share is None else f"a step reaches {percent(share.value)} of the fastest product measured; "
    side = "right of the ridge, where products" if intensity > ridge else "left of the ridge, where memory"
    words += f"with {number(intensity)} operations a byte it lies {side} would set the limit."
    if any(rate > x * bandwidth for _, x, rate in points):
        words += " Points above the slanted part: caches serve a part of the bytes."
    return words


def ceiling_chart(arms: Sequence[Arm]) -> Chart | None:
    """The share of the fastest product measured, one bar a batch size."""
    sizes = sizes_of(arms)
    found = [(arm, values_by_size(arm, sizes, lambda p: _percent(_pooled(p, roofline.ceiling_share)))) for arm in arms]
    found = [(arm, values) for arm, values in found if any(value is not None for value in values)]
    if not found:
        return None
    kept = [i for i in range(len(sizes)) if any(values[i] is not None for _, values in found)]
    return Chart(
        key="ceiling_share",
        kind=ChartKind.BAR,
        title="Share of the fastest product measured",
        x_label="Batch size",
        y_label="Operations a second over those of the fastest product (%)",
        unit="%",
        categories=tuple(str(sizes[i]) for i in kept),
        series=tuple(ChartSeries(arm.label, tuple(values[i] for i in kept)) for arm, values in found),
        section=SECTION,
    )


def work_table(arms: Sequence[Arm]) -> ReportTable:
    """One row a configuration and batch size whose operations were counted."""
    counted = [(arm, p) for arm in arms for p in arm.points if mean_of(p, _operations) is not None]
    rates = [got.value for _, point in counted if (got := achieved(point)) is not None]
    work = operation_unit(max((mean_of(point, _operations) or 0.0 for _, point in counted), default=0.0))
    rate = operation_unit(max(rates, default=0.0))
    columns = (
        TableColumn("Configuration", numeric=False),
        TableColumn("Batch"),
        TableColumn("Work a step", work.name),
        TableColumn("Achieved", f"{rate.name}/s"),
        TableColumn("Of ceiling", "%"),
        TableColumn("at least", "%"),
        TableColumn("at most", "%"),
        TableColumn("MFU", "%"),
        TableColumn("Intensity", "FLOP/byte"),
        TableColumn("Ridge", "FLOP/byte"),
        TableColumn("Lower roof", numeric=False),
    )
    return filled(
        ReportTable(
            key="work",
            title="Work and the share of what was possible",
            columns=columns,
            rows=tuple(_row(arm, point, work, rate) for arm, point in counted),
            note=_note(counted),
            section=SECTION,
        )
    )


def _row(arm: Arm, point: Point, work: Unit, rate: Unit) -> tuple[Cell, ...]:
    share = _pooled(point, roofline.ceiling_share)
    of_sheet = _pooled(point, roofline.mfu)
    got = achieved(point)
    intensity, ridge = mean_of(point, roofline.intensity), mean_of(point, roofline.ridge)
    return (
        arm.label,
        point.batch_size,
        work.of(mean_of(point, _operations)),
        None if got is None else rate.of(got.value),
        _percent(share),
        *((None, None) if share is None else (_hundred(share.low), _hundred(share.high))),
        _percent(of_sheet),
        intensity,
        ridge,
        None if intensity is None or ridge is None else "memory" if intensity < ridge else "products",
    )


def _note(counted: Sequence[tuple[Arm, Point]]) -> str:
    words = (
        "Work is the floating point operations of a mean step, recomputed ones included. The ceiling is the fastest "
        "product measured beside each trial, the ridge that over the fastest copy: with less intensity memory is the "
        "lower roof, with more products are."
    )
    trials = [trial for _, point in counted for trial in point.trials]
    sources = list(dict.fromkeys(found.source for trial in trials if (found := ask(roofline.sheet, trial)) is not None))
    if sources:
        words += f" MFU is the model's own operations over the peak of the maker's sheet ({listing(sources)})."
    words += _beside_the_sheet(trials)
    refused = [(arm, point, why) for arm, point in counted if (why := impossible(point))]
    for arm, point, why in refused:
        words += f" Not shown for {arm.label} batch {point.batch_size}: {plain(why, 200)}."
    return words


def _beside_the_sheet(trials: Sequence[TrialFacts]) -> str:
    """What the measured ceilings reach of the sheets' figures, by device; empty where none of both is known."""
    best: dict[str, dict[str, float]] = {}
    for trial in trials:
        shares = {"copy": ask(roofline.copy_of_sheet, trial)}
        shares[f"product in {roofline.timed_in(trial)}"] = ask(roofline.product_of_sheet, trial)
        for what, share in shares.items():
            if share is not None:
                of_device = best.setdefault(str(trial.word("device_name")), {})
                of_device[what] = max(share, of_device.get(what, 0.0))
    words = ""
    for device, known in best.items():
        told = listing([f"the fastest {what} {percent(share)}" for what, share in known.items()])
        words += f" Of its sheet's figures {device} reached in this run: {told}."
    if any(share < _FAR_BELOW for known in best.values() for share in known.values()):
        words += (
            f" Less than {percent(_FAR_BELOW)} is little. What can cause it: a limit of power or temperature on the "
            "clock, other work on the device, or only a part of it to work with (MIG)."
        )
    return words


def achieved(point: Point) -> Interval | None:
    """Operations a second; None where they were not counted, or would exceed what is possible."""
    return None if impossible(point) else _pooled(point, roofline.flops_per_s)


def impossible(point: Point) -> str:
    """Why the counted operations contradict a ceiling in one of the repeats; empty where they do not."""
    return next((why for trial in point.trials if (why := contradiction(trial))), "")


def contradiction(trial: TrialFacts) -> str:
    """Why a trial's counted operations contradict the measured ceiling, or the sheet; empty where they do not."""
    for share in (roofline.ceiling_share, roofline.mfu):
        try:
            share(trial)
        except NotMeasured as missing:
            if missing.signal in _CONTRADICTED:
                return missing.why
    return ""


def _operations(trial: TrialFacts) -> float:
    return trial.quantity("flops_per_step")


def _pooled(point: Point, question: Callable[[TrialFacts], Interval]) -> Interval | None:
    return ask(lambda: point.pooled(question))


def _percent(share: Interval | None) -> float | None:
    return None if share is None else 100 * share.value


def _hundred(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _highest(arm: Arm, quantity: str) -> float | None:
    """The highest of the ceilings measured beside the trials: what comes nearest to what the device can do."""
    known = [v for p in arm.points for t in p.trials if (v := ask(t.quantity, quantity)) is not None and v > 0]
    return max(known, default=None)
