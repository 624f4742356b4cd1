"""Energy of a window from sampled counters and power, against boards whose true power is known."""

from collections.abc import Callable

import numpy as np
import pytest

from perf_diagnostics.measure.boards.boards import PowerKind, series_source
from perf_diagnostics.measure.boards.power import Energy, EnergyMethod, energy, idle_power
from perf_diagnostics.records import Gap, Series

A, B = "GPU-aaaa", "GPU-bbbb"


def s(seconds: float) -> int:
    return round(seconds * 1e9)


def power(times_s: object, watts: object, *, board: str = A, kind: PowerKind = PowerKind.INSTANT) -> Series:
    times_ns = np.round(np.asarray(times_s, dtype=float) * 1e9).astype(np.int64)
    values = np.broadcast_to(np.asarray(watts, dtype=float), times_ns.shape)
    return Series("gpu_power", "W", series_source(board, kind), times_ns, values)


def counter(
    times_s: object, true_joules: Callable[[np.ndarray], np.ndarray], *, tick_s: float, phase_s: float, board: str = A
) -> Series:
    """A counter that takes over the true energy only at its ticks, as it is read at these times."""
    times = np.asarray(times_s, dtype=float)
    seen_s = np.floor((times - phase_s) / tick_s) * tick_s + phase_s
    return Series("gpu_energy", "J", series_source(board), np.round(times * 1e9).astype(np.int64), true_joules(seen_s))


def measured(found: Energy | Gap) -> Energy:
    assert isinstance(found, Energy), found
    return found


def refused(found: Energy | Gap) -> str:
    assert isinstance(found, Gap), found
    assert found.signal == "energy_device"
    return found.why


def window(start_s: float, end_s: float, *series: Series, **more: object) -> Energy | Gap:
    return energy(series, window_start_ns=s(start_s), window_end_ns=s(end_s), steps=20, **more)  # type: ignore[arg-type]


# Integrated power


def test_a_constant_300_w_for_10_s_is_3000_j() -> None:
    found = measured(window(1, 11, power(np.arange(0, 12, 0.1), 300)))
    assert found.joules == pytest.approx(3000)
    assert (found.window_s, found.steps) == (10, 20)
    assert found.method == EnergyMethod.INSTANT_POWER == "instantaneous power, integrated"
    assert found.source == "NVML instantaneous power, integrated (GPU-aaaa)"


def test_samples_that_begin_after_the_start_and_end_before_the_end_are_held_to_both() -> None:
    # readings at 1.05 … 10.95: the first counts from 1.0, the last to 11.0
    found = measured(window(1, 11, power(np.arange(1.05, 11, 0.1), 300)))
    assert found.joules == pytest.approx(3000)


def test_the_last_reading_before_the_window_counts_from_its_start() -> None:
    # 100 W read at 0.9 holds from 1.0 to 1.1 (10 J); then 300 W from 1.1 to 11 (2970 J)
    times = np.concatenate(([0.9], np.arange(1.1, 11.05, 0.1)))
    found = measured(window(1, 11, power(times, [100, *[300] * (len(times) - 1)])))
    assert found.joules == pytest.approx(10 + 2970)


def test_what_was_drawn_outside_the_window_does_not_count() -> None:
    times = np.arange(0, 20, 0.1)
    found = measured(window(5, 15, power(times, np.where((times >= 4.95) & (times < 14.95), 200, 999))))
    assert found.joules == pytest.approx(2000)


def test_a_ramp_is_integrated_by_its_own_steps() -> None:
    # each reading holds for 0.1 s: 0.1 * (0 + 10 + … + 990) = 4950 J over 10 s
    found = measured(window(0, 10, power(np.arange(0, 10, 0.1), np.arange(100) * 10)))
    assert found.joules == pytest.approx(4950)


def test_zero_watts_are_zero_joules_and_no_reading_is_a_gap() -> None:
    assert measured(window(0, 10, power(np.arange(0, 10, 0.1), 0))).joules == 0.0
    assert refused(window(0, 10)) == "neither an energy counter nor the power of any GPU was sampled"
    assert "0 power readings inside the window" in refused(window(0, 10, power(np.arange(20, 30, 0.1), 300)))


def test_failed_readings_in_the_middle_are_bridged_by_the_reading_before() -> None:
    times = np.arange(0, 12, 0.1)
    kept = np.ones(len(times), dtype=bool)
    kept[[30, 31, 55, 80]] = False
    assert measured(window(1, 11, power(times[kept], 300))).joules == pytest.approx(3000)


def test_a_board_lost_mid_run_is_a_gap_and_not_half_the_energy() -> None:
    why = refused(window(1, 11, power(np.arange(0, 6.05, 0.1), 300)))
    assert why == f"{A}: no reading of power for 5 s of the 10 s window"


