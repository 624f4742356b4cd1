"""What is on disk of a training that is ended before it has written its first steady steps."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.integrations.record import flush_times
from perf_diagnostics.integrations.record.training_folder import WARM_UP_STEPS
from perf_diagnostics.records import Outcome, TrialResult
from perf_diagnostics.store.find import list_runs

ONLY_THE_WARM_UP = (
    "the training ended within its first second or, where steps are longer, within the first one after the warm-up; "
    "only the 3 steps of the warm-up are on disk"
)


def as_on_disk(results: Path) -> TrialResult:
    """What a reader would find if the training were killed now."""
    (folder,) = list_runs(results)
    (result,) = folder.read().results
    return result


def test_after_the_warm_up_there_is_a_run_that_says_how_far_it_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_times, "FIRST_FLUSH_NS", 3600 * 10**9)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as seen:
        for step in range(10):
            if step == WARM_UP_STEPS:
                assert as_on_disk(tmp_path).reason == ONLY_THE_WARM_UP
            model(torch.randn(6, 4)).sum().backward()
            optimizer.step()
            assert len(list(tmp_path.glob("*"))) == (step + 1 >= WARM_UP_STEPS)
        cut_off = as_on_disk(tmp_path)
    assert (cut_off.outcome, cut_off.reason) == (Outcome.INTERRUPTED, ONLY_THE_WARM_UP)
    assert cut_off.steps[0].columns["warmup"].tolist() == [True] * 3
    assert cut_off.trial.settings.batch_size == 6 and cut_off.facts["optimizer"] == "SGD"
    assert not [gap for gap in cut_off.gaps if "part" in gap.why]
    whole = as_on_disk(tmp_path)  # the same folder, and the same columns in both of its parts
    assert whole.trial == cut_off.trial and whole.steps[0] == seen.run.results[0].steps[0]
    assert (whole.outcome, whole.reason, len(whole.steps[0])) == (Outcome.COMPLETED, "", 10)
    assert not [gap for gap in whole.gaps if "part" in gap.why]


def test_with_steady_steps_on_disk_nothing_is_said_of_the_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_times, "FIRST_FLUSH_NS", 0)
    with OwnLoop(results_dir=tmp_path, quiet=True) as loop:
        for _ in range(6):
            with loop.step(samples=1), loop.forward():
                pass
        cut_off = as_on_disk(tmp_path)
    assert (cut_off.outcome, cut_off.reason) == (Outcome.INTERRUPTED, "its process ended without a result")
    assert len(cut_off.steps[0].steady) >= 1


@pytest.mark.slow
def test_killed_in_its_first_second_a_script_leaves_a_sentence_about_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.format(end=f"os.kill(os.getpid(), {int(signal.SIGKILL)})"))
    ended = subprocess.run([*RUN, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    told = subprocess.run([*US, "diagnose", "latest"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "only the 3 steps of the warm-up are on disk" in " ".join(told.stdout.split())


@pytest.mark.slow
def test_measuring_a_script_and_telling_what_limits_it_load_nothing_that_only_reports_need(tmp_path: Path) -> None:
    say = "atexit.register(lambda: print(json.dumps(sorted(HEAVY & {*sys.modules}))))"  # runs when all has been told
    (tmp_path / "train.py").write_text(SCRIPT.format(end=say))
    ended = subprocess.run([*RUN, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "perf-diagnostics: results/" in ended.stderr
    assert json.loads(ended.stdout) == ["pyarrow"]


US = [sys.executable, "-m", "perf_diagnostics"]
RUN = [*US, "run"]

SCRIPT = """
import atexit, json, os, sys
import torch

HEAVY = {{"pandas", "pyarrow", "matplotlib", "jinja2", "pptx", "weasyprint", "duckdb"}}
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=4):
    model(batch).sum().backward()
    optimizer.step()
{end}
"""
