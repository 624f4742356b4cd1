"""The profiler window inside a training of somebody's own: what is recorded, what it must not change or survive."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics import BottleneckReport
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.diagnose.trace.reader import read_trace
from perf_diagnostics.diagnose.trace.steps import steps_of
from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.record import parts
from perf_diagnostics.integrations.record.window_borders import WindowBorders, _queued
from perf_diagnostics.integrations.window import window
from perf_diagnostics.integrations.window.one_profiler import OneProfiler
from perf_diagnostics.integrations.window.window import LoopWindow
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.profiler_window import MOST_STEPS
from perf_diagnostics.records import Quantity, TrialResult
from perf_diagnostics.store.find import list_runs
from perf_diagnostics.testing import trial_of

#: The profiler's own step, those that are kept, and those that begin with full queues.
NOT_COUNTED = 1 + MOST_STEPS + 3

PHASES = {"data_wait", "forward", "backward", "optimizer"}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after ten steps, without two seconds of them."""
    monkeypatch.setattr(window, "STEADY_STEPS", 10)
    monkeypatch.setattr(window, "STEADY_NS", 0)
    monkeypatch.setattr(window, "_SOON_NS", 1)
    monkeypatch.setattr(window, "_LATE_NS", 1_000_000)
    monkeypatch.setattr(parts, "cut_transient", lambda tables: (list(tables), True, 0))


