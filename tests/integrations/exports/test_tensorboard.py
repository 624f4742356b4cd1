"""TensorBoard's own reader finds what was written, at the time it was measured."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.errors import FormatUnavailable
from perf_diagnostics.integrations.exports.tensorboard import write_tensorboard
from perf_diagnostics.testing import run_of, trial_of


def read(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # protobuf's and NumPy's, inside tensorboard
        reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        found = reader.EventAccumulator(str(folder))
        found.Reload()
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scalars_of_every_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    trial = trial_of(data_wait=0.25, forward=0.5, other=0.25, batch_size=8, steps=4, warmup_steps=1)
    trial = dataclasses.replace(trial, started_at="2026-01-01T00:00:00+00:00")
    trace = tmp_path / "t.json.gz"
    trace.write_bytes(b"a trace")
    (folder,) = write_tensorboard(run_of(trial), tmp_path / "logs", traces={trial.trial.id: trace})
    assert (folder / f"{trial.trial.id}.pt.trace.json.gz").read_bytes() == b"a trace"
    found = read(folder)
    waits = found.Scalars("phase_s/data_wait")
    assert [round(s.value, 6) for s in waits] == [1.25, 0.25, 0.25, 0.25, 0.25]
    assert [s.step for s in waits] == [0, 1, 2, 3, 4]
    began = datetime.fromisoformat("2026-01-01T00:00:00+00:00").timestamp()
    assert waits[1].wall_time == pytest.approx(began + 5 + 1)  # the warm-up step took five times as long
    assert found.Scalars("throughput_samples_per_s")[-1].value == pytest.approx(8)
    assert found.Scalars("share/data_wait")[-1].value == pytest.approx(0.25)  # the table's row, in the same folder
    assert [path.name for path in (tmp_path / "logs").iterdir()] == [folder.name]
    # The means are no further point in the charts of steps: the reader takes all of one tag for one line.
    assert [(s.step, round(s.value, 6)) for s in found.Scalars("step_time_s")] == [
        (0, 5),
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
    ]
    assert [s.value for s in found.Scalars("mean/step_time_s")] == pytest.approx([1.0])
    assert [s.value for s in found.Scalars("mean/throughput_samples_per_s")] == pytest.approx([8.0])


def test_without_tensorboard_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(FormatUnavailable, match=r"pip install 'tensorboard>=2.16'"):
        write_tensorboard(run_of(trial_of()), tmp_path)
