"""The two calls for a notebook, and the notebook itself."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics import analyze_gpu_utilization, kaggle, run_kaggle_analysis
from perf_diagnostics.measure.devices import DeviceInfo

KAGGLE = Path(__file__).parent.parent / "kaggle"
FILES = {
    "throughput_vs_batch_size.png",
    "time_breakdown.png",
    "memory_usage.png",
    "performance_report.md",
    "report.html",
}


def test_the_files_users_expect(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    before = model.weight.detach().clone()
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8)
    profiler = run_kaggle_analysis(model, loader, [4, 8], num_iterations=5, output_dir=tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    assert profiler.get_results().query("device == 'cpu'")["batch_size"].tolist() == [4, 8]
    assert torch.equal(model.weight, before)


def test_a_gpu_without_kernels_is_left_out_and_the_cpu_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = (
        DeviceInfo(name="cpu", kind="cpu", model="a CPU"),
        DeviceInfo(name="cuda:0", kind="cuda", model="Tesla P100", usable=False, why_not="GPU is sm_60"),
    )
    monkeypatch.setattr(kaggle, "list_devices", lambda: devices)
    model = torch.nn.Linear(4, 3)
    loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.randint(0, 3, (16,))), batch_size=4)
    profiler = run_kaggle_analysis(model, loader, [4], num_iterations=3, output_dir=tmp_path)
    assert profiler.get_results()["device"].tolist() == ["cpu"]
    assert "cuda:0 is left out: GPU is sm_60" in capsys.readouterr().out


def test_files_go_where_a_committed_session_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAGGLE_KERNEL_RUN_TYPE", raising=False)
    monkeypatch.setattr(kaggle, "_KAGGLE_OUTPUT", tmp_path)
    assert kaggle.output_folder() == Path()
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Batch")
    assert kaggle.output_folder() == tmp_path


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_utilisation_is_empty_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze_gpu_utilization(seconds=0.1).empty
    assert "No GPU" in capsys.readouterr().out


def test_the_metadata_names_the_notebook_and_fits_its_title() -> None:
    metadata = json.loads((KAGGLE / "kernel-metadata.json").read_text())
    assert (KAGGLE / metadata["code_file"]).is_file()
    slug = re.sub(r"[^a-z0-9]+", "-", metadata["title"].lower())
    assert metadata["id"].endswith("/" + slug)


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(KAGGLE / "performance_diagnostics.py"))
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert len(names["profiler"].get_results()) >= 5
