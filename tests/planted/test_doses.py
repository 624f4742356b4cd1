"""Every limit of a rule fires from twice its dose on, and seldom at half of it; healthy loops are quiet."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Family, Severity
from perf_diagnostics.diagnose.rule import thresholds_of
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.records import Float64, Phase, Run, StepTable, TrialResult
from perf_diagnostics.testing import run_of, trial_of
from tests.planted import dosed_late, dosed_runs, real_doses
from tests.planted.dosed_all import DOSES, WITHOUT, not_dosed_yet, undosed
from tests.planted.dosed_runs import past_the_peak, ranks, sentinels
from tests.planted.doses import MOST_QUIET, Dose, not_looked, table
from tests.planted.made_up import healthy_on_cpu, healthy_on_gpu, loop, robbed
from tests.planted.plant import Seen

#: One of twenty may be wrong: 5 %. Half of them suffice where not one is.
SEEDS = range(20)

#: So many are looked at in all: the slow tests look at those that the others do not.
MANY = 60

#: Sweeps and long trials take their time: none of these may be wrong.
FEW = range(6)
LONG = ("rise", "warn_efficiency", "critical_efficiency", "full", "least_gain")


def seeds_at_once(dose: Dose) -> range:
    return FEW if dose in dosed_runs.DOSES or dose.limit in LONG else SEEDS


def complaints(dose: Dose, seeds: range, multiples: tuple[float, ...] = ()) -> list[str]:
    return [said for multiple, rate in dose.curve(seeds, multiples).items() if (said := dose.complaint(multiple, rate))]


@pytest.mark.parametrize("dose", DOSES, ids=lambda dose: dose.name)
def test_a_limit_fires_from_twice_its_dose_on(dose: Dose) -> None:
    seeds = seeds_at_once(dose)
    assert not (complaints(dose, seeds[: len(seeds) // 2]) and complaints(dose, seeds))


@pytest.mark.slow
@pytest.mark.parametrize("dose", DOSES, ids=lambda dose: dose.name)
def test_the_rates_hold_over_many_seeds(dose: Dose) -> None:
    """A third of them suffices where not one is wrong."""
    many = range(seeds_at_once(dose).stop, MANY)
    quiet, firing = dose.nearest
    third = dose.curve(many[: len(many) // 3], dose.nearest)
    if (third[quiet], third[firing]) != (0.0, 1.0):
        assert not complaints(dose, many, dose.nearest)


@pytest.mark.parametrize("dose", DOSES, ids=lambda dose: dose.name)
def test_the_rule_looks_at_no_dose_as_well(dose: Dose) -> None:
    """A rule that could not look is quiet for the wrong reason."""
    assert not not_looked(dose, dose.multiples[0])
    assert dose.value(2.0) != dose.value(0.5) or dose.firing == (4.0,)


def test_each_limit_has_a_dose_or_a_reason_why_not() -> None:
    """A rule that comes anew, or gets another limit, fails here until it is dosed."""
    assert not not_dosed_yet()
    assert not [name for name in undosed() if not {name, name.split()[0]} & set(WITHOUT)]


def test_reasons_are_for_limits_that_are_there_and_have_no_dose() -> None:
    known = {f"{rule.code} {field.name}" for rule in RULES for field in thresholds_of(rule)}
    assert not {name for name in WITHOUT if " " in name} - known
    assert not {name for name in WITHOUT if " " not in name} - {name.split()[0] for name in known}
    assert not set(WITHOUT) & {name for dose in DOSES for name in (dose.code, f"{dose.code} {dose.limit}")}


def test_exchanges_that_took_no_time_are_not_measured() -> None:
    """Of nothing no part is hidden: the rule says so instead of failing."""
    dose = next(dose for dose in DOSES if dose.name == "COM001 warn_share")
    never = dosed_late.exchanging(0.0, 0)
    tables = [StepTable({**table.columns, "exchange_ns": 0 * table.columns["exchange_ns"]}) for table in never.steps]
    still = dataclasses.replace(dose, build=lambda share, seed: dataclasses.replace(never, steps=tuple(tables)))
    assert "took no time at all" in not_looked(still, 0.0)


# -- healthy loops


def alarms(run: Run) -> set[str]:
    return {
        finding.code
        for finding in diagnose(run).findings
        if finding.severity is not Severity.INFO and finding.family is not Family.EXPERIMENT
    }


def rates(build: Callable[[int], Run | TrialResult], seeds: range) -> tuple[dict[str, float], float]:
    """How often each rule alarms, and how often any does."""
    seen: Counter[str] = Counter()
    runs = 0
    for seed in seeds:
        built = build(seed)
        found = alarms(run_of(built) if isinstance(built, TrialResult) else built)
        seen.update(found)
        runs += bool(found)
    return {code: count / len(seeds) for code, count in seen.items()}, runs / len(seeds)


HEALTHY: dict[str, Callable[[int], Run | TrialResult]] = {
    "cpu": healthy_on_cpu,
    "cpu-short": lambda seed: healthy_on_cpu(seed, steps=30),
    "cpu-long": lambda seed: healthy_on_cpu(seed, steps=600),
    "gpu": healthy_on_gpu,
    "gpu-short": lambda seed: healthy_on_gpu(seed, steps=30),
    "robbed": robbed,
    "flat-sweep": lambda seed: past_the_peak(0.0, seed, repeats=1),
    "sentinels": lambda seed: sentinels(0.0, seed, count=6),
    "ranks": lambda seed: ranks(seed, 0.002 * abs(_late(seed))),
}


def _late(seed: int) -> Float64:
    return np.random.default_rng((seed, 67)).standard_normal((4, 60))


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_loops_are_quiet(name: str) -> None:
    each, any_rule = rates(HEALTHY[name], SEEDS)
    assert any_rule <= MOST_QUIET, each


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_many_healthy_loops_are_quiet(name: str) -> None:
    each, any_rule = rates(HEALTHY[name], range(SEEDS.stop, MANY))
    assert any_rule <= MOST_QUIET, each


def test_a_loop_among_others_is_told_from_one_that_works_between_its_phases() -> None:
    """15 % of a robbed loop's time lies outside of its phases, in some steps; a slow loop has it in every step."""
    assert "HST006" not in alarms(run_of(robbed(3)))
    assert "HST006" in alarms(run_of(loop(3, {Phase.OTHER: 0.02})))


