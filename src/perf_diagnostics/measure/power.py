"""Energy of the GPU boards over a window of steps, from what was sampled: joules with their method, or a gap."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perf_diagnostics.measure.boards import PowerKind, board_of, power_kind_of
from perf_diagnostics.records import Float64, Gap, Int64, Quantity, Series

#: A window shorter than this, or than so many updates of its source, mostly measures its own two ends: at 50 updates
#: the uncertainty of half an update at each end is 2 %.
LEAST_WINDOW_S = 5.0
LEAST_UPDATES = 50

#: Boards update their power reading and energy counter about every 100 ms, whatever the rate they are asked at.
BOARD_UPDATE_S = 0.1

#: How far the counter and the integrated power of one board may lie apart. NVML states 5 % for a power reading
#: (nvmlDeviceGetPowerUsage), and as much is left for a step whose rhythm beats with the board's sampling: on A100 and
#: H100 a reading covers a quarter of the time (Yang et al., "Part-time Power Measurements", SC 2024).
LARGEST_DISAGREEMENT = 0.10

#: The longest stretch without a reading, as a share of the window, that the reading before it may stand for.
LONGEST_HOLD = 0.05


class EnergyMethod(enum.StrEnum):
    """Where joules come from, best first."""

    COUNTER = "total energy counter"
    INSTANT_POWER = "instantaneous power, integrated"
    AVERAGE_POWER = "power averaged over 1 s, integrated"


@dataclass(frozen=True, kw_only=True)
class BoardEnergy:
    """Energy of one board over the window, in joules.

    ``uncertainty_j`` is how far the counter's unknown update times at the two ends can shift the result; None for
    integrated power, whose board says nothing about its error. ``passed_over`` says why a better method was not used.
    ``integrated_joules`` is the integral of the power readings beside a counter; None where there is none.
    """

    board: str
    joules: float
    method: EnergyMethod
    uncertainty_j: float | None = None
    net_joules: float | None = None
    passed_over: str = ""
    integrated_joules: float | None = None

    @property
    def disagreement(self) -> str | None:
        """In words, where the counter and the integrated power differ by more than they may; else None."""
        if self.integrated_joules is None:
            return None
        larger = max(abs(self.joules), abs(self.integrated_joules))
        apart = abs(self.joules - self.integrated_joules) / larger if larger else 0.0
        if apart <= LARGEST_DISAGREEMENT:
            return None
        return (
            f"{self.board}: the energy counter gives {self.joules:.6g} J and the integrated power "
            f"{self.integrated_joules:.6g} J, {apart:.0%} apart (accepted: {LARGEST_DISAGREEMENT:.0%}); "
            "the counter was used"
        )


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Energy of all boards over a window of whole steps; gross, and net of the idle draw where that is known."""

    boards: tuple[BoardEnergy, ...]
    window_s: float
    steps: int

    @property
    def joules(self) -> float:
        return sum(board.joules for board in self.boards)

    @property
    def net_joules(self) -> float | None:
        """Gross less the boards' idle power over the window; None unless the idle power of every board is known."""
        parts = [board.net_joules for board in self.boards if board.net_joules is not None]
        return sum(parts) if len(parts) == len(self.boards) else None

    @property
    def uncertainty_j(self) -> float | None:
        parts = [board.uncertainty_j for board in self.boards if board.uncertainty_j is not None]
        return sum(parts) if len(parts) == len(self.boards) else None

    @property
    def cross_check(self) -> Gap | None:
        """A gap ``energy_cross_check`` where two sources of a board's energy contradict each other."""
        says = [words for board in self.boards if (words := board.disagreement) is not None]
        return Gap("energy_cross_check", "; ".join(says)) if says else None

    @property
    def joules_per_step(self) -> float:
        return self.joules / self.steps

    @property
    def method(self) -> str:
        """The boards' methods; one, unless boards differ."""
        return " and ".join(dict.fromkeys(board.method for board in self.boards))

    @property
    def source(self) -> str:
        """``NVML total energy counter (GPU-…, GPU-…)``."""
        return f"NVML {self.method} ({', '.join(board.board for board in self.boards)})"

    def quantities(self) -> tuple[Quantity, ...]:
        """The numbers of this energy that are quantities of a trial; those that are not known are left out."""
        found = (
            ("energy_device", self.joules, "J"),
            ("energy_device_net", self.net_joules, "J"),
            ("energy_device_uncertainty", self.uncertainty_j, "J"),
            ("energy_device_window_s", self.window_s, "s"),
            ("energy_device_steps", self.steps, "1"),
        )
        return tuple(Quantity(name, value, unit, self.source) for name, value, unit in found if value is not None)


