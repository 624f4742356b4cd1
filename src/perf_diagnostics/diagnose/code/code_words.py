"""How lines of the user's own code are told: a file and its line, the source text, who called it and what it calls."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from perf_diagnostics.diagnose.code.phase_looks import proportion
from perf_diagnostics.diagnose.code.slow_idioms import slow_idiom
from perf_diagnostics.diagnose.code_share import CodeShare, LineShare
from perf_diagnostics.diagnose.finding import Diagnosis, Finding
from perf_diagnostics.diagnose.wording import listing, percent
from perf_diagnostics.records import CodePlace

#: Columns of a terminal that a source text takes in a sentence, a place, and the name of a function.
SOURCE_COLUMNS = 60
_PLACE_LETTERS = 48
_NAME_LETTERS = 60

#: Of the lines of a finding those are told with at least this part of what the first one has.
_BESIDE_THE_FIRST = 1 / 3

#: Of several lines one has most of the time if it surely has this part of it; else they are told with their shares.
_MOST_OF_IT = 0.5

#: Lines of a function that are told apart: those with this share of a step each, the two largest in any case.
_OWN_SHARE, _LEAST_TOLD, _MOST_TOLD = 0.05, 2, 4

#: What lies below the loop's line is told where it has this many times a line's own time.
_MORE_BELOW = 1.5

#: An interval whose lower end lies this many times as far from its share as the upper one, and at least so much of a
#: step, is due to late looks.
_LOPSIDED, _FAR_BELOW = 3, 0.05

#: Names that say less about what is called than the class they belong to.
_SAYS_LITTLE = re.compile(r"forward|__\w+__")


@dataclass(frozen=True)
class SeenAt:
    """A line at which time was seen, or some lines of a function, in words.

    ``source`` and ``function`` are empty where there is none; ``before_source`` stands between the place and the text,
    which of several lines is that of the one with the most time.
    """

    lead: str
    where: str
    function: str
    source: str
    share: str
    beside: str
    before_source: str = ": "

    def at(self, plain: Callable[[str], str] = str, code: Callable[[str], str] = "`{}`".format) -> str:
        """``Seen at train.py:9 in Data.__getitem__: `x = x * 1.01```, without what else is to be told of it."""
        told = f"{self.lead} {self.where}" + (f" in {self.function}" if self.function else "")
        return f"{plain(told + self.before_source)}{code(self.source)}" if self.source else plain(told)

    def words(self, plain: Callable[[str], str] = str, code: Callable[[str], str] = "`{}`".format) -> str:
        """As a sentence: ``Seen at train.py:9 in Data.__getitem__: `x = x * 1.01` (23 % of a step), called from …``.

        ``plain`` and ``code`` turn words, and source text, into those of a format.
        """
        return f"{self.at(plain, code)} {plain(f'({self.share}){self.beside}')}"


def seen_at(finding: Finding, diagnosis: Diagnosis) -> tuple[SeenAt, ...]:
    """The lines of a finding that matter, the one with most of its time first."""
    told = [one for one in finding.lines if one.share.value >= _BESIDE_THE_FIRST * finding.lines[0].share.value]
    return tuple(
        seen(one, "Also at" if index else "Seen at", _beside(one, diagnosis)) for index, one in enumerate(told)
    )


def seen(line: CodeShare, lead: str, beside: str) -> SeenAt:
    """A line in words, behind a lead and before what else is to be told of it: why it is slow, where that is known."""
    before = among_lines(line)
    which = f"; line {line.place.line}: " if before and not mostly_one(line) else ": "
    why = why_slow(line)
    told = f"{beside}. {why}" if why else beside
    return SeenAt(lead, places(line), function(line.place), source(line.place), step_share(line), told, before + which)


def step_share(line: CodeShare) -> str:
    """``23 % of a step``; of several lines, where the text of one stands before it, ``together 23 % of a step``."""
    return f"{'together ' if line.within else ''}{percent(line.share.value)} of a step"


def why_far_below(lines: Sequence[CodeShare]) -> str:
    """Why an interval reaches far below its share, as a sentence; empty where none of these lines' does."""
    ends = [
        (one.share.value - one.share.low, one.share.high - one.share.value)
        for one in lines
        if one.share.low is not None and one.share.high is not None
    ]
    if not any(below >= max(_FAR_BELOW, _LOPSIDED * above) for below, above in ends):
        return ""
    return (
        "Where an interval reaches far below its share, many samples were taken late: they may belong to code just "
        "before the line, and the lower end leaves them out."
    )


