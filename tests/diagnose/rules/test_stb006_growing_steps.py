"""STB006: steps that take longer and longer, where, at which lines, and what is said to help."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Finding, Severity
from perf_diagnostics.diagnose.rule_parts.against_growth import carries_graph
from perf_diagnostics.diagnose.rule_parts.growing_lines import growing_lines
from perf_diagnostics.diagnose.rules.stb006_growing_steps import GrowingSteps
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, Phase
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = GrowingSteps()
N = 300
LINE = np.linspace(0, 1, N)


def trial(*, steps=N, **seconds):
    """Steps whose phases take these s, each a number or one of each step, with 3 % of scatter in each phase."""
    rng = np.random.default_rng(9)
    given = {"forward": 0.05, "backward": 0.04, "optimizer": 0.01, "other": 0.0} | seconds
    times = {name: 1e9 * value * (1 + 0.03 * rng.standard_normal(steps)) for name, value in given.items()}
    columns = {f"host_{name}_ns": ns for name, ns in times.items() if name != "other"}
    return {"steps": steps, "columns": columns | {"wall_ns": sum(times.values())}}


def test_what_grows_outside_of_the_phases_is_told_with_what_it_costs():
    # 0.1 s of phases, and from 0.01 s to 0.11: 0.05 of 0.16 s above the first, 0.1 of the last 0.21.
    finding = found(ask_trial(RULE, **trial(other=0.01 + 0.1 * LINE)))
    assert finding.severity is Severity.WARNING
    lost = number(finding, "above the level of the first steps")
    assert lost.value == pytest.approx(100 * 0.05 / 0.16, rel=0.05)
    assert lost.low < 100 * 0.05 / 0.16 < lost.high
    assert number(finding, "grown, of the last steps").value == pytest.approx(100 * 0.1 / 0.21, rel=0.05)
    assert number(finding, "outside of all phases, more from step to step").value == pytest.approx(1e5 / 299, rel=0.05)
    assert finding.summary.startswith("The time outside of all phases grows with every step, by 3")
    assert finding.claims == {"other": pytest.approx(0.05 / 0.16, rel=0.05)}
    assert finding.recoverable.low < 0.05 / 0.16 < finding.recoverable.high + 0.02


def test_two_phases_that_grow_are_both_told_and_add_up():
    finding = found(ask_trial(RULE, **trial(forward=0.05 * (1 + LINE), backward=0.04 * (1 + 2 * LINE))))
    assert set(finding.claims) == {"forward", "backward"}
    # 0.025 and 0.04 of 0.1 + 0.065 s.
    assert number(finding, "above the level of the first steps").value == pytest.approx(100 * 0.065 / 0.165, rel=0.06)
    assert "so does that in the forward pass" in finding.summary


@pytest.mark.parametrize(
    "went",
    [
        {},
        {"other": 0.01 + 0.005 * LINE},  # 0.0025 of 0.1125 s
        {"other": np.where(LINE < 0.5, 0.01, 0.08)},
        {"other": 0.01 + 0.08 * (1 - np.exp(-6 * LINE))},
        {"other": 0.11 - 0.1 * LINE},
        {"other": np.where(np.arange(N) % 50 == 7, 0.5, 0.01)},
    ],
    ids=["steady", "little", "a new level", "fills up", "falls", "a rhythm"],
)
def test_what_does_not_grow_or_hardly_is_clear(went):
    clear(ask_trial(RULE, **trial(**went)))


def test_a_machine_that_slows_down_makes_no_growing_step_and_one_phase_alone_does():
    slower = 1 + 0.3 * LINE
    all_of_it = {"forward": 0.05 * slower, "backward": 0.04 * slower, "optimizer": 0.01 * slower}
    assert "no phase grows by itself" in clear(ask_trial(RULE, **trial(**all_of_it))).summary
    found(ask_trial(RULE, **trial(forward=0.05 * slower)))
    # To three times of what it was is no clock, even where nothing stays behind.
    found(ask_trial(RULE, **trial(**dict.fromkeys(("forward", "backward", "optimizer"), 0.03 * (1 + 2 * LINE)))))


def test_longer_batches_explain_longer_steps():
    longer = trial(forward=0.05 * (1 + LINE))
    longer["columns"]["tokens"] = (1000 * (1 + LINE)).astype(int)
    assert "length of the batch" in clear(ask_trial(RULE, **longer)).summary


def test_few_steps_cannot_tell():
    assert missing(ask_trial(RULE, **trial(steps=50, other=0.01 + 0.1 * np.linspace(0, 1, 50)))).signal == "steps"


# -- the lines

TRAIN = CodePlace(file="train.py", line=9, function="train", text="loss.backward()")
LOGS = CodePlace(file="train.py", line=20, function="train", text="json.dump(log, file)")
STAYS = CodePlace(file="train.py", line=22, function="train", text="print(step)")
SUMS = CodePlace(file="train.py", line=24, function="train", text="total = total + loss")


def with_looks(paths, **seconds):
    """Looks in ten stretches of the time; the steps' time fills them."""
    result = trial_of(**trial(**seconds))
    code = CodeSamples(
        places=(TRAIN, LOGS, STAYS, SUMS),
        paths=tuple(
            CodePath(phase=phase, places=(at,), looks=sum(course), course=tuple(course)) for phase, at, course in paths
        ),
        interval_s=0.025,
        rare_interval_s=0.1,
        cpu_s=0.01,
        stretch_s=float(result.steps[0].steady.wall_ns.sum()) / 9.5e9,
    )
    return TrialFacts.of(dataclasses.replace(result, code=code))


