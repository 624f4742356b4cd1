"""Slides of tables, over as many as rows and columns need."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from perf_diagnostics.report.model import ReportTable
from perf_diagnostics.report.slides.slide_layout import BODY, HEIGHT_IN, Box, Grid, Line
from perf_diagnostics.report.slides.slides import Deck
from perf_diagnostics.report.tables.code_table import CODE
from perf_diagnostics.report.tried import TRIED
from perf_diagnostics.report.words import cell, listing, plain

_COLUMNS = 12
_CUT_FROM = 20
_NOTE_LETTERS = 230

#: Tables that somebody looks for by their title.
_ALONE = (TRIED, CODE)

#: Room for the title above a table that shares its slide, and for the note below it, in inches.
_ABOVE, _BELOW = 0.36, 0.55


def packed_tables(deck: Deck, tables: Sequence[ReportTable]) -> None:
    """Tables in their order, those that have room below each other on one slide."""
    together: list[ReportTable] = []
    for table in tables:
        alone = any(one.key in _ALONE for one in (*together, table))
        if together and (alone or _height_in([*together, table]) > BODY.height):
            _place(deck, together)
            together = []
        together.append(table)
    _place(deck, together)


def _height_in(tables: Sequence[ReportTable]) -> float:
    """How high tables stand with their titles and notes; more than any slide where one needs several."""
    parts = [_grids(table) for table in tables]
    if any(len(grids) > 1 for grids in parts):
        return math.inf
    return sum(_ABOVE + grid.head_height_in + sum(grid.row_heights(BODY.width)) + _BELOW for (grid,) in parts)


def _place(deck: Deck, tables: Sequence[ReportTable]) -> None:
    if len(tables) < 2:
        for table in tables:
            table_slides(deck, table)
        return
    told = [f"{table.title}: {table.note}{_in_full(_grids(table)[0])}" for table in tables]
    notes = "\n".join([*told, "A dash means: not measured."])
    slide = deck.slide(listing([table.title for table in tables]), notes)
    top = BODY.top
    for table in tables:
        (grid,) = _grids(table)
        deck.text(slide, Box(BODY.left, top, BODY.width, _ABOVE), [Line(plain(table.title, 90), 14, bold=True)])
        deck.table(slide, replace(BODY, top=top + _ABOVE), grid)
        top += _ABOVE + grid.head_height_in + sum(grid.row_heights(BODY.width))
        note = Line(_beginning(table.note, _NOTE_LETTERS), 11, "muted", space_after=0)
        deck.text(slide, Box(BODY.left, top + 0.05, BODY.width - 1.2, _BELOW - 0.1), [note])
        top += _BELOW


def table_slides(deck: Deck, table: ReportTable) -> None:
    """A table over as many slides as it needs; a wide one is cut into columns, its first two on every slide."""
    grids = _grids(table)
    for index, grid in enumerate(grids):
        title = table.title if len(grids) == 1 else f"{table.title} ({index + 1} of {len(grids)})"
        slide = deck.slide(title, f"{table.note} A dash means: not measured.{_in_full(grid)}")
        deck.table(slide, BODY, grid)
        note = Line(_beginning(table.note, _NOTE_LETTERS), 11, "muted", space_after=0)
        deck.text(slide, Box(BODY.left, HEIGHT_IN - 0.75, BODY.width - 1.2, 0.5), [note])


def _grids(table: ReportTable) -> list[Grid]:
    """The table in parts that each have room on a slide."""
    rows = [[cell(value, column) for value, column in zip(row, table.columns, strict=True)] for row in table.rows]
    heads = [(column.label, column.unit) for column in table.columns]
    numeric, code = [column.numeric for column in table.columns], [column.code for column in table.columns]
    if len(rows) == 1 and len(heads) > _COLUMNS:  # one row that is too long is told from the top down
        rows = [[label, value, unit] for (label, unit), value in zip(heads, rows[0], strict=True)]
        heads = [("What", ""), ("Value", ""), ("Unit", "")]
        numeric, code = [False, True, False], [False] * 3
    grids: list[Grid] = []
    for columns in _column_parts(len(heads)):
        whole = Grid(
            [heads[i] for i in columns],
            [[row[i] for i in columns] for row in rows],
            [numeric[i] for i in columns],
            f"Table: {table.title}",
            mono=[code[i] for i in columns],
            tall=True,
        ).fitted(BODY.width)
        grids += whole.paged(BODY.width, BODY.height - 0.35)
    return grids


def _beginning(note: str, letters: int) -> str:
    """As many whole sentences as fit; of a single one that is too long its beginning.

    >>> _beginning("One. Two. Three.", 10)
    'One. Two.'
    """
    kept = ""
    for sentence in re.split(r"(?<=\.) ", note):
        longer = f"{kept} {sentence}".strip()
        if len(longer) > letters:
            break
        kept = longer
    return kept or plain(note, letters)


def _in_full(grid: Grid) -> str:
    """The longer texts of a table, which its columns may have to cut, for the notes."""
    told = [
        f"{row[0]}, {label.lower()}: {text}"
        for row in grid.rows
        for (label, _), text, numeric in list(zip(grid.heads, row, grid.numeric, strict=True))[1:]
        if not numeric and len(text) > _CUT_FROM
    ]
    return "".join(f"\n{words}" for words in dict.fromkeys(told))


def _column_parts(count: int) -> list[list[int]]:
    if count <= _COLUMNS:
        return [list(range(count))]
    parts = math.ceil((count - 2) / (_COLUMNS - 2))
    length = math.ceil((count - 2) / parts)
    return [[0, 1, *range(i, min(i + length, count))] for i in range(2, count, length)]
