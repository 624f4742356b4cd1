"""The board beside a training that is not ours: sampled from a thread, ever more rarely, its energy counted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.integrations.readings import slowing
from perf_diagnostics.integrations.readings.board_sampling import BoardSampling
from perf_diagnostics.integrations.readings.slowing import SlowingSampler
from perf_diagnostics.integrations.readings.used_devices import devices_of
from perf_diagnostics.measure.boards import boards
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.boards.gpu import GpuInstrument, gpu_instruments
from perf_diagnostics.measure.boards.power import Energy
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import Gap, Series
from tests.measure.simulated_device import HostClock

S = 1_000_000_000


class Board:
    """A board of 300 W whose energy counter moves at every reading."""

    name, signals = "board", ("gpu_energy",)

    def __init__(self, clock: HostClock) -> None:
        self.clock, self.times = clock, []

    def start(self, pid: int) -> None:
        self.began = self.clock.now_ns

    def sample(self, now_ns: int) -> None:
        self.times.append(now_ns)

    def stop(self):
        joules = [300.0 * (at - self.began) / S for at in self.times]
        return (Series("gpu_energy", "J", "NVML GPU-1", self.times, joules),), ()


def test_a_cpu_has_no_board() -> None:
    observations = Observations()
    assert devices_of("cpu") == ()
    nothing = BoardSampling("cpu", observations, clock=HostClock())
    nothing.start()
    assert nothing.stop(10, 5) == ((), ()) and observations.gaps == ()
    assert nothing.described == ()


def test_the_device_is_described_with_its_boards_driver_and_limits() -> None:
    board = boards.Board(uuid="GPU-bb", driver="550.54", power_limit_w=300.0, default_power_limit_w=400.0)
    reader: Any = SimpleNamespace(boards=lambda: (board,), unlisted=())

    def instruments(devices: Sequence[DeviceInfo], observations: Observations) -> tuple[GpuInstrument, ...]:
        return gpu_instruments(devices, observations, open_reader=lambda: reader)

    a100 = DeviceInfo(name="cuda:0", kind="cuda", model="NVIDIA A100-SXM4-80GB", uuid="bb")
    sampling = BoardSampling(
        "cuda:0", Observations(), clock=HostClock(), instruments=instruments, devices=lambda _name: (a100,)
    )
    (described,) = sampling.described
    assert (described["name"], described["model"], described["uuid"]) == ("cuda:0", a100.model, "bb")
    assert (described["driver"], described["power_limit_w"], described["default_power_limit_w"]) == ("550.54", 300, 400)


def test_an_accelerator_without_a_board_is_described_all_the_same() -> None:
    m2 = DeviceInfo(name="mps", kind="mps", model="Apple M2 Pro")
    sampling = BoardSampling("mps", Observations(), clock=HostClock(), devices=lambda _name: (m2,))
    assert [one["model"] for one in sampling.described] == ["Apple M2 Pro"]


def test_the_energy_of_the_steps_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    host, observations = HostClock(), Observations()
    board = Board(host)
    sampling = BoardSampling("cuda:0", observations, clock=host, instruments=lambda *_: (board,))
    monkeypatch.setattr(sampling._thread._thread, "run", lambda: None)  # the test samples itself
    sampling.start()
    for _ in range(100):
        host.spend(200)
        sampling._thread._sampler.tick()
    series, quantities = sampling.stop(50, host.now_ns)
    found = {quantity.name: quantity.value for quantity in quantities}
    assert found["energy_device"] == pytest.approx(300 * 20, rel=0.02), observations.gaps  # 300 W for 20 s
    assert found["energy_device_steps"] == 50 and series[0].name == "gpu_energy"


def of_a_pretended_board(host: HostClock, observations: Observations, **more: Any) -> BoardSampling:
    """Sampling of a board of 300 W whose counter and power are read; the test drives it."""
    board = boards.Board(uuid="GPU-bb", driver="550.54")

    def read(_uuid: str, signal: str) -> float:
        if signal == "gpu_energy":
            return 300.0 * host.now_ns / S
        if signal == "gpu_power":
            return 300.0
        raise Unreadable(f"no {signal}", lasting=True)

    reader: Any = SimpleNamespace(boards=lambda: (board,), unlisted=(), read=read, process_memory=lambda _uuid: {})

    def instruments(devices: Sequence[DeviceInfo], noted: Observations) -> tuple[GpuInstrument, ...]:
        return gpu_instruments(devices, noted, open_reader=lambda: reader)

    t4 = DeviceInfo(name="cuda:0", kind="cuda", model="Tesla T4", uuid="bb")
    given: dict[str, Any] = {"instruments": instruments, "devices": lambda _name: (t4,), **more}
    return BoardSampling("cuda:0", observations, clock=host, **given)


def sampled(sampling: BoardSampling, host: HostClock, seconds: float) -> None:
    for _ in range(round(seconds * 5)):
        host.spend(200)
        sampling._thread._sampler.tick()


def without_thread(sampling: BoardSampling, monkeypatch: pytest.MonkeyPatch) -> BoardSampling:
    monkeypatch.setattr(sampling._thread._thread, "run", lambda: None)
    return sampling


def test_the_window_begins_when_the_steady_steps_do(monkeypatch: pytest.MonkeyPatch) -> None:
    host, observations = HostClock(), Observations()
    sampling = without_thread(of_a_pretended_board(host, observations), monkeypatch)
    sampling.start()
    sampled(sampling, host, 3)  # a rank's board is looked at for a step of its warm-up
    sampling.window_begins()
    sampled(sampling, host, 12)
    _, quantities = sampling.stop(50, host.now_ns)
    found = {quantity.name: quantity.value for quantity in quantities}
    assert found["energy_device_window_s"] == 12
    assert found["energy_device"] == pytest.approx(3600)
    assert found["energy_device_boards"] == 1
    assert {gap.signal for gap in observations.gaps} >= {"device_idle_power"}  # and its reason


def test_what_was_used_so_far_is_known_while_the_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostClock()
    wall_ahead_ns = 1_700_000_000 * S
    sampling = of_a_pretended_board(host, Observations(), wall_clock=lambda: host.now_ns + wall_ahead_ns)
    without_thread(sampling, monkeypatch).start()
    began_ns = host.now_ns
    sampled(sampling, host, 12)
    ended_ns = host.now_ns
    host.spend(500)  # what is written aside comes after the last step
    used = sampling.used(ended_ns)
    assert used is not None and isinstance(used.energy, Energy)
    assert used.energy.joules == pytest.approx(300 * 12)
    assert (used.began.host_ns, used.began.wall_ns) == (began_ns, began_ns + wall_ahead_ns)
    assert (used.ended.host_ns, used.ended.wall_ns) == (ended_ns, ended_ns + wall_ahead_ns)
    sampled(sampling, host, 4)  # and nothing was ended by that
    _, quantities = sampling.stop(50, host.now_ns)
    assert {q.name: q.value for q in quantities}["energy_device"] == pytest.approx(300 * 16.5)
    final = sampling.used(0)
    assert final is not None and isinstance(final.energy, Energy) and final.energy.joules == pytest.approx(300 * 16.5)


def test_a_reading_under_way_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostClock()
    sampling = without_thread(of_a_pretended_board(host, Observations()), monkeypatch)
    sampling.start()
    sampled(sampling, host, 8)
    with sampling._sampler._reading:  # the driver hangs
        assert sampling.used(host.now_ns) is None
    assert sampling.used(host.now_ns) is not None


def test_a_window_in_which_nothing_was_trained_is_told_as_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostClock()
    sampling = without_thread(of_a_pretended_board(host, Observations()), monkeypatch)
    sampling.start()
    used = sampling.used(host.now_ns - S)
    assert used is not None and isinstance(used.energy, Gap)
    assert used.energy.why.startswith("insufficient_window: the window of 0 s")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("cuda", "no NVIDIA driver library"),
        ("xpu", "devices of this kind have no board that can be read"),
    ],
)
def test_without_a_board_that_can_be_read_the_reason_is_told(kind: str, why: str) -> None:
    def no_driver() -> Any:
        raise Unreadable("no NVIDIA driver library", lasting=True)

    sampling = BoardSampling(
        f"{kind}:0",
        Observations(),
        clock=HostClock(),
        instruments=lambda known, noted: gpu_instruments(known, noted, open_reader=no_driver),
        devices=lambda name: (DeviceInfo(name=name, kind=kind, model="a device"),),
    )
    sampling.start()
    used = sampling.used(5 * S)
    assert used is not None and used.energy == Gap("energy_device", why)


def test_a_mig_instance_is_told_as_such() -> None:
    whole = boards.Board(uuid="GPU-bb", split=True)
    reader: Any = SimpleNamespace(boards=lambda: (whole,), unlisted=())
    a100 = DeviceInfo(name="cuda:0", kind="cuda", model="NVIDIA A100 MIG 1g.5gb", uuid="MIG-11")
    sampling = BoardSampling(
        "cuda:0",
        Observations(),
        clock=HostClock(),
        instruments=lambda known, noted: gpu_instruments(known, noted, open_reader=lambda: reader),
        devices=lambda _name: (a100,),
    )
    used = sampling.used(5 * S)
    assert used is not None and isinstance(used.energy, Gap)
    assert used.energy.why.startswith("the device is a MIG instance")


def test_sampling_grows_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowing, "SAMPLINGS_A_RATE", 100)
    host = HostClock()
    sampler = SlowingSampler((), Observations(), clock=host)
    sampler.start(1)
    for _ in range(24 * 3600):
        host.spend(1000)
        sampler.tick()
    # A rate's samplings last twice as long each time: 100 a doubling, and a day has some ten of them.
    assert 500 < sampler.samplings < 1300


# Several boards of one process, and their rest


A, B = "GPU-aaaa", "GPU-bbbb"
T4S = tuple(
    DeviceInfo(name=f"cuda:{index}", kind="cuda", model="Tesla T4", uuid=uuid) for index, uuid in enumerate((A, B))
)


def of_two_boards(
    host: HostClock,
    observations: Observations,
    used: list[DeviceInfo],
    *,
    listed: Sequence[str] = (A, B),
    silent: str = "",
    **more: Any,
) -> BoardSampling:
    """Sampling of boards of 300 W and 200 W, of a process that uses these devices; one of them may refuse all."""
    watts = {A: 300.0, B: 200.0}

    def read(uuid: str, signal: str) -> float:
        if uuid == silent:
            raise Unreadable("this board does not report it", lasting=True)
        if signal == "gpu_energy":
            return watts[uuid] * host.now_ns / S
        given = {"gpu_power": watts[uuid], "gpu_utilization": 90.0, "gpu_memory_used": 1e9}
        if signal in given:
            return given[signal]
        raise Unreadable(f"no {signal}", lasting=True)

    reader: Any = SimpleNamespace(
        boards=lambda: tuple(boards.Board(uuid=uuid) for uuid in listed),
        unlisted=(),
        read=read,
        process_memory=lambda uuid: {os.getpid(): 4 if uuid == A else 7},
    )
    return BoardSampling(
        "cuda:0",
        observations,
        clock=host,
        instruments=lambda known, noted: gpu_instruments(known, noted, open_reader=lambda: reader),
        devices=lambda _name: tuple(used),
        **more,
    )


def test_all_boards_that_the_process_computes_on_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    host, observations = HostClock(), Observations()
    sampling = without_thread(of_two_boards(host, observations, [*T4S]), monkeypatch)
    sampling.start()
    sampled(sampling, host, 12)
    _, quantities = sampling.stop(50, host.now_ns)
    found = {quantity.name: quantity.value for quantity in quantities}
    assert found["energy_device"] == pytest.approx(500 * 12)
    assert found["energy_device_boards"] == 2
    assert [one["name"] for one in sampling.described] == ["cuda:0", "cuda:1"]
    # of the memory, each number once: that of the training's own board
    assert [quantity.value for quantity in quantities if quantity.name == "device_memory_process_peak"] == [4]


def test_one_board_of_several_that_cannot_be_read_leaves_no_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    host, observations = HostClock(), Observations()
    sampling = without_thread(of_two_boards(host, observations, [*T4S], listed=[A]), monkeypatch)
    sampling.start()
    sampled(sampling, host, 12)
    _, quantities = sampling.stop(50, host.now_ns)
    assert "energy_device" not in {quantity.name for quantity in quantities}
    (gap,) = (gap for gap in observations.gaps if gap.signal == "energy_device")
    assert gap.why.startswith("of 2 devices in use the boards of 1 cannot be read: the driver lists no board GPU-bbbb")


def test_one_board_of_several_that_says_nothing_leaves_no_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    host, observations = HostClock(), Observations()
    sampling = without_thread(of_two_boards(host, observations, [*T4S], silent=B), monkeypatch)
    sampling.start()
    sampled(sampling, host, 12)
    _, quantities = sampling.stop(50, host.now_ns)
    assert "energy_device" not in {quantity.name for quantity in quantities}
    why = "GPU-bbbb: neither its energy counter nor its power could be read"
    assert Gap("energy_device", why) in observations.gaps


def test_a_board_that_is_used_only_later_leaves_no_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    host, observations, used = HostClock(), Observations(), [T4S[0]]
    sampling = without_thread(of_two_boards(host, observations, used), monkeypatch)
    sampling.start()
    sampled(sampling, host, 12)
    so_far = sampling.used(host.now_ns)
    assert so_far is not None and isinstance(so_far.energy, Energy) and so_far.energy.joules == pytest.approx(3600)
    used.append(T4S[1])
    _, quantities = sampling.stop(50, host.now_ns)
    assert "energy_device" not in {quantity.name for quantity in quantities}
    why = "cuda:1 came into use when the steady steps had begun, and was not read"
    assert Gap("energy_device", why) in observations.gaps


def at_rest(board: str, watts: float, seconds: float) -> list[Series]:
    """Readings of a board with nothing to do, before the host's clock began."""
    times = (np.arange(round(seconds * 10)) - round(seconds * 10)) * (S // 10)
    named = {"gpu_power": watts, "gpu_utilization": 0.0, "gpu_memory_used": 1e9}
    return [Series(name, "", f"NVML {board}", times, np.full(times.size, value)) for name, value in named.items()]


def test_energy_is_published_gross_and_net_of_the_rest_before(monkeypatch: pytest.MonkeyPatch) -> None:
    host, observations = HostClock(), Observations()
    before = (*at_rest(A, 50, 9), *at_rest(B, 30, 8))
    sampling = without_thread(of_two_boards(host, observations, [*T4S], before=lambda: before), monkeypatch)
    sampling.start()
    sampled(sampling, host, 12)
    so_far = sampling.used(host.now_ns)
    assert so_far is not None and so_far.rest == {A: pytest.approx(50), B: pytest.approx(30)}
    _, quantities = sampling.stop(50, host.now_ns)
    found = {quantity.name: quantity for quantity in quantities}
    assert found["device_idle_power"].value == pytest.approx(80)
    assert found["device_idle_power"].source == f"NVML ({A}, {B}), at rest outside of the steps"
    assert found["energy_device_net"].value == pytest.approx((500 - 80) * 12)
    assert "device_idle_power" not in {gap.signal for gap in observations.gaps}


def test_without_the_rest_of_every_board_the_energy_is_gross_only(monkeypatch: pytest.MonkeyPatch) -> None:
    host, observations = HostClock(), Observations()
    before = (*at_rest(A, 50, 9), *at_rest(B, 30, 3))
    sampling = without_thread(of_two_boards(host, observations, [*T4S], before=lambda: before), monkeypatch)
    sampling.start()
    sampled(sampling, host, 12)
    _, quantities = sampling.stop(50, host.now_ns)
    assert {"energy_device"} == {q.name for q in quantities} & {
        "energy_device",
        "energy_device_net",
        "device_idle_power",
    }
    (gap,) = (gap for gap in observations.gaps if gap.signal == "device_idle_power")
    assert gap.why.startswith("insufficient_window: GPU-bbbb was seen with nothing to do")
    assert gap.why.endswith(
        "for 2.9 s at most outside of the steps; a baseline takes 7 s; nor did it rest for long enough when they were "
        "over"
    )


def test_a_rest_after_the_last_step_is_a_baseline_too(monkeypatch: pytest.MonkeyPatch) -> None:
    host, observations = HostClock(), Observations()
    drawn = {"watts": 300.0, "used": 90.0, "joules": 0.0}
    reader: Any = SimpleNamespace(
        boards=lambda: (boards.Board(uuid=A),),
        unlisted=(),
        read=lambda _uuid, signal: {
            "gpu_energy": drawn["joules"],
            "gpu_power": drawn["watts"],
            "gpu_utilization": drawn["used"],
        }.get(signal, 1e9),
        process_memory=lambda _uuid: {},
    )
    sampling = without_thread(
        BoardSampling(
            "cuda:0",
            observations,
            clock=host,
            instruments=lambda known, noted: gpu_instruments(known, noted, open_reader=lambda: reader),
            devices=lambda _name: T4S[:1],
        ),
        monkeypatch,
    )
    sampling.start()
    for watts, used, seconds in ((300.0, 90.0, 12), (45.0, 0.0, 14)):
        drawn.update(watts=watts, used=used)
        for _ in range(seconds * 5):
            drawn["joules"] += watts / 5
            sampled(sampling, host, 0.2)
    ended_ns = host.now_ns - 14 * S
    _, quantities = sampling.stop(50, ended_ns)
    found = {quantity.name: quantity.value for quantity in quantities}
    assert found["device_idle_power"] == pytest.approx(45)
    assert found["energy_device_net"] == pytest.approx((300 - 45) * 12, rel=0.02)
