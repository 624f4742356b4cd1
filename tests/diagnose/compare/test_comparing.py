"""One run against another: verdicts with their arithmetic, what is missing, and how often equal looks different."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from perf_diagnostics.diagnose.compare.comparing import Measured, compare, judge
from perf_diagnostics.diagnose.compare.comparison import Comparison, Row, Verdict
from perf_diagnostics.diagnose.compare.metrics import ENERGY, PEAK_MEMORY, STEP_TIME, THROUGHPUT, Metric, Processes
from perf_diagnostics.diagnose.statistics.welch import ratio_test
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Float64, Outcome, TrialResult
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.two_runs import MIB, ended, processes

#: Five processes around 1 s, 1 % apart: geometric mean 0.9999.
ABOUT_1_S = (0.99, 1.01, 1.0, 0.995, 1.005)


def row_of(comparison: Comparison, metric: Metric) -> Row:
    (row,) = [row for row in comparison.rows if row.metric is metric]
    return row


def against(base: list[TrialResult], new: list[TrialResult], metric: Metric = STEP_TIME) -> Row:
    return row_of(compare(run_of(*base), run_of(*new)), metric)


def times(factor: float) -> list[TrialResult]:
    return processes(*(factor * seconds for seconds in ABOUT_1_S))


# -- verdicts


def test_ten_percent_more_time_is_slower_in_both_units():
    comparison = compare(run_of(*times(1.0)), run_of(*times(1.1)))
    step, throughput = row_of(comparison, STEP_TIME), row_of(comparison, THROUGHPUT)
    assert (step.verdict, step.word) == (Verdict.WORSE, "slower")
    assert (throughput.verdict, throughput.word) == (Verdict.WORSE, "slower")
    assert step.ratio.value == pytest.approx(1.1)
    assert throughput.ratio.value == pytest.approx(1 / 1.1)
    assert step.new / step.base == pytest.approx(step.ratio.value)
    assert throughput.base == pytest.approx(8 / step.base)  # 8 samples a step


def test_ten_percent_less_time_is_faster():
    assert against(times(1.0), times(0.9)).word == "faster"
    assert against(times(1.0), times(0.9), THROUGHPUT).word == "faster"


def test_an_interval_inside_the_threshold_is_the_same():
    # Both sides 0.8 % of spread and 5 processes: the interval is about 1 % to either side of 1.005.
    row = against(times(1.0), times(1.005))
    assert row.verdict is Verdict.SAME
    assert row.ratio.high is not None and 1.01 < row.ratio.high < 1.02


def test_a_sure_difference_below_the_threshold_is_the_same():
    # 0.1 % of spread around 1 s against 1.01 s: surely different, and of no interest.
    base, new = processes(0.999, 1.0, 1.001), processes(1.009, 1.01, 1.011)
    row = against(base, new)
    assert row.significant
    assert row.verdict is Verdict.SAME


def test_a_sure_difference_that_may_be_above_or_below_the_threshold_is_inconclusive():
    row = against(times(1.0), times(1.019))
    assert row.significant
    assert row.ratio.value < 1.02 < (row.ratio.high or 0)
    assert row.verdict is Verdict.INCONCLUSIVE
    assert "may be less than the threshold or more" in row.why


def test_scatter_is_inconclusive():
    row = against(processes(0.7, 1.0, 1.3), processes(0.9, 1.2, 1.5))
    assert row.verdict is Verdict.INCONCLUSIVE
    assert "scatter" in row.why


@pytest.mark.parametrize(("base", "new"), [(1, 1), (1, 5), (5, 1)])
def test_one_process_on_a_side_is_not_enough(base: int, new: int):
    row = against(processes(*ABOUT_1_S[:base]), processes(*(2 * s for s in ABOUT_1_S[:new])))
    assert row.verdict is Verdict.NOT_ENOUGH_RUNS
    assert (
        row.why == f"not enough runs to compare ({base} against {new}): measure each several times (sweep --repeats 5)"
    )
    assert row.ratio.value == pytest.approx(2.0, rel=0.02)
    assert (row.ratio.low, row.p_value) == (None, None)


def test_steps_are_not_pooled():
    """Two processes of 1000 very even steps each that differ by 20 % stay two values."""
    base, new = processes(1.0, 1.2, steps=1000, noise=0.001), processes(1.1, 1.3, steps=1000, noise=0.001)
    assert against(base, new).verdict is Verdict.INCONCLUSIVE


def test_warm_up_is_not_compared():
    # testing.trial_of makes warm-up steps five times as long.
    row = against(processes(1.0, 1.0), processes(1.0, 1.0, warmup_steps=10))
    assert row.ratio.value == 1.0


def test_the_threshold_can_be_chosen():
    base, new = run_of(*times(1.0)), run_of(*times(1.05))
    assert compare(base, new, threshold=0.02).rows[0].verdict is Verdict.WORSE
    assert compare(base, new, threshold=0.10).rows[0].verdict is Verdict.SAME
    with pytest.raises(InvalidSettings, match="100 %"):
        compare(base, new, threshold=1.0)


# -- memory and energy


def test_more_memory_is_worse():
    base = processes(1.0, 1.0, 1.0, memory_mib=(100, 101, 99))
    new = processes(1.0, 1.0, 1.0, memory_mib=(120, 121, 119))
    assert against(base, new, PEAK_MEMORY).word == "more memory"
    assert against(new, base, PEAK_MEMORY).word == "less memory"
    assert against(base, new, PEAK_MEMORY).base == pytest.approx(100 * MIB, rel=1e-3)


def test_memory_without_any_spread_is_exact():
    base, new = processes(1.0, 1.0, memory_mib=(100, 100)), processes(1.0, 1.0, memory_mib=(150, 150))
    row = against(base, new, PEAK_MEMORY)
    assert (row.verdict, row.p_value) == (Verdict.WORSE, 0.0)


def test_the_peak_is_read_in_the_same_way_on_both_sides():
    """The tree's peak where every process has it; else that of the process, also where one side has both."""
    both = {"host_memory_peak": 100.0, "host_tree_memory_peak": 300.0}
    base, new = processes(1.0, 1.0, quantities=both), processes(1.0, 1.0, quantities=both)
    own = processes(1.0, 1.0, quantities={"host_memory_peak": 110.0})
    row = against(base, new, PEAK_MEMORY)
    assert (row.base, row.source) == (pytest.approx(300.0), "host_tree_memory_peak")
    row = against(base, own, PEAK_MEMORY)
    assert (row.ratio.value, row.source) == (pytest.approx(1.1), "host_memory_peak")


