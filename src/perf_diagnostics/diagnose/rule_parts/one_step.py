"""A number that was measured in one step only, and so has no interval of confidence."""

from __future__ import annotations

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Evidence


def in_one_step(metric: str, share: Interval, *, limit: float | None = None) -> Evidence:
    """A share of the step by one look at it, in %; the ends of ``share`` are what other steps are allowed for."""
    return Evidence(
        metric=metric,
        value=share.value * 100,
        unit="%",
        limit=None if limit is None else limit * 100,
        n=1,
        source="one step, operator by operator",
    )
