"""Sealing after a report or a resumed sweep: what they wrote is sealed, and what else changed goes on being told."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.records import Environment, Outcome, TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of
from perf_diagnostics.trials.sweep import Sweep, SweepEnd

REPORT = ["report", "run", "--formats", "md", "--seal"]


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run made by hand."""
    monkeypatch.chdir(tmp_path)
    result = trial_of(data_wait=0.5, forward=0.5)
    folder = RunFolder.create(
        "results",
        "run",
        planned=(result.trial,),
        command="test",
        environment=Environment(),
        tool_version="0",
        now=datetime.now(UTC),
    )
    with folder.lock():
        folder.begin(result.trial)
        folder.write_parts(result.trial, result.steps)
        folder.finish(result)
    return folder.path


def test_a_report_made_anew_breaks_no_seal_and_is_sealed_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(REPORT) == 0
        told = capsys.readouterr()
        assert "Sealed results/run" in told.out and told.err == ""
        assert main(["manifest", "verify", "run"]) == 0


@pytest.mark.parametrize("named", ["run", "results/run"])
def test_a_run_may_be_named_behind_the_formats(run: Path, capsys: pytest.CaptureFixture[str], named: str) -> None:
    assert main(["report", "--formats", "md", named]) == 0
    assert capsys.readouterr().out == "results/run/performance_report.md\n"
    assert main(["report", "--formats", "md", "pfd"]) == 2  # is no run, and was meant for a format
    assert "Unknown report format 'pfd'" in capsys.readouterr().err


def test_a_broken_seal_is_told_by_every_report_until_it_is_sealed_deliberately(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(REPORT) == 0
    (run / "run.json").write_text((run / "run.json").read_text() + " ")
    for _ in range(2):
        capsys.readouterr()
        assert main(REPORT) == 0
        told = capsys.readouterr()
        assert "1 file changed (run.json)" in told.err
        assert "stays NOT as it was sealed" in told.err and "manifest create results/run" in told.err
        assert "Sealed" not in told.out
        assert "not as they were sealed" in (run / "performance_report.md").read_text()
        assert main(["manifest", "verify", "run"]) == 1
    assert main(["manifest", "create", "run"]) == 0
    capsys.readouterr()
    assert main(REPORT) == 0
    assert capsys.readouterr().err == "" and main(["manifest", "verify", "run"]) == 0


def test_a_report_written_elsewhere_seals_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REPORT, "--output", "elsewhere"]) == 2
    assert "--output elsewhere writes elsewhere" in capsys.readouterr().err
    assert not Path("elsewhere").exists() and not (run / "manifest.json").exists()


@pytest.fixture
def cut_off(run: Path) -> list[TrialResult]:
    """A second run, sealed: a trial that completed, one that was cut off after its first steps, one never begun."""
    results = [trial_of(forward=0.5, batch_size=size, workload="mlp") for size in (4, 8, 16)]
    folder = RunFolder.create(
        "results",
        "cut-off",
        planned=tuple(result.trial for result in results),
        command="test",
        environment=Environment(),
        tool_version="0",
        now=datetime.now(UTC),
    )
    with folder.lock():
        for result in results[:2]:
            folder.begin(result.trial)
            folder.write_parts(result.trial, result.steps)
        folder.finish(results[0])
    assert main(["manifest", "create", "cut-off"]) == 0
    return results


def finishing(results: list[TrialResult], *, most: int) -> object:
    """Stands for a sweep: the first ``most`` pending trials end with these results, the next one is cut off."""

    def sweep(self: Sweep) -> SweepEnd:
        known = {result.trial.id: result for result in results}
        done: list[TrialResult] = []
        with self.folder.lock():
            for trial in self.folder.pending():
                self.folder.begin(trial)
                if len(done) == most:
                    return SweepEnd(tuple(done), interrupted=True)
                self.folder.finish(known[trial.id])
                done.append(known[trial.id])
        return SweepEnd(tuple(done), interrupted=False)

    return sweep


@pytest.mark.parametrize("most", [0, 1, 2])
def test_a_resumed_sweep_seals_what_it_wrote(
    cut_off: list[TrialResult], most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Sweep, "run", finishing(cut_off, most=most))
    capsys.readouterr()
    assert main(["sweep", "--resume", "cut-off"]) == (0 if most == 2 else 130)
    assert "is sealed again with what was written now" in capsys.readouterr().err
    assert main(["manifest", "verify", "cut-off"]) == 0


@pytest.mark.parametrize("which", [0, 1])
def test_it_does_not_seal_what_had_changed_before(
    cut_off: list[TrialResult], which: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Of the complete trial, which is not run again, and of the one that is, whose files are replaced.
    name = f"trials/{cut_off[which].trial.id}/started.json"
    path = Path("results/cut-off") / name
    path.write_text(path.read_text() + " ")
    monkeypatch.setattr(Sweep, "run", finishing(cut_off, most=2))
    capsys.readouterr()
    assert main(["sweep", "--resume", "cut-off"]) == 0
    assert f"NOT as it was sealed: the earlier checksums of {name} were kept" in capsys.readouterr().err
    assert main(["manifest", "verify", "cut-off"]) == 1
    assert name in capsys.readouterr().out


def test_a_run_that_was_never_sealed_stays_so(cut_off: list[TrialResult], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("manifest.json", "SHA256SUMS"):
        (Path("results/cut-off") / name).unlink()
    monkeypatch.setattr(Sweep, "run", finishing(cut_off, most=2))
    assert main(["sweep", "--resume", "cut-off"]) == 0
    assert not (Path("results/cut-off") / "manifest.json").exists()


def test_a_seal_that_was_changed_itself_is_left_as_it_is(
    cut_off: list[TrialResult], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sums = Path("results/cut-off/SHA256SUMS")
    sums.write_text(sums.read_text().replace("a", "b"))
    monkeypatch.setattr(Sweep, "run", finishing(cut_off, most=2))
    capsys.readouterr()
    assert main(["sweep", "--resume", "cut-off"]) == 0
    assert "warning: The seal of" in capsys.readouterr().err


def test_what_was_skipped_for_lack_of_time_is_named_where_nothing_is_left_to_resume(
    capsys: pytest.CaptureFixture[str],
) -> None:
    late = trial_of(batch_size=64, steps=0, warmup_steps=0, outcome=Outcome.SKIPPED_OVER_TIME_BUDGET)
    folder = RunFolder.open("results/run")
    with folder.lock():
        folder.extend_plan([late.trial])
        folder.finish(late)
    assert main(["sweep", "--resume", "run"]) == 0
    told = capsys.readouterr().out
    assert "nothing to resume. 1 was skipped for lack of time: measure batch 64 in a new sweep" in told
