"""Shares beside single long pauses: the pause has a share of its own, and the others are as sure as the other steps."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose import diagnose
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.pauses import own_ratio
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.hst005_collector_pauses import CollectorPauses
from perf_diagnostics.diagnose.rules.opt001_optimizer_heavy import OptimizerHeavy
from perf_diagnostics.diagnose.statistics.intervals import Interval, ratio_interval
from perf_diagnostics.records import ALL_PHASES, Float64, Phase
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_trial, clear, facts_of, found

STEPS = 100
MS = 1e6
USUAL = {Phase.DATA_WAIT: 0.5, Phase.FORWARD: 1.5, Phase.BACKWARD: 1.5, Phase.OPTIMIZER: 2.5}


def stopped(phase: Phase, pauses: dict[int, float], **columns: object) -> dict[str, object]:
    """Columns of 100 steps of 6 ms, 2.5 of it in the optimizer, of which some take so many ms longer in one phase."""
    extra = np.zeros(STEPS)
    extra[list(pauses)] = list(pauses.values())
    made: dict[str, object] = {"wall_ns": (6.0 + extra) * MS, **columns}
    if phase is not Phase.OTHER:
        made[f"host_{phase}_ns"] = (USUAL[phase] + extra) * MS
    return made


def trial(phase: Phase, pauses: dict[int, float], **columns: object) -> TrialFacts:
    seconds = {str(each): ms / 1e3 for each, ms in USUAL.items()}
    return facts_of(**seconds, columns=stopped(phase, pauses, **columns))


def collected(pauses: dict[int, float]) -> Float64:
    column = np.zeros(STEPS)
    column[list(pauses)] = list(pauses.values())
    return column * MS


def closed(facts: TrialFacts) -> float:
    known = [phase for phase in ALL_PHASES if facts.table.phase_ns(phase) is not None]
    return sum(facts.share(phase).value for phase in known) + facts.tagged_pauses_share.value


@pytest.mark.parametrize("phase", [Phase.DATA_WAIT, Phase.FORWARD, Phase.OPTIMIZER, Phase.OTHER])
def test_one_collection_is_no_phases_own_wherever_it_falls(phase: Phase) -> None:
    facts = trial(phase, {40: 200.0}, gc_ns=collected({40: 200.0}))
    assert facts.tagged_pauses_share.value == pytest.approx(200 / 800)
    # 250 ms of updates in 800 ms, and each of the steps agrees.
    assert facts.optimizer_share.value == pytest.approx(250 / 800)
    assert facts.optimizer_share.low == pytest.approx(250 / 800)
    assert facts.share(Phase.DATA_WAIT).value == pytest.approx(50 / 800)
    assert closed(facts) == pytest.approx(1.0)


def test_nothing_is_dropped_from_totals() -> None:
    facts = trial(Phase.OPTIMIZER, {40: 200.0}, gc_ns=collected({40: 200.0}))
    assert facts.step_time_s.value == pytest.approx(8e-3)
    assert facts.throughput.value == pytest.approx(8 / 8e-3)
    assert facts.whole_share(Phase.OPTIMIZER).value == pytest.approx(450 / 800)
    assert facts.phase_time_s(Phase.OPTIMIZER).value == pytest.approx(4.5e-3)
    assert sum(facts.whole_share(phase).value for phase in ALL_PHASES) == pytest.approx(1.0)


def test_a_pause_of_no_known_cause_in_another_phase_takes_nothing_and_blurs_nothing() -> None:
    facts = trial(Phase.OTHER, {40: 200.0})
    assert facts.tagged_pauses_share.value == 0.0
    assert facts.optimizer_share.value == facts.optimizer_share.low == pytest.approx(250 / 800)
    assert facts.share(Phase.OTHER).value == pytest.approx(200 / 800)
    assert closed(facts) == pytest.approx(1.0)


def test_a_pause_of_no_known_cause_in_the_phase_itself_is_its_own_and_counted_as_an_event() -> None:
    share = trial(Phase.OPTIMIZER, {40: 200.0}).optimizer_share
    assert share.value == pytest.approx(450 / 800)
    # At least what the other steps take of the time between the pauses; at most everything, for one event is little.
    assert share.low is not None and 0.41 < 250 / 600 < share.low < 0.45
    assert share.high == 1.0


def test_a_wait_for_data_is_the_waits_own() -> None:
    facts = trial(Phase.DATA_WAIT, {40: 200.0})
    assert facts.share(Phase.DATA_WAIT).value == pytest.approx(250 / 800)
    assert facts.optimizer_share.value == facts.optimizer_share.low == pytest.approx(250 / 800)
    # A collection within the wait is not.
    both = trial(Phase.DATA_WAIT, {40: 200.0}, gc_ns=collected({40: 120.0}))
    assert both.share(Phase.DATA_WAIT).value == pytest.approx(130 / 800)
    assert both.tagged_pauses_share.value == pytest.approx(120 / 800)
    assert closed(both) == pytest.approx(1.0)


def test_pauses_with_a_rhythm_have_the_interval_of_whole_cycles() -> None:
    beats = dict.fromkeys(range(9, STEPS, 10), 30.0)
    share = trial(Phase.OTHER, beats).share(Phase.OTHER)
    assert share.value == pytest.approx(300 / 900)
    assert share.low == pytest.approx(300 / 900) and share.high == pytest.approx(300 / 900)


def test_their_rhythm_goes_on_where_steps_between_do_not_count() -> None:
    """Three of 100 steps are warm-up again: of 97 the beats would be 9 and 10 apart by their places, and no rhythm."""
    facts = trial(Phase.OTHER, dict.fromkeys(range(9, STEPS, 10), 30.0))
    whole = facts.result.steps[0]
    again = np.flatnonzero(~whole.columns["warmup"])[[33, 54, 75]]
    whole.columns["warmup"][again] = True
    share = TrialFacts.of(facts.result).share(Phase.OTHER)
    assert share.value == pytest.approx(300 / 882)  # 882 of 900 ms are left
    assert share.low == pytest.approx(300 / 882) and share.high == pytest.approx(300 / 882)


def test_a_step_that_is_longer_everywhere_was_not_stopped() -> None:
    """As with a longer batch: no phase's interval may be made without it."""
    factor = np.ones(STEPS)
    factor[40] = 20.0
    columns = {"wall_ns": 6.0 * factor * MS} | {f"host_{p}_ns": ms * factor * MS for p, ms in USUAL.items()}
    columns["host_forward_ns"] = columns["host_forward_ns"] + np.linspace(0, 0.3, STEPS) * factor * MS
    columns["wall_ns"] = columns["wall_ns"] + np.linspace(0, 0.3, STEPS) * factor * MS
    facts = facts_of(**{str(each): ms / 1e3 for each, ms in USUAL.items()}, columns=columns)
    assert len(facts.outliers) == 1
    times, wall = columns[f"host_{Phase.OPTIMIZER}_ns"], columns["wall_ns"]
    expected = ratio_interval(np.round(times), np.round(wall), as_it_went=True)
    assert facts.optimizer_share.value == pytest.approx(facts.whole_share(Phase.OPTIMIZER).value)
    assert (facts.optimizer_share.low, facts.optimizer_share.high) == pytest.approx((expected.low, expected.high))
    assert facts.tagged_pauses_share.value == 0.0


