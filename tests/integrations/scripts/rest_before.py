"""A training on a pretended CUDA device whose board rests before it: what it draws is planted by the clock.

Arguments: the results folder, seconds of rest between the model's way to the device and the first step, and of
training. The board draws 50 W at rest and 300 W at work.
"""

from __future__ import annotations

import builtins
import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch

from perf_diagnostics.integrations.readings import slowing
from perf_diagnostics.integrations.run_script import Session, run_watched
from tests.measure.pretended_nvml import PretendedBoard, PretendedLibrary, pretended
from tests.trials.pretended_cuda import install

RESULTS, REST_S, TRAINED_S = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
TICK_S = 0.1
REST_W, WORK_W = 50.0, 300.0


class WorkingBoard(PretendedBoard):
    """Works from the first step on; its counter moves every 100 ms."""

    works_from_s = math.inf

    @property
    def _works(self) -> bool:
        return time.perf_counter() >= self.works_from_s

    @property
    def energy_mj(self) -> int:
        now_s = math.floor(time.perf_counter() / TICK_S) * TICK_S
        worked_s = max(0.0, now_s - self.works_from_s)
        return int(1e3 * (REST_W * (now_s - worked_s) + WORK_W * worked_s))

    @energy_mj.setter
    def energy_mj(self, _value: int) -> None:
        """The field's default."""

    @property
    def instant_mw(self) -> int:
        return int(1e3 * (WORK_W if self._works else REST_W))

    @instant_mw.setter
    def instant_mw(self, _value: int) -> None:
        """The field's default."""

    @property
    def utilization(self) -> int:
        return 90 if self._works else 0

    @utilization.setter
    def utilization(self, _value: int) -> None:
        """The field's default."""


BOARD = WorkingBoard()

TRAIN = f"""
import time, torch
model = torch.nn.Linear(64, 4).to("cuda:0")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
time.sleep({REST_S})
board.works_from_s = time.perf_counter()
while time.perf_counter() - board.works_from_s < {TRAINED_S}:
    model(torch.randn(16, 64).to("cuda:0")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.005)
"""


def main() -> None:
    install(name="Tesla T4", capability=(7, 5), total_memory=2**30)
    torch.set_num_threads(1)
    slowing.INTERVAL_NS = 50_000_000
    script = RESULTS.parent / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    builtins.board = BOARD  # type: ignore[attr-defined]  # for the script
    with pretended(PretendedLibrary([BOARD])):
        session = Session(workload="rest", name="rest", results_dir=RESULTS)
        assert run_watched(str(script), [], as_module=False, session=session) is None


main()
