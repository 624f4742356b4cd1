"""The one value all formats are drawn from: a Report holds words and numbers, and no markup of any format."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perf_diagnostics.diagnose.finding import Diagnosis, Share
from perf_diagnostics.records import Json

Cell = str | float | int | None


@dataclass(frozen=True)
class KeyFigure:
    """A number to show large: ``KeyFigure("Best batch size", 32, "", "cpu: 12.4 samples/s")``. None: not measured."""

    label: str
    value: Cell
    unit: str = ""
    note: str = ""


class ChartKind(enum.StrEnum):
    LINE = "line"
    STACKED_BAR = "stacked_bar"
    BAR = "bar"
    LYING_BAR = "lying_bar"  # categories with long names, one under the other
    ROOFLINE = "roofline"  # both axes logarithmic, with lines that no point can lie above


@dataclass(frozen=True)
class ChartSeries:
    """One line or one layer of bars; ``values[i]`` belongs to category i, None where nothing was measured.

    ``low`` and ``high``, if given, are the ends of the 95 % interval of each value. ``key`` names the colour:
    a phase, or "" for the next colour of the palette. ``highlight`` is the category of the value to stress.
    """

    name: str
    values: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    key: str = ""
    highlight: str = ""


@dataclass(frozen=True)
class ChartLine:
    """A limit behind the values: straight pieces through ``points`` (x, value) on the chart's own scales."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The data of one chart.

    ``x`` holds the categories' numbers where they are numbers (drawn to ``x_scale``: ``log2`` or ``linear``);
    ``unit`` is the unit of all values; ``marks`` says of a category without values why it has none. ``section`` is the
    title of the section it stands in, "" for the charts of every report.
    """

    key: str
    kind: ChartKind
    title: str
    x_label: str
    y_label: str
    categories: tuple[str, ...]
    series: tuple[ChartSeries, ...]
    x: tuple[float, ...] = ()
    x_scale: str = "log2"
    marks: tuple[tuple[str, str], ...] = ()
    takeaway: str = ""
    unit: str = ""
    lines: tuple[ChartLine, ...] = ()
    section: str = ""

    @property
    def is_one_group(self) -> bool:
        """Bars of a single category, which say no more than the one row of a table that holds the same numbers."""
        return self.kind in (ChartKind.BAR, ChartKind.STACKED_BAR) and len(self.categories) == 1


@dataclass(frozen=True)
class TableColumn:
    """What stands in a column; ``code`` where that is source text."""

    label: str
    unit: str = ""
    numeric: bool = True
    digits: int = 3
    code: bool = False


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Rows of plain values; None is shown as "not measured" (a dash with that title), never as zero.

    ``section`` is the title of the section it stands in, "" for the tables of every report.
    """

    key: str
    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    section: str = ""


def filled(table: ReportTable) -> ReportTable:
    """The table without the columns in which no row has a value."""
    kept = [i for i in range(len(table.columns)) if any(row[i] is not None for row in table.rows)]
    return replace(
        table,
        columns=tuple(table.columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
    )


def without_column(table: ReportTable, label: str) -> ReportTable:
    """The table without the column of that label; one that has nothing else stays whole."""
    kept = [i for i, column in enumerate(table.columns) if column.label != label]
    if not kept:
        return table
    return replace(
        table,
        columns=tuple(table.columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
    )


def told_once(table: ReportTable, *labels: str, words: str) -> ReportTable:
    """The table with columns of one and the same value in every row told in its note instead; one row stays whole.

    ``words`` begin what is told and end in ``{}``, where the values stand, with their labels if they are several.
    """
    if len(table.rows) < 2:
        return table
    values = {column.label: {row[i] for row in table.rows} for i, column in enumerate(table.columns)}
    same = {label: next(iter(values[label])) for label in labels if len(values.get(label, ())) == 1}
    for label in same:
        table = without_column(table, label)
    named = len(labels) > 1
    told = ", ".join(f"{label.lower()} {value}" if named else str(value) for label, value in same.items())
    return replace(table, note=f"{table.note} {words.format(told)}.".strip()) if same else table


@dataclass(frozen=True)
class Section:
    """A subject that only some runs have numbers on: its charts first, then its tables."""

    title: str
    charts: tuple[Chart, ...]
    tables: tuple[ReportTable, ...]


@dataclass(frozen=True)
class Basis:
    """What a sentence of the answer rests on, in a few words, and the key of the chart or table that shows it."""

    says: str
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """Something to change about the training, what it wins, and what says so.

    ``says`` is the advice in a sentence, ``code`` the settings that carry it out ("" where no setting does), ``where``
    the configuration it is about, ``because`` the number that asks for it, ``key`` the finding's, and ``tried`` what
    came of trying it ("" where nobody has).
    """

    says: str
    code: str
    where: str
    because: str
    gain: Share
    confidence: float
    key: str
    tried: str = ""


@dataclass(frozen=True, kw_only=True)
class FactSheet:
    """Named plain values, such as one section of the environment."""

    title: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything any format may say, in reading order: the verdict first, then the evidence behind it.

    ``alerts`` is what a reader must know before anything else, such as records that changed after they were sealed.
    ``answer_basis`` has one entry for each paragraph of ``answer``, or none at all. ``changes`` says what to change,
    the most worthwhile first. ``incomplete`` has a line for trials that ended alike, ``incomplete_trials`` counts them
    all. ``data`` holds the numbers of every trial, for programs that read the report.
    """

    title: str
    subtitle: str
    run_name: str
    generated_at: str
    tool_version: str
    headline: str
    answer: tuple[str, ...]
    diagnosis: Diagnosis
    key_figures: tuple[KeyFigure, ...]
    charts: tuple[Chart, ...]
    tables: tuple[ReportTable, ...]
    not_measured: tuple[tuple[str, str], ...]
    environment: tuple[FactSheet, ...]
    method: tuple[str, ...]
    incomplete: tuple[str, ...] = ()
    incomplete_trials: int = 0
    answer_basis: tuple[Basis, ...] = ()
    changes: tuple[Change, ...] = ()
    alerts: tuple[str, ...] = ()
    data: Mapping[str, Json] = field(default_factory=dict)

    @property
    def sections(self) -> tuple[Section, ...]:
        """The sections below what every report has, in the order of their tables, of which each has at least one."""
        titles = dict.fromkeys(table.section for table in self.tables if table.section)
        return tuple(
            Section(
                title,
                tuple(chart for chart in self.charts if chart.section == title),
                tuple(table for table in self.tables if table.section == title),
            )
            for title in titles
        )
