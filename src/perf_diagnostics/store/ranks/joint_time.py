"""One timeline for the ranks of a training: the clock that they share or, between machines, the time of day."""

from __future__ import annotations

from collections.abc import Mapping

from perf_diagnostics.records.energies import RankEnergy

#: The kernel slews the time of day by 500 ppm at most (adjtimex(2)); beyond twice that somebody has set it meanwhile.
FASTEST_SLEW = 1e-3


class JointTime:
    """Lays moments of the ranks' host clocks onto one timeline, in ns.

    Ranks on one machine read one clock (``CLOCK_MONOTONIC``), and that is the timeline. Where they have several, it is
    the time of day, as each rank read it beside its own clock at both ends of its window. How well the machines agree
    on that (NTP: milliseconds) shifts a rank's window against the others'; it changes no length, and what a rank used
    and what it trained on are cut to the same stretch of its own clock.

    Args:
        energies: by rank, at least one.
    """

    def __init__(self, energies: Mapping[int, RankEnergy]) -> None:
        self._energies = energies
        self._one_clock = len({energy.clock for energy in energies.values()}) == 1

    def shared(self) -> tuple[int, int]:
        """The stretch that every rank's window covers; it ends before it starts where there is none."""
        began = max(self.joint(rank, energy.began.host_ns) for rank, energy in self._energies.items())
        ended = min(self.joint(rank, energy.ended.host_ns) for rank, energy in self._energies.items())
        return began, ended

    def joint(self, rank: int, host_ns: int) -> int:
        """A moment of a rank's clock on the timeline."""
        if self._one_clock:
            return host_ns
        energy = self._energies[rank]
        return energy.began.wall_ns + round((host_ns - energy.began.host_ns) * self._rate(rank))

    def on_clock_of(self, rank: int, joint_ns: int) -> int:
        """A moment of the timeline on a rank's clock."""
        if self._one_clock:
            return joint_ns
        energy = self._energies[rank]
        return energy.began.host_ns + round((joint_ns - energy.began.wall_ns) / self._rate(rank))

    def _rate(self, rank: int) -> float:
        """How fast the time of day ran by the rank's clock: 1, but for the slewing that keeps it in step."""
        began, ended = self._energies[rank].began, self._energies[rank].ended
        length = ended.host_ns - began.host_ns
        rate = (ended.wall_ns - began.wall_ns) / length if length > 0 else 1.0
        return rate if abs(rate - 1) <= FASTEST_SLEW else 1.0
