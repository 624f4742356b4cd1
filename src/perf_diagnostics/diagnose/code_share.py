"""A line of the user's own code, or some lines of one function, and the share of the step that was seen there."""

from __future__ import annotations

from dataclasses import dataclass

from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.records import CodePlace


@dataclass(frozen=True)
class LineShare:
    """A line beside others, its own share of the step, how often it was seen, and what it calls for most of that."""

    place: CodePlace
    share: Interval
    looks: int
    called: str = ""


@dataclass(frozen=True, kw_only=True)
class CodeShare:
    """A line of the user's own code, and the share of the step in which the training's thread was seen at it.

    What the line calls counts as well: ``called`` names the library's function it spends most of that in (empty where
    there is none). ``callers`` are the lines it was called from, the outermost first. ``looks`` is how often it was
    seen in ``phase``, and ``of_phase`` the part of the host's time in that phase which that is (None: not known).

    ``entry`` is the line of the training loop that leads there (or is this line), and ``entry_share`` the share of the
    step that all below it takes in ``phase``; both None where that is not known.

    Where the time is spread over several lines of one function, ``share``, ``looks`` and ``called`` are those of all
    of them, ``within`` has each one, in the order of the file, and ``place`` is the one with the most.

    Of lines that loader workers load at (``in_workers``) the share is that of the loop's wait for them, divided as the
    workers' time on batches is; the training's thread was at none of them.

    ``below`` are the lines that were at work where this one had called functions of the user's own, the one with the
    most first.
    """

    place: CodePlace
    callers: tuple[CodePlace, ...]
    called: str
    phase: str
    share: Interval
    looks: int
    within: tuple[LineShare, ...] = ()
    of_phase: float | None = None
    entry: CodePlace | None = None
    entry_share: float | None = None
    below: tuple[LineShare, ...] = ()
    in_workers: bool = False

    @property
    def below_entry(self) -> float:
        """The share of a step of all that the loop's own line leads to; of this line where that is not known."""
        return self.share.value if self.entry_share is None else self.entry_share

    @property
    def last_line(self) -> int:
        """The last line of those that it is about, counted from 1."""
        return self.within[-1].place.line if self.within else self.place.line

    @property
    def first_line(self) -> int:
        """The first one."""
        return self.within[0].place.line if self.within else self.place.line
