"""What of a step is a phase's own: its share of all time, told apart from single long pauses that are not its doing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.facts.outliers import Outliers, outliers, throttled_steps
from perf_diagnostics.diagnose.facts.pauses import Pauses, own_ratio, pauses_of
from perf_diagnostics.diagnose.facts.recorded import ask
from perf_diagnostics.diagnose.facts.step_facts import StepFacts
from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.statistics.intervals import Interval, squared_correlation
from perf_diagnostics.diagnose.statistics.time_series import lost_ratio, period_of
from perf_diagnostics.records import ALL_PHASES, Float64, Phase

#: Long steps are longer batches from this R squared of step time against tokens on, and no pauses; as STB001.
BY_LENGTH = 0.5

#: A trend, a correlation or an outlier needs at least so many steps to be told from noise.
TREND_STEPS = 20


@dataclass(frozen=True, eq=False)
class OwnShares(StepFacts):
    """The outliers of a trial, and shares of the step that its single long pauses do not blur.

    The shares of all phases and :attr:`tagged_pauses_share` make 1.
    """

    def share(self, phase: Phase) -> Interval:
        """What a phase takes by itself, over the wall time of all steps.

        Seconds of single long pauses that are no phase's own (collections, compilation, other programs …) are in the
        wall time and not in the phase; :func:`own_ratio` has the method. With them it is :meth:`whole_share`.
        """
        return self.joint_share(phase)

    def joint_share(self, *phases: Phase) -> Interval:
        """The same of several phases together."""
        times = np.sum([self._phase(phase) for phase in phases], axis=0)
        pauses, timed = self._pauses, self._timed
        tagged, own = (_sum([parts[p] for p in phases], timed.size)[timed] for parts in (pauses.tagged, pauses.own))
        numbers = self.step_numbers[timed]
        elsewhere = pauses.total[timed] - own
        return self._own(times, self._time_line[1], tagged=tagged, own=own, elsewhere=elsewhere, numbers=numbers)

    def own_share(self, phase: Phase, times: NDArray[Any]) -> Interval:
        """The same of a part of a phase: ``times`` of all steady steps, in ns, which lie within it."""
        pauses, above = ask(lambda: self._pauses), np.maximum(0.0, times - float(np.median(times)))
        wall, none, numbers = self.column("wall_ns"), np.zeros(self.steps), self.step_numbers
        if pauses is None or phase not in pauses.own:
            return self._own(times, wall, tagged=none, own=none, elsewhere=none, numbers=numbers)
        tagged = np.minimum(above, pauses.tagged[phase])
        own = np.minimum(above - tagged, pauses.own[phase])
        return self._own(times, wall, tagged=tagged, own=own, elsewhere=pauses.total - own, numbers=numbers)

    @cached_property
    def tagged_pauses_share(self) -> Interval:
        """What single long pauses of a known cause took of the time, in any phase; 0 where there were none."""
        wall, lost = self._time_line[1], _sum(self._pauses.tagged.values(), self.steps)[self._timed]
        if not wall.sum() > 0:
            raise NotMeasured("wall_ns", "what it is a share of is zero")
        return lost_ratio(lost, wall, period_of(lost, self.step_numbers[self._timed])).within(0.0, 1.0)

    @cached_property
    def outliers(self) -> Outliers:
        """The steps that took much longer than the others, and what their excess went to."""
        self._possible(TREND_STEPS)
        timed = ask(lambda: self._time_line) is not None
        found = {phase: self.table.phase_ns(phase) for phase in ALL_PHASES} if timed else {}
        series, began_s = self.result.series_named("gpu_throttle_reasons"), ask(self.quantity, "steps_began_s")
        return outliers(
            self.table,
            {phase: times for phase, times in found.items() if times is not None},
            throttled=None if series is None or began_s is None else throttled_steps(self.table, series, began_s),
            on_processor=not self.on_accelerator,
        )

    @cached_property
    def _pauses(self) -> Pauses:
        """The pauses of all steady steps; NotMeasured where no phase is known."""
        times = {p: t.astype(np.float64) for p in self._time_line[0] if (t := self.table.phase_ns(p)) is not None}
        long = ask(lambda: self.outliers)
        return pauses_of(long, times, self.steps, known_only=self._by_length)

    @property
    def _by_length(self) -> bool:
        """Whether the batches' lengths explain which steps are long."""
        tokens = self.table.get("tokens")
        explained = None if tokens is None else squared_correlation(tokens, self.table.wall_ns)
        return explained is not None and explained >= BY_LENGTH

    def _own(
        self,
        times: NDArray[Any],
        wall: NDArray[Any],
        *,
        tagged: Float64,
        own: Float64,
        elsewhere: Float64,
        numbers: NDArray[np.intp],
    ) -> Interval:
        if not wall.sum() > 0:
            raise NotMeasured("wall_ns", "what it is a share of is zero")
        x, w = times.astype(np.float64), wall.astype(np.float64)
        return own_ratio(x, w, tagged=tagged, own=own, elsewhere=elsewhere, numbers=numbers).within(0.0, 1.0)


def _sum(parts: Iterable[Float64], steps: int) -> Float64:
    total: Float64 = np.sum([np.zeros(steps), *parts], axis=0)
    return total