def test_a_hole_in_the_middle_that_is_too_long_is_a_gap() -> None:
    times = np.concatenate((np.arange(0, 5, 0.1), np.arange(6, 12, 0.1)))
    assert "no reading of power for 1.1 s of the 10 s window" in refused(window(1, 11, power(times, 300)))


def test_averaged_power_says_so() -> None:
    found = measured(window(1, 11, power(np.arange(0, 12, 0.1), 300, kind=PowerKind.AVERAGE)))
    assert found.joules == pytest.approx(3000)
    assert found.method == EnergyMethod.AVERAGE_POWER
    assert found.uncertainty_j is None


# The length of the window


def test_a_window_below_five_seconds_is_insufficient_and_says_the_numbers() -> None:
    why = refused(window(0, 4.9, power(np.arange(0, 6, 0.1), 300)))
    assert why.startswith("insufficient_window: the window of 4.9 s is shorter than the 5 s that 50 updates")
    assert measured(window(0, 5, power(np.arange(0, 6, 0.1), 300))).joules == pytest.approx(1500)


def test_a_slow_source_needs_fifty_of_its_updates() -> None:
    slow = power(np.arange(0, 40, 0.4), 300)
    assert "insufficient_window: the window of 19 s is shorter than the 20 s" in refused(window(1, 20, slow))
    assert measured(window(1, 21, slow)).joules == pytest.approx(6000)


def test_a_slow_counter_needs_fifty_of_its_updates() -> None:
    times = np.arange(0, 40, 0.05)
    slow = counter(times, lambda t: 300 * t, tick_s=0.4, phase_s=0.1)
    assert "insufficient_window: the window of 19 s is shorter than the 20 s" in refused(window(1, 20, slow))
    assert measured(window(1, 21, slow)).joules == pytest.approx(6000, rel=0.01)


# The counter


@pytest.mark.parametrize("phase_s", [0.0, 0.013, 0.05, 0.077, 0.099])
@pytest.mark.parametrize("start_s", [1.0, 1.031, 1.09])
def test_a_counter_that_moves_each_100_ms_is_good_to_a_percent(phase_s: float, start_s: float) -> None:
    random = np.random.default_rng(1)
    times = np.cumsum(0.05 + random.uniform(0, 0.003, 400))
    sampled = counter(times, lambda t: 300 * t, tick_s=0.1, phase_s=phase_s)
    found = measured(window(start_s, start_s + 10, sampled))
    assert found.method == EnergyMethod.COUNTER
    assert found.joules == pytest.approx(3000, rel=0.01)
    assert found.uncertainty_j is not None
    assert abs(found.joules - 3000) <= found.uncertainty_j < 0.01 * 3000


def test_a_counter_read_at_the_windows_ends_would_be_wrong_by_a_whole_tick() -> None:
    """Why the ends are aligned: ticks of 1 s make the plain difference over 1.5 % wrong in a 51 s window."""
    times = np.arange(0, 80, 0.05)
    sampled = counter(times, lambda t: 300 * np.maximum(t, 0), tick_s=1.0, phase_s=0.98)
    start, end = 3.0, 53.9
    naive = np.interp(end, times, sampled.values) - np.interp(start, times, sampled.values)
    true = 300 * (end - start)
    assert abs(naive - true) / true > 0.015
    assert measured(window(start, end, sampled)).joules == pytest.approx(true, rel=0.001)


def test_a_training_step_that_alternates_is_counted_at_its_mean() -> None:
    def true_joules(t: np.ndarray) -> np.ndarray:
        """400 W for the first 0.15 s of each 0.2 s, then 100 W: 325 W on average."""
        whole, rest = np.divmod(t, 0.2)
        return whole * (400 * 0.15 + 100 * 0.05) + 400 * np.minimum(rest, 0.15) + 100 * np.maximum(rest - 0.15, 0)

    sampled = counter(np.arange(0, 14, 0.05), true_joules, tick_s=0.1, phase_s=0.03)
    assert measured(window(1, 13, sampled)).joules == pytest.approx(12 * 325, rel=0.01)


def test_the_counter_comes_before_power() -> None:
    times = np.arange(0, 12, 0.05)
    sampled = counter(times, lambda t: 250 * t, tick_s=0.1, phase_s=0.03)
    found = measured(window(1, 11, power(times, 300), sampled))
    assert found.method == EnergyMethod.COUNTER
    assert found.joules == pytest.approx(2500, rel=0.01)
    assert found.boards[0].passed_over == ""


def test_failed_readings_of_the_counter_lose_nothing() -> None:
    times = np.concatenate((np.arange(0, 4, 0.05), np.arange(7, 12, 0.05)))  # nobody looked for 3 s
    sampled = counter(times, lambda t: 300 * t, tick_s=0.1, phase_s=0.03)
    assert measured(window(1, 11, sampled)).joules == pytest.approx(3000, rel=0.01)


