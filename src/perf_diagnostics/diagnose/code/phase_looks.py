"""The looks at the training's thread in one phase, and how much they tell of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.records import CodePath, CodeSamples

#: Under so few looks at a phase nothing is said of its lines.
LEAST_LOOKS = 20

_Z = 1.959964  # of 95 %


@dataclass(frozen=True)
class PhaseLooks:
    """The paths that were seen in one phase; looks of two kinds, which stand for different times."""

    code: CodeSamples
    paths: tuple[CodePath, ...]

    @classmethod
    def of(cls, facts: TrialFacts, phase: str, part: str = "", *, least: int = LEAST_LOOKS) -> PhaseLooks | None:
        """None where nobody looked, or fewer than ``least`` times; only in this ``part`` of the phase."""
        code = facts.result.code
        if code is None:
            return None
        paths = tuple(path for path in code.paths if path.phase == phase and (not part or path.part == part))
        return cls(code, paths) if sum(path.looks + path.rare for path in paths) >= least else None

    def seconds(self, chosen: Iterable[CodePath]) -> float:
        """The time that the looks at these paths stand for, in s."""
        return sum(self.code.seconds(path) for path in chosen)

    @property
    def whole_s(self) -> float:
        """The time that all of them stand for, in s."""
        return self.seconds(self.paths)

    @property
    def n(self) -> float:
        """How many looks of equal weight would tell as much (Kish, Survey Sampling, 1965)."""
        code = self.code
        squares = sum(path.looks * code.interval_s**2 + path.rare * code.rare_interval_s**2 for path in self.paths)
        return self.whole_s**2 / squares

    def proportion(self, seconds: float) -> Interval:
        """So much of the time that all of them stand for, as a part of it with its 95 % interval."""
        return proportion(seconds / self.whole_s, self.n)


def proportion(seen: float, n: float) -> Interval:
    """A part of ``n`` looks (of unequal weight: as many of equal weight as tell the same), with Wilson's 95 % interval.

    Raises:
        ValueError: there were none.
    """
    if n <= 0:
        raise ValueError(f"a proportion of {n} looks")
    square = _Z**2
    middle = (seen + square / (2 * n)) / (1 + square / n)
    half = _Z / (1 + square / n) * math.sqrt(seen * (1 - seen) / n + square / (4 * n**2))
    return Interval(seen, max(0.0, middle - half), min(1.0, middle + half), round(n))
