"""Advice tried in one process: pairs, what only the user's code can change, and the time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from perf_diagnostics.diagnose.experiments import About, Candidate, Experiments
from perf_diagnostics.diagnose.finding import Share, Trying
from perf_diagnostics.diagnose.tried import tried_of
from perf_diagnostics.records import Json, Outcome, Settings, Trial, TrialResult
from perf_diagnostics.testing import trial_of
from perf_diagnostics.trials.confirm_here import confirm_here

BASE = Trial(workload="Net", settings=Settings(batch_size=8))


def candidate(change: Mapping[str, Json]) -> Candidate:
    about = (About("INP001", "Net on cpu", Share(0.4, 0.2, 0.6)),)
    return Candidate(about=about, says="Try it.", change=change, base=BASE, step_s=0.01, start_s=0.0)


class Bench:
    """Runs trials at once: 1.0 s a step, half of that with workers; each one takes ``takes_s`` of a pretended clock."""

    def __init__(self, takes_s: float = 1.0) -> None:
        self.started: list[Trial] = []
        self.takes_s = takes_s

    def __call__(self, trial: Trial) -> TrialResult:
        self.started.append(trial)
        if trial.settings.threads:
            return TrialResult(trial=trial, outcome=Outcome.CRASHED, reason="planted")
        return dataclasses.replace(trial_of(forward=0.5 if trial.settings.num_workers else 1.0), trial=trial)

    def clock(self) -> float:
        return self.takes_s * len(self.started)


def confirmed(
    bench: Bench, *changes: Mapping[str, Json], known: Experiments | None = None, time_budget_s: float | None = None
) -> Experiments:
    return confirm_here(
        [candidate(change) for change in changes],
        bench,
        known=known or Experiments(),
        pairs=4,
        steps=10,
        time_budget_s=time_budget_s,
        seed=0,
        clock=bench.clock,
    )


def test_pairs_and_their_verdict() -> None:
    bench = Bench()
    (one,) = tried_of(confirmed(bench, {"num_workers": 2}))
    assert (one.verdict, one.pairs, len(bench.started)) == (Trying.CONFIRMED, 4, 8)
    assert abs(one.gain.value - 0.5) < 1e-6


def test_what_the_users_own_code_makes_is_left_out_and_said() -> None:
    bench = Bench()
    (one,) = tried_of(confirmed(bench, {"optimizer_implementation": "fused"}))
    assert bench.started == [] and one.verdict is Trying.NOT_TRIED
    assert "optimizer_implementation" in one.why


def test_what_was_tried_is_not_tried_again() -> None:
    bench = Bench()
    known = confirmed(bench, {"num_workers": 2})
    after = confirmed(bench, {"num_workers": 2}, {"num_workers": 1}, known=known)
    assert len(bench.started) == 16 and len(after.planned) == 2
    ids = [trial.id for trial in bench.started]
    assert len(set(ids)) == len(ids)


def test_a_failing_change_ends_after_one_pair() -> None:
    bench = Bench()
    (one,) = tried_of(confirmed(bench, {"threads": 2}))
    assert len(bench.started) == 2 and "planted" in one.why


def test_when_the_time_is_spent_no_pair_is_begun() -> None:
    bench = Bench(takes_s=3.0)
    first, second = tried_of(confirmed(bench, {"num_workers": 2}, {"num_workers": 1}, time_budget_s=10.0))
    # Pairs end at 6, 12 s: after the second the ten seconds are over.
    assert len(bench.started) == 4
    assert first.pairs == 2 and first.verdict is Trying.INCONCLUSIVE
    assert second.verdict is Trying.NOT_TRIED and "0 s were left" in second.why