#: Of what is outside, one line grows and the other stays: 10 looks at either at first, then ever more at the one.
GROWING = [10 + 10 * at for at in range(10)]
OTHER = (("backward", 0, [100] * 10), ("other", 1, GROWING), ("other", 2, [10] * 10))


def test_the_line_that_takes_more_late_than_early_is_named_with_its_part_and_its_remedy():
    facts = with_looks(OTHER, other=0.02 + 0.1 * LINE)
    (line,) = growing_lines(facts, Phase.OTHER)
    assert line.line.place == LOGS
    # In the first third 60 of 90 looks, in the last 270 of 300: 0.9 x 0.1 s less 0.67 x 0.04, of 0.06 s more.
    assert line.part.value == pytest.approx(1.0, abs=0.1)
    finding = RULE.check(facts)
    assert isinstance(finding, Finding)
    assert [one.place for one in finding.lines] == [LOGS]
    assert number(finding, "part of the growth at train.py:20").low > 50
    assert "open the file to append" in finding.remedies[0].says and len(finding.remedies) == 1


def test_without_looks_over_the_time_no_line_is_named_and_the_phase_still_is():
    facts = with_looks([(phase, at, []) for phase, at, _ in OTHER], other=0.02 + 0.1 * LINE)
    assert growing_lines(facts, Phase.OTHER) == ()
    finding = RULE.check(facts)
    assert isinstance(finding, Finding) and finding.lines == () and finding.claims.keys() == {"other"}


def test_a_backward_that_grows_names_what_may_carry_its_graph():
    looks = (("backward", 0, GROWING), ("other", 2, [3] * 10), ("other", 3, [30] * 10))
    facts = with_looks(looks, backward=0.04 + 0.2 * LINE, other=0.02)
    assert carries_graph(facts) == SUMS
    finding = RULE.check(facts)
    assert isinstance(finding, Finding)
    assert "Look at train.py:24 in train (`total = total + loss`): it may carry the graphs" in finding.summary
    assert "detach()" in finding.remedies[0].says


def test_a_backward_that_grows_with_its_forward_has_more_to_do_and_carries_no_graph():
    looks = (("backward", 0, GROWING), ("forward", 2, GROWING), ("other", 3, [30] * 10))
    facts = with_looks(looks, forward=0.04 + 0.2 * LINE, backward=0.05 + 0.3 * LINE, other=0.02)
    finding = RULE.check(facts)
    assert isinstance(finding, Finding)
    assert "graphs" not in finding.summary and "Forward takes longer as well" in finding.remedies[0].says
    assert [one.place for one in finding.lines] == [STAYS]  # forward's


@pytest.mark.parametrize(
    ("text", "carries"),
    [
        ("total += loss", True),
        ("mean = 0.9 * mean + 0.1 * out.mean()", True),
        ("total += loss.item()", False),
        ("total = total + loss.detach()", False),
        ("step += 1", False),
        ("loss = first + second", False),
        ("for x in", False),
    ],
)
def test_what_adds_to_itself_with_its_graph_is_told_by_its_text(text, carries):
    code = CodeSamples(
        places=(dataclasses.replace(SUMS, text=text),),
        paths=(CodePath(phase="other", places=(0,), looks=30),),
        interval_s=0.025,
        rare_interval_s=0.1,
        cpu_s=0.0,
    )
    told = carries_graph(TrialFacts.of(dataclasses.replace(trial_of(), code=code)))
    assert (told is not None) is carries


