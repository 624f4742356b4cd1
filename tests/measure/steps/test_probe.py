"""The probe against programs whose true phases are known."""

from __future__ import annotations

import collections
import gc
import sys
import time
import tracemalloc
import weakref
from types import FrameType

import numpy as np
import pytest
import torch

from perf_diagnostics.measure.steps.device_losses import TOGETHER
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import ALL_PHASES, MEASURED_PHASES, Phase, StepTable
from tests.measure.simulated_device import HostClock, SimulatedDevice

MS = 1_000_000


def host_step(probe: Probe, host: HostClock, *, other: float = 0.0) -> None:
    for span, milliseconds in (
        (probe.data_wait(), 3),
        (probe.transfer(), 1),
        (probe.forward(), 10),
        (probe.backward(), 20),
        (probe.optimizer(), 2),
    ):
        with span:
            host.spend(milliseconds)
    host.spend(other)
    probe.end_step(samples=8, tokens=80, padding_tokens=16, loss=0.5)


def test_phases_and_other_add_up_to_the_wall_time() -> None:
    host = HostClock()
    probe = Probe(clock=host, thread_cpu=lambda: 0)
    probe.start()
    for _ in range(4):
        host_step(probe, host, other=4)
    probe.end_block()
    table = probe.take()
    assert table.wall_ns.tolist() == [40 * MS] * 4  # 3 + 1 + 10 + 20 + 2 + 4
    assert [int(table.host_ns(phase)[0]) for phase in ALL_PHASES] == [m * MS for m in (3, 1, 10, 20, 2, 4)]
    assert sum(int(table.host_ns(phase).sum()) for phase in ALL_PHASES) == int(table.wall_ns.sum())
    assert probe.blocks_wall_ns == [160 * MS]
    assert table.samples.tolist() == [8] * 4
    assert table.columns["padding_tokens"].tolist() == [16] * 4


def test_nested_spans_are_not_counted_twice() -> None:
    host = HostClock()
    probe = Probe(clock=host, thread_cpu=lambda: 0)
    probe.start()
    with probe.optimizer():  # an optimizer whose closure runs the model
        host.spend(1)
        with probe.forward():
            host.spend(5)
        with probe.backward():
            host.spend(7)
        host.spend(2)
    probe.end_step(samples=1)
    probe.end_block()
    table = probe.take()
    assert int(table.host_ns(Phase.OPTIMIZER)[0]) == 3 * MS
    assert int(table.host_ns(Phase.FORWARD)[0]) == 5 * MS
    assert int(table.host_ns(Phase.BACKWARD)[0]) == 7 * MS
    assert int(table.host_ns(Phase.OTHER)[0]) == 0


def test_an_exception_inside_a_span_leaves_the_probe_usable() -> None:
    host = HostClock()
    probe = Probe(clock=host, thread_cpu=lambda: 0)
    probe.start()
    with pytest.raises(ValueError, match="boom"), probe.forward():
        host.spend(5)
        raise ValueError("boom")
    host.spend(1)
    probe.end_step(samples=1)
    probe.end_block()
    table = probe.take()
    assert int(table.host_ns(Phase.FORWARD)[0]) == 5 * MS
    assert int(table.host_ns(Phase.OTHER)[0]) == 1 * MS


def test_the_time_between_blocks_belongs_to_no_step() -> None:
    host = HostClock()
    probe = Probe(clock=host, thread_cpu=lambda: 0)
    for _ in range(2):
        probe.start()
        host_step(probe, host)
        probe.end_block()
        host.spend(1000)
    table = probe.take()
    assert table.wall_ns.tolist() == [36 * MS] * 2
    assert table.columns["block"].tolist() == [0, 1]
    assert table.columns["start_ns"].tolist() == [0, 1036 * MS]