class Training:
    """A small training, step by step."""

    def __init__(self, forward: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader([torch.randn(4) for _ in range(64)], batch_size=4)
        self.forward = forward

    def steps(self, count: int) -> Iterator[int]:
        """The number of each step, in the midst of it."""
        batches = itertools.chain.from_iterable(itertools.repeat(self.loader))
        for number, batch in zip(range(count), batches, strict=False):
            loss = self.model(batch).pow(2).mean()
            yield number
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def attached(self, folder: Path, **given):
        given = {"deep": True, "quiet": True, **given}
        return attach(self.model, self.optimizer, self.loader, results_dir=folder, **given)


def one_result(folder: Path) -> tuple[TrialResult, Path | None]:
    (run,) = list_runs(folder)
    (result,) = run.read().results
    return result, run.traces().get(result.trial.id)


def why(result: TrialResult) -> str:
    gap = result.gap("deep_window")
    assert gap is not None
    return gap.why


def test_a_window_is_recorded_and_counts_in_nothing(tmp_path: Path) -> None:
    training = Training()
    with training.attached(tmp_path) as seen:
        for _ in training.steps(60):
            pass
    result, path = one_result(tmp_path)
    assert result.gap("deep_window") is None and path is not None
    trace = read_trace(path)
    assert sum(name.startswith("ProfilerStep#") for name in trace.names) == MOST_STEPS
    assert set(trace.names) >= PHASES
    assert str(tmp_path).encode() not in path.read_bytes()
    table = result.steps[0]
    assert len(table) == seen.steps == 60
    warm = table.columns["warmup"]
    first = int(np.flatnonzero(np.diff(warm.astype(int)) == 1)[0]) + 1  # behind the warm-up and some steady steps
    assert first >= 3 + 10 and warm[first : first + NOT_COUNTED].all() and not warm[first + NOT_COUNTED :].any()
    steady_s = table.steady.wall_ns.sum() / 1e9
    assert steady_s == pytest.approx(result.value("measured_wall_s"), rel=0.02)


def test_what_is_attached_knows_its_window(tmp_path: Path) -> None:
    training = Training()
    with training.attached(tmp_path) as seen:
        assert seen.traces == {}
        for _ in training.steps(60):
            pass
    result, path = one_result(tmp_path)
    assert seen.traces == {result.trial.id: path}
    told = BottleneckReport.of(seen.run, traces=seen.traces).to_markdown()
    assert "Operators of a profiled step" in told and "AddmmBackward0" in told
    assert "Operators of a profiled step" not in BottleneckReport.of(seen.run).to_markdown()


def test_nothing_is_recorded_or_put_into_torch_unasked(tmp_path: Path) -> None:
    enable = torch.autograd.profiler._enable_profiler
    training = Training()
    with training.attached(tmp_path, deep=False):
        assert torch.autograd.profiler._enable_profiler is enable
        for _ in training.steps(60):
            pass
    result, path = one_result(tmp_path)
    assert path is None and result.gap("deep_window") is None


def test_the_training_is_what_it_would_have_been(tmp_path: Path) -> None:
    ended = []
    for deep in (False, True):
        training = Training()
        before = torch.autograd.profiler._enable_profiler, torch.autograd.profiler._disable_profiler
        with training.attached(tmp_path / str(deep), deep=deep):
            for _ in training.steps(60):
                torch.rand(1)
        assert (torch.autograd.profiler._enable_profiler, torch.autograd.profiler._disable_profiler) == before
        ended.append((torch.rand(1), training.model.weight.detach().clone()))
    assert all(torch.equal(a, b) for a, b in zip(*ended, strict=True))
    assert one_result(tmp_path / "True")[1] is not None


def test_a_training_that_ends_before_says_so(tmp_path: Path) -> None:
    training = Training()
    with training.attached(tmp_path):
        for _ in training.steps(9):
            pass
    result, path = one_result(tmp_path)
    assert path is None
    assert "comes after 10 steady steps" in why(result) and "there were 6" in why(result)


def test_a_training_that_ends_inside_keeps_the_whole_steps(tmp_path: Path) -> None:
    training = Training()
    with training.attached(tmp_path) as seen:
        for _ in training.steps(60):
            if seen._watch.recording.profiling and seen._watch.recording.window.window._steps == 2:
                break
    result, path = one_result(tmp_path)
    assert path is not None and result.gap("deep_window") is None
    # Its third step is the one that broke off.
    assert sum(name.startswith("ProfilerStep#") for name in read_trace(path).names) == 3


def in_window(seen) -> bool:
    return bool(torch.autograd.profiler._is_profiler_enabled and seen._watch.recording.profiling)


def test_an_exception_inside_leaves_no_profiler_behind(tmp_path: Path) -> None:
    training = Training()
    with pytest.raises(KeyError, match="mine"), training.attached(tmp_path) as seen:
        for _ in training.steps(60):
            if in_window(seen):
                raise KeyError("mine")
    assert not torch.autograd.profiler._is_profiler_enabled
    result, path = one_result(tmp_path)
    assert path is None and why(result) == "the training ended inside the window"
    with torch.profiler.profile() as own:  # and the next one works
        torch.ones(1).add(1)
    assert "aten::add" in {event.key for event in own.key_averages()}


def test_ours_steps_back_for_a_profiler_of_the_scripts(tmp_path: Path) -> None:
    training, own = Training(), None
    with training.attached(tmp_path) as seen:
        for number in training.steps(60):
            if own is None and in_window(seen):
                own = torch.profiler.profile()
                own.__enter__()
            if own is not None and number == 50:
                own.__exit__(None, None, None)
    result, path = one_result(tmp_path)
    assert path is None and "started torch.profiler itself inside the window" in why(result)
    assert "aten::addmm" in {event.key for event in own.key_averages()}
    warm = result.steps[0].columns["warmup"]
    assert not warm[-5:].any() and 3 < warm.sum() < 3 + NOT_COUNTED + 1


def test_it_waits_for_a_profiler_that_runs_already(tmp_path: Path) -> None:
    """One that has been prepared only, and before anybody looked: it would fail as soon as it is to record."""
    training, schedule = Training(), torch.profiler.schedule(wait=0, warmup=50, active=30, repeat=1)
    with torch.profiler.profile(schedule=schedule) as own, training.attached(tmp_path):
        for _ in training.steps(60):
            own.step()
    assert "aten::addmm" in {event.key for event in own.key_averages()}
    result, path = one_result(tmp_path)
    assert path is None and "ran for somebody else" in why(result)


def test_the_steps_are_ours_where_a_profiler_of_the_scripts_names_its_own(tmp_path: Path) -> None:
    """One that does not record yet marks its steps all the same, under the name that all profilers use."""
    training = Training()
    schedule = torch.profiler.schedule(wait=999, warmup=1, active=1)
    with training.attached(tmp_path), torch.profiler.profile(schedule=schedule) as own:
        for _ in training.steps(60):
            own.step()
    result, path = one_result(tmp_path)
    assert path is not None and result.gap("deep_window") is None
    steps = steps_of(Launches.of(trace := read_trace(path)))
    assert len(steps) == MOST_STEPS and not steps.fault and list(steps.number) == [0, 1, 2, 3, 4]
    assert any(name.startswith("another profiler's ProfilerStep#") for name in trace.names)


def test_a_profiler_that_fails_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: object) -> None:
        raise RuntimeError("kineto is out")

    monkeypatch.setattr(torch.profiler._KinetoProfile, "start", broken)
    training = Training()
    with training.attached(tmp_path) as seen:
        for _ in training.steps(60):
            pass
    assert seen.steps == 60
    result, path = one_result(tmp_path)
    assert path is None and "kineto is out" in why(result)
    assert not result.steps[0].columns["warmup"][3:].any()


def test_marks_become_ranges_too(tmp_path: Path) -> None:
    training = Training()
    with OwnLoop("by-hand", model=training.model, results_dir=tmp_path, quiet=True, deep=True) as loop:
        for batch in itertools.islice(itertools.cycle(training.loader), 60):
            with loop.step():
                with loop.forward():
                    loss = training.model(batch).mean()
                with loop.backward():
                    loss.backward()
                with loop.optimizer():
                    training.optimizer.step()
    _, path = one_result(tmp_path)
    assert path is not None
    assert set(read_trace(path).names) >= {"forward", "backward", "optimizer"}


