"""The warm process leaves CUDA alone, and a trial that could not use it all the same gets an interpreter of its own."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import pytest
import torch

from perf_diagnostics.records import Length, Settings, Trial
from perf_diagnostics.store.files import codec
from perf_diagnostics.trials import fork_server
from perf_diagnostics.trials.launch.launcher import ForkServer, Request

CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"

#: What a library that asks the CUDA runtime when it is imported leaves behind, as seen from Python.
ASKS_CUDA = """
import os, torch
os.register_at_fork(after_in_child=lambda: setattr(torch.cuda, "_is_in_bad_fork", lambda: True))
"""


@pytest.mark.parametrize("before", [None, "0", "1"])
def test_while_modules_are_imported_torch_asks_the_driver_and_not_cuda(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CHECK, raising=False)
    if before is not None:
        monkeypatch.setenv(CHECK, before)
    with pytest.raises(KeyError), fork_server._asking_the_driver():
        assert torch.cuda._nvml_based_avail()
        raise KeyError
    assert os.environ.get(CHECK) == before


def test_a_fork_after_cuda_was_asked_is_told_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not fork_server._device_is_out_of_reach()
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert fork_server._device_is_out_of_reach()


def test_what_python_3_12_says_of_a_fork_beside_threads_reaches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown by default, for the server is ``__main__``. Another warning (here: an error) still gets through."""
    says = ["This process (pid=7) is multi-threaded, use of fork() may lead to deadlocks in the child."]

    def fork() -> int:
        warnings.warn(says[0], DeprecationWarning, stacklevel=2)
        return 7

    monkeypatch.setattr(os, "fork", fork)
    assert fork_server._fork() == 7
    says[0] = "os.fork() goes away"
    with pytest.raises(DeprecationWarning, match="goes away"):
        fork_server._fork()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="trials are forked on Linux")
def test_a_trial_that_could_not_use_its_gpu_begins_afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asks_cuda.py").write_text(ASKS_CUDA)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    trial = Trial(workload="mlp", settings=Settings(batch_size=4), length=Length.exactly(2, warmup_steps=1))
    folders = []
    for preload in ((), ("asks_cuda",)):
        folder = tmp_path / f"after{len(preload)}"
        folder.mkdir()
        server = ForkServer(preload)
        try:
            process = server.start(Request(codec.encode(trial), str(folder)))
            assert process.wait(120.0) == 0
        finally:
            server.close()
        assert (folder / "measured.json").exists()
        folders.append(folder)
    says = ["an interpreter of its own" in (folder / "output.txt").read_text() for folder in folders]
    assert says == [False, True]
