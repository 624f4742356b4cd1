"""The cost of a step against its batch: recovered where it is a line, refused where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.statistics.scaling import fit_cost, overhead_by_phase
from perf_diagnostics.records import Phase

SIZES = np.array([1, 2, 4, 8, 16, 32, 64])

#: Throughput in samples/s by batch size, single GPUs; milabench, config/scaling, MIT licence.
L40S_RESNET50 = {128: 1206.49, 248: 1130.58, 296: 1101.92, 512: 1075.71, 856: 1056.76, 944: 1031.5}
H100_BERT_FP32 = {1: 30.53, 16: 103.67, 24: 103.65, 40: 110.56, 48: 111.15, 64: 114.37, 80: 113.34, 96: 115.96}
H100_BERT_FP16 = {1: 27.83, 16: 359.67, 24: 442.6, 40: 512.36, 48: 527.14, 64: 551.29, 104: 578.97, 136: 591.05}


def fit_throughputs(samples_per_s: dict[int, float]):
    sizes = np.array(list(samples_per_s))
    return fit_cost(sizes, sizes / np.array(list(samples_per_s.values())))


def test_an_exact_line_is_recovered_exactly():
    fit = fit_cost(SIZES, 0.010 + 0.002 * SIZES)
    assert fit.overhead_s.value == pytest.approx(0.010)
    assert fit.per_sample_s.value == pytest.approx(0.002)
    assert fit.half_batch == pytest.approx(5.0)  # 0.010 / 0.002
    assert fit.worst_error == pytest.approx(0, abs=1e-9)
    assert fit.overhead_share(4).value == pytest.approx(0.010 / 0.018)


def test_intervals_cover_the_true_costs():
    rng = np.random.default_rng(2)
    hits = np.zeros(2)
    for _ in range(300):
        fit = fit_cost(SIZES, (0.010 + 0.002 * SIZES) * (1 + 0.02 * rng.standard_normal(SIZES.size)))
        hits += [
            fit.overhead_s.low <= 0.010 <= fit.overhead_s.high,
            fit.overhead_share(1).low <= 10 / 12 <= fit.overhead_share(1).high,
        ]
    assert (hits / 300 > 0.90).all()


def test_small_batches_count_as_much_as_large_ones():
    """An absolute fit would give up the point at batch 1 for the last; a relative one misses both alike."""
    seconds = 0.010 + 0.002 * SIZES
    seconds[-1] *= 1.10
    fit = fit_cost(SIZES, seconds)
    assert fit.overhead_s.value == pytest.approx(0.010, rel=0.05)


def test_no_fixed_cost_at_all_is_a_measured_zero():
    fit = fit_cost(SIZES, 0.002 * SIZES)
    assert fit.overhead_s.value == pytest.approx(0, abs=1e-9)
    assert fit.overhead_share(1).value == pytest.approx(0, abs=1e-6)


def test_nothing_but_fixed_cost():
    fit = fit_cost(SIZES, np.full(SIZES.size, 0.05))
    assert fit.overhead_share(64).value == pytest.approx(1.0)
    assert fit.half_batch is None


def test_half_batch_outside_the_measured_sizes_is_not_named():
    fit = fit_cost(SIZES, 0.5 + 0.001 * SIZES)  # 500
    assert fit.half_batch is None


def test_overhead_is_never_extrapolated():
    fit = fit_cost(SIZES, 0.010 + 0.002 * SIZES)
    with pytest.raises(ValueError, match="outside the measured"):
        fit.overhead_share(128)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [([8], "1 batch size was measured"), ([1, 8, 64], "3 batch sizes were"), ([8, 16, 24, 32], "span a factor of 4")],
)
def test_too_narrow_a_range_is_refused(sizes, says):
    with pytest.raises(NotMeasured, match=says):
        fit_cost(sizes, 0.01 + 0.002 * np.array(sizes))


def test_a_bend_is_refused():
    """Idle hardware up to batch 16, busy from there: no line comes within 15 % of both ends."""
    with pytest.raises(NotMeasured, match="miss the measured"):
        fit_cost(SIZES, np.maximum(0.032, 0.002 * SIZES))


def test_a_gentle_bend_over_many_points_is_refused_by_its_pattern():
    sizes = np.geomspace(1, 64, 13)
    seconds = (0.010 + 0.002 * sizes) * (1 + 0.09 * np.cos(np.linspace(0, 2 * np.pi, 13)))
    with pytest.raises(NotMeasured, match="change sign too rarely"):
        fit_cost(sizes, seconds)


def test_the_error_that_is_accepted_can_be_chosen():
    seconds = (0.010 + 0.002 * SIZES) * np.array([1, 1.2, 1, 0.8, 1, 1.2, 1])
    with pytest.raises(NotMeasured, match="accepted: 15%"):
        fit_cost(SIZES, seconds)
    assert fit_cost(SIZES, seconds, largest_error=0.3).worst_error > 0.15


def test_published_resnet50_is_refused():
    """Throughput falls with the batch: a fixed cost would have to be negative."""
    with pytest.raises(NotMeasured, match="faster than its batch"):
        fit_throughputs(L40S_RESNET50)


def test_published_bert_in_float32_is_a_line():
    fit = fit_throughputs(H100_BERT_FP32)
    assert fit.worst_error < 0.05
    assert fit.overhead_s.value == pytest.approx(0.024, rel=0.05)
    assert fit.half_batch == pytest.approx(2.9, rel=0.05)


def test_published_bert_in_float16_bends():
    """The device is idle at batch 1 and full at 136: the best line misses by 16 %."""
    with pytest.raises(NotMeasured, match="16%"):
        fit_throughputs(H100_BERT_FP16)


def test_fixed_costs_of_phases_add_up_to_that_of_the_step():
    forward, optimizer = 0.004 + 0.002 * SIZES, np.full(SIZES.size, 0.006)
    found = overhead_by_phase(SIZES, forward + optimizer, {Phase.FORWARD: forward, Phase.OPTIMIZER: optimizer})
    assert found[Phase.FORWARD] == pytest.approx(0.004)
    assert found[Phase.OPTIMIZER] == pytest.approx(0.006)


def test_a_phase_has_no_negative_fixed_cost():
    found = overhead_by_phase(SIZES, 0.01 + 0.1 * SIZES, {Phase.FORWARD: 0.001 * SIZES**1.5})
    assert found[Phase.FORWARD] == 0.0
