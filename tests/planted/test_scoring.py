"""The benchmark's arithmetic, on rows made by hand and on plants in made-up records."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks import diagnosis as benchmark
from benchmarks.other_verdicts import thresholds
from perf_diagnostics.testing import run_of, throughput_sweep, trial_of
from tests.planted.bench import Workbench
from tests.planted.plant import Plant, Records

ROW = benchmark.Row(
    plant="one",
    number="1",
    real=True,
    seed=0,
    healthy=False,
    inert="",
    verdict="INP001",
    right=True,
    abstained=False,
    complaints=(),
    false_alarms=(),
    control_alarms=(),
    confidence=0.7,
    predicted=(0.2, 0.8),
    realised=0.5,
    harmful=False,
    inside=True,
    others={"TraceML": None, "fixed thresholds": "nothing"},
    others_right={"TraceML": None, "fixed thresholds": False},
    others_alarm={"TraceML": None, "fixed thresholds": False},
)


def test_rates_leave_out_what_is_inert_and_what_was_not_asked() -> None:
    wrong = dataclasses.replace(ROW, plant="two", verdict=None, right=False, abstained=True, confidence=None)
    inert = dataclasses.replace(wrong, plant="three", inert="did nothing")
    healthy = dataclasses.replace(
        ROW, plant="four", healthy=True, right=None, control_alarms=None, false_alarms=("STB002",), inside=None
    )
    scores = benchmark.summary([ROW, wrong, inert, healthy])
    assert scores["top_cause_right"] == {"hits": 1, "of": 2, "share": 0.5}
    assert scores["abstained"]["hits"] == 1
    assert scores["quiet_controls"] == {"hits": 2, "of": 3, "share": 2 / 3}  # two controls, and the alarm of the fourth
    assert scores["inert"] == ["three 0: did nothing"]
    assert scores["reliability"] == [{"from": 0.7, "to": 0.85, "n": 1, "stated": 0.7, "right": 1.0}]
    assert scores["others"]["fixed thresholds"]["ours_on_the_same_rows"]["share"] == 0.5
    assert "50% (1 of 2)" in benchmark.markdown([ROW, wrong, inert, healthy], scores)


@pytest.mark.parametrize(
    ("low", "realised", "harmful"),
    [(0.4, 0.5, False), (0.4, 0.09, True), (0.0, -0.01, False), (0.0, -0.05, True)],  # a quarter of 0.4 is 0.1
)
def test_harm_is_a_loss_or_a_quarter_of_what_was_sure(
    low: float, realised: float, harmful: bool, tmp_path: Path
) -> None:
    plant = waiting()
    finding = Workbench(tmp_path).see(plant.faulty).diagnosis.findings[0]
    won = dataclasses.replace(finding.recoverable, low=low)
    assert benchmark._harmful(dataclasses.replace(finding, recoverable=won), realised) is harmful


def waiting() -> Plant:
    return Plant(
        name="waiting",
        number="1",
        says="60 % of a step is waiting",
        dose="0.6",
        faulty=Records(lambda seed: run_of(trial_of(data_wait=0.6, forward=0.4, noise=0.01, seed=seed))),
        control=Records(lambda seed: run_of(trial_of(data_wait=0.0, forward=0.4, noise=0.01, seed=seed))),
        expected=("INP001",),
        top=("INP001",),
    )


def test_a_plant_is_scored_with_what_others_say(tmp_path: Path) -> None:
    row = benchmark.scored(waiting(), Workbench(tmp_path), 0)
    assert row.right and row.verdict == "INP001" and not row.control_alarms and not row.complaints
    assert row.others["fixed thresholds"] == "data loading over 30 %" and row.others_right["fixed thresholds"]


def test_fixed_thresholds_go_by_their_order() -> None:
    assert thresholds(run_of(trial_of(forward=0.5, backward=0.4))).says.startswith("compute dominates")
    assert thresholds(throughput_sweep({8: 100, 16: 200})).says == "small-batch inefficiency"
    assert thresholds(throughput_sweep({8: 200, 16: 100})).says == "large-batch inefficiency"
    # What lies in none of its phases is in none of its sums.
    assert thresholds(run_of(trial_of(forward=0.2, other=0.8))).says.startswith("compute dominates")
    assert thresholds(run_of(trial_of(forward=0.5, optimizer=0.5))).says == "nothing"
    assert thresholds(run_of(trial_of(forward=1.0, noise=0.5))).families == ("EXP", "PWR")


def test_an_unknown_plant_is_named() -> None:
    with pytest.raises(SystemExit, match="no plant 'nothing'"):
        benchmark.chosen(["nothing"], made_up=False)
    assert all(not plant.real for plant in benchmark.chosen([], made_up=True))