def test_long_steps_that_the_batches_lengths_explain_are_no_pauses() -> None:
    pauses = dict.fromkeys(range(0, STEPS, 9), 30.0)
    tokens = np.full(STEPS, 100)
    tokens[list(pauses)] = 800
    by_length = trial(Phase.BACKWARD, pauses, tokens=tokens)
    walls = by_length.column("wall_ns")
    assert by_length.optimizer_share == ratio_interval(np.full(STEPS, 2.5 * MS), walls)


def test_where_more_than_a_fifth_of_the_steps_are_long_they_are_no_single_pauses() -> None:
    every_third = dict.fromkeys(range(0, STEPS, 3), 30.0)
    facts = trial(Phase.BACKWARD, every_third, gc_ns=collected(every_third))
    assert facts.tagged_pauses_share.value == 0.0
    assert facts.share(Phase.BACKWARD) == facts.whole_share(Phase.BACKWARD)


def test_a_long_pause_among_many_long_steps_is_one_beyond_what_they_have_in_common() -> None:
    """Every third step takes 3 ms more, and one of the others 200."""
    pauses = dict.fromkeys(range(0, STEPS, 3), 3.0)
    extra = collected(pauses)
    extra[40] = 200 * MS
    facts = trial(Phase.BACKWARD, {**pauses, 40: 200.0}, gc_ns=extra)
    assert len(facts.outliers) == 35
    assert facts.tagged_pauses_share.value == pytest.approx(197 / (600 + 34 * 3 + 200))
    low, high = facts.optimizer_share.low, facts.optimizer_share.high
    assert low is not None and high is not None
    assert facts.optimizer_share.value == pytest.approx(250 / 902) and high - low < 0.02
    assert closed(facts) == pytest.approx(1.0)


