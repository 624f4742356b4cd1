"""Advice tried in one process: pairs, what only the user's code can change, and the time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from perf_diagnostics.diagnose.finding import Share, Trying
from perf_diagnostics.diagnose.rule_parts.experiments import About, Candidate, Experiments
from perf_diagnostics.diagnose.tried.outcomes import tried_of
from perf_diagnostics.records import Json, Outcome, Settings, Trial, TrialResult
from perf_diagnostics.testing import trial_of
from perf_diagnostics.trials.confirm.confirm_here import confirm_here
from tests.diagnose.tried_runs import unsettled

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


def test_what_would_stay_for_the_rest_of_the_process_is_left_out_and_said() -> None:
    bench = Bench()
    (one,) = tried_of(confirmed(bench, {"keep_freed_memory": True}))
    assert bench.started == [] and one.verdict is Trying.NOT_TRIED
    assert "keep_freed_memory would stay for the rest of this process" in one.why


def test_what_was_tried_is_not_tried_again() -> None:
    bench = Bench()
    known = confirmed(bench, {"num_workers": 2})
    after = confirmed(bench, {"num_workers": 2}, {"num_workers": 1}, known=known)
    assert len(bench.started) == 16 and len(after.planned) == 2
    ids = [trial.id for trial in bench.started]
    assert len(set(ids)) == len(ids)


def test_what_did_not_settle_is_tried_anew_after_a_longer_warm_up() -> None:
    class Settling(Bench):
        def __call__(self, trial: Trial) -> TrialResult:
            made = super().__call__(trial)
            return made if trial.length.warmup_steps > 3 else unsettled(trial, made.steps[0].wall_ns.mean() / 1e9)

    bench = Settling()
    known = confirmed(bench, {"num_workers": 2})
    (one,) = tried_of(known)
    assert one.verdict is Trying.NOT_SETTLED and "`profiler.confirm()` tries it anew" in one.why
    assert len(bench.started) == 4  # two of four pairs are lost
    (one,) = tried_of(confirmed(bench, {"num_workers": 2}, known=known))
    assert one.verdict is Trying.CONFIRMED and one.pairs == 4 and len(bench.started) == 12


def test_a_failing_change_ends_after_one_pair() -> None:
    bench = Bench()
    (one,) = tried_of(confirmed(bench, {"threads": 2}))
    assert len(bench.started) == 2 and "planted" in one.why


def test_no_pair_is_begun_for_which_no_time_is_left() -> None:
    bench = Bench(takes_s=3.0)
    first, second = tried_of(confirmed(bench, {"num_workers": 2}, {"num_workers": 1}, time_budget_s=10.0))
    # A pair was thought to take 2 x 13 steps of 0.01 s and takes 6 s: into the four that are left goes no other.
    assert len(bench.started) == 2
    assert first.pairs == 1 and first.verdict is Trying.TOO_EARLY and "`profiler.confirm()`" in first.why
    # 3 pairs of 6 s.
    assert second.verdict is Trying.NOT_TRIED and "about 18 s, and 4 s" in second.why


def test_what_the_time_can_finish_is_finished_and_the_rest_left_to_the_next_call() -> None:
    bench = Bench(takes_s=3.0)
    changes = [{"num_workers": 2}, {"num_workers": 1}, {"num_workers": 3}]
    known = confirmed(bench, *changes, time_budget_s=40.0)
    # Six pairs fit: three for each of two changes, none for the third.
    assert [one.pairs for one in tried_of(known)] == [3, 3, 0]
    assert [one.verdict for one in tried_of(known)] == [Trying.CONFIRMED, Trying.CONFIRMED, Trying.NOT_TRIED]
    after = confirmed(bench, *changes, known=known, time_budget_s=23.0)
    # Three pairs for the third, and none of the two that had enough gets another.
    assert [one.pairs for one in tried_of(after)] == [3, 3, 3] and after.left_out == ()
    whole = confirmed(bench, *changes, known=after)
    assert [one.pairs for one in tried_of(whole)] == [4, 4, 4]
    ids = [trial.id for trial in bench.started]
    assert len(ids) == len(set(ids)) == 24


def test_what_was_begun_is_continued_by_the_next_call() -> None:
    bench = Bench(takes_s=3.0)
    known = confirmed(bench, {"num_workers": 2}, time_budget_s=10.0)
    assert [one.pairs for one in tried_of(known)] == [1]
    # The one that was begun comes first, although another is the first of the candidates now.
    after = confirmed(bench, {"num_workers": 1}, {"num_workers": 2}, known=known, time_budget_s=12.0)
    assert [(one.change["num_workers"], one.pairs) for one in tried_of(after)] == [(2, 3), (1, 0)]
