"""Whoever watches a trial waits for it, and does not ask without end: a parent that spins slows what it measures."""

from __future__ import annotations

import signal

import pytest

from perf_diagnostics.measure.observation import Observations, Sampler
from perf_diagnostics.trials.launch import supervise as supervising
from perf_diagnostics.trials.launch.supervise import supervise


class Process:
    """A trial that ends after so many seconds; time passes only while it is waited for."""

    pid = 4242

    def __init__(self, ends_s: float) -> None:
        self.now_s = 0.0
        self.ends_s = ends_s
        self.waits: list[float] = []

    def wait(self, timeout_s: float) -> int | None:
        self.waits.append(timeout_s)
        assert len(self.waits) < 10_000, "it is asked without end, and no time passes"
        self.now_s += min(timeout_s, max(0.0, self.ends_s - self.now_s))
        return 0 if self.now_s >= self.ends_s else None

    def clock_ns(self) -> int:
        return round(self.now_s * 1e9)


@pytest.mark.parametrize(("interval_ms", "each_s"), [(20, 0.02), (1000, 0.1)])
def test_it_waits_until_the_next_sample_is_due_and_listens_ten_times_a_second(
    monkeypatch: pytest.MonkeyPatch, interval_ms: int, each_s: float
) -> None:
    signals: list[signal.Signals] = []
    monkeypatch.setattr(supervising, "signal_group", lambda _pid, number: signals.append(number))
    process = Process(ends_s=10.0)
    sampler = Sampler((), Observations(), clock=process.clock_ns, interval_ns=interval_ms * 1_000_000)
    ending = supervise(process, sampler=sampler, deadline_s=None, clock=lambda: process.now_s)
    assert ending.exit_code == 0 and not ending.timed_out
    assert len(process.waits) == pytest.approx(10.0 / each_s, abs=2)
    assert sum(process.waits) == pytest.approx(10.0, abs=each_s)
    assert sampler.samplings == pytest.approx(10_000 / interval_ms, abs=2)
    assert signals == [signal.SIGKILL]  # what is left of its group, once it has ended


def test_a_deadline_is_noticed_within_a_tenth_of_a_second_and_first_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(ends_s=60.0)
    told: list[tuple[float, signal.Signals]] = []

    def signalled(_pid: int, number: signal.Signals) -> None:
        told.append((process.now_s, number))
        if number is signal.SIGTERM:
            process.ends_s = process.now_s + 1.5  # it ends its step, and writes what it has

    monkeypatch.setattr(supervising, "signal_group", signalled)
    sampler = Sampler((), Observations(), clock=process.clock_ns)
    ending = supervise(process, sampler=sampler, deadline_s=5.0, clock=lambda: process.now_s)
    assert ending.timed_out and not ending.killed and not ending.interrupted
    assert [number for _, number in told] == [signal.SIGTERM, signal.SIGKILL]
    assert told[0][0] == pytest.approx(5.05, abs=0.06) and told[1][0] == pytest.approx(told[0][0] + 1.5)