def test_few_steps_have_the_shares_they_had() -> None:
    wall = np.full(10, 6.0 * MS)
    wall[4] += 200 * MS
    facts = facts_of(forward=0.0035, optimizer=0.0025, steps=10, columns={"wall_ns": wall, "gc_ns": wall - 6.0 * MS})
    assert facts.optimizer_share == facts.whole_share(Phase.OPTIMIZER)


def test_steps_of_which_a_phase_was_lost_count_in_no_share() -> None:
    pauses = {40: 200.0, 60: 100.0}
    columns = stopped(Phase.BACKWARD, pauses, gc_ns=collected(pauses))
    columns["host_forward_ns"] = np.where(np.arange(STEPS) == 60, np.nan, 1.5 * MS)
    columns = {name.replace("host_", "device_"): values for name, values in columns.items()}
    seconds = {str(each): ms / 1e3 for each, ms in USUAL.items()}
    facts = facts_of(device="cuda:0", **seconds, columns=columns)
    assert facts.optimizer_share.n == STEPS - 1
    assert facts.optimizer_share.value == pytest.approx(99 * 2.5 / (99 * 6 + 200))
    assert facts.tagged_pauses_share.value == pytest.approx(200 / (99 * 6 + 200))


def test_a_part_of_a_phase_loses_no_more_to_a_pause_than_it_took_longer() -> None:
    pauses = {40: 200.0}
    facts = trial(Phase.OPTIMIZER, pauses, gc_ns=collected(pauses))
    inside, outside = np.full(STEPS, 2.0 * MS), np.full(STEPS, 0.5 * MS)
    inside[40] += 200 * MS
    assert facts.own_share(Phase.OPTIMIZER, inside).value == pytest.approx(200 / 800)
    assert facts.own_share(Phase.OPTIMIZER, outside).value == pytest.approx(50 / 800)


def test_one_collection_does_not_hide_a_heavy_optimizer() -> None:
    pauses = {40: 200.0}
    columns = stopped(Phase.FORWARD, pauses, gc_ns=collected(pauses))
    noisy = 1 + 0.05 * np.random.default_rng(3).standard_normal(STEPS)
    columns["host_optimizer_ns"] = 2.5 * MS * noisy
    columns["wall_ns"] = columns["wall_ns"] + 2.5 * MS * (noisy - 1)
    seconds = {str(each): ms / 1e3 for each, ms in USUAL.items()}
    heavy = found(ask_trial(OptimizerHeavy(), **seconds, columns=columns))
    assert heavy.severity is Severity.WARNING
    # Batches of all steps would have the share anywhere between 0.1 and 0.5.
    assert facts_of(**seconds, columns=columns).whole_share(Phase.OPTIMIZER).low < 0.15
    assert found(ask_trial(CollectorPauses(), **seconds, columns=columns)).code == "HST005"


def test_a_collection_in_the_optimizer_makes_no_heavy_optimizer() -> None:
    light = {"forward": 0.0055, "optimizer": 0.0005}
    extra = collected({40: 200.0})
    columns = {"wall_ns": 6 * MS + extra, "host_optimizer_ns": 0.5 * MS + extra}
    assert found(ask_trial(OptimizerHeavy(), **light, columns=columns))
    clear(ask_trial(OptimizerHeavy(), **light, columns={**columns, "gc_ns": extra}))