def test_on_an_accelerator_the_peak_is_the_device_s():
    quantities = {"host_memory_peak": 1.0, "device_memory_peak_reserved": 7.0, "device_memory_peak_allocated": 5.0}
    trials = processes(1.0, 1.0, device="cuda:0", quantities=quantities)
    row = against(trials, trials, PEAK_MEMORY)
    assert (row.base, row.source) == (pytest.approx(7.0), "device_memory_peak_reserved")


def test_memory_of_host_and_device_is_not_compared():
    base = processes(1.0, 1.0, quantities={"host_memory_peak": 1.0})
    new = processes(1.0, 1.0, device="cuda:0", quantities={"device_memory_peak_reserved": 1.0})
    comparison = compare(run_of(*base), run_of(*new), vary=["device"])
    (missing,) = comparison.not_compared
    assert missing.metric is PEAK_MEMORY
    assert missing.why == "one side ran on the CPU, the other on an accelerator"


def energy(joules: float) -> dict[str, float]:
    return {"energy_device": joules, "energy_device_steps": 10.0, "energy_device_window_s": 6.0}


def test_energy_is_per_sample():
    # 160 J over 10 steps of 8 samples: 2 J a sample.
    base = processes(1.0, 1.0, device="cuda:0", quantities=energy(160.0))
    new = processes(1.0, 1.0, device="cuda:0", quantities=energy(240.0))
    row = against(base, new, ENERGY)
    assert (row.base, row.new, row.word) == (pytest.approx(2.0), pytest.approx(3.0), "more energy")


