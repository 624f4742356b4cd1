"""Drawing indices and collating samples within the wait for data, as they were timed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.diagnose.loaders.waits_timed import draws_first, loader_parts
from perf_diagnostics.diagnose.rule_parts.worker_advice import begins_cheaper
from perf_diagnostics.diagnose.rules.inp001_input_bound import InputBound
from perf_diagnostics.diagnose.rules.inp002_slow_batches import SlowBatches
from perf_diagnostics.diagnose.rules.inp003_too_few_workers import TooFewWorkers
from perf_diagnostics.diagnose.rules.inp008_worker_hand_over import WorkerHandOver
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples
from perf_diagnostics.testing import trial_of

PLACE = {"file": "train.py", "line": 24, "function": "PKSampler.__iter__", "text": "def __iter__(self):"}
OWN = {"name": "PKSampler", "place": PLACE}


def facts(
    drawn: float, collated: float = 0.1, *, workers: int = 0, sampler: Any = OWN, first: Any = None
) -> TrialFacts:
    """A trial that waits 0.4 of each step, computing without workers; of each wait so much is drawing and collating."""
    rows = [[4, 400, round(400 * drawn), round(400 * collated)] for _ in range(8)]
    told = {"rows": rows, "first": first or [1, 400, 40, 40], "sampler": sampler}
    known = {"num_workers": workers, "cpu_count": 4, "threads": 1, "loader_parts": told}
    computes = {} if workers else {"data_wait_cpu_ns": 0.4e9}
    return TrialFacts.of(trial_of(data_wait=0.4, forward=0.6, facts=known, columns=computes))


def asked(about: TrialFacts) -> Finding:
    found = InputBound().check(about)
    assert isinstance(found, Finding)
    return found


def test_parts_are_those_of_the_timed_waits() -> None:
    found = loader_parts(facts(0.625, 0.25))
    assert found is not None and found.collates is not None
    assert (found.draws.value, found.collates.value) == (pytest.approx(0.625), pytest.approx(0.25))
    assert (found.draws.n, found.draws_most, found.who) == (32, True, "PKSampler.__iter__ (train.py:24)")


@pytest.mark.parametrize("told", [None, {}, {"rows": []}, {"rows": [[1, 10, 5, 0]] * 2}, {"rows": [[1, 0, 0, 0]] * 3}])
def test_nothing_is_told_of_too_little(told: Any) -> None:
    assert loader_parts(TrialFacts.of(trial_of(data_wait=0.4, forward=0.6, facts={"loader_parts": told}))) is None


def taking_over(part: float, *, tensors: float = 40.0, workers_cpu_s: float = 5.0) -> TrialFacts:
    """Two workers; of the wait of 0.4 of a step so much is taking over batches, none of it the loop's computing."""
    rows = [[4, 400, 0, 0, round(400 * part)] for _ in range(8)]
    known = {"num_workers": 2, "cpu_count": 8, "threads": 1, "loader_parts": {"rows": rows}, "cpu_window_s": 100.0}
    batch = {"batch_tensors": tensors, "batch_bytes": 1e4}
    counted = {"workers_cpu_s": workers_cpu_s, "process_cpu_s": 60.0, "other_cpu_s": 0.0}
    columns = {"data_wait_cpu_ns": 0.0, "epoch": 0}
    trial = trial_of(data_wait=0.4, forward=0.6, facts=known | batch, columns=columns, quantities=counted)
    return TrialFacts.of(trial)


def test_many_tensors_taken_over_one_by_one_are_no_slow_disk() -> None:
    about = taking_over(0.75)
    over = WorkerHandOver().check(about)
    assert isinstance(over, Finding) and over.claims == {"data_wait": pytest.approx(0.75 * 0.4)}
    assert "40 tensors a batch, one by one: that is 75 % of its wait" in over.summary
    assert "not the 40 that a batch has now" in over.remedies[0].says
    waits = asked(about)
    assert waits.summary.endswith(
        "a batch is there, and the loop takes it over from its worker, 40 tensors one by one."
    )
    assert waits.remedies[0] == over.remedies[0]
    assert [remedy.change.get("num_workers") for remedy in waits.remedies] == [None, 0]
    for rule in (SlowBatches(), TooFewWorkers()):
        assert not isinstance(rule.check(about), Finding)


def test_workers_that_are_waited_for_are_told_from_those_that_hand_over() -> None:
    """The same wait, of which a quarter is taking over: then the batches come late, and more workers make more."""
    about = taking_over(0.25)
    assert not isinstance(WorkerHandOver().check(about), Finding)
    waits = asked(about)
    assert "most of it waiting for disk, network or locks" in waits.summary
    assert waits.remedies[0].change["num_workers"] > 2
    fewer = TooFewWorkers().check(about)
    # 2 workers have 2 steps for a batch; the loop needs 0.6 + 0.1 s.
    assert isinstance(fewer, Finding) and "at best instead of 1.00 s" in fewer.summary
    assert fewer.recoverable is not None and fewer.recoverable.high == pytest.approx(0.3, abs=0.01)