def test_what_was_not_given_has_no_column_and_what_was_zero_has() -> None:
    host = HostClock()
    probe = Probe(clock=host, thread_cpu=lambda: 0)
    probe.start()
    probe.end_step(samples=1)
    probe.end_block()
    absent = probe.take()
    assert absent.get("tokens") is None and absent.get("loss") is None and absent.get("starved") is None
    probe.start()
    probe.end_step(samples=1, tokens=0, loss=0.0)
    probe.end_block()
    zero = probe.take()
    assert zero.columns["tokens"].tolist() == [0] and zero.columns["loss"].tolist() == [0.0]


def test_cpu_time_inside_data_wait_is_told_from_waiting() -> None:
    host, cpu = HostClock(), HostClock()
    probe = Probe(clock=host, thread_cpu=cpu)
    probe.start()
    with probe.data_wait():
        host.spend(10)
        cpu.spend(4)
    with probe.forward():
        host.spend(5)
        cpu.spend(5)
    probe.end_step(samples=1)
    probe.end_block()
    assert probe.take().columns["data_wait_cpu_ns"].tolist() == [4 * MS]


class Thread:
    """A thread on a host clock of its own, whose CPU clock counts how often it is asked."""

    def __init__(self) -> None:
        self.host = HostClock()
        self.cpu_ns = self.asked = 0
        self.probe = Probe(clock=self.host, thread_cpu=self.ask)

    def ask(self) -> int:
        self.asked += 1
        return self.cpu_ns

    def runs(self, milliseconds: float) -> None:
        self.host.spend(milliseconds)
        self.cpu_ns += round(milliseconds * MS)

    def sleeps(self, milliseconds: float) -> None:
        self.host.spend(milliseconds)

    def step(self, *, wait_runs: float = 0.0, wait_sleeps: float = 0.0, runs: float = 0.0, sleeps: float = 0.0) -> None:
        with self.probe.data_wait():
            self.runs(wait_runs)
            self.sleeps(wait_sleeps)
        with self.probe.forward():
            self.runs(runs)
            self.sleeps(sleeps)
        self.probe.end_step(samples=1)

    def table(self) -> dict[str, list[float]]:
        """Per step what the thread used in its wait, and in all, in ms."""
        self.probe.end_block()
        columns = self.probe.take().columns
        return {name: (columns[name] / MS).tolist() for name in ("data_wait_cpu_ns", "thread_cpu_ns")}


def test_a_thread_that_runs_without_a_break_is_asked_every_ten_milliseconds() -> None:
    thread = Thread()
    thread.probe.start()
    for _ in range(100):
        thread.step(wait_runs=0.01, runs=0.29)
    assert thread.asked == 1 + 1 + 2  # at the start, after 0.3 ms, then after each 10.2 ms of the 29.7 that are left
    table = thread.table()
    assert thread.asked == 5  # the steps since the last reading get theirs
    assert table["thread_cpu_ns"] == pytest.approx([0.3] * 100)
    assert table["data_wait_cpu_ns"] == pytest.approx([0.01] * 100)


def test_the_step_in_which_the_thread_lost_its_processor_lacks_the_time_and_the_next_one_is_read() -> None:
    thread = Thread()
    thread.probe.start()
    for number in range(20):
        thread.step(runs=0.3, sleeps=4 * (number == 10))
    asked = thread.asked
    assert thread.table()["thread_cpu_ns"] == pytest.approx([0.3] * 20)  # of 4.3 ms of wall in the eleventh
    # at the start, after steps 0, 10 (it took 4.3 ms) and 11 (the one before had slept)
    assert asked == 4


def test_a_thread_that_sleeps_in_every_step_is_asked_in_every_step() -> None:
    thread = Thread()
    thread.probe.start()
    for number in range(16):
        thread.step(runs=0.3, sleeps=0.1 * number)
    # After step 0, 10 ms later after step 12 (11.4 ms), and as it had slept since then, after each.
    assert thread.asked == 1 + 1 + 1 + 3
    # Steps 1 to 12 took 11.4 ms, 3.6 of which the thread ran: more is missing than the longest took, 1.5.
    shared = [wall * 3.6 / 11.4 for wall in (0.3 + 0.1 * number for number in range(1, 13))]
    assert thread.table()["thread_cpu_ns"] == pytest.approx([0.3, *shared, *[0.3] * 3], abs=1e-5)