def test_a_mode_that_sees_every_operator_sees_none_of_ours(tmp_path: Path) -> None:
    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: Counter[str] = Counter()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen[func.namespace] += 1
            return func(*args, **(kwargs or {}))

    seen = []
    for deep in (False, True):
        training, counting = Training(), Counting()
        with training.attached(tmp_path / str(deep), deep=deep), counting:
            for _ in training.steps(60):
                pass
        seen.append(counting.seen)
    assert seen[0]["aten"] > 60
    assert seen[0]["profiler"] == seen[1]["profiler"] > 0  # torch's own ranges, around its loader and optimizer
    assert one_result(tmp_path / "True")[1] is not None


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("steps", "steady_ns", "known", "begins"),
    [
        (49, 10 * SECOND, None, False),  # too few
        (50, SECOND, None, False),  # too short
        (50, 2 * SECOND, None, True),
        (10, 29 * SECOND, None, False),
        (10, 30 * SECOND, None, True),  # long steps
        (9, 40 * SECOND, None, False),
        (15, SECOND, 60, True),  # a quarter of a training of 60 steps
        (14, SECOND, 60, False),
        (9, 20 * SECOND, 12, False),  # never before ten
    ],
)
def test_when_it_begins(monkeypatch: pytest.MonkeyPatch, steps: int, steady_ns: int, known, begins: bool) -> None:
    monkeypatch.undo()
    one = LoopWindow(Observations())
    one.training_steps = known
    later_ns = one.later_ns(steps, steady_ns)
    one.training_ended(None, in_peace=True, steps=steps, steady_ns=steady_ns)
    assert (later_ns == 0) is begins
    assert later_ns <= 5 * SECOND


def test_a_long_step_is_recorded_alone_and_a_very_long_one_not() -> None:
    for step_ns, wanted in ((SECOND // 10, 5), (SECOND, 3), (2 * SECOND, 1), (10 * SECOND, 1)):
        one = LoopWindow(Observations())
        one.begin("cpu", step_ns, queued=0)
        assert one.under_way and one._wanted == wanted
        assert one._steps == (0 if step_ns >= 3 * SECOND else -1)  # whether the profiler has a step of its own before
        one.training_ended(None, in_peace=False, steps=50, steady_ns=step_ns)
    observations = Observations()
    one = LoopWindow(observations)
    one.begin("cpu", 21 * SECOND, queued=0)
    assert one.over and "a step takes 21 s" in observations.gaps[0].why
    one.training_ended(None, in_peace=True, steps=50, steady_ns=0)


@pytest.mark.parametrize(
    ("before", "after", "peak", "told"),
    [
        (100, 150, 150, 100),  # the window's own
        (100, 150, 180, 180),  # the training has needed more since
        (100, 100, 100, 100),
    ],
)
def test_the_profilers_memory_is_no_peak_of_the_trainings(before: int, after: int, peak: int, told: int) -> None:
    one = LoopWindow(Observations())
    one._peak_before, one._peak_after = before, after
    one.training_ended(None, in_peace=True, steps=0, steady_ns=0)
    measured = (
        Quantity("host_memory_peak", float(peak), "bytes", "VmHWM"),
        Quantity("first_step_s", 120.0, "s", "clock"),
    )
    result = one.without_its_memory(dataclasses.replace(trial_of(), quantities=measured))
    assert result.value("host_memory_peak") == told and result.value("first_step_s") == 120.0


@pytest.mark.parametrize(
    ("ended_s", "summed"),
    [
        (9, (50, 2 * SECOND)),  # of nine seconds two are the window's: only what came before it
        (250, (4000, 250 * SECOND)),  # of so many they are less than a hundredth
    ],
)
def test_a_boards_readings_are_summed_without_a_window_that_would_be_seen(ended_s: int, summed: object) -> None:
    borders = WindowBorders(
        about=About("w"),
        probe=None,
        course=None,
        observations=Observations(),
        between_blocks=contextlib.nullcontext,
        place=lambda: None,
        clock=lambda: 0,
    )
    assert borders.undisturbed(70, 3 * SECOND) == (70, 3 * SECOND)  # there was none
    borders._before, borders._took_ns = (50, 2 * SECOND), 2 * SECOND
    assert borders.undisturbed(4000, ended_s * SECOND) == summed
    borders._took_ns = 0  # it has not ended
    assert borders.undisturbed(50, 3 * SECOND) == (50, 2 * SECOND)
    borders.window.training_ended(None, in_peace=True, steps=0, steady_ns=0)


def test_batches_that_wait_in_the_queue_are_waited_for() -> None:
    assert _queued(About("w", loader_facts={"num_workers": 3, "prefetch_factor": 4})) == 12
    assert _queued(About("w", facts={"num_workers": 2})) == 4  # what torch fetches ahead by default
    assert _queued(About("w", facts={"num_workers": 0})) == _queued(About("w")) == 0


def test_who_begins_and_ends_is_told_apart() -> None:
    told = []
    one = OneProfiler(lambda: told.append("give way"))
    with contextlib.ExitStack() as patches:
        one.install(patches)
        assert not one.taken
        with one.ours(), torch.profiler.profile():
            pass
        assert told == [] and not one.taken
        with torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1)):
            assert one.taken  # it is prepared, though nothing is recorded yet
        assert told and not one.taken