class _Window(NamedTuple):
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


class _Refused(Exception):
    """A method that cannot give this board's energy, and why."""


def energy(
    series: Iterable[Series],
    *,
    window_start_ns: int,
    window_end_ns: int,
    steps: int,
    boards: Iterable[str] = (),
    idle_power_w: Mapping[str, float] | None = None,
) -> Energy | Gap:
    """Energy of every board of the trial, over a window at whose two ends the device was synchronised.

    For each board the first that works of: its energy counter, aligned to the counter's own updates inside the window
    (their mean power stands for the rest of an update at either end); its power readings, each held until the next.
    The sampler should have begun before the window and end after it.

    Args:
        series: all series of the trial; ``gpu_energy`` and ``gpu_power`` are used, by the board their source names.
        window_start_ns: start of the window on the host clock that the series are stamped with.
        window_end_ns: its end.
        steps: whole steps in the window, at least 1.
        boards: UUIDs of the boards the trial used; one of them that was never read makes a gap. Boards that were
            sampled count in any case.
        idle_power_w: power of each idle board (with a live device context) by UUID, for the net energy.

    Returns:
        The energy, or a gap ``energy_device``: a sum over only some of the boards would be a wrong number.
    """
    window = _Window(window_start_ns, window_end_ns)
    sampled: dict[str, dict[str, Series]] = {board: {} for board in boards}
    for one in series:
        if one.name in ("gpu_energy", "gpu_power"):
            sampled.setdefault(board_of(one.source) or one.source, {})[one.name] = one
    if not sampled:
        return Gap("energy_device", "neither an energy counter nor the power of any GPU was sampled")
    idle = idle_power_w or {}
    try:
        _long_enough(window, BOARD_UPDATE_S)
        parts = tuple(_of_board(board, found, window, idle.get(board)) for board, found in sampled.items())
    except _Refused as refusal:
        return Gap("energy_device", str(refusal))
    return Energy(boards=parts, window_s=window.seconds, steps=steps)


def idle_power(series: Iterable[Series], *, window_start_ns: int, window_end_ns: int) -> dict[str, float] | Gap:
    """Mean power of each board, in W by UUID, over a window in which nothing ran but a device context was held."""
    found = energy(series, window_start_ns=window_start_ns, window_end_ns=window_end_ns, steps=1)
    if isinstance(found, Gap):
        return Gap("device_idle_power", found.why)
    return {board.board: board.joules / found.window_s for board in found.boards}


def _of_board(board: str, found: Mapping[str, Series], window: _Window, idle_w: float | None) -> BoardEnergy:
    refusals: list[str] = [] if found else ["neither its energy counter nor its power could be read"]
    for name, method in (("gpu_energy", _from_counter), ("gpu_power", _from_power)):
        if name in found:
            try:
                joules, how, uncertainty_j = method(found[name], window)
            except _Refused as refusal:
                refusals.append(str(refusal))
            else:
                return BoardEnergy(
                    board=board,
                    joules=joules,
                    method=how,
                    uncertainty_j=uncertainty_j,
                    net_joules=None if idle_w is None else joules - idle_w * window.seconds,
                    passed_over="; ".join(refusals),
                    integrated_joules=_beside(found, window) if how is EnergyMethod.COUNTER else None,
                )
    raise _Refused(f"{board}: {'; '.join(refusals)}")