def why_slow(line: CodeShare) -> str:
    """``Known to be slow: self.old is a deque, …: keep the items in a list …``, with the line where that is another one
    below it; empty where nothing is known.
    """
    idiom = slow_idiom(line)
    if idiom is None:
        return ""
    told = idiom.place in (line.place, *(one.place for one in lines_apart(line)))
    where = f" in line {idiom.place.line}" if line.within else ""
    where = where if told else at_line(idiom.place, with_text=True)
    return f"Known to be slow{where}: {_printable(idiom.says)}"


def mostly_one(line: CodeShare) -> bool:
    """Whether of several lines one surely has more than half of the time, by Wilson's interval of its looks."""
    most = max((one.looks for one in line.within if one.place == line.place), default=0)
    return 0 < most <= line.looks and (proportion(most / line.looks, line.looks).low or 0.0) > _MOST_OF_IT


def among_lines(line: CodeShare) -> str:
    """``, mostly line 28``, or ``, lines 28 (17 %), 30 (14 %) and 31 (6 % of a step)``; empty of one line alone."""
    if not line.within:
        return ""
    if mostly_one(line):
        return f", mostly line {line.place.line}"
    *others, last = (f"{one.place.line} ({percent(one.share.value)}" for one in lines_apart(line))
    return f", lines {listing([*(f'{one})' for one in others), f'{last} of a step)'])}"


def lines_apart(line: CodeShare) -> tuple[LineShare, ...]:
    """Of several lines those that are worth a word each, in the order of the file; none where there is only one."""
    largest = sorted(line.within, key=lambda one: -one.share.value)
    told = [one for rank, one in enumerate(largest) if rank < _LEAST_TOLD or one.share.value >= _OWN_SHARE][:_MOST_TOLD]
    return tuple(sorted(told, key=lambda one: one.place.line))


def at_line(line: CodePlace | None, *, with_text: bool) -> str:
    """`` at model.py:5 in Net.forward``, with its text where that is wanted; empty without a line."""
    if line is None:
        return ""
    inside = f" in {function(line)}" if function(line) else ""
    text = f" (`{source(line)}`)" if with_text and source(line) else ""
    return f" at {place(line)}{inside}{text}"


def called_from(line: CodeShare, diagnosis: Diagnosis) -> str:
    """``called from model.py:28 (from train.py:60, in all 51 % of a step)``; empty without callers.

    That is the nearest caller and the loop's own line, with what all below that takes where it is much more.
    """
    callers = callers_in_loop(line, diagnosis)
    if not callers:
        return ""
    nearest, outermost = place(callers[0]), place(callers[-1])
    beside = [f"from {outermost}"] if len(callers) > 1 else []
    if line.entry is not None and line.below_entry >= _MORE_BELOW * line.share.value:
        beside.append(f"in all {percent(line.below_entry)} of a step")
    return f"called from {nearest}" + (f" ({', '.join(beside)})" if beside else "")


def _beside(line: CodeShare, diagnosis: Diagnosis) -> str:
    callers, called = called_from(line, diagnosis), called_unsaid(line)
    told = ("in the loader's workers" if line.in_workers else "", callers, f"calls {called}" if called else "")
    return "".join(f", {part}" for part in told if part)


def places(of: CodeShare, letters: int = _PLACE_LETTERS) -> str:
    """``train.py:9``, or ``train.py:28-31`` where the time is spread over these lines of a function."""
    if not of.within:
        return place(of.place, letters)
    end = f"-{of.last_line}"
    return f"{place(dataclasses.replace(of.place, line=of.first_line), letters - len(end))}{end}"


