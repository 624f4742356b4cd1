"""MEM004: memory that grows with every step, and memory that only looks so."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.memory_facts import growth, rising_share
from perf_diagnostics.diagnose.finding import Finding, Severity
from perf_diagnostics.diagnose.rules.mem004_memory_growth import MemoryGrowth
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = MemoryGrowth()
N = 300
STEP = np.arange(N)


def host(values, **columns):
    numbers = {"host_memory_peak": float(np.nanmax(values)), "host_memory_total": 8e9}
    return ask_trial(RULE, steps=N, columns={"host_rss_bytes": values} | columns, quantities=numbers)


def device(values):
    numbers = {"device_memory_peak_reserved": 4e9, "device_memory_total": 16e9}
    return ask_trial(RULE, device="cuda:0", steps=N, columns={"allocated_bytes": values}, quantities=numbers)


def test_a_leak_of_a_megabyte_a_step_is_found_with_the_steps_that_are_left():
    finding = found(device(2e9 + 1e6 * STEP))
    assert number(finding, "rise of device memory over the steps").value == pytest.approx(300)
    # 16 - 4 = 12 GB are free: 12,000 steps at 1 MB; the trial was to measure 300
    assert number(finding, "steps until memory is full").value == pytest.approx(12_000, rel=0.01)
    assert finding.severity is Severity.WARNING
    assert "1.00 MB a step" in finding.summary


def test_a_leak_that_ends_the_training_within_the_steps_planned_is_critical():
    assert found(device(2e9 + 60e6 * STEP)).severity is Severity.CRITICAL  # 12 GB at 60 MB: 200 steps


@pytest.mark.parametrize(
    ("batch_bytes", "says"),
    [
        (20e6, "measured: 5.0 % of a batch each, as numbers and short rows that are kept."),
        (1e6, "measured: 1.0 of a batch each, as outputs or batches that are kept."),
        (0.1e6, "measured: 10 batches each, as what a graph holds (activations) or copies of batches."),
        (None, "steps measured. With"),
    ],
)
def test_what_a_step_leaves_behind_is_held_against_its_batch(batch_bytes, says):
    numbers = {"host_memory_peak": 2.3e9, "host_memory_total": 8e9}
    columns = {"host_rss_bytes": 2e9 + 1e6 * STEP}
    facts = {} if batch_bytes is None else {"batch_bytes": batch_bytes}
    assert says in found(ask_trial(RULE, steps=N, columns=columns, quantities=numbers, facts=facts)).summary


def test_a_history_of_numbers_is_only_mentioned_however_long_it_gets():
    """20,000 steps that keep 2 KB each: 40 MB, and with 8 GB free nothing for four million steps more."""
    steps = 20_000
    numbers = {"host_memory_peak": 0.54e9, "host_memory_total": 8.5e9}
    columns = {"host_rss_bytes": np.where(np.arange(steps) % 40 == 0, 0.5e9 + 2e3 * np.arange(steps), np.nan)}
    finding = found(ask_trial(RULE, steps=steps, columns=columns, quantities=numbers))
    assert finding.severity is Severity.INFO
    clear(ask_trial(RULE, steps=steps // 2, columns={"host_rss_bytes": columns["host_rss_bytes"][: steps // 2]}))


def test_it_is_seen_through_noise_and_through_readings_every_few_steps():
    noisy = 1e9 + 0.4e6 * STEP + 1e6 * np.random.default_rng(0).standard_normal(N)
    sparse = np.where(STEP % 5 == 0, noisy, np.nan)
    finding = found(host(sparse))
    rise = number(finding, "rise of host memory over the steps")
    assert (rise.value, rise.n) == (pytest.approx(120, rel=0.1), 60)
    assert "grows by 0.402 MB a step" in finding.summary  # 0.4 and noise


@pytest.mark.parametrize(
    "values",
    [
        np.full(N, 1e9),  # measured, and flat
        1e9 + 5e6 * (STEP / N),  # 5 MB in all
        1e9 + 200e6 * (1 - np.exp(-STEP / 30)),  # a cache that fills up
        1e9 + 100e6 * (STEP % 50) / 50,  # collected every 50 steps
        1e9 - 1e6 * STEP,  # shrinks
        1e9 + 30e6 * np.random.default_rng(1).standard_normal(N),  # noise
    ],
    ids=["flat", "little", "saturates", "collected", "shrinks", "noise"],
)
def test_what_is_no_leak_is_clear(values):
    clear(host(values))


def test_too_few_steps_or_readings_and_nothing_read_are_no_verdict():
    short = ask_trial(RULE, steps=40, columns={"host_rss_bytes": 1e9 + 1e7 * np.arange(40)})
    assert missing(short).why == "40 steady steps; growth needs at least 50"
    few = np.where(STEP % 50 == 0, 1e9, np.nan)
    assert missing(host(few)).why.startswith("6 readings")
    assert missing(ask_trial(RULE, steps=N, gaps={"host_rss_bytes": "no /proc"})).why == "no /proc"


def test_memory_that_grows_by_leaps_is_no_leak():
    """As a healthy transformer's with batches of all lengths: a leap where a batch is longer than all before it."""
    leaps = np.zeros(N)
    leaps[[20, 60, 130, 170, 220, 260]] = 20e6
    # Of ten stretches of 30 steps the 1st to 3rd, 5th to 6th, 8th and 9th begin or hold a leap.
    assert rising_share(400e6 + np.cumsum(leaps)) == pytest.approx(6 / 9)
    values, lengths = 400e6 + np.cumsum(leaps) + 1e4 * STEP, {"tokens": 100 + STEP % 7}
    assert "did not grow" in clear(host(values, **lengths)).summary
    found(host(400e6 + 0.4e6 * STEP, **lengths))  # the same 120 MB, a little at every step
    found(host(values, tokens=100))  # batches are alike, and still it leaps