def test_workers_that_compute_all_the_time_hand_over_late_because_they_make_the_next_batch() -> None:
    """One of plain Python answers for its tensors when it gives its lock away; the loop computes nothing meanwhile."""
    about = taking_over(0.9, workers_cpu_s=198.0)
    assert not isinstance(WorkerHandOver().check(about), Finding)
    waits = asked(about)
    assert "takes it over" not in waits.summary and "nearly all of it computing" in waits.summary
    assert all(remedy.change.get("num_workers") != 0 for remedy in waits.remedies)


def test_few_tensors_are_as_few_as_a_batch_can_have() -> None:
    """They cross slowly where cores lack: nothing is won by making them fewer."""
    about = taking_over(0.75, tensors=3.0)
    assert not isinstance(WorkerHandOver().check(about), Finding)
    waits = asked(about)
    assert "disk" not in waits.summary and "takes it over from its worker." in waits.summary
    assert waits.remedies[0].change["num_workers"] == 0


@pytest.mark.parametrize("column", [[], [0]])
def test_taking_over_that_was_not_timed_is_not_known(column: list[int]) -> None:
    rows = [[4, 400, 40, 0, *column] for _ in range(8)]
    found = loader_parts(
        TrialFacts.of(trial_of(data_wait=0.4, facts={"num_workers": 2, "loader_parts": {"rows": rows}}))
    )
    assert found is not None and found.takes_over is None and not found.takes_over_most


def test_what_workers_collate_is_not_known() -> None:
    found = loader_parts(facts(0.6, workers=2))
    assert found is not None and found.collates is None


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_takes_most_of_the_wait_is_named_with_its_line_and_no_workers_are_advised(workers: int) -> None:
    found = asked(facts(0.75, workers=workers))
    assert "75 % of that is drawing which samples a batch has, in PKSampler.__iter__ (train.py:24)." in found.summary
    assert [remedy.change for remedy in found.remedies] == [{}]
    assert found.remedies[0].says.startswith("Make PKSampler.__iter__ (train.py:24) cheaper")
    assert [(line.place.line, line.share.value) for line in found.lines] == [(24, pytest.approx(0.75 * 0.4))]
    assert found.recoverable is not None and found.recoverable.high == pytest.approx(0.4)
    # Input's share of what is usually realised (0.2) of the drawing, 0.75 of the wait.
    assert found.recoverable.low == pytest.approx(0.2 * 0.75 * 0.4)


@pytest.mark.parametrize(("function", "named"), [("PKSampler.__iter__.<listcomp>", []), ("Data.__getitem__", [24])])
def test_where_looks_saw_the_line_of_the_sampler_they_tell_it(function: str, named: list[int]) -> None:
    about = facts(0.75)
    place = CodePlace(file="train.py", line=27, function=function)
    path = CodePath(phase="data_wait", places=(0,), looks=100)
    code = CodeSamples(places=(place,), paths=(path,), interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    found = asked(TrialFacts.of(dataclasses.replace(about.result, code=code)))
    assert [line.place.line for line in found.lines] == named


def test_a_smaller_part_is_said_beside_what_else_there_is_to_try() -> None:
    found = asked(facts(0.25))
    assert "25 % of that is drawing which samples a batch has" in found.summary and not found.lines
    assert len(found.remedies) == 3 and found.remedies[-1].says.startswith("Make PKSampler.__iter__")
    # 0.4 of a step of 1 s, less a quarter of it, which no worker does.
    assert "Loading a batch takes the loop 300 ms, nearly all of it computing." in found.summary
    assert "drawing" not in asked(facts(0.05)).summary


def test_of_a_librarys_sampler_whole_batches_of_indices_are_advised() -> None:
    says = asked(facts(0.75, sampler={"name": "WeightedRandomSampler"})).remedies[0].says
    assert says.startswith("Draw a whole batch of indices at once") and "WeightedRandomSampler" in says


def test_other_rules_leave_it_to_that_one() -> None:
    about = facts(0.75, workers=2)
    assert not isinstance(TooFewWorkers().check(about), Finding)
    assert not isinstance(SlowBatches().check(facts(0.75)), Finding)


def test_a_sampler_that_works_out_an_order_when_a_pass_begins_is_named_there() -> None:
    about = facts(0.01, first=[3, 9_000, 8_000, 30])
    assert draws_first(about) is not None
    assert begins_cheaper(about)[0].says.startswith("Make PKSampler.__iter__ (train.py:24) cheaper")
    assert draws_first(facts(0.01)) is None