def place(of: CodePlace, letters: int = _PLACE_LETTERS) -> str:
    """``train.py:9``; a long path is cut in its middle, and keeps its file and line.

    >>> place(CodePlace(file="src/project/models/text/encoder.py", line=12, function="f"), 30)
    'src/…/text/encoder.py:12'
    """
    room = max(8, letters - len(f":{of.line}"))
    return f"{_shortened(_printable(of.file), room)}:{of.line}"


def _shortened(path: str, room: int) -> str:
    if len(path) <= room:
        return path
    first, *folders, name = path.split("/") if "/" in path else ("", path)
    kept = name
    for folder in reversed(folders):
        if len(f"{first}/…/{folder}/{kept}") > room:
            break
        kept = f"{folder}/{kept}"
    for told in (f"{first}/…/{kept}", f"…/{kept}"):
        if "/" in path and len(told) <= room:
            return told
    return f"{name[: room // 2 - 1]}…{name[-(room - room // 2) :]}" if len(name) > room else name


def function(of: CodePlace) -> str:
    """The function a line is in; empty at the outermost level of a file."""
    name = _printable(of.function).replace("<locals>.", "")
    return "" if name == "<module>" else _cut(name, _NAME_LETTERS)


def source(of: CodePlace, columns: int = SOURCE_COLUMNS) -> str:
    """The line's text on one line, cut to so many columns; wide letters take two, and none is torn from its marks."""
    return _cut(_printable(of.text), columns)


def called_unsaid(line: CodeShare) -> str:
    """What the line spends most of its time in, where its own text does not name that.

    The last name counts, or of a ``forward`` that of the module: ``loss.backward()`` says what it calls,
    ``self.cell(x)`` does not say that this is a ``GRUCell``.
    """
    names = [name for name in line.called.split(".") if not _SAYS_LITTLE.fullmatch(name)]
    said = {name.lower() for name in re.findall(r"\w+", line.place.text)}
    return "" if not names or names[-1].lower() in said else _cut(_printable(line.called), _NAME_LETTERS)


def called_of_several(line: CodeShare, diagnosis: Diagnosis) -> str:
    """What a line calls that has several parts of a step, as one that starts a framework's loop has: it says which of
    them is meant. Empty of a line that stands in the diagnosis once.
    """
    several = sum(one.place == line.place for one in diagnosis.lines) > 1
    return called_unsaid(line) if several else ""


def callers_in_loop(line: CodeShare, diagnosis: Diagnosis) -> tuple[CodePlace, ...]:
    """The lines that led to a line from the training's loop on, the nearest first; none for a line of the loop itself.

    Where the line of the loop is not known, the loop stands in the innermost of the functions that all lines of the
    diagnosis have in common: how it was called says nothing. Where there is one line only, the nearest caller is told.
    """
    if line.in_workers:
        return tuple(reversed(line.callers))
    if line.entry is not None:
        begins = line.callers.index(line.entry) if line.entry in line.callers else len(line.callers)
        return tuple(reversed(line.callers[begins:]))
    chains = [_functions(one) for one in diagnosis.lines] or [_functions(line)]
    if len(set(chains)) == 1:
        return line.callers[-1:]
    levels = zip(*chains, strict=False)
    depth = len(list(takewhile(lambda names: len(set(names)) == 1, levels)))
    return tuple(reversed(line.callers[max(0, depth - 1) :]))


def _functions(line: CodeShare) -> Sequence[tuple[str, str]]:
    return tuple((one.file, one.function) for one in (*line.callers, line.place))


def _printable(text: str) -> str:
    """One line, in which nothing can move a terminal's cursor or hide a part of the text."""
    line = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)


def _cut(text: str, columns: int) -> str:
    taken = 0
    ends = 0  # of what leaves room for the ellipsis
    for index, letter in enumerate(text):
        width = _width(letter)
        if width and taken < columns:
            ends = index
        taken += width
        if taken > columns:
            return f"{text[:ends].rstrip()}…"
    return text


def _width(letter: str) -> int:
    if unicodedata.category(letter).startswith("M"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
