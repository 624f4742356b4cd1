"""A board's idle power out of stretches in which it had nothing to do."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.measure.boards.resting import Rest, rest_of
from perf_diagnostics.records import Gap, Series

S = 1_000_000_000
BOARD = "GPU-aaaa"


def looks(
    *parts: tuple[float, float, float, float], every_s: float = 0.1, board: str = BOARD, counter: bool = True
) -> list[Series]:
    """Readings of a board; each part has so many seconds of a utilisation, of memory in GB, and of power in W."""
    used, memory, power = [], [], []
    for seconds, percent, gigabytes, watts in parts:
        count = round(seconds / every_s)
        used += [percent] * count
        memory += [gigabytes * 1e9] * count
        power += [watts] * count
    times = (np.arange(len(used)) * every_s * S).round().astype(np.int64)
    joules = np.concatenate(([0.0], np.cumsum(np.array(power[:-1]) * every_s)))
    named = (("gpu_utilization", "%", used), ("gpu_memory_used", "bytes", memory), ("gpu_power", "W", power))
    found = [Series(name, unit, f"NVML {board}", times, np.array(values, float)) for name, unit, values in named]
    return [*found, Series("gpu_energy", "J", f"NVML {board}", times, joules)] if counter else found


@pytest.mark.parametrize("counter", [True, False])
def test_the_baseline_is_what_the_board_drew_in_its_longest_rest(counter: bool) -> None:
    # 3 s at 70 W, work, then 10 s at 52 W of which the first and the last second are left out, then work again
    parts = ((3, 0, 2, 70), (2, 80, 2, 300), (10, 0, 3, 52), (4, 95, 3, 300))
    rest = rest_of(BOARD, looks(*parts, counter=counter))
    assert isinstance(rest, Rest)
    assert rest.power_w == pytest.approx(52)
    assert rest.seconds == pytest.approx(10 - 0.1 - 2)  # the last look is one interval before the end


def test_a_rest_that_is_too_short_is_a_gap_with_its_length() -> None:
    rest = rest_of(BOARD, looks((6, 0, 2, 52), (6, 50, 2, 200)))
    assert rest == Gap(
        "device_idle_power",
        "insufficient_window: GPU-aaaa was seen with nothing to do (utilisation 0, memory unchanged) for 5.9 s at most "
        "outside of the steps; a baseline takes 7 s",
    )


def test_a_board_that_always_works_has_no_baseline() -> None:
    rest = rest_of(BOARD, looks((20, 1, 2, 60)))
    assert isinstance(rest, Gap) and "for 0 s at most" in rest.why


def test_what_is_allocated_ends_a_rest() -> None:
    # utilisation 0 throughout, but a tensor comes after 6 of 12 s: neither half is long enough
    rest = rest_of(BOARD, looks((6, 0, 2, 52), (6, 0, 2.5, 52)))
    assert isinstance(rest, Gap) and "for 5.9 s at most" in rest.why


def test_a_stretch_in_which_nobody_looked_is_no_rest() -> None:
    series = looks((12, 0, 2, 52))
    kept = (series[0].times_ns < 5 * S) | (series[0].times_ns >= 6.5 * S)
    cut = [Series(one.name, one.unit, one.source, one.times_ns[kept], one.values[kept]) for one in series]
    rest = rest_of(BOARD, cut)
    assert isinstance(rest, Gap) and "for 5.4 s at most" in rest.why  # from 6.5 to 11.9 s


def test_only_what_comes_after_a_moment_counts_where_asked_for() -> None:
    series = looks((10, 0, 2, 52), (10, 0, 2, 61))
    rest = rest_of(BOARD, series, after_ns=10 * S)
    assert isinstance(rest, Rest) and rest.power_w == pytest.approx(61)


def test_rare_readings_ask_for_a_longer_rest() -> None:
    # 50 of them, each 0.2 s, take 10 s
    rest = rest_of(BOARD, looks((10, 0, 2, 52), every_s=0.2))
    assert isinstance(rest, Gap) and "the window of 7.8 s is shorter than the 10 s that 50 updates" in rest.why
    assert isinstance(rest_of(BOARD, looks((13, 0, 2, 52), every_s=0.2)), Rest)


def test_of_several_boards_each_has_its_own() -> None:
    both = [*looks((10, 0, 2, 52)), *looks((10, 0, 2, 33), board="GPU-bbbb")]
    found = [rest_of(board, both) for board in (BOARD, "GPU-bbbb")]
    assert [round(one.power_w) for one in found if isinstance(one, Rest)] == [52, 33]


@pytest.mark.parametrize(
    ("without", "lacks"), [("gpu_utilization", "utilisation"), ("gpu_memory_used", "memory in use")]
)
def test_without_a_look_at_what_it_does_nobody_knows_whether_it_rested(without: str, lacks: str) -> None:
    series = [one for one in looks((20, 0, 2, 52)) if one.name != without]
    why = f"GPU-aaaa: its {lacks} was not read, so nobody knows whether it rested"
    assert rest_of(BOARD, series) == Gap("device_idle_power", why)


def test_a_rest_in_which_no_power_was_read_is_a_gap() -> None:
    series = [one for one in looks((20, 0, 2, 52)) if one.name not in ("gpu_power", "gpu_energy")]
    rest = rest_of(BOARD, series)
    assert isinstance(rest, Gap) and rest.signal == "device_idle_power"
    assert "neither its energy counter nor its power could be read" in rest.why