def test_one_collection_in_the_update_is_told_as_the_collectors_alone() -> None:
    """60 steps of which forward and backward take five sixths, and a collection as long as 60 of them."""
    steps = 60
    pause = np.where(np.arange(steps) == 30, 180.0, 0.0)
    noisy = 1 + 0.05 * np.random.default_rng(1).standard_normal(steps)
    times = {"forward": 1.0 * noisy, "backward": 1.5 * noisy, "optimizer": np.full(steps, 0.5) + pause}
    columns = {f"host_{phase}_ns": each * MS for phase, each in times.items()}
    columns |= {"wall_ns": np.sum(list(times.values()), axis=0) * MS, "gc_ns": pause * MS}
    result = trial_of(**dict.fromkeys(times, 1.0), steps=steps, columns=columns)
    compute = TrialFacts.of(result).joint_share(Phase.FORWARD, Phase.BACKWARD)
    assert compute.low == pytest.approx(0.415, abs=0.01) and compute.high == pytest.approx(0.418, abs=0.01)
    optimizer = TrialFacts.of(result).optimizer_share
    assert optimizer.value == pytest.approx(30 / 360, abs=0.002) and optimizer.high < 0.09
    diagnosis = diagnose(run_of(result))
    assert "OPT001" not in [finding.code for finding in diagnosis.findings]
    assert "HST005" in [finding.code for finding in diagnosis.findings]


def test_without_pauses_it_is_the_ratio_of_all_steps() -> None:
    times, wall, none = np.arange(1.0, 41.0), np.full(40, 50.0), np.zeros(40)
    assert own_ratio(times, wall, tagged=none, own=none, elsewhere=none) == ratio_interval(times, wall, as_it_went=True)


# -- simulated coverage


def ar1(random: np.random.Generator, steps: int, rho: float) -> Float64:
    shocks = random.normal(0, np.sqrt(1 - rho**2), steps)
    series = np.empty(steps)
    last = random.normal()
    for i in range(steps):
        last = rho * last + shocks[i]
        series[i] = last
    return series


def simulated(random: np.random.Generator, steps: int, rho: float, rate: float, kind: str) -> tuple[Interval, float]:
    """The interval of the optimizer's share of 2.5 in 6 ms, and what it estimates; of a trial with a pause in it."""
    times = {phase: ms * (1 + 0.05 * ar1(random, steps, rho)) for phase, ms in USUAL.items()}
    struck = random.random(steps) < rate
    while not struck.any():  # of pauses that never came a trial can tell nothing
        struck = random.random(steps) < rate
    pause = np.where(struck, 6 * np.exp(random.uniform(np.log(5), np.log(50), steps)), 0.0)
    times[Phase.BACKWARD if kind == "elsewhere" else Phase.OPTIMIZER] += pause
    wall = np.sum(list(times.values()), axis=0)
    columns = {"wall_ns": wall * MS} | {f"host_{phase}_ns": each * MS for phase, each in times.items()}
    if kind == "collected":
        columns["gc_ns"] = pause * MS
    share = facts_of(**dict.fromkeys(map(str, USUAL), 1.0), steps=steps, columns=columns).optimizer_share
    mean_pause = rate * 6 * 45 / np.log(10)
    long_run = (2.5 + mean_pause) / (6 + mean_pause)
    return share, long_run if kind == "own" else 2.5 / 6 * (1 - pause.sum() / wall.sum())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["elsewhere", "collected", "own"])
@pytest.mark.parametrize("rho", [0.0, 0.6])
@pytest.mark.parametrize("rate", [0.005, 0.02, 0.05])
def test_the_interval_covers_the_share(kind: str, rho: float, rate: float) -> None:
    random = np.random.default_rng([int(10 * rho), int(1000 * rate), len(kind)])
    pairs = [simulated(random, 200, rho, rate, kind) for _ in range(200)]
    covered = [share.low <= truth <= share.high for share, truth in pairs]
    # Of AR(1) steps alone the interval covers 92 to 96 %, and 200 draws of these scatter by 1.8 points.
    assert np.mean(covered) >= 0.90, np.mean(covered)
    if kind != "own":
        assert np.mean([share.high - share.low for share, _ in pairs]) < 0.02
