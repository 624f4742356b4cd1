"""What every trial would refuse is refused before the first; what only some would refuse is left to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.records import Settings, Trial
from perf_diagnostics.trials.plan import Axes, plan
from perf_diagnostics.trials.preflight import check

CPU = DeviceInfo(name="cpu", kind="cpu", model="a CPU")
GPU = DeviceInfo(name="cuda:0", kind="cuda", model="a GPU")
OLD = DeviceInfo(name="cuda:1", kind="cuda", model="an old GPU", usable=False, why_not="no kernels for sm_60")
FAILED = DeviceInfo(name="accelerator", kind="unknown", model="unknown", usable=False, why_not="it took too long")


def look(*found: DeviceInfo, workload: str = "mlp", options: dict[str, Any] | None = None, **axes: Any) -> None:
    others = {name: values for name, values in axes.items() if name not in ("devices", "batch_sizes", "seed")}
    kept = {name: axes[name] for name in ("devices", "batch_sizes", "seed") if name in axes}
    planned = plan(Axes(workload=workload, options=options or {}, others=others, **{"batch_sizes": (8,), **kept}))
    check(planned, probe=lambda: found or (CPU, GPU, OLD))


def never() -> Sequence[DeviceInfo]:
    raise AssertionError("nobody has to look for devices")


@pytest.mark.parametrize(
    ("workload", "options", "says"),
    [
        ("mpl", {}, "did you mean 'mlp'"),
        ("mlp", {"widht": 3}, "did you mean 'width'"),
        ("mlp", {"width": "wide"}, "must be of type int"),
        ("mlp", {"width": 0}, "at least 1"),
        ("mlp", {"dataset": "glue/sst2"}, "no option 'dataset'"),
        ("faulty", {}, "needs a fault to plant"),
        ("tiny-transformer", {"dim": 10, "heads": 3}, "dim=10 cannot be divided among heads=3"),
        ("distilbert-sst2", {"dataset": "nowhere.csv"}, "nor a file or folder that exists"),
        ("distilbert-sst2", {"model": "some/hub-id"}, "add weights='pretrained'"),
        ("distilbert-sst2", {"weights": "pretrained", "model": "./nowhere"}, "There is no folder './nowhere'"),
        ("distilbert-sst2", {"weights": "pretrained", "layers": 2}, "layers=2 does not go with pretrained"),
        ("distilbert-sst2", {"tokenizer": "/nowhere"}, "There is no folder '/nowhere'"),
    ],
)
def test_workloads_and_options(workload: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        look(workload=workload, options=options)


def test_tf32_is_refused_on_a_gpu_that_is_known_to_have_none() -> None:
    def board(name: str, capability: str | None) -> DeviceInfo:
        return DeviceInfo(name=name, kind="cuda", model="Tesla T4", capability=capability)

    with pytest.raises(InvalidSettings, match=r"Tesla T4 has compute capability 7\.5 and TF32 needs 8\.0"):
        look(CPU, board("cuda:0", "7.5"), devices=("cuda",), precision=("tf32",))
    look(CPU, board("cuda:0", "8.0"), devices=("cuda:0",), precision=("tf32",))
    look(CPU, board("cuda:0", "gfx90a"), devices=("cuda:0",), precision=("tf32",))  # the trial finds out
    # cuda:1 has it, so the sweep stays as it is, and the trials on cuda:0 say why they are none.
    both = {"devices": ("cuda:0", "cuda:1"), "precision": ("float32", "tf32")}
    look(CPU, board("cuda:0", "7.5"), board("cuda:1", "8.6"), **both)


def test_a_data_set_is_read_before_the_first_trial(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("sentence,label\nfine,1\nodd,2\n")
    with pytest.raises(WorkloadError, match=r"Row 2 of .*label is '2'"):
        look(workload="distilbert-sst2", options={"dataset": str(tmp_path / "train.csv")})


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"devices": ("gpu0",)}, "'gpu0' is no device name; usable here: cpu, cuda:0"),
        ({"devices": ("cuda:o",)}, "did you mean 'cuda:0'"),
        ({"devices": ("cpu", "cuda:7")}, "device='cuda:7': this machine has no such device; usable here: cpu, cuda:0"),
        ({"devices": ("cuda:1",)}, "device='cuda:1' cannot be used: no kernels for sm_60"),
        ({"precision": ("float16",)}, "precision='float16' is not trained on a CPU"),
        ({"precision": ("float32", "tf32")}, "precision='tf32' needs a CUDA device"),
        ({"precision": ("float64",)}, "precision='float64' is not trained here; use 'float32'"),
        ({"batch_sizes": (8, 5000)}, "batch_size=5000 is more than the 4096 samples"),
        ({"prefetch_factor": (4,)}, "prefetch_factor=4 needs worker processes"),
        ({"sequence_length": (64,)}, "sequence_length=64 cannot be honoured by mlp"),
        ({"seed": 2**63}, "is no seed for torch"),
    ],
)
def test_settings(axes: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        look(**axes)


def test_pinned_memory_needs_something_that_copies_from_it() -> None:
    with pytest.raises(InvalidSettings, match="pin_memory=True needs an accelerator"):
        look(CPU, pin_memory=(True,))
    look(CPU, GPU, pin_memory=(True, False))
    look(CPU, pin_memory=(False,))


def test_a_value_that_some_configuration_can_run_is_left_to_the_trials() -> None:
    """float16 on cpu is no trial, on cuda:0 it is one; prefetch_factor=4 with 2 workers is one, with 0 it is none."""
    look(devices=("cpu", "cuda:0"), precision=("float32", "float16"))
    with pytest.raises(InvalidSettings, match="prefetch_factor=4"):  # every configuration with num_workers=0 has it
        look(num_workers=(0, 2), prefetch_factor=(4,))
    check(
        [
            Trial(workload="mlp", settings=Settings(batch_size=8, num_workers=0)),
            Trial(workload="mlp", settings=Settings(batch_size=8, num_workers=2, prefetch_factor=4)),
        ],
        probe=never,
    )


def test_nothing_is_looked_for_where_only_the_cpu_is_used() -> None:
    check(plan(Axes(workload="mlp", seed=-1)), probe=never)


def test_where_looking_for_devices_failed_the_trials_find_out() -> None:
    look(CPU, FAILED, devices=("cuda:3",), pin_memory=(True,))


def test_a_plug_in_s_device_is_left_to_the_trials() -> None:
    look(devices=("hpu:0",))


def test_a_function_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "looked_ahead.py").write_text("def make(seed):\n    raise AssertionError('nothing is built')\n")
    monkeypatch.syspath_prepend(tmp_path)
    look(workload="looked_ahead:make")
    with pytest.raises(WorkloadError, match="takes no options, and width was given"):
        look(workload="looked_ahead:make", options={"width": 3})
    with pytest.raises(InvalidSettings, match="has no parameter 'settings'"):
        look(workload="looked_ahead:make", sequence_length=(64,))
    with pytest.raises(WorkloadError, match="did you mean 'make'"):
        look(workload="looked_ahead:mak")
