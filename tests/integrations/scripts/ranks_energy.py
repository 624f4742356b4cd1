"""Two processes of one training on the CPU, whose boards a pretended driver below nvidia-ml-py counts the energy of.

The processors of their machine draw 150 W, and their memory 20 W, by a pretended /sys/class/powercap.

RANK and WORLD_SIZE come from the environment, as torchrun sets them. Arguments: the results folder, the store's file,
what is planted (``two``: a board each; ``shared``: one board; ``absent``: rank 1 has no driver; ``killed``: both are
killed at the end), how many steps of 10 ms.
"""

from __future__ import annotations

import functools
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[3]))

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.readings import processor_energy, slowing, steady_readings
from perf_diagnostics.integrations.readings.board_sampling import BoardSampling
from perf_diagnostics.measure.boards import energy_methods
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.host import rapl
from tests.measure.pretended_nvml import PretendedBoard, PretendedLibrary, pretended

RESULTS, STORE, PLANTED, STEPS = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
RANK = int(os.environ["RANK"])
UUIDS = ("GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000")
WATTS = (300.0, 200.0)
TICK_S = 0.1


class DrawingBoard(PretendedBoard):
    """A board of constant power, whose counter moves every 100 ms by the machine's clock."""

    watts = 0.0

    @property
    def energy_mj(self) -> int:
        return int(self.watts * 1e3 * math.floor(time.perf_counter() / TICK_S) * TICK_S)

    @energy_mj.setter
    def energy_mj(self, _value: int) -> None:
        """The field's default."""


def boards() -> list[DrawingBoard]:
    found = []
    for index, (uuid, watts) in enumerate(zip(UUIDS, WATTS, strict=True)):
        board = DrawingBoard(uuid=uuid, bus_id=f"00000000:{index + 1:02X}:00.0", instant_mw=int(watts * 1e3))
        board.watts = watts
        found.append(board)
    return found


def batches():
    for _ in range(STEPS):
        time.sleep(0.01)
        yield torch.randn(4 if RANK == 0 else 12, 16)


class Loader(torch.utils.data.IterableDataset):
    def __iter__(self):
        return batches()


def watched(results: Path) -> None:
    # The gradients are averaged over ranks as DistributedDataParallel does it.
    dist.init_process_group("gloo", init_method=f"file://{STORE}", rank=RANK, world_size=int(os.environ["WORLD_SIZE"]))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Loader(), batch_size=None)
    with attach(model, optimizer, loader, name="ranks", results_dir=results):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        if PLANTED == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group()


def device(_name: str) -> tuple[DeviceInfo, ...]:
    own = UUIDS[0 if PLANTED == "shared" else RANK]
    return (DeviceInfo(name="cuda:0", kind="cuda", model="Tesla T4", uuid=own.removeprefix("GPU-")),)


def processors() -> None:
    """The counters' files lie in the results folder; what they show is told by the machine's clock."""
    folder = Path(STORE).with_name(f"powercap{RANK}")
    for zone, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "dram")):
        (folder / zone).mkdir(parents=True)
        (folder / zone / "name").write_text(name, encoding="ascii")
        (folder / zone / "max_energy_range_uj").write_text("262143328850", encoding="ascii")
    watts = {"package-0": 150, "dram": 20}
    rapl.RaplDomain.read_uj = (  # type: ignore[method-assign]
        lambda domain: time.perf_counter_ns() * watts[domain.name] // 1000 % domain.range_uj
    )
    patched: Any = processor_energy
    patched.RaplInstrument = functools.partial(rapl.RaplInstrument, folder)
    patched.LEAST_WINDOW_S = energy_methods.LEAST_WINDOW_S


def main() -> None:
    torch.set_num_threads(1)
    patched: Any = steady_readings
    patched.BoardSampling = functools.partial(BoardSampling, devices=device)
    slowing.INTERVAL_NS = 50_000_000
    if PLANTED != "two":  # that one keeps to the least window of 5 s
        energy_methods.LEAST_WINDOW_S, energy_methods.LEAST_UPDATES = 1.0, 10
    processors()
    import pynvml

    missing = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND if PLANTED == "absent" and RANK == 1 else pynvml.NVML_SUCCESS
    with pretended(PretendedLibrary(list(boards()), init=missing)):
        watched(Path(RESULTS))


main()