def _beside(found: Mapping[str, Series], window: _Window) -> float | None:
    """The integrated power of a board whose counter was used, to hold one against the other."""
    if "gpu_power" not in found:
        return None
    try:
        return _from_power(found["gpu_power"], window)[0]
    except _Refused:
        return None


def _from_counter(counter: Series, window: _Window) -> tuple[float, EnergyMethod, float]:
    """Joules of the window at the mean power between the first and the last update of the counter inside it.

    An update happened between the reading before it and the one that shows it; the middle is taken for its time.
    """
    times_ns, joules = _inside(counter, window)
    moves = np.diff(joules)
    if np.any(moves < 0):
        back = int(np.argmin(moves))
        # A 64-bit count of mJ does not wrap (600 million years at 1 kW); it starts again with the driver or the board.
        raise _Refused(f"the energy counter went back by {-moves[back]:.6g} J inside the window (driver reloaded?)")
    updates = np.flatnonzero(moves > 0)
    if len(updates) < 2:
        raise _Refused(f"the energy counter moved {len(updates)} times inside the window")
    update_ns = (times_ns[updates] + times_ns[updates + 1]) / 2
    _long_enough(window, float(np.median(np.diff(update_ns))) / 1e9)
    _seen(np.array([window.start_ns, update_ns[0]]), window, "the energy counter")
    _seen(np.array([update_ns[-1], window.end_ns]), window, "the energy counter")
    power_w = (joules[updates[-1] + 1] - joules[updates[0] + 1]) / ((update_ns[-1] - update_ns[0]) / 1e9)
    unknown_ns = (np.diff(times_ns)[updates[0]] + np.diff(times_ns)[updates[-1]]) / 2
    return float(power_w * window.seconds), EnergyMethod.COUNTER, float(power_w * unknown_ns / 1e9)


def _from_power(power: Series, window: _Window) -> tuple[float, EnergyMethod, None]:
    """Joules of the window with each reading held until the next one.

    The last reading before the window holds from its start (without one, the first inside does), the last inside to its
    end. Equal readings count like any other.
    """
    times_ns, watts = _inside(power, window)
    if len(times_ns) < 2:
        raise _Refused(f"{len(times_ns)} power readings inside the window")
    _long_enough(window, max(BOARD_UPDATE_S, float(np.median(np.diff(times_ns))) / 1e9))
    before = int(np.searchsorted(power.times_ns, window.start_ns, side="left")) - 1
    held = np.concatenate(([power.values[before] if before >= 0 else watts[0]], watts))
    borders_ns = np.concatenate(([window.start_ns], times_ns, [window.end_ns]))
    _seen(borders_ns, window, "power")
    average = power_kind_of(power.source) is PowerKind.AVERAGE
    method = EnergyMethod.AVERAGE_POWER if average else EnergyMethod.INSTANT_POWER
    return float(np.sum(held * np.diff(borders_ns)) / 1e9), method, None


def _inside(series: Series, window: _Window) -> tuple[Int64, Float64]:
    inside = (series.times_ns >= window.start_ns) & (series.times_ns <= window.end_ns)
    return series.times_ns[inside], series.values[inside]


def _long_enough(window: _Window, update_s: float) -> None:
    least_s = max(LEAST_WINDOW_S, LEAST_UPDATES * update_s)
    # The update period is itself an estimate: a window of exactly 50 updates must not fail by its last digit.
    if window.seconds < least_s * (1 - 1e-6):
        raise _Refused(
            f"insufficient_window: the window of {window.seconds:.3g} s is shorter than the {least_s:.3g} s that "
            f"{LEAST_UPDATES} updates (one each {update_s:.3g} s) and {LEAST_WINDOW_S:g} s ask for; measure longer"
        )


def _seen(borders_ns: Int64 | Float64, window: _Window, what: str) -> None:
    """Refuse a window with too long a stretch between two neighbouring borders: nobody looked there."""
    longest_s = float(np.max(np.diff(borders_ns))) / 1e9
    if longest_s > LONGEST_HOLD * window.seconds:
        raise _Refused(f"no reading of {what} for {longest_s:.3g} s of the {window.seconds:.3g} s window")
