"""What the boards of one rank used, in a form that can be cut to the window which all ranks of a training share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from perf_diagnostics.records.results import Gap
from perf_diagnostics.records.types import Float64, Int64

#: A rank's file keeps at most about so many knots of a curve, 20 KB of them, and so many of these densely at either
#: end: that is where windows are cut, for the ranks of a training begin and end within a step of each other.
MOST_KNOTS = 512
DENSE_KNOTS = 64


@dataclass(frozen=True, eq=False)
class EnergyCurve:
    """Joules that a board has used since a window began, at moments of that window.

    ``times_ns`` (int64, shape ``(knots,)``, on a host clock) never falls; it begins with the window's start and ends
    with its end. ``joules`` (float64, the same shape) begins with 0 and never falls either.
    """

    times_ns: Int64
    joules: Float64

    def between(self, start_ns: int, end_ns: int) -> tuple[float, float]:
        """Joules from one moment of the window to another, and how far they may be off because the ends are cut."""
        (first, off_first), (last, off_last) = self._at(start_ns), self._at(end_ns)
        return last - first, off_first + off_last

    def thinned(self) -> EnergyCurve:
        """The same curve by fewer knots: all of them at its ends, and evenly chosen ones in between."""
        count = len(self.times_ns)
        if count <= MOST_KNOTS:
            return self
        between = np.linspace(DENSE_KNOTS, count - 1 - DENSE_KNOTS, MOST_KNOTS - 2 * DENSE_KNOTS).round().astype(int)
        kept = np.unique(np.concatenate((np.arange(DENSE_KNOTS), between, np.arange(count - DENSE_KNOTS, count))))
        return EnergyCurve(self.times_ns[kept], self.joules[kept])

    def _at(self, time_ns: int) -> tuple[float, float]:
        """Joules until a moment, and their bound: between two knots they may all have been used at once, at any time.

        Energy only rises, so that what lies between two knots is the most that can be wrong there.
        """
        after = int(np.searchsorted(self.times_ns, time_ns, side="left"))
        if after == 0 or after == len(self.times_ns):
            return float(self.joules[0 if after == 0 else -1]), 0.0
        began, ended = int(self.times_ns[after - 1]), int(self.times_ns[after])
        step_j = float(self.joules[after] - self.joules[after - 1])
        part = (time_ns - began) / (ended - began)
        return float(self.joules[after - 1]) + part * step_j, 0.0 if part == 1 else max(part, 1 - part) * step_j


@dataclass(frozen=True, kw_only=True)
class BoardUse:
    """Energy of one board over a rank's window.

    ``uncertainty_j`` is that of the whole window (None: its source says nothing about its error), ``least_window_s``
    the shortest window over which this source may be read, ``passed_over`` why a better one was not used, and
    ``idle_power_w`` what the board draws with a live context and no work (None: not measured).
    """

    board: str
    method: str
    curve: EnergyCurve = field(compare=False, repr=False)
    least_window_s: float
    uncertainty_j: float | None = None
    idle_power_w: float | None = None
    passed_over: str = ""

    @property
    def joules(self) -> float:
        """Gross, over the whole window."""
        return float(self.curve.joules[-1])


@dataclass(frozen=True)
class DomainUse:
    """Energy of one RAPL domain of a machine: ``intel-rapl:0 package-0``, or the ``dram`` of a package."""

    domain: str
    curve: EnergyCurve = field(compare=False, repr=False)


@dataclass(frozen=True)
class ClockReading:
    """One moment on two clocks of a process: the one its steps are stamped with, and the time of day (since 1970)."""

    host_ns: int
    wall_ns: int


@dataclass(frozen=True, kw_only=True)
class RankEnergy:
    """What one rank of a training says about the energy of its boards and of its host's processors.

    Both are over the window ``began`` to ``ended``. ``processors`` belong to the host: every rank on it reads the same.

    ``host`` is the same for all processes of a machine until it starts again, and names it to nobody; ``clock`` is the
    same for those whose host clocks show the same time. ``origin_ns`` is that clock at 0 of the ``start_ns`` of the
    rank's steps. Without boards, or processors, ``gaps`` says why. ``final`` is false as long as the training goes on.
    """

    rank: int
    host: str
    clock: str
    began: ClockReading
    ended: ClockReading
    origin_ns: int
    boards: tuple[BoardUse, ...] = ()
    processors: tuple[DomainUse, ...] = ()
    gaps: tuple[Gap, ...] = ()
    final: bool = False

    @property
    def window_s(self) -> float:
        return (self.ended.host_ns - self.began.host_ns) / 1e9
