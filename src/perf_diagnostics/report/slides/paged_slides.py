"""Slides of running text, over as many as it needs, and slides of one chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perf_diagnostics.report.model import Chart
from perf_diagnostics.report.slides.slide_layout import BODY, Box, Line, balanced, height_in, paged
from perf_diagnostics.report.slides.slides import Deck
from perf_diagnostics.report.words import figure, plain

#: What a chart shows is its slide's title if it has no more letters than fit there in two lines.
_HEADING = 140


def text_slides(deck: Deck, title: str, lines: Sequence[Line], notes: str = "") -> None:
    pages = _pages(lines) if lines else []
    for index, page in enumerate(pages):
        slide = deck.slide(title if len(pages) == 1 else f"{title} ({index + 1} of {len(pages)})", notes)
        deck.text(slide, BODY, page)


def _pages(lines: Sequence[Line]) -> list[list[Line]]:
    """A little smaller where that saves a slide; else spread evenly, so that the last slide does not hold a rest."""
    pages = paged(lines, BODY)
    if len(pages) > 1:
        for factor in (0.95, 0.9):
            smaller = paged([replace(line, size=line.size * factor) for line in lines], BODY)
            if len(smaller) < len(pages):
                return smaller
    return balanced(lambda height: paged(lines, replace(BODY, height=height)), BODY.height)


def chart_slide(deck: Deck, chart: Chart) -> None:
    marks = [f"{category}: {words}" for category, words in chart.marks]
    notes = [chart.title, chart.takeaway, *marks]
    if len(chart.categories) <= 40:
        for series in chart.series:
            values = zip(chart.categories, series.values, strict=True)
            notes.append(
                f"{series.name}: " + ", ".join(f"{name} {figure(value, chart.unit)}" for name, value in values)
            )
    short = bool(chart.takeaway) and len(chart.takeaway) <= _HEADING
    slide = deck.slide(chart.takeaway if short else chart.title, "\n".join(note for note in notes if note))
    lines = [Line(plain(chart.title if short else chart.takeaway, 260), 15, "muted", space_after=2)]
    if marks:
        lines.append(Line(plain("Without values: " + "; ".join(marks), 200), 12, "muted", space_after=0))
    used = sum(height_in(line, BODY.width) for line in lines)
    deck.text(slide, Box(BODY.left, BODY.top - 0.15, BODY.width, used), lines)
    top = BODY.top + used
    deck.chart(slide, Box(BODY.left, top, BODY.width, BODY.top + BODY.height - top), chart)
