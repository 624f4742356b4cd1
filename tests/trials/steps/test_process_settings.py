"""Settings of the whole process, for as long as a trial runs."""

from __future__ import annotations

import pytest
import torch

from perf_diagnostics.records import Settings
from perf_diagnostics.trials.steps import process_settings as settings_of_processes
from perf_diagnostics.trials.steps.process_settings import process_settings


def test_process_settings_are_put_back() -> None:
    threads = torch.get_num_threads()
    with process_settings(Settings(batch_size=1, threads=threads + 1), torch.device("cpu")):
        assert torch.get_num_threads() == threads + 1
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("chosen", [None, False, True])
def test_freed_memory_is_kept_from_before_the_first_tensor_if_that_is_asked(
    monkeypatch: pytest.MonkeyPatch, chosen: bool | None
) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(settings_of_processes, "keep_freed_memory", lambda: kept.append(True))
    with process_settings(Settings(batch_size=1, keep_freed_memory=chosen), torch.device("cpu")):
        assert bool(kept) is (chosen is True)


@pytest.mark.parametrize("chosen", [None, False, True])
def test_masks_come_from_words_while_that_is_asked(chosen: bool | None) -> None:
    def drawn() -> torch.Tensor:
        torch.manual_seed(4)
        return torch.nn.functional.dropout(torch.ones(64))

    plain = drawn()
    with process_settings(Settings(batch_size=1, masks_from_bits=chosen), torch.device("cpu")):
        assert torch.equal(drawn(), plain) is (chosen is not True)
    assert torch.equal(drawn(), plain)


@pytest.mark.parametrize("chosen", [None, False, True])
def test_denormal_numbers_count_as_zero_while_the_trial_runs(chosen: bool | None) -> None:
    tiny = torch.full((4,), torch.finfo(torch.float32).tiny)
    assert (tiny / 2 != 0).all()
    with process_settings(Settings(batch_size=1, flush_denormals=chosen), torch.device("cpu")):
        assert bool((tiny / 2 == 0).all()) is (chosen is True)
    assert (tiny / 2 != 0).all()
