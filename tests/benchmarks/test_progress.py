"""How long is left, by runs that were made."""

from __future__ import annotations

import pytest

from benchmarks.progress import PRIOR_RUNS, PRIOR_S, Progress
from perf_diagnostics.testing import FakeClock


def test_runs_that_were_made_outweigh_the_prior(capsys: pytest.CaptureFixture[str]) -> None:
    clock, made = FakeClock(), [0]
    progress = Progress(20, lambda: made[0], clock=lambda: clock() / 1e9)
    assert progress.left_s == 20 * PRIOR_S
    clock.advance(70_000_000_000)  # 7 runs in 70 s
    made[0] = 7
    progress.done(7)
    each = (70 + PRIOR_S * PRIOR_RUNS) / (7 + PRIOR_RUNS)
    assert progress.left_s == pytest.approx(13 * each)
    progress.say("a plant")
    assert capsys.readouterr().err == f"[70 s spent, about {13 * each / 60:.0f} min left] a plant\n"


def test_what_was_found_again_costs_nothing() -> None:
    clock = FakeClock()
    progress = Progress(5, lambda: 0, clock=lambda: clock() / 1e9)
    clock.advance(1_000_000_000)
    progress.done(5)
    assert progress.left_s == 0
