"""Doses in profiler traces: exposed time at 0, half, twice and four times the limit that warns of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace import diagnose_traces
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from tests.diagnose.trace.builder import TO_DEVICE, TraceBuilder, repeated
from tests.planted.doses import MULTIPLES
from tests.planted.traces import STEP, Fill, _copy, _head_idle, _items, _loading, _talking, queued


@dataclass(frozen=True)
class TraceDose:
    """A limit of a trace rule, and a step of which a share is the fault it limits."""

    code: str
    limit: str
    fill: Callable[[float], Fill]
    also: tuple[str, ...] = ()

    @property
    def threshold(self) -> float:
        rule = next(rule for rule in TRACE_RULES if rule.code == self.code)
        # Rules that share their limits with the rule about runs hold them in one field.
        return float(getattr(rule if hasattr(rule, self.limit) else rule.limits, self.limit))  # type: ignore[union-attr]

    def fires(self, multiple: float, folder: Path) -> bool:
        fill = self.fill(multiple * self.threshold)
        path = repeated(STEP, 5, fill).write(folder / f"{self.code}-{multiple:g}.json.gz")
        found = diagnose_traces([path]).diagnosis.findings
        return any(f.code in (self.code, *self.also) and f.severity is not Severity.INFO for f in found)


def _allocating(share: float) -> Fill:
    """The driver is asked for memory at the end of a step, while the device has nothing to do."""

    def fill(builder: TraceBuilder, start: float) -> None:
        end = start + STEP * (1 - share)
        queued(builder, start, end)
        if share:
            builder.call("cudaMalloc", end, start + STEP)

    return fill


DOSES = (
    TraceDose("HST002", "warn_share", lambda share: _items(max(5.0, 1000 * share))),
    TraceDose("HST003", "warn_share", _allocating),
    TraceDose("HST004", "warn_share", lambda share: _head_idle(STEP * share), ("INP007",)),
    TraceDose("XFR001", "warn_share", lambda share: _copy(STEP * share, TO_DEVICE)),
    TraceDose("INP001", "warn_share", lambda share: _loading(STEP * share)),
    TraceDose("COM001", "warn_share", lambda share: _talking(STEP * share)),
)


@pytest.mark.parametrize("dose", DOSES, ids=lambda dose: f"{dose.code} {dose.limit}")
@pytest.mark.parametrize("multiple", MULTIPLES)
def test_exposed_time_warns_from_twice_its_limit_on(dose: TraceDose, multiple: float, tmp_path: Path) -> None:
    assert dose.fires(multiple, tmp_path) is (multiple >= 2)
