"""The guard: whatever an instrument raises becomes one gap a signal, and the others go on."""

import gc
import threading
import weakref

import numpy as np
import pytest

from perf_diagnostics.measure.observation import (
    Guarded,
    Observations,
    Readings,
    Sampler,
    SamplingThread,
    Track,
    Unreadable,
)
from perf_diagnostics.records import Gap, Quantity


class Clock:
    """A host clock that moves only when told to."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Constant:
    """Reads the same power each time."""

    def __init__(self, watts: float = 300.0) -> None:
        self.name = "constant"
        self.signals = ("gpu_power",)
        self.watts = watts
        self.pids: list[int] = []
        self._track = Track("gpu_power", "test")

    def start(self, pid: int) -> None:
        self.pids.append(pid)

    def sample(self, now_ns: int) -> None:
        self._track.append(now_ns, self.watts)

    def stop(self) -> Readings:
        return (self._track.series(),), (Quantity("energy_cpu", 1.0, "J", "test"),)


class Failing(Constant):
    """Raises at the samplings whose numbers (from 0) are given."""

    def __init__(self, at: set[int] | range, problem: Exception) -> None:
        super().__init__()
        self.name = "failing"
        self.signals = ("gpu_temperature",)
        self.asked = 0
        self._at = at
        self._problem = problem

    def sample(self, now_ns: int) -> None:
        self.asked += 1
        if self.asked - 1 in self._at:
            raise self._problem
        super().sample(now_ns)


def test_whatever_a_block_raises_becomes_a_gap_with_type_and_text() -> None:
    observations = Observations()
    with observations.guard("gpu_power", "gpu_energy") as attempt:
        raise ZeroDivisionError("half a board")
    assert attempt.failed
    assert observations.gaps == (
        Gap("gpu_power", "ZeroDivisionError: half a board"),
        Gap("gpu_energy", "ZeroDivisionError: half a board"),
    )


def test_an_unreadable_speaks_for_itself_and_a_silent_exception_by_its_type() -> None:
    observations = Observations()
    with observations.guard("a"):
        raise Unreadable("no NVIDIA driver library")
    with observations.guard("b"):
        raise OSError
    assert observations.gaps == (Gap("a", "no NVIDIA driver library"), Gap("b", "OSError"))


def test_a_block_that_works_leaves_no_gap() -> None:
    observations = Observations()
    with observations.guard("gpu_power") as attempt:
        pass
    assert not attempt.failed
    assert observations.gaps == ()


def test_one_gap_a_signal_keeps_the_first_reason_and_counts() -> None:
    observations = Observations()
    for reason in ("first", *["later"] * 11):
        observations.note("gpu_power", reason)
    assert observations.gaps == (Gap("gpu_power", "first; failed 12 times"),)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_the_users_interruption_passes(interruption: type[BaseException]) -> None:
    observations = Observations()
    with pytest.raises(interruption), observations.guard("gpu_power"):
        raise interruption
    assert observations.gaps == ()


def test_an_instrument_that_raises_forever_is_dropped_and_the_others_go_on() -> None:
    clock, observations = Clock(), Observations()
    broken, working = Failing(range(1000), RuntimeError("Timeout")), Constant()
    sampler = Sampler([broken, working], observations, clock=clock, interval_ns=10)
    sampler.start(pid=7)
    for _ in range(20):
        clock.now_ns += 10
        sampler.tick()
    series, _ = sampler.stop()
    assert broken.asked == 3
    assert observations.gaps == (Gap("gpu_temperature", "RuntimeError: Timeout; failed 3 times"),)
    # 1 at the start, 20 ticks, 1 at the end
    assert [len(s.values) for s in series if s.name == "gpu_power" and len(s.values)] == [22]
    assert working.pids == [7]


def test_failures_that_are_not_in_a_row_cost_samples_only() -> None:
    clock, observations = Clock(), Observations()
    flaky = Failing({1, 2, 4, 5, 7, 8}, RuntimeError("Timeout"))
    sampler = Sampler([flaky], observations, clock=clock, interval_ns=10)
    sampler.start(pid=7)
    for _ in range(9):
        clock.now_ns += 10
        sampler.tick()
    (series,), _ = sampler.stop()
    assert flaky.asked == 11
    # asked at 0, 10 … 90 and once more at the end (90); those at 10, 20, 40, 50, 70, 80 failed
    assert series.times_ns.tolist() == [0, 30, 60, 90, 90]
    assert observations.gaps == (Gap("gpu_temperature", "RuntimeError: Timeout; failed 6 times"),)


def test_a_lasting_refusal_is_asked_once_and_what_was_read_before_is_kept() -> None:
    observations = Observations()
    lost = Failing(range(2, 99), Unreadable("the GPU is lost", lasting=True))
    guarded = Guarded(lost, observations)
    guarded.start(1)
    for now in range(10):
        guarded.sample(now)
    (series,), _ = guarded.stop()
    assert lost.asked == 3
    assert series.times_ns.tolist() == [0, 1]
    assert observations.gaps == (Gap("gpu_temperature", "the GPU is lost"),)


def test_an_instrument_that_cannot_start_is_neither_sampled_nor_stopped() -> None:
    class Dead(Failing):
        def start(self, pid: int) -> None:
            raise Unreadable("no RAPL counters")

        def stop(self) -> Readings:
            raise AssertionError("stopped without having started")

    observations = Observations()
    dead = Dead(set(), RuntimeError())
    guarded = Guarded(dead, observations)
    guarded.start(1)
    assert guarded.dropped
    guarded.sample(0)
    assert guarded.stop() == ((), ())
    assert dead.asked == 0
    assert observations.gaps == (Gap("gpu_temperature", "no RAPL counters"),)


def test_an_instrument_that_fails_to_stop_gives_nothing_and_says_so() -> None:
    class Stuck(Constant):
        def stop(self) -> Readings:
            raise Unreadable("the trial was too short")

    observations = Observations()
    guarded = Guarded(Stuck(), observations)
    guarded.start(1)
    guarded.sample(0)
    assert guarded.stop() == ((), ())
    assert observations.gaps == (Gap("gpu_power", "the trial was too short"),)


def test_ticks_between_two_samplings_only_say_how_long_to_wait() -> None:
    clock = Clock()
    sampler = Sampler([instrument := Constant()], Observations(), clock=clock, interval_ns=100)
    sampler.start(pid=1)
    clock.now_ns = 30
    assert sampler.tick() == 70
    assert sampler.tick(60) == 40
    clock.now_ns = 100
    assert sampler.tick() == 100
    (series,), _ = instrument.stop()
    assert series.times_ns.tolist() == [0, 100]


def test_a_late_tick_samples_once_and_does_not_catch_up() -> None:
    clock = Clock()
    sampler = Sampler([instrument := Constant()], Observations(), clock=clock, interval_ns=100)
    sampler.start(pid=1)
    clock.now_ns = 1000
    assert sampler.tick() == 100
    (series,), _ = instrument.stop()
    assert series.times_ns.tolist() == [0, 1000]


def test_each_instrument_is_stamped_when_it_is_read_and_the_cost_is_counted() -> None:
    clock = Clock()

    class Slow(Constant):
        def sample(self, now_ns: int) -> None:
            super().sample(now_ns)
            clock.now_ns += 5

    sampler = Sampler([first := Slow(), second := Slow()], Observations(), clock=clock, interval_ns=100)
    sampler.start(pid=1)
    assert first.stop()[0][0].times_ns.tolist() == [0]
    assert second.stop()[0][0].times_ns.tolist() == [5]
    assert sampler.samplings == 1


def test_a_measured_zero_is_a_sample() -> None:
    sampler = Sampler([Constant(watts=0.0)], Observations(), clock=Clock(), interval_ns=10)
    sampler.start(pid=1)
    (series,), _ = sampler.stop()
    assert series.values.tolist() == [0.0, 0.0]


def test_a_track_gives_its_series_the_unit_of_its_name() -> None:
    track = Track("gpu_temperature", "NVML GPU-1")
    track.append(5, 71)
    series = track.series()
    assert (series.unit, series.source) == ("°C", "NVML GPU-1")
    track.append(6, 72)  # a series given out does not change afterwards
    assert np.array_equal(series.values, [71.0])


def test_the_thread_samples_until_it_is_stopped() -> None:
    sampled = threading.Event()

    class Counting(Constant):
        def sample(self, now_ns: int) -> None:
            super().sample(now_ns)
            if len(self._track) >= 3:
                sampled.set()

    observations = Observations()
    ticks = iter(range(0, 10**9, 10))
    sampler = Sampler([Counting()], observations, clock=lambda: next(ticks), interval_ns=1)
    thread = SamplingThread(sampler, observations)
    thread.start(pid=1)
    assert sampled.wait(timeout=60)
    (series,), (quantity,) = thread.stop()
    assert len(series.values) >= 3
    assert quantity.name == "energy_cpu"
    assert observations.gaps == ()


def test_a_thread_whose_clock_breaks_leaves_a_gap_and_no_exception() -> None:
    readings = iter([0, 1, 2, 3])
    observations = Observations()
    sampler = Sampler([Constant()], observations, clock=lambda: next(readings), interval_ns=1)
    thread = SamplingThread(sampler, observations)
    thread.start(pid=1)
    thread.stop()
    assert [gap.signal for gap in observations.gaps] == ["sampling"]
    assert observations.gaps[0].why.startswith("StopIteration")


def test_a_reading_that_hangs_does_not_hang_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    released, entered = threading.Event(), threading.Event()

    class Hanging(Constant):
        def sample(self, now_ns: int) -> None:
            if now_ns > 0:
                entered.set()
                released.wait(10)

    monkeypatch.setattr("perf_diagnostics.measure.observation.JOIN_TIMEOUT_S", 0.02)
    observations = Observations()
    clock = Clock()
    sampler = Sampler([Hanging()], observations, clock=clock, interval_ns=1)
    thread = SamplingThread(sampler, observations)
    sampler.start(pid=1)
    clock.now_ns = 5
    thread._thread.start()  # the first reading, which start() would take, must not be the one that hangs
    assert entered.wait(5)
    try:
        assert thread.stop() == ((), ())
        assert observations.gaps == (Gap("sampling", "a reading did not return within 0.02 s of the end"),)
    finally:
        released.set()


def test_a_guard_keeps_nothing_of_its_caller_alive() -> None:
    """Not even until Python's collector runs: a script's optimizer must be gone when the script lets it go."""

    class Thing:
        pass

    def caller() -> weakref.ref[Thing]:
        thing = Thing()
        with Observations().guard("signal") as attempt:
            raise Unreadable("no such counter")
        assert attempt.failed
        return weakref.ref(thing)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()
