"""A run for TensorBoard: scalars of every step, one table of all configurations, profiler traces if there are any."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.errors import FormatUnavailable
from perf_diagnostics.integrations.exports.naming import full_label, headline_numbers, sweep_results
from perf_diagnostics.records import ALL_PHASES, Run, StepTable, TrialResult

#: The name under which TensorBoard's profiler plugin looks for traces of PyTorch.
_TRACE_NAME = "{worker}.pt.trace.json.gz"


def write_tensorboard(run: Run, logdir: Path, *, traces: Mapping[str, Path] | None = None) -> tuple[Path, ...]:
    """Write one log folder a trial below ``logdir``; steps keep the wall time at which they ran.

    Args:
        run: the records.
        logdir: what TensorBoard is pointed at.
        traces: profiler traces (``.json.gz``) by trial id.

    Returns:
        The folders.

    Raises:
        FormatUnavailable: tensorboard is not installed.
    """
    writer_of = _summary_writer()
    folders: list[Path] = []
    for result in sweep_results(run):
        if not result.steps or not len(result.steps[0]):
            continue
        folder = logdir / re.sub(r"[^\w.=-]+", "_", full_label(result.trial))
        with writer_of(log_dir=str(folder)) as writer:
            for tag, values, times in _scalars(result):
                for step, value in enumerate(values):
                    if np.isfinite(value):
                        writer.add_scalar(tag, float(value), step, walltime=times[step])
            # A run name of its own keeps the table's row from becoming a second folder named by the time.
            settings = {name: _plain(value) for name, value in result.trial.settings.canonical().items()}
            writer.add_hparams(settings, _means(TrialFacts.of(result)), run_name=".")
        trace = (traces or {}).get(result.trial.id)
        if trace is not None:
            shutil.copyfile(trace, folder / _TRACE_NAME.format(worker=result.trial.id))
        folders.append(folder)
    return tuple(folders)


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise FormatUnavailable(
            f"TensorBoard files need the tensorboard package ({error}): pip install 'tensorboard>=2.16'."
        ) from error
    return SummaryWriter


def _scalars(result: TrialResult) -> Iterator[tuple[str, Any, list[float]]]:
    """Tag, a value a step, and when each step ended in s since the epoch."""
    table = result.steps[0]
    walls_s = table.wall_ns / 1e9
    times = _walltimes(result, table)
    yield "step_time_s", walls_s, times
    with np.errstate(divide="ignore", invalid="ignore"):
        yield "throughput_samples_per_s", table.samples / walls_s, times
    for phase in ALL_PHASES:
        phase_ns = table.phase_ns(phase)
        if phase_ns is not None:
            yield f"phase_s/{phase}", phase_ns / 1e9, times
    loss = table.get("loss")
    if loss is not None:
        yield "loss", loss, times


def _walltimes(result: TrialResult, table: StepTable) -> list[float]:
    try:
        began_s = datetime.fromisoformat(result.started_at).timestamp()
    except ValueError:
        began_s = 0.0
    ends: list[float] = (began_s + np.cumsum(table.wall_ns) / 1e9).tolist()
    return ends


def _means(facts: TrialFacts) -> dict[str, float]:
    """The table's numbers: scalars, too, so under tags of their own and not as one more point in a chart of steps."""
    return {name if "/" in name else f"mean/{name}": value for name, value in headline_numbers(facts).items()}


def _plain(value: Any) -> Any:
    """What TensorBoard's table holds: text, numbers and booleans."""
    return value if isinstance(value, bool | int | float | str) else str(value)
