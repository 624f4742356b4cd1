"""Two calls for a notebook: sweep a model's batch sizes and write the files, and see what the GPUs are doing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from perf_diagnostics.diagnostics import PerformanceDiagnostics
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.measure.boards.devices import list_devices
from perf_diagnostics.measure.boards.gpu import gpu_instruments
from perf_diagnostics.measure.observation import Observations, Sampler
from perf_diagnostics.report.formats.renderer import Skipped, write_report
from perf_diagnostics.report.outcome_line import outcome_line
from perf_diagnostics.trials.here.given_parts import check_model, check_trained
from perf_diagnostics.trials.here.given_values import folder as given_folder

if TYPE_CHECKING:
    import pandas

BATCH_SIZES = (8, 16, 32, 64, 128, 256)

#: A committed Kaggle session keeps nothing but this folder.
_KAGGLE_OUTPUT = Path("/kaggle/working")


def run_kaggle_analysis(
    model: torch.nn.Module,
    train_loader: Iterable[Any],
    batch_sizes: Sequence[int] | int = BATCH_SIZES,
    *,
    loss_fn: Any = "cross entropy",
    num_iterations: int = 30,
    output_dir: str | Path | None = None,
    time_budget_s: float | None = None,
) -> PerformanceDiagnostics:
    """Measure a model over batch sizes on the CPU and on every usable GPU, and write figures and report.

    Trains copies with Adam (learning rate 1e-3) and cross entropy, as a first look; for your own loss and optimizer
    use :class:`PerformanceDiagnostics`. Writes ``throughput_vs_batch_size.png``, ``time_breakdown.png``,
    ``memory_usage.png``, ``performance_report.md`` and ``report.html``, and below ``runs`` each configuration's record
    as soon as it has ended, so that a session that is cut off leaves what was measured. Prints a line for each
    configuration when it has ended, and at the end the files' names.

    Args:
        model: any module; it is left as it is.
        train_loader: gives batches ``(x, y)``.
        batch_sizes: samples a step; one or several.
        loss_fn: as for :class:`PerformanceDiagnostics`; default: ``torch.nn.CrossEntropyLoss()``.
        num_iterations: measured steps a configuration.
        output_dir: default: Kaggle's working folder where there is one, else the current folder.
        time_budget_s: seconds for all measuring; what no longer fits is skipped, and said to be.

    Returns:
        The profiler, with its results and report.

    Raises:
        InvalidSettings: an argument that cannot be used, said before anything is measured or made.
        RunError: the output folder cannot be made.
    """
    criterion, optimizer = _loss_of(loss_fn), _adam(model)
    target = output_folder() if output_dir is None else _to_be_made(output_dir)
    usable = [device for device in list_devices() if device.kind in ("cpu", "cuda")]
    for device in usable:
        if not device.usable:
            print(f"{device.name} is left out: {device.why_not}")
    profiler = PerformanceDiagnostics(model, criterion, optimizer)
    devices = [device.name for device in usable if device.usable]
    profiler.run_diagnostics(
        train_loader,
        batch_sizes,
        num_iterations,
        devices=devices,
        time_budget_s=time_budget_s,
        results_dir=target / "runs",
        on_result=lambda result: print(outcome_line(result), flush=True),
    )
    for written in write_report(profiler.generate_bottleneck_report().report, target, ("plots", "md", "html")):
        print(f"{written.format}: skipped: {written.why}" if isinstance(written, Skipped) else written.path)
    return profiler


def _loss_of(loss_fn: Any) -> Any:
    """The loss function, cross entropy by its name."""
    if isinstance(loss_fn, str) and loss_fn != "cross entropy":
        raise InvalidSettings(
            f"loss_fn={loss_fn!r} is a text; give a loss function such as torch.nn.MSELoss(), or leave it out for "
            "cross entropy."
        )
    return torch.nn.CrossEntropyLoss() if isinstance(loss_fn, str) else loss_fn


def _adam(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Adam over what of the model is trained."""
    check_model(model)
    check_trained(model)
    return torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-3)


def _to_be_made(output_dir: str | Path) -> Path:
    """The output folder, which is made when the first configuration is about to be measured."""
    target = Path(given_folder(output_dir, name="output_dir"))
    there = next(path for path in (target, *target.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InvalidSettings(f"output_dir={str(target)!r} cannot be made: {there} is a file; name another folder.")
    return target


def output_folder() -> Path:
    """Where files survive: Kaggle's working folder in a Kaggle session, else the current folder."""
    on_kaggle = "KAGGLE_KERNEL_RUN_TYPE" in os.environ and _KAGGLE_OUTPUT.is_dir()
    return _KAGGLE_OUTPUT if on_kaggle else Path()


def analyze_gpu_utilization(seconds: float = 5.0) -> pandas.DataFrame:
    """Sample every GPU for a while and return what it was doing: one row a GPU, empty without one.

    Utilisation is the share of the driver's sample period in which at least one kernel ran; a single tiny kernel
    keeps it at 100 %, so high utilisation alone does not mean that the GPU is well used.

    Args:
        seconds: how long to sample; run it beside the training that is to be looked at.

    Returns:
        Columns device, model, memory_gib, and of what the board reports: gpu_utilization_mean (%), gpu_power_mean (W),
        gpu_sm_clock_mean (MHz), gpu_temperature_max (°C), gpu_memory_used_max (GiB). A signal the board does not
        report is missing, and printed with the reason.

    Raises:
        InvalidSettings: ``seconds`` is no length of time.
    """
    import pandas as pd

    given: object = seconds  # in a notebook nothing keeps a text from coming here
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < float("inf"):
        raise InvalidSettings(f"seconds={seconds!r} is no length of time; give more than 0 seconds, such as 5.0.")
    devices = [device for device in list_devices() if device.kind == "cuda"]
    if not devices:
        print("No GPU: torch sees none on this machine.")
    rows = []
    for device in devices:
        observations = Observations()
        sampler = Sampler(gpu_instruments([device], observations), observations, clock=time.perf_counter_ns)
        sampler.start(os.getpid())
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(sampler.tick() / 1e9)
        series, _ = sampler.stop()
        row: dict[str, Any] = {"device": device.name, "model": device.model}
        row["memory_gib"] = None if device.memory_bytes is None else device.memory_bytes / 2**30
        by_name = {one.name: one.values for one in series if one.values.size}
        for name in ("gpu_utilization", "gpu_power", "gpu_sm_clock"):
            if name in by_name:
                row[f"{name}_mean"] = float(by_name[name].mean())
        if "gpu_temperature" in by_name:
            row["gpu_temperature_max"] = float(by_name["gpu_temperature"].max())
        if "gpu_memory_used" in by_name:
            row["gpu_memory_used_max"] = float(by_name["gpu_memory_used"].max()) / 2**30
        for gap in observations.gaps:
            print(f"{device.name}: {gap.signal} was not measured: {gap.why}")
        rows.append(row)
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=["device", "model", "memory_gib"])
