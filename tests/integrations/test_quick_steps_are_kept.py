"""No step is dropped, however many a second there are: elsewhere half of them were, above a thousand, unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.integrations import OwnLoop
from tests.measure.simulated_device import HostClock


@pytest.mark.parametrize("step_ms", [0.35, 0.02])
def test_four_thousand_steps_are_four_thousand_rows(tmp_path: Path, step_ms: float) -> None:
    host = HostClock()
    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for _ in range(4000):
            with loop.step(samples=2), loop.forward():
                host.spend(step_ms)
    (result,) = loop.run.results
    table = result.steps[0]
    assert len(table) == 4000
    assert int(table.samples.sum()) == 8000
    assert int(table.wall_ns.sum()) == round(4000 * step_ms * 1e6)
    assert not [gap for gap in result.gaps if gap.signal in ("steps", "unseen_steps")]
