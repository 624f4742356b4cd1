"""Memory and energy in depth: peaks inside each phase, whose memory it is, and energy above idle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from perf_diagnostics.diagnose.facts.facts import NotMeasured, Point, TrialFacts
from perf_diagnostics.records import MEASURED_PHASES
from perf_diagnostics.report.arms import Arm, energy, largest, mean_of, net_energy
from perf_diagnostics.report.charts.by_size import sizes_of, values_by_size
from perf_diagnostics.report.model import Cell, Chart, ChartKind, ChartSeries, ReportTable, TableColumn
from perf_diagnostics.report.phases import PHASE_NAMES
from perf_diagnostics.report.words import byte_unit, listing, number, plain

MEMORY = "Memory in detail"
ENERGY = "Energy"

_WHERE = (TableColumn("Configuration", numeric=False), TableColumn("Batch"))

#: What else was recorded about memory, with its column.
_BESIDE = (
    ("host_tree_memory_peak", "Tree peak"),
    ("host_memory_uss", "Own (USS)"),
    ("host_memory_pss", "Shared (PSS)"),
    ("swapped_bytes", "Swapped"),
    ("device_memory_process_peak", "Device, own"),
    ("device_memory_foreign", "Device, others'"),
    ("device_memory_inactive_split", "Split, free"),
)

#: What explains the columns of these labels.
_NOTES = (
    (("Tree peak",), "Tree: the trial's processes together."),
    (("Own (USS)",), "USS is memory that nobody else maps, at the end of the steps."),
    (("Shared (PSS)",), "PSS counts shared pages in parts, at the end of the steps."),
    (("Swapped",), "Swapped: what lies in swap; 0: measured, and none."),
    (("Device, own", "Device, others'"), "Device: by the driver, the trial's own and other people's."),
    (("Split, free",), "Split, free: unused parts of the allocator's blocks."),
)


def phase_memory_charts(arms: Sequence[Arm]) -> list[Chart]:
    """The peak inside each phase by batch size, one chart a configuration."""
    return [chart for index, arm in enumerate(arms) if (chart := _phase_memory(arm, index)) is not None]


def _phase_memory(arm: Arm, index: int) -> Chart | None:
    found = {
        phase: values_by_size(arm, sizes_of([arm]), lambda p, phase=phase: largest(p, f"memory_peak_{phase}"))  # type: ignore[misc]
        for phase in MEASURED_PHASES
    }
    found = {phase: values for phase, values in found.items() if any(value is not None for value in values)}
    if not found:
        return None
    sizes = sizes_of([arm])
    kept = [i for i in range(len(sizes)) if any(values[i] is not None for values in found.values())]
    unit = byte_unit(max(value for values in found.values() for value in values if value is not None))
    highest = max(((v, phase, i) for phase, values in found.items() for i in kept if (v := values[i]) is not None))
    return Chart(
        key=f"phase_memory_{index + 1}",
        kind=ChartKind.BAR,
        title=f"Peak memory inside each phase, {arm.label}",
        x_label="Batch size",
        y_label=f"Peak memory ({unit.name})",
        unit=unit.name,
        categories=tuple(str(sizes[i]) for i in kept),
        series=tuple(
            ChartSeries(PHASE_NAMES[phase], tuple(unit.of(values[i]) for i in kept), key=str(phase))
            for phase, values in found.items()
        ),
        takeaway=(
            f"The highest peak lies in {PHASE_NAMES[highest[1]]}: {number(unit.of(highest[0]))} {unit.name} at batch "
            f"size {sizes[highest[2]]}."
        ),
        section=MEMORY,
    )


def phase_memory_table(arms: Sequence[Arm]) -> ReportTable:
    """The same numbers, one row a configuration and batch size."""
    columns = [(f"memory_peak_{phase}", PHASE_NAMES[phase].capitalize()) for phase in MEASURED_PHASES]
    note = (
        "The peak while a phase ran, from steps that are not timed (of the warm-up, or after the others): of the "
        "device's allocator on a device, of the process's resident memory on the CPU, where what one phase frees may "
        "still count in the next."
    )
    return _bytes_table("phase_memory", "Peak memory inside each phase", arms, columns, note)


def memory_table(arms: Sequence[Arm]) -> ReportTable:
    """Whose the memory is: the processes' own and shared, swapped out, and other people's on the device."""
    table = _bytes_table("memory", "Whose memory it is", arms, _BESIDE, "")
    if not any(value for row in table.rows for value in row[len(_WHERE) :]):
        return replace(table, rows=())  # nothing but zeros, such as an unused swap, is no table
    shown = {column.label for column in table.columns}
    notes = ["Largest of the repeats.", *(says for labels, says in _NOTES if shown & set(labels))]
    return replace(table, note=" ".join(notes))


def _bytes_table(
    key: str, title: str, arms: Sequence[Arm], fields: Sequence[tuple[str, str]], note: str
) -> ReportTable:
    """Amounts of memory by configuration and batch size; columns and rows without any are left out."""
    amounts = {
        (arm.label, point.batch_size): [largest(point, name) for name, _ in fields]
        for arm in arms
        for point in arm.points
    }
    amounts = {where: values for where, values in amounts.items() if any(value is not None for value in values)}
    kept = [i for i in range(len(fields)) if any(values[i] is not None for values in amounts.values())]
    units = {i: byte_unit(max(values[i] or 0.0 for values in amounts.values())) for i in kept}
    rows: list[tuple[Cell, ...]] = [
        (*where, *(units[i].of(values[i]) for i in kept)) for where, values in amounts.items()
    ]
    columns = (*_WHERE, *(TableColumn(fields[i][1], units[i].name) for i in kept))
    return ReportTable(key=key, title=title, columns=columns, rows=tuple(rows), note=note, section=MEMORY)


def energy_table(arms: Sequence[Arm]) -> ReportTable:
    """Energy of the device for a sample, gross and above idle, how far off it may be, and the mean powers.

    Of several ranks it is that of all their boards; the table says of how many.
    """
    fields: tuple[tuple[TableColumn, Callable[[Point], float | None]], ...] = (
        (TableColumn("Boards"), _boards),
        (TableColumn("Gross", "J/sample"), energy),
        (TableColumn("±", "J/sample"), _off_by),
        (TableColumn("Above idle", "J/sample"), net_energy),
        (TableColumn("Power", "W"), lambda p: mean_of(p, _device_power)),
        (TableColumn("Idle power", "W"), lambda p: mean_of(p, lambda t: t.quantity("device_idle_power"))),
        (TableColumn("CPU power", "W"), lambda p: mean_of(p, _cpu_power)),
    )
    lines = [(arm, point, [of(point) for _, of in fields]) for arm in arms for point in arm.points]
    lines = [(arm, point, values) for arm, point, values in lines if any(value is not None for value in values)]
    kept = [i for i in range(len(fields)) if any(values[i] is not None for _, _, values in lines)]
    return ReportTable(
        key="energy",
        title="Energy and power",
        columns=(*_WHERE, *(fields[i][0] for i in kept)),
        rows=tuple((arm.label, point.batch_size, *(values[i] for i in kept)) for arm, point, values in lines),
        note=_energy_note([trial for _, point, _ in lines for trial in point.trials]),
        section=ENERGY,
    )


def _energy_note(trials: Sequence[TrialFacts]) -> str:
    read = [q for trial in trials for q in trial.result.quantities if q.name in ("energy_device", "energy_cpu")]
    sources = list(dict.fromkeys(plain(q.source, 80) + (" (estimated)" if q.estimated else "") for q in read))
    words = (
        "Gross is all that the device drew over the counter's window, ± how far that may be off by the counter's ticks "
        "at its ends; above idle leaves out what the device draws anyway. Powers are means: the device's over the same "
        "window, idle at rest before or after the steps, and the CPU's with its memory over the sampled time."
    )
    ranks = [int(n) for trial in trials if (n := trial.result.value("energy_device_ranks")) is not None]
    if ranks:
        words += (
            f" Where a training has several ranks ({listing([str(n) for n in dict.fromkeys(ranks)])}), energy and "
            "power are those of all their boards together, each counted once, over the window that all ranks share, "
            "and the samples are those of all ranks in it."
        )
    return words + (f" Read from {listing(sources)}." if sources else "")


def _boards(point: Point) -> int | None:
    """How many boards the energy is of."""
    count = largest(point, "energy_device_boards")
    return None if count is None else int(count)


def _off_by(point: Point) -> float | None:
    """The uncertainty of the gross energy, carried to a sample."""
    gross = energy(point)
    part = mean_of(point, lambda trial: _ratio(trial, "energy_device_uncertainty", "energy_device"))
    return None if gross is None or part is None else gross * part


def _device_power(trial: TrialFacts) -> float:
    return _ratio(trial, "energy_device", "energy_device_window_s")


def _cpu_power(trial: TrialFacts) -> float:
    return _ratio(trial, "energy_cpu", "energy_cpu_window_s")


def _ratio(trial: TrialFacts, above: str, below: str) -> float:
    """One quantity over another; NotMeasured where the other is zero."""
    divisor = trial.quantity(below)
    if not divisor > 0:
        raise NotMeasured(above, f"{below} is {divisor:g}")
    return trial.quantity(above) / divisor