def of_steps(values):
    """A process's memory over so many steps, without what takes the reading."""
    numbers = {"host_memory_peak": float(values.max()), "host_memory_total": 8e9}
    return ask_trial(RULE, steps=len(values), columns={"host_rss_bytes": values}, quantities=numbers)


def test_a_process_may_settle_for_some_hundred_steps():
    """As a loop that reads an archive at each sample: 40 MB of 440 in 112 steps, and nothing after about 200."""
    pace = 40e6 / 112
    settles = 436e6 + pace * np.minimum(np.arange(450), 180)
    assert number(clear(of_steps(settles[:112])), "rise of host memory over the steps").limit == pytest.approx(64)
    assert number(clear(of_steps(settles)), "rise of host memory over the steps").limit == pytest.approx(32)
    found(of_steps(436e6 + pace * np.arange(450)))  # it goes on
    found(of_steps(436e6 + 2 * pace * np.arange(112)))  # 80 MB are more than what settles
    assert len(settles[:112]) < RULE.settling_steps <= len(settles)


def test_the_second_half_has_to_rise_nearly_as_fast_as_the_first():
    halves = np.concatenate((np.arange(150) * 1e6, 150e6 + np.arange(150) * 0.75e6))
    assert growth(1e9 + halves, steps=N).lasting
    halves[150:] = 150e6 + np.arange(150) * 0.65e6
    assert not growth(1e9 + halves, steps=N).lasting
    leap = 1e9 + np.where(np.arange(N) < N // 2, 0, 200e6) + np.arange(N) * 1e4
    assert not growth(leap, steps=N).lasting  # both halves rise alike, by nothing beside the leap between them
    assert growth(1e9 + halves[::-1].max() - halves[::-1], steps=N).lasting  # it gets faster


def test_the_halves_are_compared_by_the_step_wherever_the_readings_lie():
    """2 MB a step, read at every second step at first and at each one later: 4 MB a reading, then 2."""
    values = 1e9 + 2e6 * STEP
    values[np.arange(1, 2 * N // 3, 2)] = np.nan
    at = np.flatnonzero(np.isfinite(values))
    assert growth(values[at], steps=N, at=at).lasting and not growth(values[at], steps=N).lasting
    found(host(values))


def share_found(draw, *, runs: int) -> float:
    """The part of simulated series that the rule would call a leak if they rose enough."""
    rng = np.random.default_rng(1)
    found_ = [growth(draw(rng), steps=N) for _ in range(runs)]
    return float(
        np.mean([one.monotone and one.lasting and one.often and one.pullback <= RULE.most_pullback for one in found_])
    )


def settling(trials: float, leap: float):
    """100 MB as ``1 - exp(-t / tau)``, tau so many trials, in leaps of so many bytes, with 0.5 MB of noise."""

    def draw(rng):
        rise = 100e6 * (1 - np.exp(-STEP / N / trials)) / (1 - np.exp(-1 / trials)) + rng.uniform(0, leap)
        return 450e6 + np.floor(rise / leap) * leap + 0.5e6 * rng.standard_normal(N)

    return draw


def leaking(leap: float):
    """100 MB in exponentially distributed portions, one a step, in leaps of so many bytes, with 0.5 MB of noise."""

    def draw(rng):
        rise = np.cumsum(rng.exponential(100e6 / N, N)) + rng.uniform(0, leap)
        return 450e6 + np.floor(rise / leap) * leap + 0.5e6 * rng.standard_normal(N)

    return draw


@pytest.mark.parametrize("trials", [0.25, 0.5, 1.0])
def test_of_rises_that_fill_up_within_a_trial_or_less_nearly_none_is_a_leak(trials):
    assert share_found(settling(trials, 1.6e6), runs=40) <= 0.025  # simulated: 0 of 100


def test_of_rises_that_fill_up_in_two_trials_or_more_most_look_like_leaks():
    """Nothing tells them apart: what is to come of them is larger than what came."""
    assert share_found(settling(2.0, 1.6e6), runs=40) >= 0.9  # simulated: all


def test_leaks_in_portions_of_all_sizes_are_found():
    assert share_found(leaking(1.6e6), runs=40) >= 0.95  # simulated: all


# -- leaps that may never come again


def leaps(rng, least: int, most: int, low: float, high: float):
    """From ``least`` to ``most`` leaps of ``low`` to ``high`` bytes, at any steps."""
    rise = np.zeros(N)
    for _ in range(rng.integers(least, most + 1)):
        rise[rng.integers(0, N) :] += rng.uniform(low, high)
    return rise


def an_import(rng):
    """40 to 200 MB within up to three steps."""
    return rng.uniform(40e6, 200e6) * np.clip((STEP - rng.integers(0, N)) / rng.integers(1, 4), 0, 1)


def an_evaluation(rng):
    """Its batches come and go; up to 60 MB stay."""
    begins, lasts = rng.integers(90, 210), rng.integers(2, 15)
    gone = np.where((begins <= STEP) & (begins + lasts > STEP), rng.uniform(30e6, 200e6), 0.0)
    return gone + np.where(begins + lasts <= STEP, rng.uniform(0, 60e6), 0.0)


def a_page_cache(rng):
    """60 to 300 MB of mapped pages, evenly, until after a fifth to four fifths of the steps all are read."""
    return rng.uniform(60e6, 300e6) * np.minimum(STEP / (N * rng.uniform(0.2, 0.8)), 1)


HEALTHY = {
    "arenas": lambda rng: leaps(rng, 1, 2, 40e6, 150e6),
    "more arenas": lambda rng: leaps(rng, 3, 5, 20e6, 80e6),
    "workers that start": lambda rng: leaps(rng, 1, 3, 20e6, 60e6),
    "an import": an_import,
    "an evaluation": an_evaluation,
    "pages": a_page_cache,
    "import, arenas, settling": lambda rng: (
        an_import(rng) + leaps(rng, 1, 2, 40e6, 150e6) + 20e6 * (1 - np.exp(-STEP / 75))
    ),
}
LEAKS = {
    "a graph a step": lambda rng: 1e6 * STEP,
    "and a leap": lambda rng: 1e6 * STEP + leaps(rng, 1, 1, 60e6, 60e6),
    "in leaps of the allocator": lambda rng: np.floor((1e6 * STEP + rng.uniform(0, 10e6)) / 10e6) * 10e6,
}


def share_told(rises, *, runs: int = 25) -> float:
    """In which part of made-up processes the rule tells a leak: 450 MB, a rise, 0.3 MB of noise."""
    rng = np.random.default_rng(7)
    series = [450e6 + rises(rng) + 0.3e6 * rng.standard_normal(N) for _ in range(runs)]
    read = [np.where(STEP % 4 == 0, values, np.nan) for values in series]
    return float(np.mean([isinstance(host(values), Finding) for values in read]))


@pytest.mark.parametrize("why", HEALTHY)
def test_jumps_that_do_not_continue_are_no_growth(why):
    """Told of 200 series each of 300 steps; before one asked whether the rise is more than a few leaps, and since.

    One or two arenas 3.5 %, now 0; three to five 45 %, now 0; up to three starts of workers 12.5 %, now 0; an import
    and an evaluation 0 and 0; pages 1 % and 1 %; an import with arenas and a process that settles 19 %, now 0. Over
    120 steps, 300 read at every fifth, and 1,000 at every tenth: 3.5 to 5 %, 35 to 43.5 %, 12 to 16 %, 0, 0, 1 to 2 %,
    21 to 27.5 %; now 0 but for pages (1 to 2 %), three to five arenas in 120 steps (4.5 %) and the import with arenas
    in 1,000 (1 %). Over all of these, up to two arenas with an even drift of at most 30 MB 8 to 13 %, now 0 to 3 %; two
    to eight leaps that get rarer 15.5 to 21.5 %, now 4 to 6.5 %.
    """
    assert share_told(HEALTHY[why]) <= 0.05


@pytest.mark.parametrize("why", LEAKS)
def test_leaks_are_found_beside_leaps_and_in_many(why):
    """Found at the same step as before, in 30 series each (median, latest): 50 KB a step read at every fifth 640 and
    660, in leaps of 4 MB 660 and 660, 1 MB in portions of all sizes 100 and 100 (the first asked), 0.3 MB in leaps of
    10 MB 220 and 220.

    The price: where memory rises in large leaps only, about six are waited for: 0.3 MB in leaps of 20 MB 360 and 420
    (before 240 and 240), 25 MB at every fiftieth step 320 and 320 (160 and 160).
    """
    assert share_told(LEAKS[why]) >= 0.9