def test_a_counter_that_starts_again_is_passed_over_for_power() -> None:
    times = np.arange(0, 12, 0.05)
    again = counter(times, lambda t: np.where(t < 6, 5000 + 300 * t, 300 * (t - 6)), tick_s=0.1, phase_s=0.0)
    found = measured(window(1, 11, again, power(times, 300)))
    assert found.method == EnergyMethod.INSTANT_POWER
    assert found.joules == pytest.approx(3000)
    assert "the energy counter went back by" in found.boards[0].passed_over
    assert "the energy counter went back by" in refused(window(1, 11, again))


def test_a_counter_that_started_again_before_the_window_is_fine() -> None:
    times = np.arange(0, 14, 0.05)
    again = counter(times, lambda t: np.where(t < 1, 5000 + 300 * t, 300 * (t - 1)), tick_s=0.1, phase_s=0.0)
    assert measured(window(2, 12, again)).joules == pytest.approx(3000, rel=0.01)


def test_a_counter_that_stands_still_is_no_zero() -> None:
    times = np.arange(0, 12, 0.05)
    still = counter(times, lambda t: 0 * t, tick_s=0.1, phase_s=0.0)
    assert "the energy counter moved 0 times inside the window" in refused(window(1, 11, still))
    assert measured(window(1, 11, still, power(times, 0))).joules == 0.0  # its power, though, was read: 0 W


def test_a_counter_whose_board_is_lost_is_a_gap() -> None:
    sampled = counter(np.arange(0, 6, 0.05), lambda t: 300 * t, tick_s=0.1, phase_s=0.03)
    assert "no reading of the energy counter for" in refused(window(1, 11, sampled))


# Several boards, and the idle draw


def test_two_boards_are_summed_and_each_is_named() -> None:
    times = np.arange(0, 12, 0.05)
    first = counter(times, lambda t: 300 * t, tick_s=0.1, phase_s=0.03)
    second = power(times, 100, board=B)
    found = measured(window(1, 11, first, second))
    assert {board.board: round(board.joules, -1) for board in found.boards} == {A: 3000, B: 1000}
    assert found.joules == pytest.approx(4000, rel=0.01)
    assert found.method == "total energy counter and instantaneous power, integrated"
    assert "GPU-aaaa, GPU-bbbb" in found.source
    assert found.uncertainty_j is None  # of one of them nothing is known


def test_one_board_lost_makes_the_sum_a_gap() -> None:
    whole = power(np.arange(0, 12, 0.1), 300)
    lost = power(np.arange(0, 6, 0.1), 300, board=B)
    assert refused(window(1, 11, whole, lost)).startswith(f"{B}: no reading of power")


def test_a_board_that_was_never_read_makes_the_sum_a_gap() -> None:
    whole = power(np.arange(0, 12, 0.1), 300)
    why = refused(window(1, 11, whole, boards=[A, B]))
    assert why == f"{B}: neither its energy counter nor its power could be read"
    assert measured(window(1, 11, whole, boards=[A])).joules == pytest.approx(3000)


def test_net_is_gross_less_the_idle_draw_of_every_board() -> None:
    times = np.arange(0, 12, 0.1)
    both = (power(times, 300), power(times, 200, board=B))
    found = measured(window(1, 11, *both, idle_power_w={A: 60.0, B: 50.0}))
    assert found.joules == pytest.approx(5000)
    assert found.net_joules == pytest.approx(5000 - 10 * 110)
    assert measured(window(1, 11, *both, idle_power_w={A: 60.0})).net_joules is None
    assert measured(window(1, 11, *both)).net_joules is None
    assert measured(window(1, 11, *both, idle_power_w={A: 300.0, B: 200.0})).net_joules == pytest.approx(0.0)


# The curve: how the joules came together


def test_a_counters_curve_passes_through_its_updates_and_ends_with_the_total() -> None:
    # 100 W until 6 s, then 300 W; read each 0.05 s, a counter that moves each 0.1 s
    sampled = counter(
        np.arange(0, 14, 0.05), lambda t: 100 * t + 200 * np.clip(t - 6, 0, None), tick_s=0.1, phase_s=0.03
    )
    found = measured(window(2, 12, sampled)).boards[0]
    assert (found.curve.times_ns[0], found.curve.times_ns[-1]) == (s(2), s(12))
    assert (found.curve.joules[0], found.curve.joules[-1]) == (0, found.joules)
    assert np.all(np.diff(found.curve.joules) >= 0)
    for start, end, joules in ((3, 5, 200), (5, 7, 400), (7, 11, 1200)):
        cut, off_by = found.curve.between(s(start), s(end))
        assert cut == pytest.approx(joules, abs=off_by + 300 * 0.05)
        assert off_by <= 2 * 300 * 0.15  # an update and a half at either end
    assert found.least_window_s == pytest.approx(5, rel=0.01)


