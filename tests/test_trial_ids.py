"""Trials that differ in anything have different ids, and so different folders; those that do not, the same.

Elsewhere a tag was the hash of keys and values strung together, so that {"a": "bc"} was {"ab": "c"}, and of allowed
keys only, so that two learning rates wrote into one folder.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.records import Length, Settings, Trial

TRIAL = Trial(workload="mlp", settings=Settings(batch_size=8), options={"a": "bc"})


#: Options of which no two are equal, though many are alike when their names and values are strung together.
OPTIONS: tuple[Any, ...] = (
    {"a": "bc"},
    {"ab": "c"},
    {"a": "b", "c": ""},
    {"a": ["bc"]},
    {"a": ["b", "c"]},
    {"a": {"bc": None}},
    {"a": None},
    {},
    {"lr": 2e-5},
    {"lr": 1e-3},
    {"lr": "0.001"},
    {"lr": 1},
    {"lr": True},
    {"lr": [1]},
    {"optimizer": {"lr": 2e-5}},
    {"optimizer": {"lr": 1e-3}},
)


def test_options_are_told_apart_however_they_are_strung() -> None:
    ids = [dataclasses.replace(TRIAL, options=options).id for options in OPTIONS]
    assert len(set(ids)) == len(OPTIONS)


def test_what_is_a_setting_is_no_option_of_that_name() -> None:
    as_setting = Trial(workload="mlp", settings=Settings(batch_size=8, num_workers=2))
    as_option = Trial(workload="mlp", settings=Settings(batch_size=8), options={"num_workers": 2})
    assert as_setting.id != as_option.id


@pytest.mark.parametrize(
    "change",
    [
        {"workload": "ml"},
        {"settings": Settings(batch_size=16)},
        {"settings": Settings(batch_size=8, device="cuda:0")},
        {"settings": Settings(batch_size=8, device="cuda:1")},
        {"settings": Settings(batch_size=8, precision="bfloat16")},
        {"length": Length.exactly(10)},
        {"seed": 1},
        {"repeat": 1},
        {"role": "sentinel"},
    ],
    ids=repr,
)
def test_every_part_of_a_trial_is_in_its_id(change: Any) -> None:
    assert dataclasses.replace(TRIAL, **change).id != TRIAL.id


def test_the_order_in_which_options_are_given_is_not() -> None:
    one, other = ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})
    assert dataclasses.replace(TRIAL, options=one).id == dataclasses.replace(TRIAL, options=other).id
