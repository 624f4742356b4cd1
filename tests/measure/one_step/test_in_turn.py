"""How often ways of doing the same are tried, and when they are not."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from perf_diagnostics.measure.one_step import in_turn
from perf_diagnostics.measure.one_step.in_turn import InTurn


@pytest.fixture
def spend(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Goes on with the thread's clock."""
    now = [0.0]

    def by(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "thread_time", lambda: now[0])
    return by


def ways(spend: Callable[[float], None], done: list[str]) -> list[Callable[[], str]]:
    """Two that take 1 s each."""

    def way(name: str) -> Callable[[], str]:
        def do() -> str:
            spend(1.0)
            done.append(name)
            return name

        return do

    return [way("a"), way("b")]


def test_each_is_tried_three_times_in_turn_where_there_is_time(spend: Callable[[float], None]) -> None:
    done: list[str] = []
    assert InTurn(6.0).tried(ways(spend, done), once_s=1.0) == [["a"] * 3, ["b"] * 3]
    assert done == ["a", "b"] * 3


def test_or_once_and_what_was_spent_is_gone(spend: Callable[[float], None]) -> None:
    done: list[str] = []
    turn = InTurn(5.0)
    assert turn.tried(ways(spend, done), once_s=1.0) == [["a"], ["b"]]  # 6 s would be more than there are
    assert turn.tried(ways(spend, done), once_s=1.5) == [["a"], ["b"]]  # 3 of 3 s that are left
    assert turn.tried(ways(spend, done), once_s=1.0) is None  # 2 of 1 s
    assert len(done) == 4


def test_what_fails_is_not_tried_and_takes_its_time_all_the_same(spend: Callable[[float], None]) -> None:
    def fails() -> str:
        spend(2.0)
        raise RuntimeError

    turn = InTurn(3.0)
    assert turn.tried([fails, fails], once_s=1.0) is None
    assert turn.tried([lambda: "c"], once_s=1.5) is None
    assert turn.tried([lambda: "c"], once_s=0.5) == [["c"]]
    assert in_turn._TRIES == 3
