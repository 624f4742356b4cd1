"""COM001, COM003 and COM009 in a run: what DDP's own times of its exchanges say."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.rules.com001_communication_bound import CommunicationBound
from perf_diagnostics.diagnose.rules.com003_little_overlap import LittleOverlap
from perf_diagnostics.diagnose.rules.com009_exchange_each_micro_batch import ExchangeEachMicroBatch
from perf_diagnostics.records import TrialResult
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import number
from tests.diagnose.rules.rank_trials import DDP, of_ranks, timed


def check(rule: object, result: TrialResult) -> Finding | Cleared:
    answer = rule.check(TrialFacts.of(result))  # type: ignore[attr-defined]
    assert isinstance(answer, Finding | Cleared)
    return answer


def found(rule: object, result: TrialResult) -> Finding:
    answer = check(rule, result)
    assert isinstance(answer, Finding), answer
    return answer


def test_an_exchange_at_the_end_is_exposed_and_could_be_hidden() -> None:
    # 30 ms of exchange of which 3 ms are hidden: 27 of 100 ms are exposed, and 10 % of it overlaps.
    result = of_ranks(timed(0.03, 0.003), timed(0.03, 0.003))
    bound = found(CommunicationBound(), result)
    assert bound.severity is Severity.CRITICAL and bound.recoverable is not None
    assert bound.recoverable.high == pytest.approx(0.27, abs=0.01)
    little = found(LittleOverlap(), result)
    assert little.severity is Severity.WARNING
    assert "Only 10 %" in little.summary and "one bucket of 4 MB" in little.summary
    # Backward takes 70 ms, 27 of them waiting and 3 hiding already: the other 40 could hide all 27.
    assert little.recoverable is not None and little.recoverable.high == pytest.approx(0.27, abs=0.01)
    assert little.code in bound.symptom_of


def test_a_short_backward_pass_cannot_hide_a_long_exchange() -> None:
    # Backward computes for 70 - 68 - 1 = 1 ms beside an exchange of 69 ms, 68 of them exposed.
    result = of_ranks(timed(0.069, 0.001, noise=0.0), timed(0.069, 0.001, noise=0.0))
    assert found(CommunicationBound(), result).severity is Severity.CRITICAL
    answer = check(LittleOverlap(), result)
    assert isinstance(answer, Cleared) and "too short" in answer.summary


def test_what_is_sent_last_cannot_be_hidden() -> None:
    # 27 of 30 ms are exposed. Of two equal tensors the second one's 15 ms have nothing left to run beside: 12 remain.
    two = of_ranks(timed(0.03, 0.003, noise=0.0), timed(0.03, 0.003, noise=0.0), facts={"optimizer_tensors": 2})
    little = found(LittleOverlap(), two)
    assert little.recoverable is not None and little.recoverable.high == pytest.approx(0.12, abs=0.001)
    many = of_ranks(timed(0.03, 0.003, noise=0.0), timed(0.03, 0.003, noise=0.0), facts={"optimizer_tensors": 3000})
    more = found(LittleOverlap(), many)
    assert more.recoverable is not None and more.recoverable.high == pytest.approx(0.27, abs=0.001)


def test_a_single_tensor_is_not_advised_smaller_buckets() -> None:
    one = of_ranks(timed(0.03, 0.0), timed(0.03, 0.0), facts={"optimizer_tensors": 1})
    assert found(CommunicationBound(), one).severity is Severity.CRITICAL
    answer = check(LittleOverlap(), one)
    assert isinstance(answer, Cleared) and "one tensor, complete only when the backward pass ends" in answer.summary


def test_an_exchange_hides_behind_its_own_backward_only() -> None:
    # Of a step's four batches the last one's gradients are exchanged: of 70 - 30 ms of computing, 10 ms are its own.
    columns = timed(0.03, 0.0, noise=0.0)
    finding = found(LittleOverlap(), of_ranks(columns, columns, facts={"accumulation_steps": 4}))
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.10, abs=0.001)
    # Exchanged after each of the four, all of it is beside one of them: 4 x 7.5 ms, all of which 40 ms could hide.
    columns = timed(0.0075, 0.0, noise=0.0)
    each = {"accumulation_steps": 4, "exchanges_per_step_least": 4.0, "exchanges_per_step_most": 4.0}
    finding = found(LittleOverlap(), of_ranks(columns, columns, facts=each))
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.30, abs=0.001)
    # 16 batches: 2.5 ms of computing beside an exchange of 30 ms.
    columns = timed(0.03, 0.0, noise=0.0)
    answer = check(LittleOverlap(), of_ranks(columns, columns, facts={"accumulation_steps": 16}))
    assert isinstance(answer, Cleared) and "one of the 16 of a step" in answer.summary


def test_on_a_cpu_without_free_cores_nothing_is_surely_won_by_overlap() -> None:
    columns = timed(0.03, 0.0)
    crowded = found(LittleOverlap(), of_ranks(columns, columns, facts={"threads": 4, "cpu_count": 8}))
    roomy = found(LittleOverlap(), of_ranks(columns, columns, facts={"threads": 3, "cpu_count": 8}))
    assert crowded.recoverable is not None and roomy.recoverable is not None
    assert crowded.recoverable.low == 0.0 < roomy.recoverable.low
    assert crowded.recoverable.high == roomy.recoverable.high


def test_ranks_on_a_cpu_are_compared_with_one_process() -> None:
    columns = timed(0.03, 0.0)
    finding = found(CommunicationBound(), of_ranks(columns, columns))
    assert any("one process" in remedy.says for remedy in finding.remedies)


def test_advice_on_buckets_fits_the_buckets_there_are() -> None:
    columns = timed(0.03, 0.0)
    one = found(LittleOverlap(), of_ranks(columns, columns, facts={"ddp_largest_bucket_bytes": 4 * 2**20}))
    assert one.remedies[0].says.endswith("bucket_cap_mb=1.")  # four of them in 4 MiB
    several = found(LittleOverlap(), of_ranks(columns, columns, facts={"ddp_buckets": 3}))
    assert "25 by default" in several.remedies[0].says
    assert several.summary.endswith("; the gradients leave in 3 buckets of at most 4 MB.")
    assert number(several, "buckets of gradients").value == 3
    largest = number(several, "largest bucket")
    assert (largest.value, largest.unit) == (pytest.approx(4), "MB")
    searching = {"ddp_find_unused_parameters": True, "ddp_buckets_rebuilt": False}
    kept = found(LittleOverlap(), of_ranks(columns, columns, facts=searching))
    assert kept.remedies[0].says.startswith("Leave find_unused_parameters out")
    assert "static_graph=True" in kept.remedies[0].says  # puts the buckets in order where parameters are unused
    assert not any("static_graph" in remedy.says for remedy in (*one.remedies, *several.remedies))  # are in order


def test_a_hidden_exchange_is_clear() -> None:
    # 40 ms of exchange, 38 of them hidden: 2 % of a step, 95 % overlap.
    result = of_ranks(timed(0.04, 0.038), timed(0.04, 0.038))
    for rule in (CommunicationBound(), LittleOverlap()):
        assert isinstance(check(rule, result), Cleared)


def test_the_wait_for_a_late_rank_is_no_communication() -> None:
    # Rank 0 waits 30 ms in its exchange for rank 1, whose own exchange takes 2 ms.
    result = of_ranks(timed(0.032, 0.0), timed(0.002, 0.0))
    for rule in (CommunicationBound(), LittleOverlap()):
        assert isinstance(check(rule, result), Cleared)


def test_nothing_timed_is_not_measured_and_zero_is_clear() -> None:
    with pytest.raises(NotMeasured, match="not every rank's exchanges were timed"):
        check(CommunicationBound(), of_ranks({}, {}))
    with pytest.raises(NotMeasured, match="exchanges that were timed: 1; this needs 2"):
        check(CommunicationBound(), of_ranks(timed(0.03, 0.0, every=60), timed(0.03, 0.0, every=60)))
    few = found(CommunicationBound(), of_ranks(timed(0.03, 0.0, every=30), timed(0.03, 0.0, every=30)))
    assert few.severity is Severity.INFO and few.confidence < 0.5  # two are an estimate, and no evidence
    zero = check(CommunicationBound(), of_ranks(timed(1e-9, 1e-9), timed(1e-9, 1e-9)))
    assert isinstance(zero, Cleared) and zero.evidence[0].value == 0


def test_where_the_question_does_not_arise() -> None:
    with pytest.raises(NotApplicable, match="one rank"):
        check(CommunicationBound(), trial_of())
    other = of_ranks({}, {}, facts={"data_parallel": None, "ddp_buckets": None})
    with pytest.raises(NotApplicable, match="not wrapped in DistributedDataParallel"):
        check(CommunicationBound(), other)
    nobody = of_ranks({}, {}, facts={"data_parallel": None, "ddp_buckets": None, "matmul_precision": None})
    with pytest.raises(NotMeasured, match="nobody looked"):
        check(CommunicationBound(), nobody)
    alone = trial_of(facts=DDP)  # of two ranks only one was recorded
    with pytest.raises(NotMeasured, match="of 2 ranks one was recorded"):
        check(CommunicationBound(), alone)


def accumulating(least: float, most: float, *, took_s: float | None = 0.005, batches: int = 4) -> TrialResult:
    columns = {} if took_s is None else timed(took_s, 0.0)
    facts = {"accumulation_steps": batches, "exchanges_per_step_least": least, "exchanges_per_step_most": most}
    return of_ranks(columns, columns, facts=facts)


def test_an_exchange_after_each_accumulated_batch_is_for_nothing_but_the_last() -> None:
    finding = found(ExchangeEachMicroBatch(), accumulating(4.0, 4.0))
    assert finding.severity is Severity.WARNING
    assert "accumulates 4 batches and exchanges gradients 4 times" in finding.summary
    # 4 exchanges of 5 ms are 20 of 100 ms; 3 of them, 15 ms, are for nothing.
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.15, abs=0.01)


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [
        (3.96, 4.02, "4 times"),
        (2.7, 4.4, "at least 3 times"),
        (3.05, 4.4, "at least 3 times"),
        (1.6, 3.0, "at least 2"),
    ],
)
def test_a_count_that_leaves_several_numbers_open_is_told_as_the_least(least: float, most: float, words: str) -> None:
    finding = found(ExchangeEachMicroBatch(), accumulating(least, most))
    assert f"accumulates 4 batches and exchanges gradients {words}" in finding.summary


def test_what_they_cost_need_not_be_known() -> None:
    finding = found(ExchangeEachMicroBatch(), accumulating(4.0, 4.0, took_s=None))
    assert finding.severity is Severity.INFO and finding.recoverable is None


def test_one_exchange_a_step_is_clear() -> None:
    answer = check(ExchangeEachMicroBatch(), accumulating(1.0, 1.0))
    assert isinstance(answer, Cleared) and "4 batches are accumulated, exchanged once" in answer.summary


def test_a_last_step_that_was_cut_short_does_not_hide_the_others() -> None:
    # The last step had one batch of 8; the others have 32 samples, four batches.
    columns = timed(0.005, 0.0) | {"samples": 32}
    facts = {"accumulation_steps": 1, "exchanges_per_step_least": 4.0, "exchanges_per_step_most": 4.0}
    assert "accumulates 4 batches" in found(ExchangeEachMicroBatch(), of_ranks(columns, columns, facts=facts)).summary


def test_a_count_that_allows_for_both_is_no_answer() -> None:
    with pytest.raises(NotMeasured, match="1 to 7 a step"):
        check(ExchangeEachMicroBatch(), accumulating(1.0, 7.0))
    with pytest.raises(NotMeasured, match="exchanges_per_step_least was not recorded"):
        check(
            ExchangeEachMicroBatch(),
            of_ranks({}, {}, facts={"accumulation_steps": 4, "exchanges_per_step_least": None}),
        )
    with pytest.raises(NotApplicable, match="one batch a step"):
        check(ExchangeEachMicroBatch(), accumulating(1.0, 1.0, batches=1))


def test_the_engine_puts_the_cause_before_the_symptom() -> None:
    from perf_diagnostics.diagnose.engine import diagnose

    # 30 ms of exchange, none of it hidden, at the end of 70 ms of backward.
    codes = [finding.code for finding in diagnose(run_of(of_ranks(timed(0.03, 0.0), timed(0.03, 0.0)))).findings]
    assert codes.index("COM003") < codes.index("COM001")