def test_of_several_ranks_one_board_was_read_and_its_own_samples_count():
    # 160 J over 10 steps of 8 samples each of rank 0's; the other three ranks' boards were not read.
    def ranks(joules: float) -> list[TrialResult]:
        alone = processes(1.0, 1.0, device="cuda:0", quantities=energy(joules))
        return [dataclasses.replace(one, steps=one.steps * 4) for one in alone]

    row = against(ranks(160.0), ranks(240.0), ENERGY)
    assert (row.base, row.new) == (pytest.approx(2.0), pytest.approx(3.0))


def test_energy_nobody_measured_is_not_mentioned():
    comparison = compare(run_of(*times(1.0)), run_of(*times(1.0)))
    assert ENERGY not in {row.metric for row in comparison.rows}
    assert ENERGY not in {one.metric for one in comparison.not_compared}


def test_energy_that_only_one_side_measured_is_named_with_the_reason():
    base = processes(1.0, 1.0, device="cuda:0", quantities=energy(160.0))
    new = processes(1.0, 1.0, device="cuda:0", gaps={"energy_device": "NVML library not found"})
    comparison = compare(run_of(*base), run_of(*new))
    assert [one.why for one in comparison.not_compared if one.metric is ENERGY] == [
        "not measured in NEW: NVML library not found"
    ]


def test_energy_that_was_measured_as_zero_is_told_from_none():
    base = processes(1.0, 1.0, device="cuda:0", quantities=energy(160.0))
    new = processes(1.0, 1.0, device="cuda:0", quantities=energy(0.0))
    comparison = compare(run_of(*base), run_of(*new))
    assert [one.why for one in comparison.not_compared if one.metric is ENERGY] == [
        "NEW measured 0, of which there is no ratio"
    ]


# -- what did not complete


def test_a_trial_with_too_few_steps_is_no_value():
    # Two steady steps are no evidence: of the three processes two are left.
    base = [*processes(1.0, 1.0), trial_of(forward=9.0, steps=2, repeat=2)]
    row = against(base, times(1.0))
    assert (row.base_processes, row.base) == (2, pytest.approx(1.0))


def test_failed_trials_are_named_and_never_zero():
    base = run_of(*times(1.0))
    new = run_of(*times(1.0)[:3], *(ended(Outcome.CRASHED, "signal 11", repeat=r) for r in (3, 4)))
    comparison = compare(base, new)
    (missing,) = comparison.missing
    assert (missing.side, missing.count, missing.of, missing.why) == ("NEW", 2, 5, "crashed: signal 11")
    row = row_of(comparison, STEP_TIME)
    assert (row.new_processes, row.new) == (3, pytest.approx(1.0, rel=0.01))
    (completion,) = comparison.completions
    assert (completion.lost, completion.thinned) == (False, True)


def test_a_configuration_without_any_completed_trial_has_no_row():
    base, new = run_of(*times(1.0)), run_of(*(ended(Outcome.OUT_OF_MEMORY_HOST, repeat=r) for r in range(5)))
    comparison = compare(base, new)
    assert comparison.rows == ()
    assert [(m.count, m.why) for m in comparison.missing] == [(5, "out of memory host")]
    assert comparison.completions[0].lost


def test_what_only_one_run_has_is_named():
    base = run_of(*times(1.0), *processes(1.0, batch_size=64))
    new = run_of(*times(1.0), *processes(1.0, batch_size=128), pending=[trial_of(repeat=5).trial])
    told = [(m.configuration, m.side, m.why) for m in compare(base, new).missing]
    assert told == [
        ("synthetic cpu batch 8", "NEW", "planned, and never run"),
        ("synthetic cpu batch 64", "NEW", "only in BASE"),
        ("synthetic cpu batch 128", "BASE", "only in NEW"),
    ]


# -- several questions at once


def measured(label: str, base: Float64, new: Float64, metric: Metric = STEP_TIME) -> Measured:
    return (label, metric, Processes(tuple(base), tuple(new)))


def test_p_values_allow_for_the_number_of_configurations():
    base, new = np.array(ABOUT_1_S), 1.015 * np.array(ABOUT_1_S)
    alone = ratio_test(base, new).p_value
    assert alone is not None
    assert 0.01 < alone < 0.05
    (one,) = judge([measured("a", base, new)])
    assert (one.p_value, one.significant) == (pytest.approx(alone), True)
    rows = judge([measured(label, base, new) for label in "abcdef"])
    assert [row.p_value for row in rows] == [pytest.approx(6 * alone)] * 6
    assert not rows[0].significant


