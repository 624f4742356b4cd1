"""The two calls for a notebook, and the notebook itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics import analyze_gpu_utilization, kaggle, run_kaggle_analysis
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.store.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("small_ceilings", "one_thread")

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
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES | {"runs"}
    (kept,) = (tmp_path / "out" / "runs").iterdir()
    run = RunFolder.open(kept).read()
    assert [(r.trial.settings.batch_size, len(r.steps[0].steady)) for r in run.results] == [
        (r.trial.settings.batch_size, 5) for r in profiler.run.results
    ]
    assert profiler.get_results().query("device == 'cpu'")["batch_size"].tolist() == [4, 8]
    assert torch.equal(model.weight, before)


def test_each_configuration_is_told_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told_before: list[str] = []
    write = kaggle.write_report
    monkeypatch.setattr(
        kaggle, "write_report", lambda *given: (told_before.append(capsys.readouterr().out), write(*given))[1]
    )
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8)
    run_kaggle_analysis(torch.nn.Linear(4, 3), loader, [4, 128], num_iterations=5, output_dir=tmp_path)
    (lines,) = [text.splitlines() for text in told_before]
    shown, failed = sorted(lines, key=lambda line: "batch 128" in line)
    assert re.fullmatch(r"cpu batch 4  [\d.]+( ± [\d.]+)? samples/s over 5 steps \(max steps\)", shown)
    assert failed.startswith("cpu batch 128  invalid settings: batch_size=128") and "64 samples" in failed


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


def test_what_cannot_be_used_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.randint(0, 3, (16,))), batch_size=4)
    model, out = torch.nn.Linear(4, 3), tmp_path / "out"
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSettings, match=r"model should be a torch\.nn\.Module, not DataLoader"):
        run_kaggle_analysis(loader, model, [4], output_dir=out)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="no parameter that requires a gradient"):
        run_kaggle_analysis(torch.nn.Linear(4, 3).requires_grad_(False), loader, [4], output_dir=out)
    with pytest.raises(InvalidSettings, match="loss_fn='mse' is a text"):
        run_kaggle_analysis(model, loader, [4], loss_fn="mse", output_dir=out)
    with pytest.raises(InvalidSettings, match=r"cannot be made: .*file is a file"):
        run_kaggle_analysis(model, loader, [4], output_dir=tmp_path / "file" / "below")
    with pytest.raises(InvalidSettings, match="output_dir=3 is no folder"):
        run_kaggle_analysis(model, loader, [4], output_dir=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="batch_sizes=None"):
        run_kaggle_analysis(model, loader, None, output_dir=out)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="dataloader=None"):
        run_kaggle_analysis(model, None, [4], output_dir=out)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="time_budget_s='3'"):
        run_kaggle_analysis(model, loader, [4], time_budget_s="3", output_dir=out)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="batch_size=17: no batch would be full"):
        run_kaggle_analysis(model, loader, 17, output_dir=out)
    assert not out.exists()


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), "5", True])
def test_sampling_takes_a_length_of_time(seconds: float) -> None:
    with pytest.raises(InvalidSettings, match="give more than 0 seconds"):
        analyze_gpu_utilization(seconds)


def test_what_no_longer_fits_into_the_time_is_skipped_and_said_to_be(tmp_path: Path) -> None:
    loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8)
    profiler = run_kaggle_analysis(
        torch.nn.Linear(4, 3), loader, [4, 8], num_iterations=5, output_dir=tmp_path, time_budget_s=0
    )
    assert set(profiler.get_results()["outcome"]) == {"skipped_over_time_budget"}
    (kept,) = (tmp_path / "runs").iterdir()
    assert all(result.outcome.skipped for result in RunFolder.open(kept).read().results)


def test_files_go_where_a_committed_session_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAGGLE_KERNEL_RUN_TYPE", raising=False)
    monkeypatch.setattr(kaggle, "_KAGGLE_OUTPUT", tmp_path)
    assert kaggle.output_folder() == Path()
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Batch")
    assert kaggle.output_folder() == tmp_path


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_utilisation_is_empty_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    table = analyze_gpu_utilization(seconds=0.1)
    assert table.empty and list(table.columns) == ["device", "model", "memory_gib"]
    assert "No GPU" in capsys.readouterr().out


def test_the_metadata_names_the_notebook_and_fits_its_title() -> None:
    metadata = json.loads((KAGGLE / "kernel-metadata.json").read_text())
    assert (KAGGLE / metadata["code_file"]).is_file()
    slug = re.sub(r"[^a-z0-9]+", "-", metadata["title"].lower())
    assert metadata["id"].endswith("/" + slug)


def test_the_notebook_was_built_from_its_source() -> None:
    check = [sys.executable, str(KAGGLE.parent / "scripts" / "build-notebook.py"), "--check"]
    ended = subprocess.run(check, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_the_name_older_notebooks_import() -> None:
    import model_profiler

    assert model_profiler.run_kaggle_analysis is run_kaggle_analysis
    assert model_profiler.analyze_gpu_utilization is analyze_gpu_utilization


def test_the_data_set_and_the_kernel_name_each_other() -> None:
    kernel = json.loads((KAGGLE / "kernel-metadata.json").read_text())
    dataset = json.loads((KAGGLE / "dataset-metadata.json").read_text())
    assert kernel["dataset_sources"] == [dataset["id"]]
    assert not kernel["enable_internet"]  # so everything it installs has to be in the data set


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jupyter's own, at import
        import nbclient
        import nbformat

        notebook = nbformat.read(KAGGLE / "performance_diagnostics.ipynb", as_version=4)
        client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
        client.execute()
    assert {path.name for path in tmp_path.iterdir()} >= FILES
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    report = [output["data"]["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert any("samples/s" in html for html in report)
    assert not any("<script" in html for html in report)  # saved notebooks strip scripts