def test_a_step_that_is_not_quick_is_read_wherever_it_comes() -> None:
    thread = Thread()
    thread.probe.start()
    for number in range(6):
        thread.step(runs=2.0 if number % 2 else 1.9)
    # Of 1.9 ms the first one, of 2.0 ms each: the 1.9 ms between them lie within ten of a reading.
    assert thread.asked == 1 + 1 + 3
    assert thread.table()["thread_cpu_ns"] == pytest.approx([1.9, 2.0] * 3)


def test_long_waits_are_read_and_short_ones_count_as_cpu_time() -> None:
    thread = Thread()
    thread.probe.start()
    thread.step(wait_sleeps=0.019, runs=0.3)  # nobody sleeps for so short a time
    thread.step(wait_runs=0.02, runs=0.3)
    thread.step(wait_runs=0.1, wait_sleeps=0.2, runs=0.3)
    assert thread.asked == 1 + 1 + 2  # at the start, after the first step, at the end of the last wait and its step
    thread.step(wait_sleeps=0.02, runs=0.3)  # the step before slept, so this one is read in full
    assert thread.asked == 4 + 2
    assert thread.table()["data_wait_cpu_ns"] == pytest.approx([0.019, 0.02, 0.1, 0.0])


def test_a_wait_that_turns_out_to_have_run_leaves_the_thread_trusted() -> None:
    thread = Thread()
    thread.probe.start()
    for _ in range(20):
        thread.step(wait_runs=0.06, runs=0.24)  # a loader without workers that makes its batches in the wait
    # At the start, at the end of each wait (at its beginning as well in none), and after the first step.
    assert thread.asked == 1 + 20 + 1
    table = thread.table()
    assert table["data_wait_cpu_ns"] == pytest.approx([0.06] * 20)
    assert table["thread_cpu_ns"] == pytest.approx([0.3] * 20)


def test_short_sleeps_of_a_thread_that_is_trusted_are_the_waits_of_no_step_until_they_add_up() -> None:
    thread = Thread()
    thread.probe.start()
    thread.step(runs=0.3)
    for _ in range(32):
        thread.step(wait_sleeps=0.04, runs=0.3)  # 0.34 ms: the thirtieth ends 10.2 ms after the reading
    table = thread.table()
    # The first thirty share a reading, 1.2 ms short: their waits count as CPU time. The last two are exact.
    assert table["data_wait_cpu_ns"] == pytest.approx([0.0, *[0.04] * 30, 0.0, 0.0], abs=1e-5)
    assert sum(table["thread_cpu_ns"]) == pytest.approx(33 * 0.3)


def test_a_thread_that_slept_unseen_is_doubted_so_that_later_short_sleeps_are_seen() -> None:
    thread = Thread()
    thread.probe.start()
    thread.step(runs=0.3)
    for number in range(100):
        thread.step(wait_sleeps=0.0 if number % 2 else 0.04, runs=0.3)
    # The first 32 of the hundred share a reading, as they end 10.24 ms after the first: 16 waits that slept unseen.
    assert sum(thread.table()["data_wait_cpu_ns"]) == pytest.approx(16 * 0.04)


def test_a_core_that_was_lost_before_a_long_wait_is_not_laid_to_it() -> None:
    thread = Thread()
    thread.probe.start()
    for number in range(10):
        thread.step(wait_runs=0.2, runs=0.3, sleeps=1.0 * (number == 4))
    table = thread.table()
    assert table["data_wait_cpu_ns"] == pytest.approx([0.2] * 10)
    # What is missing is more than the next wait took, and so the longest step's.
    assert table["thread_cpu_ns"] == pytest.approx([0.5] * 10)


