"""COM005, COM007, COM010: what more ranks bring, what they talk through, and whether they pause together."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, SweepFacts, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.rules.com005_scaling_efficiency import ScalingEfficiency
from perf_diagnostics.diagnose.rules.com007_backend import Backend
from perf_diagnostics.diagnose.rules.com010_pauses_out_of_step import PausesOutOfStep
from perf_diagnostics.diagnose.several_runs import together
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Phase, Run, TrialResult
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.rules.rank_trials import STEPS, of_ranks


def scaled(ranks: int, step_s: float, *, batch_size: int = 8) -> Run:
    """A training with so many ranks, each of whose steps takes so long."""
    seconds = {"forward": step_s, "backward": 0.0, "noise": 0.01, "batch_size": batch_size}
    if ranks == 1:
        return run_of(trial_of(**seconds))
    result = of_ranks(*[{}] * ranks, options={"ranks": ranks}, **seconds)
    return run_of(result)


def efficiency(*runs: Run) -> Finding | Cleared:
    answer = ScalingEfficiency().check(SweepFacts.of(together(runs)))
    assert isinstance(answer, Finding | Cleared)
    return answer


def test_ranks_that_train_less_than_one_alone_did() -> None:
    # A step of 8 samples takes 0.10 s alone and 0.16 s with four ranks: each trains 0.10 / 0.16 = 62.5 %.
    finding = efficiency(scaled(1, 0.10), scaled(2, 0.11), scaled(4, 0.16))
    assert isinstance(finding, Finding) and finding.severity is Severity.CRITICAL
    assert "each of 4 ranks trains at 6" in finding.summary
    assert [item.value for item in finding.evidence[:2]] == pytest.approx([90.9, 62.5], abs=1.0)
    # What is lost was measured; what a fix would win of it was not.
    assert finding.recoverable is not None and not finding.recoverable.measured
    assert finding.recoverable.value == pytest.approx(0.65 * 0.375, abs=0.01)
    assert finding.recoverable.low < 0.3 * 0.375 < 0.375 < finding.recoverable.high


def test_a_loss_of_a_fifth_warns_and_of_a_twentieth_is_clear() -> None:
    warned = efficiency(scaled(1, 0.10), scaled(2, 0.125))  # 80 %
    assert isinstance(warned, Finding) and warned.severity is Severity.WARNING
    assert isinstance(efficiency(scaled(1, 0.10), scaled(2, 0.105)), Cleared)  # 95 %


def test_single_trainings_are_credited_with_what_equal_ones_differ_by() -> None:
    # 89 % in two single trainings: 1 % each reaches 1.96 * 1.4 % = 2.8 % of the logarithm, to 91 %.
    single = efficiency(scaled(1, 0.089), scaled(2, 0.1))
    assert isinstance(single, Finding) and single.severity is Severity.INFO
    assert single.evidence[0].high == pytest.approx(89 * np.exp(1.96 * 0.01 * np.sqrt(2)), abs=0.5)


def test_two_ranks_are_a_base_for_four_where_nobody_ran_one() -> None:
    finding = efficiency(scaled(2, 0.10), scaled(4, 0.125))
    assert isinstance(finding, Finding) and "4 ranks train 1.6 times as fast as 2 ranks" in finding.summary


def test_other_batches_are_not_compared_and_it_says_what_to_run() -> None:
    with pytest.raises(NotMeasured, match=r"trained with 2 ranks only; .* batch 8 a rank"):
        efficiency(scaled(1, 0.10, batch_size=16), scaled(2, 0.10))
    with pytest.raises(NotApplicable, match="one rank"):
        efficiency(scaled(1, 0.10))


def test_a_training_of_which_one_rank_is_missing_has_no_throughput() -> None:
    (result,) = scaled(2, 0.10).results
    one_missing = run_of(dataclasses.replace(result, steps=result.steps[:1]))
    with pytest.raises(NotMeasured, match="trained with 2 ranks only"):
        efficiency(scaled(1, 0.10), one_missing)


def test_several_runs_are_read_as_one() -> None:
    one, two = scaled(1, 0.10), scaled(2, 0.12)
    both = together([one, two])
    assert both.results == (*one.results, *two.results) and len(both.planned) == 2
    assert together([one]) is one
    with pytest.raises(InvalidSettings, match="at least one run"):
        together([])


def on_a_gpu(**facts: Any) -> TrialFacts:
    return TrialFacts.of(of_ranks({}, {}, facts=facts, device="cuda:0"))


def test_gloo_carries_a_devices_gradients_through_the_host() -> None:
    finding = Backend().check(on_a_gpu(backend="gloo"))
    assert isinstance(finding, Finding) and finding.severity is Severity.WARNING
    assert "cuda:0 are exchanged by gloo" in finding.summary and finding.recoverable is None
    assert isinstance(Backend().check(on_a_gpu(backend="nccl")), Cleared)
    with pytest.raises(NotMeasured, match="was not recorded"):
        Backend().check(on_a_gpu(backend=None))
    with pytest.raises(NotApplicable, match="where gloo is right"):
        Backend().check(TrialFacts.of(of_ranks({}, {})))
    with pytest.raises(NotApplicable, match="one rank"):
        Backend().check(TrialFacts.of(trial_of(device="cuda:0")))


def collecting(*every: tuple[int, int], pause_s: float = 0.04) -> TrialResult:
    """Ranks that pause every n-th step from the i-th on, in steps of 100 ms."""
    step = np.arange(STEPS)
    return of_ranks(*({"gc_ns": np.where((step - first) % n == 0, pause_s * 1e9, 0)} for n, first in every))


def test_pauses_in_turn_hold_everybody_up_twice() -> None:
    # Each of two ranks pauses 40 ms every fourth step, in different steps: the job loses 20 of 100 ms a step, together
    # it would be 10.
    finding = PausesOutOfStep().check(TrialFacts.of(collecting((4, 0), (4, 2))))
    assert isinstance(finding, Finding) and finding.severity is Severity.WARNING
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.10, abs=0.05)
    assert "2 of 2 ranks pause in different steps" in finding.summary


def test_pauses_together_and_of_one_rank_alone_are_clear() -> None:
    assert isinstance(PausesOutOfStep().check(TrialFacts.of(collecting((4, 0), (4, 0)))), Cleared)
    assert isinstance(PausesOutOfStep().check(TrialFacts.of(collecting((4, 0), (10_000, 1)))), Cleared)


def test_no_pause_at_all_is_clear_and_none_recorded_is_not_measured() -> None:
    zero = PausesOutOfStep().check(TrialFacts.of(of_ranks({"gc_ns": 0}, {"gc_ns": 0})))
    assert isinstance(zero, Cleared) and zero.evidence[0].value == 0
    bare = {f"host_{phase}_ns": None for phase in Phase if phase is not Phase.OTHER}
    with pytest.raises(NotMeasured, match="neither collections nor"):
        PausesOutOfStep().check(TrialFacts.of(of_ranks(bare, bare)))


def test_saving_at_different_steps_is_a_pause_outside_the_phases() -> None:
    # 60 ms outside the phases every tenth step beside steps of 100 ms; rank 1 five steps later.
    step = np.arange(STEPS)
    tables = []
    for first in (0, 5):
        saves = (step - first) % 10 == 0
        tables.append({"wall_ns": np.where(saves, 160e6, 100e6)})
    finding = PausesOutOfStep().check(TrialFacts.of(of_ranks(*tables)))
    assert isinstance(finding, Finding) and "would save 5." in finding.summary  # 6 ms of 112
