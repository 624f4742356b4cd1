"""A switch given as text is what the text says: elsewhere ``type=bool`` made True of "False", run twice for once."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.cli.sweep_axes import axes_of
from perf_diagnostics.cli.values import parsed_value
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.trials.plan import plan


def test_false_is_false_however_it_is_written() -> None:
    assert [parsed_value(text) for text in ("false", "False", "FALSE", "True", "TRUE")] == [False] * 3 + [True] * 2


def planned(**chosen: Any) -> list[dict[str, Any]]:
    axes = axes_of({"workload": "mlp", "batch_sizes": ["8"], **chosen}, ["cpu"], 60.0)
    return [trial.settings.canonical() | dict(trial.options) for trial in plan(axes)]


def test_both_values_of_a_switch_are_two_configurations() -> None:
    found = planned(set=["gradient_checkpointing=True,False", "num_workers=2"])
    assert sorted(one["gradient_checkpointing"] for one in found) == [False, True]
    assert [one["num_workers"] for one in found] == [2, 2]  # what is set once holds for all of them


def test_an_option_that_is_switched_off_is_off() -> None:
    assert [one["sorted"] for one in planned(option=["sorted=False"])] == [False]


def test_one_value_twice_is_refused_and_no_experiment_run_twice() -> None:
    with pytest.raises(InvalidSettings, match="twice"):
        planned(set=["gradient_checkpointing=True,true"])