def test_the_table_shows_what_was_tried() -> None:
    lines = table({"A limit": {0.0: 0.0, 2.0: 0.95}})
    assert lines[-1] == "| A limit | 0% |  | 95% |  |"


# -- doses in real trainings: the arithmetic


@pytest.mark.parametrize(
    ("multiple", "aimed", "reached", "bit"),
    [
        (0.0, 0.0, 0.02, True),  # a control of 2 % where 10 % warns
        (0.0, 0.0, 0.08, False),
        (0.5, 0.05, 0.02, True),
        (0.5, 0.05, 0.08, False),  # nearer to the limit than to its half
        (2.0, 0.20, 0.14, True),
        (2.0, 0.20, 0.12, False),
        (4.0, 0.40, 0.90, True),
    ],
)
def test_a_dose_that_missed_says_nothing(multiple: float, aimed: float, reached: float, bit: bool) -> None:
    assert real_doses._bit(multiple, aimed, reached, 0.1) is bit


def test_what_makes_a_share_comes_from_the_controls_step() -> None:
    """A step of 0.1 s with 2 ms of waiting: with x more, (2 + x) / (100 + x) is a fifth at x = 22.5 ms."""
    run = run_of(trial_of(data_wait=0.002, forward=0.098))
    more = real_doses.more_s(0.2, Seen(run, diagnose(run)), Phase.DATA_WAIT)
    assert more == pytest.approx(0.0225)


@pytest.mark.parametrize("series", real_doses.REAL_DOSES, ids=lambda series: series.name)
def test_a_series_names_a_limit_that_is_there(series: real_doses.Series) -> None:
    assert series.threshold > 0
