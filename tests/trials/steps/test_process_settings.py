"""Settings of the whole process, for as long as a trial runs."""

from __future__ import annotations

import torch

from perf_diagnostics.records import Settings
from perf_diagnostics.trials.steps.process_settings import process_settings


def test_process_settings_are_put_back() -> None:
    threads = torch.get_num_threads()
    with process_settings(Settings(batch_size=1, threads=threads + 1), torch.device("cpu")):
        assert torch.get_num_threads() == threads + 1
    assert torch.get_num_threads() == threads
