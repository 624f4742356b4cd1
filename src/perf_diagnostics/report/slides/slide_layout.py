"""What fits where on a slide: boxes, paragraphs spread over pages, tables and the widths of their columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from perf_diagnostics.report.words import plain

T = TypeVar("T")

WIDTH_IN, HEIGHT_IN = 13.333, 7.5

#: Mean width of a letter over its size, in a wide face, so that text fits whatever font stands in for the theme's.
LETTER = 0.6
MARGIN = 4  # pt beside the text of a table's cell
LEADING = 1.3


@dataclass(frozen=True)
class Box:
    """A place on a slide, in inches from its upper left corner."""

    left: float
    top: float
    width: float
    height: float


#: What is left of a slide under its title.
BODY = Box(0.65, 1.45, WIDTH_IN - 1.3, HEIGHT_IN - 1.45 - 0.55)


@dataclass(frozen=True)
class Line:
    """One paragraph; ``colour`` is the name of a role of the palette, ``mono`` for source text."""

    text: str
    size: float = 16
    colour: str = "text"
    bold: bool = False
    bullet: bool = False
    space_after: float = 6
    mono: bool = False


def lines_needed(line: Line, width_in: float) -> int:
    """How many lines a paragraph takes, at most."""
    letters = max(1, int(width_in * 72 / (line.size * LETTER)))
    return max(1, math.ceil(len(line.text) / letters))


def height_in(line: Line, width_in: float) -> float:
    """How high a paragraph stands, at most."""
    return (lines_needed(line, width_in) * line.size * LEADING + line.space_after) / 72


def paged(lines: Sequence[Line], box: Box) -> list[list[Line]]:
    """Paragraphs spread over as many slides as they need; one that is too long for a slide is cut in two."""
    pages: list[list[Line]] = [[]]
    left = box.height
    queue = list(lines)
    while queue:
        line = queue.pop(0)
        need = height_in(line, box.width)
        if need > box.height:
            letters = int(box.width * 72 / (line.size * LETTER)) * int(box.height * 72 / (line.size * LEADING) - 2)
            cut = line.text.rfind(" ", 0, letters)
            cut = cut if cut > letters // 2 else letters
            rest = Line(line.text[cut:].strip(), line.size, line.colour, line.bold, line.bullet, line.space_after)
            line = Line(line.text[:cut], line.size, line.colour, line.bold, line.bullet, line.space_after)
            queue.insert(0, rest)
            need = height_in(line, box.width)
        # A heading stays with what follows it.
        company = height_in(queue[0], box.width) if line.bold and queue else 0.0
        if need + min(company, box.height - need) > left and pages[-1]:
            pages.append([])
            left = box.height
        pages[-1].append(line)
        left -= need
    return pages


def balanced(fill: Callable[[float], list[T]], height_in: float) -> list[T]:
    """Pages of about equal height: as ``fill`` makes them for the lowest height that takes no more of them."""
    pages = fill(height_in)
    lower = (fill(height_in * part / 40) for part in range(16, 40))
    return pages if len(pages) == 1 else next((some for some in lower if len(some) == len(pages)), pages)


@dataclass(frozen=True)
class Grid:
    """A table as text: heads with their units, rows, which columns hold numbers, and what it shows in a sentence.

    ``mono`` says which columns hold source text (default: none). In a row that is ``tall`` long words take two lines.
    """

    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[bool]
    says: str
    small: bool = False
    mono: Sequence[bool] = ()
    tall: bool = False

    def fitted(self, width_in: float) -> Grid:
        """The same table in smaller letters where some of its texts would be cut in a width."""
        return self if sum(self._wanted()) <= width_in else replace(self, small=True)

    @property
    def size(self) -> float:
        """Size of the text: smaller where there are many columns."""
        return 12.0 if len(self.heads) <= 9 and not self.small else 10.5

    def row_heights(self, width_in: float) -> list[float]:
        """How high each row stands in a table of that width, in inches."""
        widths = self.widths(width_in)
        return [self.size * (1.95 + LEADING * (self.tall and self._takes_two(row, widths))) / 72 for row in self.rows]

    def _takes_two(self, row: Sequence[str], widths: Sequence[float]) -> bool:
        return any(
            not numeric and len(textwrap.wrap(text, letters_in(width, self.size))) > 1
            for text, width, numeric in zip(row, widths, self.numeric, strict=True)
        )

    @property
    def head_height_in(self) -> float:
        return self.size * (3.1 if any(unit for _, unit in self.heads) else 1.95) / 72

    def paged(self, width_in: float, height_in: float) -> list[Grid]:
        """As many tables as it takes for each to stand in a box, the rows spread evenly."""
        heights = self.row_heights(width_in)

        def fill(height: float) -> list[list[Sequence[str]]]:
            pages: list[list[Sequence[str]]] = [[]]
            left = height - self.head_height_in
            for row, taken in zip(self.rows, heights, strict=True):
                if taken > left + 1e-9 and pages[-1]:
                    pages.append([])
                    left = height - self.head_height_in
                pages[-1].append(row)
                left -= taken
            return pages

        return [replace(self, rows=rows) for rows in balanced(fill, height_in)]

    def widths(self, width_in: float) -> list[float]:
        """A width for each column by its longest text, stretched a little; where room is short the widest give way."""
        wanted = self._wanted()
        if sum(wanted) > width_in:
            letter = self.size * LETTER / 72  # capitals are wider than the letter that the estimate is made with
            return _capped([part + letter for part in wanted], width_in)
        factor = min(1.5, width_in / sum(wanted))
        return [part * factor for part in wanted]

    def _wanted(self) -> list[float]:
        letters = [
            max(_breadth(label), _breadth(unit), *(_breadth(row[i]) for row in self.rows), 3)
            for i, (label, unit) in enumerate(self.heads)
        ]
        return [(min(46, count) * self.size * LETTER + 2 * MARGIN + 4) / 72 for count in letters]


def _capped(wanted: Sequence[float], width_in: float) -> list[float]:
    """The widths under the one cap that makes them fit, so that short columns keep theirs whole.

    >>> _capped([1.0, 2.0, 6.0], 6.0)
    [1.0, 2.0, 3.0]
    """
    left, count = width_in, len(wanted)
    for part in sorted(wanted):
        if part * count > left:
            return [min(width, left / count) for width in wanted]
        left, count = left - part, count - 1
    return list(wanted)


def _breadth(text: str) -> float:
    """How many mean letters a text is wide: a capital is wider, which tells in a short code.

    >>> _breadth("abc"), _breadth("SWP002")
    (3.0, 6.9)
    """
    return round(len(text) + 0.3 * sum(letter.isupper() for letter in text), 1)


def letters_in(width_in: float, size: float) -> int:
    """How many letters fit into a line of a table column of that width."""
    return max(2, int((width_in * 72 - 2 * MARGIN) / (size * LETTER)))


def cut(text: str, width_in: float, size: float, lines: int = 1) -> str:
    """A text that fits into so many lines of a table column of that width."""
    letters = letters_in(width_in, size)
    wrapped = textwrap.wrap(text, letters)
    if lines == 1 or len(wrapped) <= lines:
        return plain(text, lines * letters)
    *whole, last = wrapped[:lines]
    return " ".join([*whole, f"{last[: letters - 1].rstrip()}…"])