def test_until_a_counters_first_update_its_mean_power_stands() -> None:
    # 300 W, read each 0.05 s, of a counter that moves each 0.2 s: the first time within the window at 2.13 s
    sampled = counter(np.arange(0, 14, 0.05), lambda t: 300 * t, tick_s=0.2, phase_s=0.13)
    curve = measured(window(2, 13, sampled)).boards[0].curve
    assert curve.times_ns[1] == s(2.125)  # between two readings
    assert curve.joules == pytest.approx(300 * (curve.times_ns - s(2)) / 1e9, abs=300 * 0.05)


def test_an_integrated_powers_curve_is_its_running_sum() -> None:
    found = measured(window(1, 11, power(np.arange(0, 12, 0.1), 300))).boards[0]
    assert found.curve.between(s(2), s(5)) == (pytest.approx(900), pytest.approx(0, abs=1e-6))
    assert found.curve.joules[-1] == found.joules == pytest.approx(3000)


def test_a_source_that_is_read_rarely_asks_for_a_longer_window() -> None:
    found = measured(window(0, 60, power(np.arange(0, 61, 0.5), 300))).boards[0]
    assert found.least_window_s == pytest.approx(25)  # 50 updates of 0.5 s


def test_the_idle_draw_is_measured_by_the_same_rules() -> None:
    times = np.arange(0, 12, 0.1)
    both = (power(times, 62), power(times, 0, board=B))
    assert idle_power(both, window_start_ns=s(1), window_end_ns=s(11)) == {A: pytest.approx(62), B: 0.0}
    assert isinstance(idle_power(both, window_start_ns=s(1), window_end_ns=s(3)), Gap)


def test_the_quantities_carry_the_window_and_the_method() -> None:
    found = measured(window(1, 11, power(np.arange(0, 12, 0.1), 300)))
    assert [(q.name, q.value, q.unit) for q in found.quantities()] == [
        ("energy_device", pytest.approx(3000), "J"),
        ("energy_device_window_s", 10, "s"),
        ("energy_device_steps", 20, "1"),
        ("energy_device_boards", 1, "1"),
    ]
    assert all("instantaneous power" in q.source for q in found.quantities())


def test_the_quantities_are_gross_and_net_with_the_counters_uncertainty() -> None:
    # 300 W, read each 0.05 s: half a reading interval at either end, 300 W x 0.05 s = 15 J
    sampled = counter(np.arange(0, 14, 0.05), lambda t: 300 * t, tick_s=0.1, phase_s=0.03)
    found = measured(window(2, 12, sampled, idle_power_w={A: 60.0}))
    values = {q.name: q.value for q in found.quantities()}
    assert values["energy_device"] == pytest.approx(3000, rel=0.01)
    assert values["energy_device_net"] == pytest.approx(values["energy_device"] - 600)
    assert values["energy_device_uncertainty"] == pytest.approx(15.0, rel=0.05)


def test_a_counter_and_a_power_that_agree_pass_the_cross_check() -> None:
    times = np.arange(0, 14, 0.05)
    counted = counter(times, lambda t: 300 * t, tick_s=0.1, phase_s=0.03)
    for watts in (285, 315):  # the 5 % that NVML states for a power reading
        found = measured(window(2, 12, counted, power(times, watts)))
        assert found.method == EnergyMethod.COUNTER
        assert found.boards[0].integrated_joules == pytest.approx(10 * watts)
        assert found.cross_check is None


def test_a_counter_and_a_power_that_contradict_each_other_are_a_gap_and_the_counter_is_kept() -> None:
    times = np.arange(0, 14, 0.05)
    counted = counter(times, lambda t: 300 * t, tick_s=0.1, phase_s=0.03)
    found = measured(window(2, 12, counted, power(times, 200)))  # 3000 J against 2000 J: a third apart
    assert found.joules == pytest.approx(3000, rel=0.01)
    assert found.cross_check is not None
    assert found.cross_check.signal == "energy_cross_check"
    assert "33% apart" in found.cross_check.why


def test_without_a_second_source_nothing_is_cross_checked() -> None:
    times = np.arange(0, 14, 0.05)
    assert measured(window(2, 12, power(times, 300))).cross_check is None
    assert measured(window(2, 12, counter(times, lambda t: 300 * t, tick_s=0.1, phase_s=0.0))).cross_check is None


def test_an_idle_power_that_cannot_be_had_is_a_gap_of_its_own_name() -> None:
    refusal = idle_power((power(np.arange(0, 12, 0.1), 62),), window_start_ns=s(1), window_end_ns=s(3))
    assert isinstance(refusal, Gap)
    assert refusal.signal == "device_idle_power"
