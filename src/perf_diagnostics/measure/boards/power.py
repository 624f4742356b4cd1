"""Energy of the GPU boards over a window of steps, from what was sampled: joules with their method, or a gap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from perf_diagnostics.measure.boards.boards import board_of
from perf_diagnostics.measure.boards.energy_methods import (
    BOARD_UPDATE_S,
    LEAST_WINDOW_S,
    EnergyMethod,
    Refused,
    Window,
    from_counter,
    from_power,
    require_long_enough,
)
from perf_diagnostics.records import Gap, Quantity, Series
from perf_diagnostics.records.energies import EnergyCurve

__all__ = ["LARGEST_DISAGREEMENT", "LEAST_WINDOW_S", "BoardEnergy", "Energy", "EnergyMethod", "energy", "idle_power"]

#: How far the counter and the integrated power of one board may lie apart. NVML states 5 % for a power reading
#: (nvmlDeviceGetPowerUsage), and as much is left for a step whose rhythm beats with the board's sampling: on A100 and
#: H100 a reading covers a quarter of the time (Yang et al., "Part-time Power Measurements", SC 2024).
LARGEST_DISAGREEMENT = 0.10


@dataclass(frozen=True, kw_only=True)
class BoardEnergy:
    """Energy of one board over the window, in joules.

    ``uncertainty_j`` is how far the counter's unknown update times at the two ends can shift the result; None for
    integrated power, whose board says nothing about its error. ``passed_over`` says why a better method was not used.
    ``integrated_joules`` is the integral of the power readings beside a counter; None where there is none.
    ``curve`` is how the joules came together, and ``least_window_s`` the shortest window that its source allows.
    """

    board: str
    joules: float
    method: EnergyMethod
    curve: EnergyCurve = field(compare=False, repr=False)
    least_window_s: float
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
            ("energy_device_boards", len(self.boards), "1"),
        )
        return tuple(Quantity(name, value, unit, self.source) for name, value, unit in found if value is not None)


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
    window = Window(window_start_ns, window_end_ns)
    sampled: dict[str, dict[str, Series]] = {board: {} for board in boards}
    for one in series:
        if one.name in ("gpu_energy", "gpu_power"):
            sampled.setdefault(board_of(one.source) or one.source, {})[one.name] = one
    if not sampled:
        return Gap("energy_device", "neither an energy counter nor the power of any GPU was sampled")
    idle = idle_power_w or {}
    try:
        require_long_enough(window, BOARD_UPDATE_S)
        parts = tuple(_of_board(board, found, window, idle.get(board)) for board, found in sampled.items())
    except Refused as refusal:
        return Gap("energy_device", str(refusal))
    return Energy(boards=parts, window_s=window.seconds, steps=steps)


def idle_power(series: Iterable[Series], *, window_start_ns: int, window_end_ns: int) -> dict[str, float] | Gap:
    """Mean power of each board, in W by UUID, over a window in which nothing ran but a device context was held."""
    found = energy(series, window_start_ns=window_start_ns, window_end_ns=window_end_ns, steps=1)
    if isinstance(found, Gap):
        return Gap("device_idle_power", found.why)
    return {board.board: board.joules / found.window_s for board in found.boards}


def _of_board(board: str, found: Mapping[str, Series], window: Window, idle_w: float | None) -> BoardEnergy:
    refusals: list[str] = [] if found else ["neither its energy counter nor its power could be read"]
    for name, method in (("gpu_energy", from_counter), ("gpu_power", from_power)):
        if name in found:
            try:
                used = method(found[name], window)
            except Refused as refusal:
                refusals.append(str(refusal))
            else:
                return BoardEnergy(
                    board=board,
                    joules=used.joules,
                    method=used.method,
                    curve=used.curve,
                    least_window_s=used.least_window_s,
                    uncertainty_j=used.uncertainty_j,
                    net_joules=None if idle_w is None else used.joules - idle_w * window.seconds,
                    passed_over="; ".join(refusals),
                    integrated_joules=_beside(found, window) if used.method is EnergyMethod.COUNTER else None,
                )
    raise Refused(f"{board}: {'; '.join(refusals)}")


def _beside(found: Mapping[str, Series], window: Window) -> float | None:
    """The integrated power of a board whose counter was used, to hold one against the other."""
    if "gpu_power" not in found:
        return None
    try:
        return from_power(found["gpu_power"], window).joules
    except Refused:
        return None
