"""The benchmark's arithmetic, on rows made by hand and on plants in made-up records."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks import diagnosis as benchmark
from benchmarks.other_verdicts import thresholds
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.testing import run_of, throughput_sweep, trial_of
from tests.planted.bench import Turn, Workbench, mean_gain
from tests.planted.plant import Arm, Plant, Records, Script, Seen

ROW = benchmark.Row(
    plant="one",
    number="1",
    real=True,
    seed=0,
    turn=0,
    healthy=False,
    disturbed=False,
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
    turns=(0.48, 0.52),
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
    assert scores["inert"] == ["three 0.0: did nothing"]
    assert scores["reliability"] == [{"from": 0.7, "to": 0.85, "n": 1, "stated": 0.7, "right": 1.0}]
    assert scores["others"]["fixed thresholds"]["ours_on_the_same_rows"]["share"] == 0.5
    assert "50% (1 of 2)" in benchmark.markdown([ROW, wrong, inert, healthy], scores)
    # 0.5 realised where 0.8 was the most that was predicted.
    assert scores["realised_of_predicted"] == {"INP": {"n": 1, "least": 0.625, "median": 0.625, "most": 0.625}}
    assert "| INP | 1 | 0.62 |" in benchmark.markdown([ROW], benchmark.summary([ROW]))


def test_a_gain_on_the_border_is_told_apart() -> None:
    """0.19 is outside of 0.2 to 0.8; of its two turns, 0.15 and 0.23, one is inside."""
    row = dataclasses.replace(ROW, realised=0.19, turns=(0.15, 0.23), inside=False, disturbed=True)
    scores = benchmark.summary([row, ROW])
    assert (scores["gain_inside_prediction"]["hits"], scores["gain_inside_by_turns"]["hits"]) == (1, 2)
    assert scores["gain_inside_undisturbed"] == {"hits": 1, "of": 1, "share": 1.0}
    assert scores["disturbed"] == 1


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
    (row,) = benchmark.scored(waiting(), Workbench(tmp_path), 0)
    assert row.right and row.verdict == "INP001" and not row.control_alarms and not row.complaints
    assert row.others["fixed thresholds"] == "data loading over 30 %" and row.others_right["fixed thresholds"]


class Called(Workbench):
    """A bench that only notes what it was asked for; the seconds of a sample are what the arm's name says."""

    def see(self, arm: Arm, seed: int = 0, *, turn: str = "") -> Seen:
        assert isinstance(arm, Script)
        self.__dict__.setdefault("order", []).append(f"{arm.fault} {turn}")
        took_s = {"none": 0.1, "slow": 0.4, "mended": 0.2}[arm.fault]
        run = run_of(trial_of(forward=took_s, batch_size=1))
        return Seen(run, diagnose(run))


def three_arms() -> Plant:
    return Plant(
        name="p",
        number="1",
        says="",
        dose="",
        faulty=Script(fault="slow"),
        control=Script(fault="none"),
        fix=Script(fault="mended"),
        top=("CMP002",),
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_arms_run_there_and_back_again(seed: int, tmp_path: Path) -> None:
    bench = Called(tmp_path)
    bench.abba(three_arms(), seed)
    order = [name.split()[0] for name in bench.__dict__["order"]]
    assert order == order[::-1] and order[: len(order) // 2] == (
        ["none", "slow", "mended"] if seed == 0 else ["mended", "slow", "none"]
    )
    assert {name.split(maxsplit=1)[1] for name in bench.__dict__["order"]} == {"p 0", "p 1"}  # two processes an arm


def test_a_gain_is_that_of_both_turns(tmp_path: Path) -> None:
    rows = benchmark.scored(three_arms(), Called(tmp_path), 0)
    assert [row.turn for row in rows] == [0, 1]
    assert rows[0].realised == pytest.approx(0.5)  # 0.4 s a sample becomes 0.2
    assert rows[0].turns == (pytest.approx(0.5), pytest.approx(0.5))


def test_the_mean_of_two_gains_is_taken_of_what_is_left(tmp_path: Path) -> None:
    bench = Called(tmp_path)
    quarter, half = (Turn(bench.see(Script(fault=a)), None, bench.see(Script(fault=b)))
                     for a, b in (("slow", "none"), ("slow", "mended")))  # fmt: skip
    assert mean_gain((quarter, half)) == pytest.approx(1 - (0.25 * 0.5) ** 0.5)
    assert mean_gain((Turn(quarter.faulty),)) is None


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
