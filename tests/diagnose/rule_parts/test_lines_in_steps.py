"""The lines at which a phase was seen more in some steps than in others."""

from __future__ import annotations

import dataclasses

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.diagnose.rule_parts.lines_in_steps import lines_in_steps
from perf_diagnostics.diagnose.rules.stb002_stalls import LongSteps
from perf_diagnostics.diagnose.rules.stb004_periodic_work import PeriodicWork
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, Phase
from perf_diagnostics.testing import trial_of

TRAIN = CodePlace(file="train.py", line=30, function="train", text="output = model(image)")
AVERAGES = CodePlace(file="train.py", line=49, function="train", text="average.update_parameters(model)")
EVALUATES = CodePlace(file="train.py", line=370, function="main", text="evaluate(model, loader)")

#: 60 steps of 0.5 s, each with 0.1 s outside of all phases; the one at 30 has 5 s more there: 15 s to 20.5 s.
STEPS, LONG_S = 60, 5.0
STALL = np.arange(STEPS) == 30
FORWARD_S = np.full(STEPS, 0.4)

#: Of 35 s, in 18 stretches of 2 s of which the last is half full, it has half of the eighth, the two after it, and a
#: quarter of the eleventh. The line that each step comes by has more looks in all.
AVERAGING = [16] * 7 + [8, 2, 2, 14] + [16] * 6 + [8]
EVALUATING = [0] * 7 + [36, 74, 74, 16] + [0] * 7
TRAINING = [64] * 7 + [36, 4, 4, 50] + [64] * 6 + [32]
PATHS = ((Phase.FORWARD, 0, TRAINING), (Phase.OTHER, 1, AVERAGING), (Phase.OTHER, 2, EVALUATING))


def with_looks(paths=PATHS, *, wall_s=0.5 + STALL * LONG_S, forward_s=FORWARD_S, stretch_s=2.0, starts=True):
    columns = {"wall_ns": wall_s * 1e9, "host_forward_ns": forward_s * 1e9}
    if starts:
        columns["start_ns"] = (np.cumsum(wall_s) - wall_s) * 1e9
    result = trial_of(steps=len(wall_s), columns=columns)
    code = CodeSamples(
        places=(TRAIN, AVERAGES, EVALUATES),
        paths=tuple(
            CodePath(phase=str(phase), places=(at,), looks=sum(course), course=tuple(course))
            for phase, at, course in paths
        ),
        interval_s=0.025,
        rare_interval_s=0.1,
        cpu_s=0.01,
        stretch_s=stretch_s,
    )
    return TrialFacts.of(dataclasses.replace(result, code=code))


def test_the_line_of_the_long_step_is_named_and_not_the_one_that_every_step_has_more_of():
    facts = with_looks()
    (line,) = lines_in_steps(facts, Phase.OTHER, STALL)
    assert line.place == EVALUATES
    finding = LongSteps().check(facts)
    assert isinstance(finding, Finding)
    assert [one.place for one in finding.lines] == [EVALUATES]


def test_a_line_that_has_no_more_of_the_long_steps_than_of_others_is_not_named():
    paths = ((Phase.FORWARD, 0, [60] * 18), (Phase.OTHER, 1, [16] * 18), (Phase.OTHER, 2, [5] * 18))
    assert lines_in_steps(with_looks(paths), Phase.OTHER, STALL) == ()


def test_of_steps_shorter_than_the_stretches_no_line_is_known():
    assert lines_in_steps(with_looks(), Phase.OTHER, np.arange(STEPS) == 10) == ()


def test_without_looks_over_the_time_or_the_steps_beginnings_no_line_is_known():
    assert lines_in_steps(with_looks(stretch_s=0.0), Phase.OTHER, STALL) == ()
    assert lines_in_steps(with_looks(starts=False), Phase.OTHER, STALL) == ()


def test_few_looks_in_the_long_steps_name_no_line():
    few = tuple((phase, at, [count // 16 for count in course]) for phase, at, course in PATHS)
    assert lines_in_steps(with_looks(few), Phase.OTHER, STALL) == ()


def test_the_line_of_work_that_comes_back_is_named():
    """100 steps of 0.5 s, every 20th of them 5 s longer, in stretches of 2 s."""
    long = np.arange(100) % 20 == 19
    wall = np.where(long, 5.5, 0.5)
    begin = np.cumsum(wall) - wall
    edges = np.arange(0, 77, 2.0)
    shared = np.minimum(edges[1:, None], (begin + wall)[long]) - np.maximum(edges[:-1, None], begin[long])
    saving = np.clip(shared, 0, None).sum(axis=1) / 2  # 75 s: the last stretch is half full
    full = np.minimum(2.0, wall.sum() - edges[:-1]) / 2
    parts = ((Phase.FORWARD, 64 * (full - saving)), (Phase.OTHER, 16 * full), (Phase.OTHER, 64 * saving))
    paths = [(phase, at, [round(looks) for looks in course]) for at, (phase, course) in enumerate(parts)]
    facts = with_looks(paths, wall_s=wall, forward_s=np.full(100, 0.4))
    finding = PeriodicWork().check(facts)
    assert isinstance(finding, Finding)
    assert [one.place for one in finding.lines] == [EVALUATES]