def test_what_a_thread_sleeps_between_the_waits_of_a_step_is_not_laid_to_them() -> None:
    thread = Thread()
    thread.probe.start()
    for _ in range(3):  # two micro-steps, whose forward sleeps for 0.5 ms
        for _ in range(2):
            with thread.probe.data_wait():
                thread.runs(0.2)
            with thread.probe.forward():
                thread.sleeps(0.5)
        thread.probe.end_step(samples=1)
    assert thread.table() == {"data_wait_cpu_ns": [0.4] * 3, "thread_cpu_ns": [0.4] * 3}


def test_steps_of_another_block_do_not_share_a_reading() -> None:
    thread = Thread()
    for sleeps in (0.0, 0.5):
        thread.probe.start()
        for _ in range(3):
            thread.step(runs=0.1)
        thread.probe.end_block()
        thread.sleeps(sleeps)
        thread.runs(7)
    assert thread.probe.take().columns["thread_cpu_ns"].tolist() == [0.1 * MS] * 6


def test_a_step_is_twelve_python_calls() -> None:
    """A span is asked for and left; only the wait is entered by a Python function, too."""
    calls: collections.Counter[str] = collections.Counter()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1

    thread = Thread()
    probe = Probe(clock=thread.host, thread_cpu=thread.ask)
    probe.start()
    for _ in range(2):  # the first step is read in full
        calls.clear()
        spans = probe.data_wait, probe.transfer, probe.forward, probe.backward, probe.optimizer
        clock = probe._clock
        sys.setprofile(count)
        for span in spans:
            with span():
                pass
        probe.end_step(samples=8)
        sys.setprofile(None)
    probe.end_block()
    clocks = calls.pop("__call__")  # the host's clock is a Python object here
    assert clocks == 11 and clock is thread.host
    names = ("data_wait", "transfer", "forward", "backward", "optimizer", "end_step")
    assert calls == {"__enter__": 1, "__exit__": 5, **dict.fromkeys(names, 1)}


def test_collector_pauses_are_charged_to_their_step() -> None:
    probe = Probe()
    probe.start()
    probe.end_step(samples=1)
    before = time.perf_counter_ns()
    gc.collect()
    spent = time.perf_counter_ns() - before
    probe.end_step(samples=1)
    probe.end_block()
    pauses = probe.take().columns["gc_ns"]
    assert 0.5 * spent <= pauses[1] <= spent
    gc.collect()
    assert not any(callback.__self__ is probe for callback in gc.callbacks if hasattr(callback, "__self__"))


def train(probe: Probe, device: SimulatedDevice, host: HostClock, steps: int, *, data_ms: float = 0.0) -> StepTable:
    """True device phases of a step: copy 1 ms, forward 10, backward 20, optimizer 2; the host only enqueues."""
    probe.start()
    for _ in range(steps):
        with probe.data_wait():
            host.spend(data_ms)
        with probe.transfer():
            device.launch(1)
        with probe.forward():
            device.launch(10)
        with probe.backward():
            device.launch(20)
        with probe.optimizer():
            device.launch(2)
        probe.end_step(samples=64)
    probe.end_block()
    return probe.take()


