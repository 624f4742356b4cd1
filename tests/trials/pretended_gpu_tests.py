"""Runs those of tests/gpu that a pretended board can stand, as a program of its own; prints what came of each as JSON.

What they ask of torch itself (profilers, streams, graphs, tensors that are made past every mode) such a board has not.
"""

import json

import pytest
import torch._dynamo  # noqa: F401 - asks which functions a CUDA build has, before there is one

from tests.measure.pretended_nvml import PretendedBoard, PretendedLibrary, pretended
from tests.trials.pretended_cuda import install

BOARD = PretendedBoard(name="NVIDIA H200", capability=(9, 0), memory_total=144 * 2**30)
CHOSEN = (
    "test_host_and_device.py::test_a_healthy_step_reads_nothing",
    "test_host_and_device.py::test_large_copies_from_pinned_memory_have_a_rate",
    "test_host_and_device.py::test_the_driver_knows_the_link",
    "test_host_and_device.py::test_each_reading_of_the_board_is_one_or_is_refused_in_words",
    "test_host_and_device.py::test_the_driver_and_torch_speak_of_the_same_board",
    "test_on_a_gpu.py::test_every_precision_trains[tf32]",
    "test_on_a_gpu.py::test_every_precision_trains[float16]",
    "test_on_a_gpu.py::test_out_of_memory_is_an_outcome_and_the_next_trial_runs",
    "test_on_a_gpu.py::test_what_the_board_itself_cannot_hold_is_out_of_memory",
    "test_on_a_gpu.py::test_waits_of_the_allocator_are_counted",
    "test_on_a_gpu.py::test_a_loop_of_ones_own_is_timed_on_the_device",
)


class Outcomes:
    def __init__(self) -> None:
        self.of: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.of[report.nodeid.partition("::")[2]] = report.outcome


def main() -> None:
    install(
        name=BOARD.name,
        capability=BOARD.capability,
        total_memory=int(0.97 * BOARD.memory_total),
        largest_block=2**40,
        operator_ns=20_000,
    )
    outcomes = Outcomes()
    with pretended(PretendedLibrary([BOARD])):
        pytest.main(["-q", "-p", "no:cacheprovider", *(f"tests/gpu/{one}" for one in CHOSEN)], plugins=[outcomes])
    print(json.dumps(outcomes.of))


if __name__ == "__main__":
    main()
