"""Which configurations of two runs belong together."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.compare.matching import match
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Outcome
from perf_diagnostics.testing import run_of
from tests.diagnose.two_runs import ended, processes


def test_repeat_and_seed_do_not_matter():
    base = run_of(*processes(1.0, 1.0, seed=0))
    new = run_of(*processes(1.0, 1.0, 1.0, seed=7))
    (configuration,) = match(base, new).configurations
    assert (len(configuration.base.completed), len(configuration.new.completed)) == (2, 3)


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 16},
        {"device": "cuda:0"},
        {"workload": "another"},
        {"options": {"width": 64}},
        {"settings": {"threads": 2}},
    ],
)
def test_workload_options_and_settings_do(other: dict[str, object]):
    base = run_of(*processes(1.0), *processes(1.0, **other))
    new = run_of(*processes(1.0))
    configurations = match(base, new).configurations
    assert sorted((c.base.planned, c.new.planned) for c in configurations) == [(1, 0), (1, 1)]


def test_failed_and_pending_trials_belong_to_their_configuration():
    base = run_of(*processes(1.0), ended(Outcome.CRASHED, repeat=1), pending=[ended(Outcome.CRASHED, repeat=2).trial])
    (configuration,) = match(base, run_of(*processes(1.0))).configurations
    assert len(configuration.base.completed) == 1
    assert [result.outcome for result in configuration.base.unfinished] == [Outcome.CRASHED]
    assert (configuration.base.pending, configuration.base.planned) == (1, 3)


def test_configurations_are_told_apart_by_as_little_as_it_takes():
    trials = [
        *processes(1.0, batch_size=16),
        *processes(1.0, batch_size=8),
        *processes(1.0, batch_size=8, settings={"precision": "bfloat16"}),
        *processes(1.0, batch_size=32, options={"width": 64}),
        *processes(1.0, batch_size=32, options={"width": 128}, settings={"threads": 2}),
    ]
    matching = match(run_of(*trials), run_of(*trials))
    assert [configuration.label for configuration in matching.configurations] == [
        "synthetic cpu batch 8",
        "synthetic cpu batch 16",
        "synthetic cpu batch 32 (threads 2, width 128)",
        "synthetic cpu batch 32 (width 64)",
        "synthetic cpu batch 8 bfloat16",
    ]


def test_what_is_varied_does_not_keep_configurations_apart():
    base = run_of(*processes(1.0, settings={"threads": 1}), *processes(2.0, settings={"threads": 1}, batch_size=16))
    new = run_of(*processes(1.0), *processes(2.0, batch_size=16))
    matching = match(base, new, vary=["threads"])
    assert [(c.label, c.base.planned, c.new.planned) for c in matching.shared] == [
        ("synthetic cpu batch 8", 1, 1),
        ("synthetic cpu batch 16", 1, 1),
    ]
    (varied,) = matching.varied
    assert (varied.name, varied.base, varied.new) == ("threads", (1,), (None,))


@pytest.mark.parametrize(
    ("name", "base", "new", "label"),
    [
        ("width", {"options": {"width": 1}}, {"options": {"width": 2}}, "synthetic cpu batch 8"),
        ("workload", {"workload": "a"}, {"workload": "b"}, "cpu batch 8"),
        ("device", {"device": "cpu"}, {"device": "cuda:0"}, "synthetic batch 8"),
        ("batch_size", {"batch_size": 8}, {"batch_size": 16}, "synthetic cpu"),
    ],
)
def test_options_workload_device_and_batch_size_can_be_varied(
    name: str, base: dict[str, object], new: dict[str, object], label: str
):
    runs = run_of(*processes(1.0, **base)), run_of(*processes(1.0, **new))
    (configuration,) = match(*runs, vary=[name]).shared
    assert configuration.label == label


def test_several_values_of_what_is_varied_in_one_run_are_refused():
    base = run_of(*processes(1.0, settings={"threads": 1}), *processes(1.0, settings={"threads": 2}))
    with pytest.raises(InvalidSettings, match=r"BASE holds synthetic cpu batch 8 with threads 1 and 2"):
        match(base, run_of(*processes(1.0)), vary=["threads"])


def test_an_unknown_name_is_refused_with_the_known_ones():
    run = run_of(*processes(1.0, options={"width": 64}))
    with pytest.raises(InvalidSettings, match=r"--vary 'thread'.*threads, width, workload"):
        match(run, run, vary=["thread"])


def test_nothing_in_common_says_in_what_the_nearest_two_differ():
    base = run_of(*processes(1.0, settings={"threads": 1}), *processes(1.0, batch_size=64, settings={"threads": 1}))
    new = run_of(*processes(1.0, settings={"threads": 2}))
    with pytest.raises(InvalidSettings, match=r"differ in threads \(1 against 2\); --vary threads would match them"):
        match(base, new)


def test_what_differs_in_many_ways_gets_no_hint():
    new = run_of(*processes(1.0, batch_size=64, settings={"threads": 2}, options={"width": 8}))
    with pytest.raises(InvalidSettings) as refused:
        match(run_of(*processes(1.0)), new)
    assert str(refused.value).endswith(
        "differ in batch_size (8 against 64), threads (left to the workload against 2) and width (left to the "
        "workload against 8)."
    )


def test_an_empty_run_is_refused():
    with pytest.raises(InvalidSettings, match="NEW holds no trial"):
        match(run_of(*processes(1.0)), run_of())


def test_sentinels_are_no_processes_of_a_configuration():
    (sentinel, waiting) = processes(9.0, 9.0)
    sentinel = dataclasses.replace(sentinel, trial=dataclasses.replace(sentinel.trial, role="sentinel"))
    pending = dataclasses.replace(waiting.trial, role="sentinel")
    base = run_of(*processes(1.0, 1.0), sentinel, pending=[pending])
    (configuration,) = match(base, run_of(*processes(1.0))).configurations
    assert len(configuration.base.completed) == 2 and configuration.base.planned == 2
