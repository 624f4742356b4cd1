"""The charts of what a training takes up beside time: memory and energy against batch size."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.report.arms import Arm, energy, largest, net_energy
from perf_diagnostics.report.charts.by_size import marks_of, sizes_of, values_by_size
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries
from perf_diagnostics.report.words import Unit, byte_unit, number

_MEMORY = (
    ("host_memory_peak", "process peak"),
    ("device_memory_peak_allocated", "tensors on the device"),
    ("device_memory_peak_reserved", "held by the device's allocator"),
)


def memory_chart(arms: Sequence[Arm]) -> Chart | None:
    """Peak memory against batch size: of the process, and on the device."""
    sizes = sizes_of(arms)
    found: list[tuple[str, tuple[float | None, ...]]] = []
    for arm in arms:
        for quantity, name in _MEMORY:
            values = values_by_size(arm, sizes, lambda p, quantity=quantity: largest(p, quantity))  # type: ignore[misc]
            if any(value is not None for value in values):
                found.append((f"{arm.label}, {name}", values))
    if not found:
        return None
    unit = byte_unit(max(v for _, values in found for v in values if v is not None))
    if len(sizes) == 1:
        title = f"Peak memory, batch size {sizes[0]}"
        return _side_by_side("memory", title, f"Peak memory ({unit.name})", unit, found)
    return Chart(
        key="memory",
        kind=ChartKind.LINE,
        title="Peak memory against batch size",
        x_label="Batch size",
        y_label=f"Peak memory ({unit.name})",
        unit=unit.name,
        categories=tuple(map(str, sizes)),
        x=tuple(map(float, sizes)),
        series=tuple(ChartSeries(name, tuple(map(unit.of, values))) for name, values in found),
        marks=tuple((size, words) for size, words in marks_of(arms, sizes) if "memory" in words),
        takeaway=_memory_takeaway(arms),
    )


def _side_by_side(
    key: str, title: str, y_label: str, unit: Unit, found: Sequence[tuple[str, tuple[float | None, ...]]]
) -> Chart | None:
    """What was measured at the one batch size there is, one bar a series; nothing to draw where that is one number."""
    if len(found) < 2:
        return None
    return Chart(
        key=key,
        kind=ChartKind.LYING_BAR,
        title=title,
        x_label="What",
        y_label=y_label,
        unit=unit.name,
        categories=tuple(name for name, _ in found),
        series=(ChartSeries("value", tuple(unit.of(values[0]) for _, values in found)),),
    )


def _memory_takeaway(arms: Sequence[Arm]) -> str:
    parts = []
    for arm in arms:
        quantity = next((q for q, _ in reversed(_MEMORY) if any(largest(p, q) is not None for p in arm.points)), None)
        amounts = [(p, a) for p in arm.points if quantity and (a := largest(p, quantity)) is not None]
        if len(amounts) > 1 and quantity:
            (small, a), (large, b) = amounts[0], amounts[-1]
            unit = byte_unit(max(a, b))
            whose = (
                f"Memory, {dict(_MEMORY)[quantity]}" if len(arms) == 1 else f"{arm.label}, {dict(_MEMORY)[quantity]}"
            )
            parts.append(
                f"{whose}: {number(unit.of(a))} {unit.name} at batch size {small.batch_size}, "
                f"{number(unit.of(b))} {unit.name} at {large.batch_size}."
            )
    return " ".join(parts)


def energy_chart(arms: Sequence[Arm]) -> Chart | None:
    """Energy of the device per sample, where an energy counter was read; beside it what idling would not have drawn."""
    sizes = sizes_of(arms)
    measured = [(arm, values_by_size(arm, sizes, energy)) for arm in arms]
    measured = [(arm, values) for arm, values in measured if any(v is not None for v in values)]
    net = [(arm, values_by_size(arm, sizes, net_energy)) for arm, _ in measured]
    net = [(arm, values) for arm, values in net if any(v is not None for v in values)]
    if not measured:
        return None
    kept = [i for i in range(len(sizes)) if any(values[i] is not None for _, values in measured)]
    if len(sizes) == 1:
        each = [(arm.label, values) for arm, values in measured]
        each += [(f"{arm.label}, above idle", values) for arm, values in net]
        title = f"Energy per sample, batch size {sizes[0]}"
        return _side_by_side("energy", title, "Energy of the device per sample (J)", Unit("J", 1.0), each)
    lowest = [
        f"{arm.label} needs least energy per sample at batch size {sizes[i]}: {number(values[i])} J."
        for arm, values in measured
        for i in [min((k for k in kept if values[k] is not None), key=lambda k: values[k] or 0.0)]
    ]
    return Chart(
        key="energy",
        kind=ChartKind.BAR,
        title="Energy per sample against batch size",
        x_label="Batch size",
        y_label="Energy of the device per sample (J)",
        unit="J",
        categories=tuple(str(sizes[i]) for i in kept),
        series=(
            *(ChartSeries(arm.label, tuple(values[i] for i in kept)) for arm, values in measured),
            *(ChartSeries(f"{arm.label}, above idle", tuple(values[i] for i in kept)) for arm, values in net),
        ),
        takeaway=" ".join(lowest),
    )
