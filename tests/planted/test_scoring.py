"""The benchmark's arithmetic, on rows made by hand and on plants in made-up records."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks import diagnosis, scores
from benchmarks.calibration import rows_in
from benchmarks.other_verdicts import thresholds
from benchmarks.progress import Progress
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.records import Outcome, Run
from perf_diagnostics.testing import run_of, throughput_sweep, trial_of
from tests.planted.bench import Turn, Workbench, mean_gain
from tests.planted.drawn import draw
from tests.planted.plant import Arm, Plant, Records, Script, Seen, Trials

ROW = scores.Row(
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
    summed = scores.summary([ROW, wrong, inert, healthy])
    assert summed["top_cause_right"] == {"hits": 1, "of": 2, "share": 0.5}
    assert summed["abstained"]["hits"] == 1
    assert summed["quiet_controls"] == {"hits": 2, "of": 3, "share": 2 / 3}  # two controls, and the alarm of the fourth
    assert summed["inert"] == ["three 0.0: did nothing"]
    (level,) = summed["reliability"]["designed"]
    assert (level["from"], level["to"], level["n"], level["stated"], level["right"]) == (0.6, 0.78, 1, 0.7, 1.0)
    assert summed["others"]["fixed thresholds"]["ours_on_the_same_rows"]["share"] == 0.5
    assert "50% (1 of 2)" in diagnosis.markdown([ROW, wrong, inert, healthy], summed)
    # 0.5 realised where 0.8 was the most that was predicted.
    assert summed["realised_of_predicted"]["INP"]["median"] == 0.625
    assert "| INP | 1 | 0.62 |" in diagnosis.markdown([ROW], scores.summary([ROW]))


def test_a_gain_on_the_border_is_told_apart() -> None:
    """0.19 is outside of 0.2 to 0.8; of its two turns, 0.15 and 0.23, one is inside."""
    row = dataclasses.replace(ROW, realised=0.19, turns=(0.15, 0.23), inside=False, disturbed=True)
    summed = scores.summary([row, ROW])
    assert (summed["gain_inside_prediction"]["hits"], summed["gain_inside_by_turns"]["hits"]) == (1, 2)
    assert summed["gain_inside_undisturbed"] == {"hits": 1, "of": 1, "share": 1.0}
    assert summed["disturbed"] == 1


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
    assert scores._harmful(dataclasses.replace(finding, recoverable=won), realised) is harmful


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
    (row,) = scores.scored(waiting(), Workbench(tmp_path), 0)
    assert row.right and row.verdict == "INP001" and not row.control_alarms and not row.complaints
    assert row.others["fixed thresholds"] == "data loading over 30 %" and row.others_right["fixed thresholds"]


def test_a_gain_is_held_against_the_advice_that_the_fix_follows(tmp_path: Path) -> None:
    seen = Workbench(tmp_path).see(waiting().faulty)
    first = seen.diagnosis.findings[0]
    assert first.code == "INP001"
    other = dataclasses.replace(first, code="COM001")
    both = dataclasses.replace(seen, diagnosis=dataclasses.replace(seen.diagnosis, findings=(first, other)))
    follows_other = dataclasses.replace(waiting(), tried=("COM001",))
    assert scores._followed(waiting(), first, both) is first
    assert scores._followed(follows_other, first, both) is other
    assert scores._followed(follows_other, other, both) is other
    assert scores._followed(follows_other, first, seen) is None  # nobody advised what the fix is: nothing was predicted


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
    rows = scores.scored(three_arms(), Called(tmp_path), 0)
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
        diagnosis.chosen(["nothing"], made_up=False)
    assert all(not plant.real for plant in diagnosis.chosen([], made_up=True))


def test_a_drawn_situation_is_a_plant_like_any_other() -> None:
    drawn = draw(2, 7)
    assert diagnosis.chosen([drawn[1].name], made_up=False, drawn=drawn) == [drawn[1]]


def test_drawn_trainings_need_the_repositorys_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="from the repository's root"):
        diagnosis.main(["--parts", "drawn", "--drawn", "1", "--output", str(tmp_path / "out")])


def test_an_arm_that_broke_off_has_no_gain() -> None:
    whole, broken = run_of(trial_of(forward=0.1)), run_of(trial_of(steps=0, outcome=Outcome.CRASHED))
    seen, nothing = Seen(whole, diagnose(whole)), Seen(broken, diagnose(broken))
    assert Turn(seen, None, nothing).gain is None and Turn(nothing, None, seen).gain is None


def test_a_plant_that_breaks_is_named_and_the_next_one_is_scored(tmp_path: Path) -> None:
    def breaks(seed: int) -> Run:
        raise RuntimeError("it ended with 1")

    bad = dataclasses.replace(waiting(), name="bad", faulty=Records(breaks))
    scoring = diagnosis.Scoring(tmp_path, Workbench(tmp_path / "runs"), scores.OTHERS)
    scoring.plants([(bad, 0), (waiting(), 0)], Progress(0, lambda: 0))
    assert [row.plant for row in scoring.rows] == ["waiting"] and scoring.broken == ["bad, seed 0: it ended with 1"]
    scoring.write()
    assert "- bad, seed 0: it ended with 1" in (tmp_path / "diagnosis.md").read_text()
    assert [row.plant for row in rows_in(tmp_path)] == ["waiting"]


def test_runs_that_are_kept_are_not_missing(tmp_path: Path) -> None:
    """Three arms run twice; of an arm of three batch sizes each counts."""
    bench = Workbench(tmp_path, keep=True)
    assert bench.missing(three_arms(), 0) == 6 and bench.missing(waiting(), 0) == 0
    done = bench._place(three_arms().control, 0, "p 1")
    done.mkdir()
    (done / "done").touch()
    assert bench.missing(three_arms(), 0) == 5 and bench.missing(three_arms(), 1) == 6
    sweep = dataclasses.replace(three_arms(), faulty=Trials(batch_sizes=(1, 2, 4)), control=None, fix=None)
    assert bench.missing(sweep, 0) == 6