def test_true_phases_of_an_asynchronous_device() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    probe = Probe(clock=host, events=device, thread_cpu=lambda: 0)
    table = train(probe, device, host, 50)
    truth = {Phase.TRANSFER: 1, Phase.FORWARD: 10, Phase.BACKWARD: 20, Phase.OPTIMIZER: 2}
    for phase, milliseconds in truth.items():
        measured = table.device_ns(phase)[1:]
        assert measured.mean() == pytest.approx(milliseconds * MS, rel=0.01)
    # The host's clock alone sees enqueueing: 4 launches of 0.01 ms, 800 times less than the truth.
    assert table.columns["host_wall_ns"].mean() == pytest.approx(0.04 * MS, rel=0.01)
    assert table.wall_ns[1:].mean() == pytest.approx(33 * MS, rel=0.01)
    assert table.wall_ns.sum() == pytest.approx(probe.blocks_wall_ns[0], rel=1e-6)
    assert sum(table.phase_ns(phase).sum() for phase in ALL_PHASES) == pytest.approx(table.wall_ns.sum(), rel=1e-6)
    assert table.columns["starved"][2:].sum() == 0
    lead_ms = table.columns["host_lead_ns"] / MS
    assert np.all(np.diff(lead_ms) > 30)  # the host runs a further 33 ms ahead at each step


def test_nothing_waits_inside_a_step_until_the_ring_is_full() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    probe = Probe(clock=host, events=device, thread_cpu=lambda: 0)
    train(probe, device, host, 60)
    assert probe.forced_syncs == 0
    assert device.synchronisations == 2  # one at each border of the block
    train(probe, device, host, 100)
    # 64 sets fit into the ring; each further step has to wait for the oldest one.
    assert probe.forced_syncs == 100 - 64


def test_a_starved_device_is_seen_without_synchronising() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    probe = Probe(clock=host, events=device, thread_cpu=lambda: 0)
    table = train(probe, device, host, 20, data_ms=50)
    assert table.columns["starved"][1:].tolist() == [1.0] * 19
    assert np.isnan(table.columns["starved"][0])
    assert table.columns["host_lead_ns"][5] == pytest.approx(33 * MS, rel=0.01)
    # While the device waits for data its time is data_wait's: 50 ms of waiting, 33 of which it still had work.
    assert table.device_ns(Phase.DATA_WAIT)[5] == pytest.approx((50 - 33) * MS, rel=0.01)


def test_device_and_host_clock_agree_over_a_block() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    probe = Probe(clock=host, events=device, thread_cpu=lambda: 0)
    train(probe, device, host, 20, data_ms=50)
    assert probe.clock_drift == pytest.approx(0, abs=1e-6)


def test_events_are_used_again() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    probe = Probe(clock=host, events=device, thread_cpu=lambda: 0)
    train(probe, device, host, 50)
    assert device.recycled > 50 * 10  # eleven borders a step


def test_misuse_says_so() -> None:
    probe = Probe()
    with pytest.raises(RuntimeError, match="without start"):
        probe.end_block()
    probe.start()
    with pytest.raises(RuntimeError, match="end_block"):
        probe.take()
    with pytest.raises(RuntimeError, match="twice"):
        probe.start()
    probe.end_block()


def test_memory_and_time_a_step() -> None:
    """At most 200 bytes a step; the time is shown in benchmarks/, here only that rows stay flat numbers."""
    probe = Probe()
    probe.start()
    for _ in range(2000):
        for span in (probe.data_wait(), probe.transfer(), probe.forward(), probe.backward(), probe.optimizer()):
            with span:
                pass
        probe.end_step(samples=8)
    probe.end_block()
    held = (probe._marks.buffer_info()[1] + probe._cpu.buffer_info()[1]) * 8 / 2000
    assert held <= 200
    assert len(probe.take()) == 2000
    assert len(MEASURED_PHASES) == 5


def test_tokens_and_losses_of_each_step_keep_within_the_same_memory() -> None:
    """Where each batch has its own number of tokens, and each step its loss: at most 200 bytes a step."""
    probe = Probe()
    probe.start()
    for step in range(200):  # what there is once is not counted
        _told_in_full(probe, step)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for step in range(2000):
        _told_in_full(probe, step)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    probe.end_block()
    assert 88 <= (after - before) / 2000 <= 200  # eleven marks of eight bytes, and the rest
    table = probe.take()
    assert table.columns["tokens"].tolist() == [5000 + step for steps in (200, 2000) for step in range(steps)]
    assert table.columns["loss"].tolist() == [step / 4 for steps in (200, 2000) for step in range(steps)]