def test_more_work_for_the_model_may_be_meant_so():
    """A curriculum of longer and longer sequences: forward and backward grow together."""
    meant = found(ask_trial(RULE, **trial(forward=0.05 * (1 + LINE), backward=0.04 * (1 + LINE))))
    assert meant.severity is Severity.INFO and meant.recoverable.low == 0
    carried = found(ask_trial(RULE, **trial(backward=0.04 * (1 + LINE))))
    assert carried.severity is Severity.WARNING


def test_what_grows_by_far_more_than_the_model_is_warned_of_though_the_model_grows_as_well():
    """A list that is sorted in each step leaves less and less of the cache to the model."""
    model = {"forward": 0.05 + 0.02 * LINE, "backward": 0.04 + 0.03 * LINE}
    sorts = found(ask_trial(RULE, **trial(**model, other=0.001 + 0.2 * LINE)))
    assert sorts.severity is Severity.WARNING
    # Of 0.101 + 0.025 + 0.1 s: what is told, and could be won, is the sorting's alone.
    assert set(sorts.claims) == {"other"} and "the time outside of all phases" in sorts.summary.lower()
    assert "backward" not in sorts.summary
    assert sorts.recoverable.high == pytest.approx(0.1 / 0.226, rel=0.1) and sorts.recoverable.low > 0.1
    # Metrics of longer and longer sequences keep pace with the model, whatever it took at first.
    for other in (0.05 * (1 + LINE), 0.0002 + 0.1 * LINE):
        pace = found(ask_trial(RULE, **trial(**model, other=other)))
        assert pace.severity is Severity.INFO and pace.recoverable.low == 0 and "backward" in pace.claims


# -- what is done every so many steps

#: Something that is done in one of 20 steps, 15 times in all.
BEATS = np.arange(N) % 20 == 13


def rollouts(first_s, last_s):
    times = np.full(N, 0.0005)
    times[BEATS] = np.linspace(first_s, last_s, int(BEATS.sum()))
    return times


def test_what_takes_longer_each_time_is_told_although_most_steps_have_none_of_it():
    # 15 times 0.2 to 1.2 s: 0.5 above the first on average, of 0.1 s for each of 300 steps, and 0.7 s for each of 15.
    finding = found(RULE.check(with_looks(OTHER, other=rollouts(0.2, 1.2))))
    assert finding.severity is Severity.WARNING
    assert "grows each time that something is done there, every 20 steps, by 7" in finding.summary
    lost = number(finding, "above the level of the first steps")
    assert lost.value == pytest.approx(100 * 15 * 0.5 / (300 * 0.1005 + 15 * 0.7), rel=0.05)
    assert number(finding, "outside of all phases at the last time").value == pytest.approx(1200, rel=0.05)
    # Of the last 20 steps, 2.01 s and the last 1.2: one second more than at first.
    assert number(finding, "grown, of the last steps").value == pytest.approx(100 * 1.0 / (2.01 + 1.2), rel=0.05)
    assert finding.lines[0].place.text == LOGS.text


def test_where_all_of_it_takes_longer_it_may_be_more_of_the_same():
    longer = (("backward", 0, [100] * 10), ("other", 1, GROWING), ("other", 2, GROWING))
    finding = found(RULE.check(with_looks(longer, other=rollouts(0.2, 1.2))))
    assert finding.severity is Severity.INFO and finding.recoverable.low == 0.0


@pytest.mark.parametrize(
    "times",
    [
        rollouts(0.7, 0.9),
        rollouts(1.2, 0.2),
        np.where(np.arange(N) > 150, rollouts(1.0, 1.0), rollouts(0.2, 0.2)),
        np.where(np.arange(N) > 120, 0.0005, rollouts(0.2, 1.2)),  # seven times
    ],
    ids=["little", "falls", "a new level", "too few"],
)
def test_what_returns_and_hardly_grows_is_clear(times):
    clear(RULE.check(with_looks(OTHER, other=times)))
