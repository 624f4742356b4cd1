"""A loop that is marked by hand, on a clock whose every tick is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.errors import RunError
from perf_diagnostics.integrations import OwnLoop
from perf_diagnostics.records import ALL_PHASES, Outcome, Phase, TrialResult
from perf_diagnostics.store.find import list_runs
from tests.measure.simulated_device import HostClock

MS = 1_000_000


def only_result(root: Path) -> TrialResult:
    (folder,) = list_runs(root)
    (result,) = folder.read().results
    return result


def test_marks_become_phases_and_time_between_steps_belongs_to_the_next(tmp_path: Path) -> None:
    host = HostClock()
    data = [torch.zeros(4, 2)] * 5

    class Slow:
        def __iter__(self):
            for batch in data:
                host.spend(3)
                yield batch

    host.spend(1000)  # what lies before the first mark is no step
    with OwnLoop("by-hand", results_dir=tmp_path, clock=host) as loop:
        host.spend(500)
        for _ in loop.batches(Slow()):
            with loop.step():
                with loop.transfer():
                    host.spend(1)
                with loop.forward():
                    host.spend(10)
                host.spend(5)  # neither here nor there: other
                with loop.backward():
                    host.spend(20)
                with loop.optimizer():
                    host.spend(2)
            host.spend(7)  # other of the next step
    result = only_result(tmp_path)
    table = result.steps[0]
    assert table.wall_ns.tolist() == [41 * MS] + [48 * MS] * 4
    expected = {"data_wait": 3, "transfer": 1, "forward": 10, "backward": 20, "optimizer": 2, "other": 12}
    assert {str(phase): int(table.host_ns(phase)[-1]) // MS for phase in ALL_PHASES} == expected
    assert table.samples.tolist() == [4] * 5 and result.trial.settings.batch_size == 4
    assert table.columns["warmup"].tolist() == [True] * 3 + [False] * 2
    assert result.trial.workload == "by-hand" and result.outcome is Outcome.COMPLETED
    assert result.value("measured_wall_s") == pytest.approx(0.096)


def test_without_a_step_mark_a_step_ends_with_the_optimizer(tmp_path: Path) -> None:
    host = HostClock()
    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for _ in range(4):
            with loop.optimizer():
                host.spend(2)
                with loop.forward():  # a closure
                    host.spend(3)
    table = only_result(tmp_path).steps[0]
    assert table.columns["host_optimizer_ns"].tolist() == [2 * MS] * 4
    assert table.columns["host_forward_ns"].tolist() == [3 * MS] * 4


def test_a_phase_that_is_not_marked_is_absent_and_one_that_took_no_time_is_zero(tmp_path: Path) -> None:
    host = HostClock()
    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for _ in range(4):
            with loop.step(samples=8, tokens=80):
                with loop.forward():
                    pass
                host.spend(4)
    result = only_result(tmp_path)
    table = result.steps[0]
    assert table.columns["host_forward_ns"].tolist() == [0] * 4
    assert table.get("host_backward_ns") is None and table.get("data_wait_cpu_ns") is None
    assert "other" in result.gap("host_backward_ns").why
    assert table.host_ns(Phase.OTHER).tolist() == [4 * MS] * 4
    assert table.samples.tolist() == [8] * 4 and table.columns["tokens"].tolist() == [80] * 4
    assert result.gap("samples") is None


def test_unknown_samples_are_a_gap(tmp_path: Path) -> None:
    with OwnLoop(results_dir=tmp_path) as loop:
        for _ in range(4):
            with loop.step():
                pass
    assert "how many samples a batch has" in only_result(tmp_path).gap("samples").why


def test_a_step_that_raised_is_none_and_its_time_goes_to_the_next(tmp_path: Path) -> None:
    host = HostClock()
    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for number in range(5):
            try:
                with loop.step(samples=1), loop.forward():
                    host.spend(10)
                    if number == 1:
                        int("a bad batch")
            except ValueError:
                host.spend(1)
    assert only_result(tmp_path).steps[0].wall_ns.tolist() == [10 * MS, 21 * MS, 10 * MS, 10 * MS]


def test_an_exception_that_leaves_the_loop_is_the_outcome(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="spilt"), OwnLoop(results_dir=tmp_path) as loop:
        for number in range(5):
            with loop.step(samples=1):
                if number == 4:
                    raise ValueError("spilt milk")
    result = only_result(tmp_path)
    assert result.outcome is Outcome.CRASHED and result.reason.startswith("ValueError: spilt milk (test_own_loop.py:")
    assert len(result.steps[0]) == 4


def test_what_breaks_in_measuring_is_a_gap_and_never_an_exception(tmp_path: Path) -> None:
    host = HostClock()
    ticks = iter(range(40))

    def breaking() -> int:
        if next(ticks, None) is None:
            raise OSError("the clock fell off the wall")
        host.spend(1)
        return host()

    done = 0
    with OwnLoop(results_dir=tmp_path, clock=breaking) as loop:
        for _ in range(20):
            with loop.step(samples=1), loop.forward():
                done += 1
    assert done == 20
    assert "fell off the wall" in loop.run.results[0].gap("steps").why
    assert 4 < len(loop.run.results[0].steps[0]) < 20


def test_a_folder_that_cannot_be_written_is_a_gap_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with OwnLoop(results_dir=tmp_path / "file") as loop:
        for _ in range(5):
            with loop.step(samples=1):
                pass
    assert loop.steps == 5 and loop.folder is None
    assert "file" in loop.run.results[0].gap("records").why


def test_turned_off_it_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERF_DIAGNOSTICS_DISABLED", "1")
    with OwnLoop(results_dir=tmp_path) as loop:
        for batch in loop.batches([1, 2]):
            with loop.step(), loop.transfer(), loop.forward(), loop.backward(), loop.optimizer():
                assert batch in (1, 2)
    assert loop.steps == 0 and loop.run is None and list(tmp_path.iterdir()) == []


def test_a_taken_name_is_refused_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(RunError, match="mine already exists"):
        OwnLoop(name="mine", results_dir=tmp_path)


def test_rules_and_reports_read_the_record_as_any_other(tmp_path: Path) -> None:
    host = HostClock()

    class Slow:
        def __iter__(self):
            for _ in range(40):
                host.spend(30)
                yield torch.zeros(4, 2)

    model = torch.nn.Linear(2, 1)
    with OwnLoop("slow-input", results_dir=tmp_path, clock=host, model=model) as loop:
        for _ in loop.batches(Slow()):
            with loop.step(), loop.forward():
                host.spend(10)
    (folder,) = list_runs(tmp_path)
    diagnosis = diagnose(folder.read())
    assert diagnosis.verdict.code == "INP001"
    assert loop.folder == folder.path
    written = json.loads((folder.path / "run.json").read_text(encoding="utf-8"))
    assert written["planned"][0]["workload"] == "slow-input"


@pytest.mark.parametrize(("wait_ms", "read"), [(0.5, False), (3.0, True)])
def test_the_cpu_clock_is_left_alone_around_short_waits(tmp_path: Path, wait_ms: float, read: bool) -> None:
    host = HostClock()

    class Rows:
        def __iter__(self):
            for _ in range(6):
                host.spend(wait_ms)
                yield torch.zeros(4, 2)

    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for _ in loop.batches(Rows()):
            with loop.step():
                host.spend(1)
    result = only_result(tmp_path)
    assert (result.steps[0].get("data_wait_cpu_ns") is not None) is read
    assert (result.gap("data_wait_cpu_ns") is None) is read
    assert result.steps[0].columns["host_data_wait_ns"].tolist() == [int(wait_ms * MS)] * 6


def test_the_processors_are_accounted_for(tmp_path: Path) -> None:
    with OwnLoop(results_dir=tmp_path) as loop:
        for _ in range(12):
            with loop.step(samples=1), loop.forward():
                sum(range(200_000))
    (result,) = list_runs(tmp_path)[0].read().results
    window_s = result.facts["cpu_window_s"]
    assert isinstance(window_s, float)
    used = result.value("process_cpu_s")
    # Nine steps that only compute, on one core; the kernel counts in ticks of 10 ms.
    assert used is not None and 0 < used <= window_s + 0.03


def test_the_loop_s_thread_ran_or_had_no_core_while_its_steps_only_compute(tmp_path: Path) -> None:
    with OwnLoop(results_dir=tmp_path) as loop:
        for _ in range(12):
            with loop.step(samples=1), loop.forward():
                sum(range(200_000))
    result = only_result(tmp_path)
    for name in ("loop_cpu_share", "loop_run_delay_share", "process_run_delay_share"):
        assert (result.value(name) is None) is (result.gap(name) is not None)
    ran, delayed = result.value("loop_cpu_share"), result.value("loop_run_delay_share")
    if ran is not None and delayed is not None:  # a kernel that counts
        assert ran + delayed > 0.5  # it was blocked on nothing
