"""Draws lines with their marks, intervals and stressed values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perf_diagnostics.report.drawing.palette import Ink, series_mark
from perf_diagnostics.report.drawing.svg_marks import (
    CROWDED,
    DENSE,
    LETTER,
    MARKERS,
    RIGHT,
    Frame,
    circle,
    ends_at,
    n,
    text,
    tooltip,
    value_at,
    whisker,
)
from perf_diagnostics.report.model import Chart
from perf_diagnostics.report.words import number

_DASHES = ("", "7 4", "2 4", "9 3 2 3")
_RING = 10  # around a stressed value, whose number stands above it and above its interval


def lines(chart: Chart, frame: Frame, ink: Ink) -> Iterator[str]:
    stressed: list[tuple[float, float, str]] = []
    for position, series in enumerate(chart.series):
        colour = ink.mark(series_mark(series.key, position))
        points = [(i, value) for i in range(len(frame.x)) if (value := value_at(series, i)) is not None]
        dense, crowded = len(points) > DENSE, len(frame.x) > CROWDED
        dash = "" if crowded or series.key or len(chart.series) == 1 else _DASHES[position % len(_DASHES)]
        yield _path(points, frame, colour, dash, dense=dense)
        if dense:
            continue
        yield f'<g fill="{colour}" stroke="{ink.role("surface")}">'
        for index, value in points:
            x, y = frame.x[index], frame.y.at(value)
            marker = circle(x, y, 2.6) if crowded else MARKERS[position % len(MARKERS)](x, y, 4.5)
            yield f"<g>{tooltip(chart, series, index)}{whisker(series, index, x, frame, colour)}{marker}</g>"
            if series.highlight == chart.categories[index]:
                ends = ends_at(series, index)
                above = y if ends is None else min(y, frame.y.at(ends[1]) + _RING - 1)
                stressed.append((x, above, number(value)))
                yield f'<circle cx="{n(x)}" cy="{n(y)}" r="{_RING}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        yield "</g>"
    yield from _stresses(stressed, ink)


def _path(points: Sequence[tuple[int, float]], frame: Frame, colour: str, dash: str, *, dense: bool) -> str:
    """One line, broken wherever a category has no value: a gap is never bridged."""
    steps = []
    before = -2
    for index, value in points:
        steps.append(f"{'L' if index == before + 1 else 'M'}{n(frame.x[index])} {n(frame.y.at(value))}")
        before = index
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="{"".join(steps)}" fill="none" stroke="{colour}" stroke-width="{1.4 if dense else 2}" '
        f'stroke-linejoin="round"{dashed}/>'
    )


def _stresses(stressed: Sequence[tuple[float, float, str]], ink: Ink) -> Iterator[str]:
    """The numbers of the stressed values, each above its ring or, where another stands there already, below it."""
    taken: list[tuple[float, float]] = []
    for x, y, words in stressed:
        crowded = any(abs(y - 15 - at) < 18 and abs(x - beside) < 60 for beside, at in taken)
        at = y + 26 if crowded else y - 15
        taken.append((x, at))
        centre = min(x, RIGHT - len(words) * LETTER / 2)
        # A halo in the background's colour first, so that lines behind the number do not cross it out.
        halo = f' stroke="{ink.role("surface")}" stroke-width="5" stroke-linejoin="round"'
        yield text(centre, at, words, anchor="middle", weight=600, extra=halo)
        yield text(centre, at, words, anchor="middle", weight=600)
