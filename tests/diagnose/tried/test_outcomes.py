"""From pairs of trials to verdicts, and from verdicts to what the diagnosis says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import pytest

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.engine import diagnose, diagnosis_to_json
from perf_diagnostics.diagnose.finding import Diagnosis, Finding, Remedy, Severity, Share, Tried, Trying
from perf_diagnostics.diagnose.rule_parts.experiments import About, Experiments
from perf_diagnostics.diagnose.tried.outcomes import tried_of, with_tried
from perf_diagnostics.records import OWN_TRAINING
from perf_diagnostics.testing import trial_of
from tests.diagnose.tried_runs import (
    CACHED,
    GROUP,
    STILL_COMPILING,
    WORKERS,
    experiment,
    failed,
    measured,
    tried,
    unsettled,
    waiting_run,
)

#: Five pairs whose changed arm scatters by about 1 % around these times.
HALF = (0.50, 0.505, 0.495, 0.50, 0.50)
SAME = (1.0, 1.005, 0.995, 1.003, 0.997)
SLOWER = (1.2, 1.21, 1.19, 1.2, 1.2)
NOISY = (0.7, 1.4, 0.9, 1.1, 0.8)

LAYOUT = Remedy("Store filters and images channels last.", {"channels_last": True})


def only(experiments: Experiments) -> Tried:
    (one,) = tried_of(experiments)
    return one


def finding(diagnosis: Diagnosis, code: str = "INP001") -> Finding:
    return next(item for item in diagnosis.findings if item.code == code)


def test_half_the_time_is_confirmed_with_its_interval() -> None:
    one = only(tried((experiment(WORKERS), HALF)))
    assert one.verdict is Trying.CONFIRMED and one.pairs == 5
    assert one.gain.value == pytest.approx(0.5, abs=0.002)
    assert 0.48 < one.gain.low < 0.5 < one.gain.high < 0.52
    assert one.as_predicted  # predicted 0.1 to 0.6
    # 1.0 s and 0.5 s a step of 8 samples.
    assert one.base_s == pytest.approx(1.0 / 8) and one.new_s == pytest.approx(0.5 / 8, rel=0.01)


@pytest.mark.parametrize(
    ("times", "verdict"),
    [(SAME, Trying.REFUTED), (SLOWER, Trying.REFUTED), (NOISY, Trying.INCONCLUSIVE)],
)
def test_what_does_nothing_is_never_confirmed(times: tuple[float, ...], verdict: Trying) -> None:
    one = only(tried((experiment(WORKERS), times)))
    assert one.verdict is verdict
    assert one.as_predicted is (0.1 <= one.gain.value <= 0.6)


def test_a_slower_change_has_a_negative_gain() -> None:
    assert only(tried((experiment(WORKERS), SLOWER))).gain.value == pytest.approx(-0.2, abs=0.005)


@pytest.mark.parametrize("pairs", [1, 2])
def test_few_pairs_give_no_verdict_and_say_how_many_it_takes(pairs: int) -> None:
    one = only(tried((experiment(WORKERS), HALF[:pairs])))
    assert one.verdict is Trying.TOO_EARLY and f"{pairs} pair" in one.why and "needs 3" in one.why
    assert "`perf-diagnostics confirm RUN` runs those that are missing" in one.why
    assert one.as_predicted is None  # 50 % lies in the predicted 10 to 60 %, by chance or not
    assert only(tried((experiment(WORKERS), HALF[:3]))).as_predicted


def test_what_goes_on_elsewhere_is_said_as_it_is_called_there() -> None:
    begun = dataclasses.replace(tried((experiment(WORKERS), HALF[:1])), again="profiler.confirm()")
    assert only(begun).why.endswith("`profiler.confirm()` runs those that are missing")


def test_what_goes_on_in_a_script_needs_it_named_again() -> None:
    begun = tried((experiment(WORKERS), HALF[:1]))
    script = dataclasses.replace(waiting_run(), notes=(OWN_TRAINING,))
    go_on = "`perf-diagnostics confirm RUN --rerun SCRIPT ARGUMENTS` runs those that are missing"
    assert go_on in finding(diagnose(script, experiments=begun)).summary
    (sweep,) = diagnose(waiting_run(), experiments=begun).tried
    assert "--rerun" not in sweep.why


def test_what_fails_after_a_pair_is_not_to_be_gone_on_with() -> None:
    plan = experiment(WORKERS)
    _, new = plan.pair(1)
    begun = tried((plan, HALF[:1]))
    one = only(dataclasses.replace(begun, results=(*begun.results, failed(new, "no memory left"))))
    assert one.verdict is Trying.TOO_EARLY and "no memory left" in one.why and "confirm" not in one.why


def test_trials_of_too_few_steps_are_no_pair_and_say_so() -> None:
    plan = experiment(WORKERS)
    short = [dataclasses.replace(trial_of(forward=1.0, steps=2), trial=trial) for trial in plan.pair(0)]
    one = only(Experiments(planned=(plan,), results=tuple(short)))
    assert (one.verdict, one.gain) == (Trying.NOT_TRIED, None) and "fewer than 3 steps" in one.why


def test_what_could_not_be_run_says_why() -> None:
    plan = experiment(WORKERS)
    base, new = plan.pair(0)
    one = only(Experiments(planned=(plan,), results=(measured(base, 1.0), failed(new, "no such worker"))))
    assert one.verdict is Trying.NOT_TRIED and one.gain is None
    assert "no such worker" in one.why


def test_before_the_first_pair_nothing_is_known() -> None:
    one = only(Experiments(planned=(experiment(WORKERS),)))
    assert (one.verdict, one.gain, one.pairs) == (Trying.NOT_TRIED, None, 0)


def test_a_change_of_the_batch_says_that_it_changes_training() -> None:
    assert only(tried((experiment({"batch_size": 16}), HALF))).changes_training
    assert not only(tried((experiment(WORKERS), HALF))).changes_training


def unsettled_first(pairs: int, times: Sequence[float] = HALF, *, of: int = 5) -> Experiments:
    """Experiments of which the changed trials of the first so many pairs had not settled."""
    plan = experiment(WORKERS, pairs=of)
    begun = tried((plan, times))
    first = {plan.pair(index)[1].id for index in range(pairs)}
    changed = [unsettled(one.trial, 0.5) if one.trial.id in first else one for one in begun.results]
    return dataclasses.replace(begun, results=tuple(changed))


def test_pairs_that_had_not_settled_do_not_count() -> None:
    two = only(unsettled_first(2, (0.9, 0.9, 0.5, 0.505, 0.495)))
    assert two.verdict is Trying.CONFIRMED and two.pairs == 3 and two.gain.value == pytest.approx(0.5, abs=0.005)
    assert two.why == f"2 pairs had not settled when measured (of one trial its warm-up was {STILL_COMPILING})"
    three = only(unsettled_first(3))
    assert (three.verdict, three.gain, three.as_predicted, three.pairs) == (Trying.NOT_SETTLED, None, None, 2)
    assert three.why.startswith("3 pairs had not settled when measured (of one trial its warm-up was given up after 43")
    assert three.why.endswith("; `perf-diagnostics confirm RUN` tries it anew after a longer warm-up")


def test_while_pairs_are_to_come_it_is_too_early_to_say_whether_enough_settle() -> None:
    one = only(unsettled_first(1, HALF[:1]))
    assert (one.verdict, one.gain, one.pairs) == (Trying.TOO_EARLY, None, 0)
    assert one.why.startswith("0 pairs ran whole and settled, and a verdict needs 3; ")
    assert only(unsettled_first(2, HALF[:2])).verdict is Trying.TOO_EARLY
    assert only(unsettled_first(3, HALF[:3])).verdict is Trying.NOT_SETTLED  # two are left
    assert only(unsettled_first(1, HALF[:1], of=1)).verdict is Trying.NOT_SETTLED


def test_of_what_was_tried_anew_the_last_counts() -> None:
    anew = dataclasses.replace(experiment(WORKERS, number=1), says="Try it anew.")
    first, later = unsettled_first(3), tried((anew, HALF))
    both = Experiments(planned=(*first.planned, *later.planned), results=(*first.results, *later.results))
    one = only(both)
    assert (one.says, one.verdict, one.pairs) == ("Try it anew.", Trying.CONFIRMED, 5)


def test_what_had_not_settled_leaves_the_finding_and_its_prediction() -> None:
    diagnosis = diagnose(waiting_run(), experiments=unsettled_first(5))
    after = finding(diagnosis)
    assert not after.recoverable.measured and after.severity is not Severity.INFO
    assert "Tried, but not settled: num_workers=2, persistent_workers=True. 5 pairs had not settled" in after.summary
    (told,) = diagnosis_to_json(diagnosis)["tried"]
    assert (told["verdict"], told["gain_share"]) == ("not settled", None)


# -- what the diagnosis makes of it


def test_a_confirmed_remedy_replaces_the_prediction() -> None:
    run = waiting_run()
    before = finding(diagnose(run))
    assert not before.recoverable.measured
    diagnosis = diagnose(run, experiments=tried((experiment(WORKERS), HALF)))
    after = finding(diagnosis)
    assert after.recoverable.measured
    assert after.recoverable.value == pytest.approx(0.5, abs=0.002)
    assert after.confidence == 0.95
    assert "num_workers=2" in after.summary and "5 pairs" in after.summary
    assert diagnosis.verdict.code == "INP001" and "Tried" in diagnosis.verdict.summary
    assert diagnosis.tried[0].verdict is Trying.CONFIRMED


def test_the_confirmed_remedy_comes_first_and_a_refuted_one_is_not_advised() -> None:
    run = waiting_run()
    advised = finding(diagnose(run)).remedies[0].change
    diagnosis = diagnose(run, experiments=tried((experiment(advised), SLOWER)))
    assert all(remedy.change != advised for remedy in finding(diagnosis).remedies)
    diagnosis = diagnose(run, experiments=tried((experiment(advised), HALF)))
    assert finding(diagnosis).remedies[0].change == advised


def test_a_refuted_finding_makes_no_verdict() -> None:
    run = waiting_run()
    diagnosis = diagnose(run, experiments=tried((experiment(WORKERS), SLOWER)))
    after = finding(diagnosis)
    assert after.severity is Severity.INFO
    assert (after.recoverable.value, after.recoverable.high) == (0.0, 0.0)  # it costs time, so it wins none
    assert "Tried without success" in after.summary
    assert diagnosis.verdict is None or diagnosis.verdict.code != "INP001"


def test_what_is_undecided_leaves_the_prediction_as_it_was_put_down_and_says_so() -> None:
    run, plan = waiting_run(), experiment(WORKERS)
    before, after = finding(diagnose(run)), finding(diagnose(run, experiments=tried((plan, NOISY))))
    assert before.recoverable != plan.predicted  # the rules would predict something else by now
    assert (after.recoverable, after.severity) == (plan.predicted, before.severity)
    assert "Tried and undecided: num_workers=2" in after.summary and "in 5 pairs of trials." in after.summary


def test_an_info_that_advises_the_same_change_shows_no_second_prediction() -> None:
    run = waiting_run()
    before = diagnose(run)
    advised = finding(before).remedies[0].change
    assert finding(before, "INP003").remedies[0].change == advised
    assert finding(before, "INP003").recoverable != finding(before).recoverable
    plan = experiment(advised)
    plan = dataclasses.replace(plan, about=(*plan.about, About("INP003", GROUP, Share(0.3, 0.2, 0.5))))
    diagnosis = diagnose(run, experiments=tried((plan, NOISY)))
    shown = [finding(diagnosis, code).recoverable for code in ("INP001", "INP003")]
    assert shown == [diagnosis.tried[0].predicted] * 2 == [Share(0.4, 0.1, 0.6)] * 2


def test_advice_left_open_promises_no_more_than_its_interval_leaves() -> None:
    run = waiting_run()
    about = experiment({"channels_last": True}, code="CMP011")
    near = tried((about, (0.97, 1.02, 0.96, 1.0, 0.95)))
    told = tried_of(near)[0]
    before = dataclasses.replace(
        finding(diagnose(run)), code="CMP011", recoverable=Share(0.15, 0.0, 0.3), remedies=(LAYOUT,)
    )
    (after,) = with_tried([Placed(before, GROUP, True)], [told])
    assert told.verdict is Trying.INCONCLUSIVE and 0 < told.gain.high < 0.2
    assert after.finding.recoverable == Share(pytest.approx(told.gain.value), 0.0, told.gain.high, measured=True)
    both = dataclasses.replace(before, remedies=(LAYOUT, Remedy("Or this.", {"threads": 1})))
    (open_still,) = with_tried([Placed(both, GROUP, True)], [told])
    assert open_still.finding.recoverable == told.predicted


def test_a_prediction_of_another_finding_is_not_taken_over() -> None:
    run = waiting_run()
    both = dataclasses.replace(experiment(WORKERS), about=(About("XYZ001", GROUP, Share(0.1, 0.1, 0.1)),))
    both = dataclasses.replace(both, about=(*both.about, *experiment(WORKERS).about))
    after = finding(diagnose(run, experiments=tried((both, NOISY))))
    assert after.recoverable == finding(diagnose(run)).recoverable


@pytest.mark.parametrize("pairs", [1, 2])
def test_of_too_few_pairs_no_gain_is_told(pairs: int) -> None:
    diagnosis = diagnose(waiting_run(), experiments=tried((experiment(WORKERS), HALF[:pairs])))
    words = finding(diagnosis).summary
    assert "too early to say what num_workers=2, persistent_workers=True wins" in words and "needs 3" in words
    assert "50 %" not in words  # what the pairs happened to win
    assert "undecided" not in words and not finding(diagnosis).recoverable.measured


def test_pairs_that_contradict_each_other_have_no_interval_worth_telling() -> None:
    # Logarithms of 0.01, 1 and 100: their interval spans hundreds of per cent.
    words = finding(diagnose(waiting_run(), experiments=tried((experiment(WORKERS), (0.01, 1.0, 100.0))))).summary
    assert "in 3 pairs of trials that differ too much" in words and "-" not in words.split("Tried and")[1]


def test_where_a_ceiling_wins_the_finding_stands_although_its_remedy_fails() -> None:
    diagnosis = diagnose(
        waiting_run(),
        experiments=tried((experiment(WORKERS), SLOWER), (experiment(CACHED, number=1), (0.45,) * 4 + (0.46,))),
    )
    after = finding(diagnosis)
    assert after.severity is not Severity.INFO and diagnosis.verdict.code == "INP001"
    assert "Tried without success" in after.summary


def test_a_ceiling_caps_what_is_predicted() -> None:
    run = waiting_run()
    before = finding(diagnose(run)).recoverable
    assert before.high > 0.5
    after = finding(diagnose(run, experiments=tried((experiment(CACHED), (0.9, 0.905, 0.895, 0.9, 0.9))))).recoverable
    assert not after.measured
    assert after.high == pytest.approx(0.1, abs=0.01)  # a perfect fix takes 0.9 s instead of 1.0 s
    assert after.low <= after.value <= after.high


def test_a_ceiling_that_wins_more_than_the_run_showed_decides() -> None:
    run = waiting_run(0.08)
    before = finding(diagnose(run))
    assert before.severity is Severity.INFO and before.recoverable.high < 0.2
    diagnosis = diagnose(run, experiments=tried((experiment(CACHED), (0.3, 0.302, 0.298, 0.3, 0.3))))
    after = finding(diagnosis)
    assert after.severity is Severity.CRITICAL and diagnosis.verdict.code == "INP001" and diagnosis.verdict.fault
    assert "wins 70 %" in after.summary and "more than this run let see" in after.summary
    assert after.recoverable.high == pytest.approx(0.7, abs=0.01) and not after.recoverable.measured
    assert after.recoverable.low == pytest.approx(0.2 * 0.7, abs=0.01)


def test_a_ceiling_that_wins_nothing_refutes_the_finding() -> None:
    diagnosis = diagnose(waiting_run(), experiments=tried((experiment(CACHED), SAME)))
    assert finding(diagnosis).severity is Severity.INFO


def test_a_ceiling_is_never_a_remedy() -> None:
    diagnosis = diagnose(waiting_run(), experiments=tried((experiment(CACHED), HALF)))
    assert all("ceiling" not in remedy.change for item in diagnosis.findings for remedy in item.remedies)
    assert diagnosis.tried[0].ceiling and diagnosis.tried[0].as_predicted is None


@pytest.mark.parametrize("elsewhere", [{"code": "OPT001"}, {"group": "synthetic on cuda:0"}])
def test_what_was_tried_elsewhere_changes_nothing_here(elsewhere: dict[str, str]) -> None:
    run = waiting_run()
    diagnosis = diagnose(run, experiments=tried((experiment(WORKERS, **elsewhere), HALF)))
    assert finding(diagnosis) == finding(diagnose(run))


def test_advice_that_leaves_the_training_as_it_is_is_preferred() -> None:
    diagnosis = diagnose(
        waiting_run(),
        experiments=tried((experiment({"batch_size": 16}), HALF), (experiment(WORKERS, number=1), (0.7,) * 5)),
    )
    assert finding(diagnosis).recoverable.value == pytest.approx(0.3)


def test_it_is_all_in_the_json() -> None:
    experiments = dataclasses.replace(tried((experiment(WORKERS), HALF)), seed=3)
    told = json.loads(json.dumps(diagnosis_to_json(diagnose(waiting_run(), experiments=experiments)), allow_nan=False))
    (one,) = told["tried"]
    assert one["verdict"] == "confirmed" and one["change"] == WORKERS and one["pairs"] == 5
    assert one["gain_low"] < one["gain_share"] < one["gain_high"]
    assert json.loads(json.dumps(diagnosis_to_json(diagnose(waiting_run()))))["tried"] == []