def test_step_time_and_throughput_count_as_one_question():
    base, new = np.array(ABOUT_1_S), 1.015 * np.array(ABOUT_1_S)
    (alone,) = judge([measured("a", base, new)])
    rows = judge([measured("a", base, new), measured("a", 8 / base, 8 / new, THROUGHPUT)])
    assert [row.p_value for row in rows] == [pytest.approx(alone.p_value)] * 2


def test_a_configuration_without_enough_runs_asks_no_question():
    base, new = np.array(ABOUT_1_S), 1.015 * np.array(ABOUT_1_S)
    (alone,) = judge([measured("a", base, new)])
    rows = judge([measured("a", base, new), measured("b", base[:1], new[:1])])
    assert [row.p_value for row in rows] == [alone.p_value, None]


# -- how often equal looks different, and how often different is found

PROCESS_SPREAD = 0.03
STEPS = 60


def step_times(rng: np.random.Generator, shape: tuple[int, ...], rho: float = 0.9, noise: float = 0.05) -> Float64:
    """Shape ``(*shape, STEPS)``: each process has its own level, and steps that are correlated from one to the next."""
    steps = np.empty((*shape, STEPS))
    steps[..., 0] = rng.standard_normal(shape)
    for step in range(1, STEPS):
        steps[..., step] = rho * steps[..., step - 1] + math.sqrt(1 - rho**2) * rng.standard_normal(shape)
    levels = np.exp(PROCESS_SPREAD * rng.standard_normal(shape))
    times_s: Float64 = levels[..., None] * (1 + noise * steps)
    return times_s


def compared(speeds: Float64, memory: Float64) -> tuple[Row, ...]:
    """One comparison from per-process values of shape ``(configurations, 2 sides, repeats)``."""
    rows: list[Measured] = []
    for number, ((base, new), (base_bytes, new_bytes)) in enumerate(zip(speeds, memory, strict=True)):
        rows.append(measured(str(number), base, new))
        rows.append(measured(str(number), 8 / base, 8 / new, THROUGHPUT))
        rows.append(measured(str(number), base_bytes, new_bytes, PEAK_MEMORY))
    return judge(rows)


def alarmed(rows: tuple[Row, ...]) -> bool:
    return any(row.verdict in (Verdict.BETTER, Verdict.WORSE) for row in rows)


def test_equal_runs_alarm_in_at_most_five_of_a_hundred_comparisons():
    """200 comparisons of equal with equal: 4 configurations, 3 metrics, 5 processes of 60 steps a side."""
    rng = np.random.default_rng(2026)
    shape = (200, 4, 2, 5)
    steps = step_times(rng, shape)
    memory = 4e8 * np.exp(0.02 * rng.standard_normal(shape))
    means = steps.mean(axis=-1)
    alarms = [alarmed(compared(*one)) for one in zip(means, memory, strict=True)]
    assert np.mean(alarms) <= 0.05
    # The same data with every step taken for a process of its own: why that is not done.
    pooled = steps.reshape(200, 4, 2, -1)
    p_values = [ratio_test(base, new).p_value for base, new in pooled[:, 0]]
    assert np.mean([p is not None and p < 0.05 for p in p_values]) > 0.5


@pytest.mark.parametrize(("configurations", "at_least"), [(1, 0.9), (4, 0.75)])
def test_ten_percent_in_one_configuration_is_found(configurations: int, at_least: float):
    """3 % of spread between processes, 5 a side; the other configurations are equal and share the 5 % of alarms."""
    rng = np.random.default_rng(2026)
    shape = (300, configurations, 2, 5)
    means = np.exp(PROCESS_SPREAD * rng.standard_normal(shape))
    means[:, 0, 1] *= 1.1
    memory = 4e8 * np.exp(0.02 * rng.standard_normal(shape))
    found = [compared(*one)[0].verdict is Verdict.WORSE for one in zip(means, memory, strict=True)]
    assert np.mean(found) >= at_least
