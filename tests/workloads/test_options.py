"""Options read from plain values: defaults, types, limits and wrong names."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads.options import known_names, option, options_from, refuse_settings, shown


@dataclass(frozen=True)
class Some:
    width: int = option(8, "how wide", least=1)
    share: float | None = option(None, "which share", least=0)
    kind: str = option("a", "which kind", among=("a", "b"))
    fast: bool = option(False, "whether fast")


def read(**given) -> Some:
    return options_from(Some, given, workload="some")


def test_what_is_not_given_keeps_its_default() -> None:
    assert read(width=3) == Some(width=3, share=None, kind="a", fast=False)


def test_a_whole_number_will_do_for_a_float() -> None:
    assert read(share=2).share == 2.0
    assert isinstance(read(share=2).share, float)


def test_null_is_a_value_where_it_is_allowed() -> None:
    assert read(share=None).share is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"widht": 3}, "some has no option 'widht'; did you mean 'width'? known are fast, kind, share, width"),
        ({"zzz": 3}, "some has no option 'zzz'; known are fast"),
        ({"width": "3"}, "Option width of some is '3', a str; it must be of type int"),
        ({"width": 3.0}, "a float; it must be of type int"),
        ({"width": True}, "a bool; it must be of type int"),
        ({"width": None}, "a NoneType; it must be of type int"),
        ({"fast": 1}, "a int; it must be of type bool"),
        ({"share": "x"}, "it must be of type float or null"),
        ({"width": 0}, "Option width of some is 0; it must be at least 1"),
        ({"share": -0.5}, "is -0.5; it must be at least 0"),
        ({"share": float("nan")}, "is nan; it must be at least 0"),
        ({"kind": "c"}, "Option kind of some is 'c'; it must be one of a, b"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(given, text: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(**given)
    assert text in str(caught.value)


def test_a_setting_that_cannot_be_honoured_is_refused() -> None:
    with pytest.raises(InvalidSettings, match=r"sequence_length=64 cannot be honoured by mlp: no sequences\. Leave"):
        refuse_settings(
            Settings(batch_size=1, sequence_length=64), ["sequence_length"], workload="mlp", why="no sequences"
        )


@pytest.mark.parametrize("switch", [None, False])
def test_a_switch_that_is_off_asks_for_nothing(switch: bool | None) -> None:
    refuse_settings(
        Settings(batch_size=1, gradient_checkpointing=switch), ["gradient_checkpointing"], workload="mlp", why="no"
    )


def test_no_known_name_is_said_as_such() -> None:
    assert known_names("x", []) == "none are known"


def test_untrusted_text_is_quoted_and_cut() -> None:
    assert shown("a\nb") == "'a\\nb'"
    assert shown("x" * 100, limit=5) == "'xxxx…'"
