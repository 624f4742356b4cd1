"""The measuring loop on a fake clock: warm-up, stopping, budgets, and what survives an exception."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from perf_diagnostics.diagnose.facts.settling import GIVEN_UP
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import Length, Outcome
from perf_diagnostics.trials.outcome import NonFiniteLoss
from perf_diagnostics.trials.steps.loop import Loop, Measured
from tests.measure.simulated_device import HostClock, SimulatedDevice


class Program:
    """A training step that takes as long as it is told."""

    def __init__(self, step_ms: Callable[[int], float], loss: Callable[[int], float] = lambda _step: 1.0) -> None:
        self.host = HostClock()
        self.probe = Probe(clock=self.host, thread_cpu=lambda: 0)
        self.step_ms = step_ms
        self.loss = loss
        self.done = 0

    def __call__(self) -> None:
        with self.probe.forward():
            self.host.spend(self.step_ms(self.done))
        self.probe.end_step(samples=4, loss=self.loss(self.done))
        self.done += 1

    def loop(self, length: Length, **arguments: object) -> Loop:
        return Loop(self, self.probe, length, clock=self.host, **arguments)  # type: ignore[arg-type]


def test_exactly_the_steps_that_were_asked_for() -> None:
    program = Program(lambda step: 10)
    measured = program.loop(Length.exactly(100, warmup_steps=5)).run()
    assert program.done == 105
    assert measured.steady_steps == 100
    assert int(measured.table.columns["warmup"].sum()) == 5
    assert measured.stop_reason == "max_steps"
    assert measured.outcome is Outcome.COMPLETED


def test_equal_steps_stop_at_the_first_look() -> None:
    program = Program(lambda step: 10)
    measured = program.loop(Length(warmup_steps=3, min_steps=20)).run()
    assert measured.stop_reason == "half_width"
    assert measured.steady_steps == 20


def test_noisy_steps_are_measured_until_the_mean_is_known() -> None:
    # Blocks of ten alternate between 8 and 12 ms, so that ten batch means spread widely until there are many blocks.
    program = Program(lambda step: 8 if step // 10 % 2 else 12)
    measured = program.loop(Length(warmup_steps=1, min_steps=20, max_steps=640)).run()
    assert measured.steady_steps > 40


def test_the_steps_add_up_to_the_wall_time_measured_beside_them() -> None:
    program = Program(lambda step: 7)
    measured = program.loop(Length.exactly(50)).run()
    assert measured.steady_wall_ns == int(measured.table.steady.wall_ns.sum()) == 50 * 7_000_000


def test_a_budget_ends_the_measuring_and_says_so() -> None:
    program = Program(lambda step: 1000)
    measured = program.loop(Length(), budget_s=13.5).run()
    assert measured.stop_reason == "time_budget"
    assert measured.outcome is Outcome.COMPLETED
    assert measured.steady_steps == 10  # 13 whole steps fit, 3 of them warm-up
    assert program.host.now_ns - 1_000_000_000 <= 13.5e9


def test_slow_steps_get_a_shorter_warm_up_and_at_least_three_steps() -> None:
    program = Program(lambda step: 10_000)
    measured = program.loop(Length(), budget_s=52).run()
    assert measured.steady_steps == 3
    assert measured.outcome is Outcome.COMPLETED
    assert int(measured.table.columns["warmup"].sum()) == 2


class Fed(Program):
    """Steps of 100 ms, the first of 2 s, fed by workers of which each loads a batch in ``load_ms`` and holds two."""

    def __init__(self, workers: int, load_ms: float) -> None:
        super().__init__(lambda step: 100 if step else 2000)
        self.workers = workers
        self.load_ms = load_ms
        self.ready_ns: list[float] = []
        self.taken_ns: list[float] = []

    def take(self) -> None:
        """Wait for the next batch, which its worker began when it was ordered and the one before was done."""
        number = len(self.taken_ns)
        ordered = self.taken_ns[number - 2 * self.workers] if number >= 2 * self.workers else 1e9
        free = self.ready_ns[number - self.workers] if number >= self.workers else 1e9
        self.ready_ns.append(max(ordered, free) + self.load_ms * 1e6)
        self.host.now_ns = max(self.host.now_ns, int(self.ready_ns[-1]))
        self.taken_ns.append(self.host.now_ns)

    def __call__(self) -> None:
        with self.probe.data_wait():
            self.take()
        super().__call__()

    def measured(self, length: Length, **arguments: object) -> Measured:
        return self.loop(length, workers=self.workers, prefetched=2, take_batch=self.take, **arguments).run()


def mean_ms(measured: Measured) -> float:
    return float(measured.table.steady.wall_ns.mean()) / 1e6


def test_batches_that_workers_had_ready_do_not_make_a_slow_loader_look_fast() -> None:
    # Four workers give a batch every 480 / 4 = 120 ms. Eight ready ones feed 8 / (1 - 100 / 120) = 48 steps of 100 ms.
    measured = Fed(4, load_ms=480).measured(Length.exactly(12))
    assert mean_ms(measured) == pytest.approx(120)
    assert int(measured.table.columns["warmup"].sum()) == 3 + 4


def test_a_loader_that_keeps_up_is_not_waited_for_once_it_has_its_pace_again() -> None:
    measured = Fed(6, load_ms=480).measured(Length.exactly(12))  # a batch every 80 ms
    assert mean_ms(measured) == pytest.approx(100)
    assert measured.steady and not measured.warmup_ended.startswith(GIVEN_UP)


def test_where_time_is_too_short_to_use_up_ready_batches_the_trial_is_not_steady() -> None:
    measured = Fed(4, load_ms=3000).measured(Length(), budget_s=12)
    # Four batches each arrive at 3, 6 and 9 s. From 5.2 s on eight are to be taken, for 12 / 4 = 3 s: six of them are.
    assert not measured.steady and measured.outcome is Outcome.COMPLETED
    assert measured.warmup_ended.startswith(GIVEN_UP)
    assert "use up 2 of the batches that workers may have had ready" in measured.warmup_ended


def test_a_step_beyond_the_budget_is_skipped_with_the_reason() -> None:
    program = Program(lambda step: 10_000)
    measured = program.loop(Length(), budget_s=25).run()
    assert measured.outcome is Outcome.SKIPPED_OVER_TIME_BUDGET
    assert "one step takes 10 s" in measured.reason and "what is left of 25 s" in measured.reason
    assert measured.steady_steps == 0


def test_time_that_setting_up_has_used_up_is_not_told_in_negative_seconds() -> None:
    measured = Program(lambda step: 10_000).loop(Length(), budget_s=-0.0407).run()
    assert measured.outcome is Outcome.SKIPPED_OVER_TIME_BUDGET
    assert "no time left for it after setting up" in measured.reason and "-" not in measured.reason


def test_the_least_number_of_steps_may_borrow_time() -> None:
    program = Program(lambda step: 10_000)
    measured = program.loop(Length(), budget_s=25, floor_budget_s=60).run()
    assert measured.outcome is Outcome.COMPLETED
    assert measured.steady_steps == 3
    assert measured.stop_reason == "time_budget"


def test_steps_that_grow_slower_do_not_outrun_the_budget() -> None:
    program = Program(lambda step: 10 if step < 23 else 1000)
    program.loop(Length(min_steps=20, half_width=0.0), budget_s=20).run()
    assert (program.host.now_ns - 1_000_000_000) / 1e9 <= 21


def test_a_loss_that_is_no_number_ends_the_trial_and_keeps_what_was_measured() -> None:
    program = Program(lambda step: 10, loss=lambda step: float("nan") if step == 30 else 1.0)
    loop = program.loop(Length.exactly(100, warmup_steps=3))
    with pytest.raises(NonFiniteLoss, match="nan at step 30"):
        loop.run()
    assert len(loop.measured.table) > 30


def test_an_exception_keeps_the_steps_before_it() -> None:
    def step_ms(step: int) -> float:
        if step == 12:
            raise MemoryError("planted")
        return 10

    program = Program(step_ms)
    loop = program.loop(Length.exactly(100, warmup_steps=3))
    with pytest.raises(MemoryError):
        loop.run()
    assert len(loop.measured.table) == 12
    assert (
        loop.measured.steady_wall_ns is None
    )  # the block holds a part of a step, so nothing can be checked against it


def test_a_stop_request_ends_after_the_step_under_way() -> None:
    program = Program(lambda step: 10)
    stop: list[Outcome] = []
    loop = program.loop(Length.exactly(100), stop_requested=lambda: stop[0] if stop else None)
    program.step_ms = lambda step: (stop.append(Outcome.INTERRUPTED) or 10) if step == 40 else 10
    measured = loop.run()
    assert measured.outcome is Outcome.INTERRUPTED
    assert len(measured.table) == 41


def test_every_block_is_shown_to_the_writer() -> None:
    seen: list[int] = []
    program = Program(lambda step: 2000)

    def on_block(measured: Measured) -> None:
        seen.append(len(measured.table))

    program.loop(Length.exactly(8, warmup_steps=2), on_block=on_block).run()
    assert seen[-1] == 10
    assert len(seen) >= 5  # two seconds a step: a block of five seconds holds two


def test_a_transient_is_counted_as_warm_up() -> None:
    program = Program(lambda step: 100 if step < 23 else 10 + (step % 3))
    measured = program.loop(Length(warmup_steps=3, min_steps=200, max_steps=200, half_width=1e-9)).run()
    assert 15 <= 200 - measured.steady_steps <= 40
    assert float(measured.table.steady.wall_ns.mean()) == pytest.approx(11e6, rel=0.03)
    assert measured.steady_wall_ns == int(measured.table.steady.wall_ns.sum())


def test_a_number_of_steps_that_was_asked_for_is_kept_and_said_to_be_unsteady() -> None:
    program = Program(lambda step: 10 + step)
    measured = program.loop(Length.exactly(100, warmup_steps=3)).run()
    assert measured.steady_steps == 100
    assert not measured.steady


def test_throughput_of_an_asynchronous_device_is_the_devices() -> None:
    """The host enqueues a step in 0.04 ms; the device needs 33: 800 times as long."""
    host = HostClock()
    device = SimulatedDevice(host)
    probe = Probe(clock=host, events=device, thread_cpu=lambda: 0)

    def step() -> None:
        with probe.forward():
            device.launch(11)
        with probe.backward():
            device.launch(22)
        probe.end_step(samples=64)

    measured = Loop(step, probe, Length.exactly(40), clock=host).run()
    table = measured.table.steady
    assert table.samples.sum() / (table.wall_ns.sum() / 1e9) == pytest.approx(64 / 0.033, rel=0.01)
    assert measured.steady_wall_ns == pytest.approx(int(table.wall_ns.sum()), rel=1e-3)


def test_neither_the_wall_time_nor_the_window_holds_the_reading_of_events() -> None:
    """Each pair of events takes 0.1 ms to read: of 40 steps of 3 ms that would be a tenth, of their energy as well."""
    host = HostClock()
    device = SimulatedDevice(host, reading_ms=0.1)
    probe = Probe(clock=host, events=device, thread_cpu=lambda: 0)

    def step() -> None:
        with probe.forward():
            device.launch(3)
        probe.end_step(samples=64)

    measured = Loop(step, probe, Length.exactly(40), clock=host).run()
    began_ns, ended_ns = measured.window_ns or (0, 0)
    assert measured.steady_wall_ns == ended_ns - began_ns == pytest.approx(40 * 3_000_000, rel=1e-3)


def test_only_blocks_of_measured_steps_are_told_from_outside() -> None:
    program = Program(lambda step: 10)
    loop = program.loop(Length.exactly(20, warmup_steps=5))
    seen: list[tuple[str, int, int]] = []

    def note(what: str) -> None:
        seen.append((what, program.done, program.host.now_ns))

    loop.on_steady_block = (partial(note, "begins"), partial(note, "ended"))
    measured = loop.run()
    begins, ended = seen[::2], seen[1::2]
    assert {what for what, *_ in begins} == {"begins"} and {what for what, *_ in ended} == {"ended"}
    assert (seen[0][1], seen[-1][1]) == (5, 25)
    inside_ns = sum(end - begin for (_, _, begin), (_, _, end) in zip(begins, ended, strict=True))
    assert inside_ns == measured.steady_wall_ns


def test_a_step_that_raises_ends_its_block_for_listeners_too() -> None:
    def fails(step: int) -> float:
        if step == 7:
            raise RuntimeError("no")
        return 10

    program = Program(fails)
    loop = program.loop(Length.exactly(20, warmup_steps=5))
    seen: list[str] = []
    loop.on_steady_block = (partial(seen.append, "begins"), partial(seen.append, "ended"))
    with pytest.raises(RuntimeError, match="no"):
        loop.run()
    assert seen == ["begins", "ended"]


@pytest.mark.parametrize("endless_s", [float("inf"), 1e300])
def test_a_budget_that_cannot_be_counted_is_none(endless_s: float) -> None:
    length = Length.exactly(20, warmup_steps=3)
    program = Program(lambda step: 10)
    measured = program.loop(length, budget_s=endless_s, floor_budget_s=endless_s).run()
    assert (measured.outcome, measured.steady_steps) == (Outcome.COMPLETED, 20)
    # The twin: the same steps of 10 ms under a budget of 0.1 s are cut off, after 3 + 7 of them at most.
    short = Program(lambda step: 10).loop(length, budget_s=0.1).run()
    assert short.stop_reason == "time_budget" and short.steady_steps <= 7