def test_and_so_do_steps_on_a_device() -> None:
    """With their own number of tokens, their loss, and a reading of the thread's CPU clock each: at most 200 bytes."""
    host = HostClock()
    device = SimulatedDevice(host)
    probe = Probe(clock=host, events=device, thread_cpu=lambda: host.now_ns // 2)
    probe.start()
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = 0
    for step in range(2000):
        for span in (probe.data_wait(), probe.transfer(), probe.forward(), probe.backward(), probe.optimizer()):
            with span:
                device.launch(0.1)
                host.spend(0.2)
        loss = torch.tensor(step / 4)
        alive.add(loss)
        probe.end_step(samples=8, tokens=5000 + step, padding_tokens=step, loss=loss)
        del loss
        most = max(most, len(alive))
    numbers = len(probe._marks) + len(probe._cpu)
    held = numbers * 8 + sum(len(rows._bytes) for rows in (probe._told, probe._device_rows))
    together = probe._device_losses._together
    # Beside them 128 to 256 losses wait, however many steps there are, and the others lie 128 to a tensor.
    assert most <= 2 * TOGETHER + 2 and len(together) >= (2000 - most) // TOGETHER
    held += sum(map(sys.getsizeof, (together, *together)))
    # What torch keeps of a tensor on the host is 540 bytes with a number, which lies on the device; no call tells it.
    held += sum(sys.getsizeof(steps) + 540 for steps, _ in together)
    assert 170 <= held / 2000 <= 200
    probe.end_block()
    table = probe.take()
    assert table.columns["loss"].tolist() == [step / 4 for step in range(2000)]
    assert not alive and not probe._device_losses._together
    assert table.columns["padding_tokens"].tolist() == list(range(2000))
    assert table.columns["borders"].tolist() == [11.0] * 2000 and table.columns["host_lead_ns"].shape == (2000,)


def _told_in_full(probe: Probe, step: int) -> None:
    for span in (probe.data_wait(), probe.transfer(), probe.forward(), probe.backward(), probe.optimizer()):
        with span:
            pass
    probe.end_step(samples=8, tokens=5000 + step, padding_tokens=1000 + step, loss=step / 4)


def test_a_sleep_in_a_wait_is_read_at_the_steps_end_however_long_nothing_else_is_due() -> None:
    readings: list[int] = []
    thread = Thread()
    probe = Probe(
        clock=thread.host,
        thread_cpu=thread.ask,
        memory=lambda: readings.append(thread.host()) or {"host_rss_bytes": 1.0},
    )
    thread.probe = probe
    probe.read_memory_every(10_000 * MS)
    probe.start()
    for number in range(40):
        thread.step(wait_sleeps=0.1 if number in (7, 30) else 0.0, runs=0.2)
    # At the start and after step 0; for each of the two at the end of its wait, after it and after the next step.
    asked = thread.asked
    assert len(readings) == 1  # at the end of the first step
    assert thread.table()["data_wait_cpu_ns"] == pytest.approx([0.0] * 40)
    assert asked == 2 + 2 * 3


class _Loss:
    """A loss that can be counted while somebody keeps it."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


def test_a_hosts_loop_keeps_few_losses_and_loses_none() -> None:
    host = HostClock()
    probe = Probe(clock=host, thread_cpu=lambda: 0)
    alive: weakref.WeakSet[_Loss] = weakref.WeakSet()
    most = 0
    probe.start()
    for step in range(100):
        host.spend(1)
        loss = _Loss(step / 2)
        alive.add(loss)
        probe.end_step(samples=1, loss=loss)
        most = max(most, len(alive))
    probe.end_block()
    # 16 are kept and then read; beside them lives the one that this loop holds.
    assert most <= 17
    assert probe.take().columns["loss"].tolist() == [step / 2 for step in range(100)]
