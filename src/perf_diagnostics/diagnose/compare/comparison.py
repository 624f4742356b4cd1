"""What a comparison of two runs says: a row for each metric of each configuration, and what could not be compared."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from perf_diagnostics.diagnose.compare.matching import Varied
from perf_diagnostics.diagnose.compare.metrics import Metric
from perf_diagnostics.diagnose.compare.surroundings import Surroundings
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.records import Run

#: The chance, over a whole comparison of equal with equal, that anything at all is called different.
FALSE_ALARMS = 0.05

#: What a run is measured with to be comparable: enough processes for an interval worth having.
REPEATS_TO_COMPARE = 5


class Verdict(enum.StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    NOT_ENOUGH_RUNS = "not enough runs"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One metric of one configuration.

    ``base`` and ``new`` are geometric means of the processes' values, in the metric's unit, so that their quotient is
    ``ratio.value``; ``p_value`` is adjusted for the number of questions of the whole comparison. ``ratio`` has no ends,
    and ``p_value`` is None, where there are not enough runs: the quotient is then no evidence.
    """

    configuration: str
    metric: Metric
    base: float
    new: float
    base_processes: int
    new_processes: int
    ratio: Interval
    p_value: float | None
    verdict: Verdict
    source: str = ""

    @property
    def significant(self) -> bool:
        return self.p_value is not None and self.p_value < FALSE_ALARMS

    @property
    def word(self) -> str:
        """The verdict in the metric's own word: ``slower``, ``more memory``."""
        words = {Verdict.BETTER: self.metric.better, Verdict.WORSE: self.metric.worse}
        return words.get(self.verdict, str(self.verdict))

    @property
    def why(self) -> str:
        """Why there is no more to say; empty where there is."""
        if self.verdict is Verdict.NOT_ENOUGH_RUNS:
            return (
                f"not enough runs to compare ({self.base_processes} against {self.new_processes}): "
                f"measure each several times (sweep --repeats {REPEATS_TO_COMPARE})"
            )
        if self.verdict is not Verdict.INCONCLUSIVE:
            return ""
        if self.significant:
            return "there is a difference, but it may be less than the threshold or more"
        return "the runs scatter too much to call it the same or different"


@dataclass(frozen=True)
class NotCompared:
    """A metric of a configuration that completed on both sides, and why there is no ratio of it."""

    configuration: str
    metric: Metric
    why: str


class Where(enum.StrEnum):
    BASE = "BASE"
    NEW = "NEW"


@dataclass(frozen=True)
class Missing:
    """Trials of a configuration that one side lacks: ``count`` of the ``of`` planned there (0: it planned none)."""

    configuration: str
    side: Where
    count: int
    of: int
    why: str


@dataclass(frozen=True)
class Completion:
    """How many trials of a configuration came to their end on each side, of how many planned."""

    configuration: str
    base: int
    base_planned: int
    new: int
    new_planned: int

    @property
    def lost(self) -> bool:
        """It completed in BASE, and not once in NEW."""
        return self.base > 0 and self.new == 0

    @property
    def thinned(self) -> bool:
        """All of it completed in BASE, and only a part in NEW."""
        return self.base == self.base_planned > 0 and 0 < self.new < self.new_planned


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that can be said about NEW against BASE. Worked out also where ``surroundings`` forbid to show it."""

    base: Run
    new: Run
    threshold: float
    varied: tuple[Varied, ...]
    rows: tuple[Row, ...]
    not_compared: tuple[NotCompared, ...]
    completions: tuple[Completion, ...]
    missing: tuple[Missing, ...]
    surroundings: Surroundings

    def with_verdict(self, verdict: Verdict) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.verdict is verdict)
