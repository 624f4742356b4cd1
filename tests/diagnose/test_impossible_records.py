"""Records that no instrument can have written: no crash, no warning, and no conclusion from the impossible number."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from perf_diagnostics.diagnose import diagnose, diagnosis_to_json
from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.facts.possible import NEVER_ZERO
from perf_diagnostics.diagnose.rules.hst006_time_outside_phases import TimeOutsidePhases
from perf_diagnostics.diagnose.rules.inp004_bursty_loader import BurstyLoader
from perf_diagnostics.diagnose.rules.opt001_optimizer_heavy import optimizer_floor_s
from perf_diagnostics.records import COLUMNS, QUANTITIES, SERIES, Series
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_trial, clear, facts_of, found, missing

#: A trial on each kind of device in which every rule that can has something to look at.
FACTS = {"threads": 2, "cpu_count": 4, "num_workers": 2, "optimizer": "AdamW", "device_name": "NVIDIA A100-SXM4-80GB"}
TRIAL = {"forward": 0.2, "backward": 0.4, "optimizer": 0.3, "data_wait": 0.1, "steps": 60, "facts": FACTS}


def diagnosed(**trial):
    """The diagnosis of one trial, which must be JSON without NaN; pytest makes errors of warnings."""
    diagnosis = diagnose(run_of(trial_of(**TRIAL | trial)))
    json.dumps(diagnosis_to_json(diagnosis), allow_nan=False)
    return diagnosis


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_no_quantity_of_zero_breaks_a_diagnosis(device):
    for quantity in QUANTITIES:
        diagnosed(device=device, quantities=dict.fromkeys(QUANTITIES, 60.0) | {quantity: 0.0})


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_no_value_of_all_quantities_and_series_breaks_a_diagnosis(device, value):
    times = np.arange(60) * 1_000_000_000
    series = [Series(name, unit, "made up", times, np.full(60, value)) for name, (unit, _) in SERIES.items()]
    columns = {"start_ns": times}
    diagnosed(device=device, quantities=dict.fromkeys(QUANTITIES, value), series=series, columns=columns)
    sound = dict.fromkeys(QUANTITIES, 60.0) | {"steps_began_s": 0.0}
    diagnosed(device=device, quantities=sound, series=series, columns=columns)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf])
def test_no_value_of_a_column_breaks_a_diagnosis(value):
    for name, column in COLUMNS.items():
        if column.dtype == "float64" or (column.dtype == "int64" and math.isfinite(value)):
            some = np.where(np.arange(60) % 7 == 3, value, 5)
            diagnosed(device="cuda:0" if "device" in name else "cpu", columns={name: some})
            diagnosed(device="cuda:0", columns={name: value})


@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_no_value_of_a_fact_breaks_a_diagnosis(value):
    for name in (*FACTS, "cpu_window_s", "prefetch_factor", "recomputed_flops_share", "loss_scale_before"):
        diagnosed(facts=FACTS | {name: value}, device="cuda:0", settings={"precision": "float16"})


@pytest.mark.parametrize("name", sorted(NEVER_ZERO & set(QUANTITIES)))
def test_nothing_is_a_share_of_a_capacity_of_zero(name):
    with pytest.raises(NotMeasured, match=f"{name} was recorded as 0"):
        facts_of(quantities={name: 0.0}).quantity(name)
    assert facts_of(quantities={name: 1.0}).quantity(name) == 1.0


def test_a_measured_zero_of_what_may_be_zero_stays_one():
    assert facts_of(quantities={"alloc_retries": 0.0}).quantity("alloc_retries") == 0.0
    assert facts_of(facts={"num_workers": 0}).number("num_workers") == 0.0


def test_a_difference_may_be_negative():
    assert facts_of(quantities={"probe_overhead_s": -1e-7}).quantity("probe_overhead_s") == -1e-7
    with pytest.raises(NotMeasured, match="recorded as -1"):
        facts_of(quantities={"alloc_retries": -1.0}).quantity("alloc_retries")


@pytest.mark.parametrize(
    ("wall", "says"),
    [
        (np.where(np.arange(60) == 10, -5_000_000, 1_000_000_000), "1 of 60 steps has a negative wall time"),
        (np.zeros(60), "every step has a wall time of 0"),
        (np.full(60, 2**60), "more than 292 years"),
    ],
)
def test_a_trial_by_an_impossible_clock_is_left_out(wall, says):
    diagnosis = diagnosed(columns={"wall_ns": wall})

    assert diagnosis.verdict is None
    assert [finding.code for finding in diagnosis.findings] == ["EXP003"]
    assert says.lower() in diagnosis.no_verdict_because.lower()


def test_other_trials_of_the_run_are_concluded_from():
    broken = trial_of(**TRIAL | {"columns": {"wall_ns": -1}, "batch_size": 16})
    diagnosis = diagnose(run_of(trial_of(**TRIAL | {"data_wait": 0.5}), broken))

    assert diagnosis.verdict.code == "INP001"


def test_infinite_times_are_lost_ones_and_an_infinite_loss_is_a_loss():
    columns = {"device_forward_ns": np.where(np.arange(60) == 3, np.inf, 2e8), "loss": math.inf}
    facts = TrialFacts.of(trial_of(**TRIAL | {"device": "cuda:0", "columns": columns}))

    assert math.isnan(facts.column("device_forward_ns")[3])
    assert facts.infinite_losses == 60


def test_an_update_of_no_parameter_has_no_floor():
    with pytest.raises(NotMeasured, match="no parameter is trained"):
        optimizer_floor_s(facts_of(facts=FACTS, quantities={"trainable_parameters": 0, "memory_bandwidth": 1e10}))


@pytest.mark.parametrize(
    ("workers", "steps", "epoch"),
    # 20 steps are less than three rounds of 8 workers; passes of 5 batches never come to the turn of the sixth.
    [(8, 20, 0), (8, 200, np.arange(200) // 5)],
)
def test_workers_that_had_no_three_turns_are_not_compared(workers, steps, epoch):
    trial = {"steps": steps, "facts": {"num_workers": workers}, "columns": {"epoch": epoch}, "data_wait": 0.2}

    assert "fewer than 3 rounds" in missing(ask_trial(BurstyLoader(), **trial)).why
    clear(ask_trial(BurstyLoader(), **trial | {"facts": {"num_workers": 2}}))


@pytest.mark.parametrize("unmarked", ["forward", "backward", "optimizer"])
def test_time_of_a_phase_that_is_not_marked_is_not_called_something_else(unmarked):
    # 70 % of the step lie in no marked phase: all of that may be the unmarked one.
    trial = {"forward": 0.1, "backward": 0.1, "optimizer": 0.1, "other": 0.7, "without": [f"host_{unmarked}_ns"]}

    assert "does not mark its" in missing(ask_trial(TimeOutsidePhases(), **trial)).why
    assert found(ask_trial(TimeOutsidePhases(), **trial | {"without": ["host_transfer_ns"]}))


def test_more_padding_than_tokens_is_no_share():
    with pytest.raises(NotMeasured, match="more padding"):
        _ = facts_of(columns={"tokens": 10, "padding_tokens": 20}).padding_share
    assert facts_of(columns={"tokens": 10, "padding_tokens": 10}).padding_share.value == 1.0
