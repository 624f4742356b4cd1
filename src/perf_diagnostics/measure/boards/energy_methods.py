"""The energy of one board out of what was sampled of it: by its energy counter, or by its power, integrated."""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from perf_diagnostics.measure.boards.boards import PowerKind, power_kind_of
from perf_diagnostics.records import Float64, Int64, Series
from perf_diagnostics.records.energies import EnergyCurve

#: A window shorter than this, or than so many updates of its source, mostly measures its own two ends: at 50 updates
#: the uncertainty of half an update at each end is 2 %.
LEAST_WINDOW_S = 5.0
LEAST_UPDATES = 50

#: Boards update their power reading and energy counter about every 100 ms, whatever the rate they are asked at.
BOARD_UPDATE_S = 0.1

#: The longest stretch without a reading, as a share of the window, that the reading before it may stand for.
LONGEST_HOLD = 0.05


class EnergyMethod(enum.StrEnum):
    """Where joules come from, best first."""

    COUNTER = "total energy counter"
    INSTANT_POWER = "instantaneous power, integrated"
    AVERAGE_POWER = "power averaged over 1 s, integrated"


class Window(NamedTuple):
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


class Found(NamedTuple):
    """What a method gives of a board, and the period of its source's updates."""

    method: EnergyMethod
    curve: EnergyCurve
    uncertainty_j: float | None
    update_s: float

    @property
    def joules(self) -> float:
        return float(self.curve.joules[-1])

    @property
    def least_window_s(self) -> float:
        """The shortest window over which this source may be read."""
        return _least_s(self.update_s)


class Refused(Exception):
    """A method that cannot give a board's energy, and why."""


def from_counter(counter: Series, window: Window) -> Found:
    """Joules of the window at the mean power between the first and the last update of the counter inside it.

    An update happened between the reading before it and the one that shows it; the middle is taken for its time.
    """
    times_ns, joules = _inside(counter, window)
    moves = np.diff(joules)
    if np.any(moves < 0):
        back = int(np.argmin(moves))
        # A 64-bit count of mJ does not wrap (600 million years at 1 kW); it starts again with the driver or the board.
        raise Refused(f"the energy counter went back by {-moves[back]:.6g} J inside the window (driver reloaded?)")
    updates = np.flatnonzero(moves > 0)
    if len(updates) < 2:
        raise Refused(f"the energy counter moved {len(updates)} times inside the window")
    update_ns = (times_ns[updates] + times_ns[updates + 1]) / 2
    update_s = float(np.median(np.diff(update_ns))) / 1e9
    require_long_enough(window, update_s)
    _seen(np.array([window.start_ns, update_ns[0]]), window, "the energy counter")
    _seen(np.array([update_ns[-1], window.end_ns]), window, "the energy counter")
    power_w = (joules[updates[-1] + 1] - joules[updates[0] + 1]) / ((update_ns[-1] - update_ns[0]) / 1e9)
    unknown_ns = (np.diff(times_ns)[updates[0]] + np.diff(times_ns)[updates[-1]]) / 2
    before_j = power_w * (update_ns[0] - window.start_ns) / 1e9
    used_j = before_j + joules[updates + 1] - joules[updates[0] + 1]
    curve = _curve(window, update_ns, np.concatenate(([0.0], used_j, [power_w * window.seconds])))
    return Found(EnergyMethod.COUNTER, curve, float(power_w * unknown_ns / 1e9), update_s)


def from_power(power: Series, window: Window) -> Found:
    """Joules of the window with each reading held until the next one.

    The last reading before the window holds from its start (without one, the first inside does), the last inside to its
    end. Equal readings count like any other.
    """
    times_ns, watts = _inside(power, window)
    if len(times_ns) < 2:
        raise Refused(f"{len(times_ns)} power readings inside the window")
    update_s = max(BOARD_UPDATE_S, float(np.median(np.diff(times_ns))) / 1e9)
    require_long_enough(window, update_s)
    before = int(np.searchsorted(power.times_ns, window.start_ns, side="left")) - 1
    held = np.concatenate(([power.values[before] if before >= 0 else watts[0]], watts))
    borders_ns = np.concatenate(([window.start_ns], times_ns, [window.end_ns]))
    _seen(borders_ns, window, "power")
    average = power_kind_of(power.source) is PowerKind.AVERAGE
    method = EnergyMethod.AVERAGE_POWER if average else EnergyMethod.INSTANT_POWER
    used_j = np.concatenate(([0.0], np.cumsum(held * np.diff(borders_ns)) / 1e9))
    return Found(method, _curve(window, times_ns, used_j), None, update_s)


def _curve(window: Window, between_ns: Int64 | Float64, joules: Float64) -> EnergyCurve:
    """The curve over a window with knots at its ends and at these times."""
    times_ns = np.concatenate(([window.start_ns], np.round(between_ns).astype(np.int64), [window.end_ns]))
    # The total is the mean power times the window, and the last knot before it a sum: rounding may cross them.
    return EnergyCurve(times_ns, np.maximum.accumulate(joules))


def _inside(series: Series, window: Window) -> tuple[Int64, Float64]:
    inside = (series.times_ns >= window.start_ns) & (series.times_ns <= window.end_ns)
    return series.times_ns[inside], series.values[inside]


def _least_s(update_s: float) -> float:
    return max(LEAST_WINDOW_S, LEAST_UPDATES * update_s)


def require_long_enough(window: Window, update_s: float) -> None:
    """Refuse a window that is too short for a source with this period of updates."""
    least_s = _least_s(update_s)
    # The update period is itself an estimate: a window of exactly 50 updates must not fail by its last digit.
    if window.seconds < least_s * (1 - 1e-6):
        raise Refused(
            f"insufficient_window: the window of {window.seconds:.3g} s is shorter than the {least_s:.3g} s that "
            f"{LEAST_UPDATES} updates (one each {update_s:.3g} s) and {LEAST_WINDOW_S:g} s ask for; measure longer"
        )


def _seen(borders_ns: Int64 | Float64, window: Window, what: str) -> None:
    """Refuse a window with too long a stretch between two neighbouring borders: nobody looked there."""
    longest_s = float(np.max(np.diff(borders_ns))) / 1e9
    if longest_s > LONGEST_HOLD * window.seconds:
        raise Refused(f"no reading of {what} for {longest_s:.3g} s of the {window.seconds:.3g} s window")
