"""Advice that is tried: order, budget, resuming, what is left out; with pretended trials, and slowly with real ones."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Share, Tried, Trying
from perf_diagnostics.diagnose.rule_parts.experiments import About, Candidate, Experiments
from perf_diagnostics.diagnose.tried.candidates import candidates
from perf_diagnostics.diagnose.tried.outcomes import tried_of
from perf_diagnostics.errors import InvalidSettings, RunError
from perf_diagnostics.records import OWN_TRAINING, Environment, Json, Length, Settings, Trial, TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.store.sealed import manifest
from perf_diagnostics.trials.confirm.confirm import Confirm, ConfirmEnd, repeatable
from perf_diagnostics.trials.confirm.confirm_order import not_tried
from perf_diagnostics.trials.confirm.experiments import nested_folder, read_experiments
from perf_diagnostics.trials.confirm.pairs import PAIRS
from perf_diagnostics.trials.launch.launcher import ForkServer, Request
from perf_diagnostics.trials.sweep import Sweep
from tests.diagnose.tried_runs import STILL_COMPILING
from tests.outlives import Outlives
from tests.trials.pretended import Ended, Pretended

MLP: dict[str, Json] = {"width": 16, "depth": 1, "samples": 256}
WORKERS: dict[str, Json] = {"num_workers": 2}
THREADS: dict[str, Json] = {"threads": 1}


def base(workload: str = "mlp", options: Mapping[str, Json] = MLP, *, batch_size: int = 8) -> Trial:
    return Trial(workload=workload, settings=Settings(batch_size=batch_size), options=options)


def candidate(change: Mapping[str, Json], *, code: str = "INP001", of: Trial | None = None) -> Candidate:
    return Candidate(
        about=(About(code, f"{(of or base()).workload} on cpu", Share(0.4, 0.2, 0.6)),),
        says="Try it.",
        change=change,
        base=of or base(),
        step_s=0.01,
        start_s=0.5,
    )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return run_folder(tmp_path)


def run_folder(root: Path, name: str = "run", *, planned: Trial | None = None) -> RunFolder:
    return RunFolder.create(
        root,
        name,
        planned=(planned or base(),),
        command="test",
        environment=Environment(),
        tool_version="0",
        now=datetime.now(UTC),
    )


def halved(settings: Settings) -> float:
    return 0.5 if settings.num_workers else 1.0


def verdicts(end: ConfirmEnd) -> list[tuple[dict[str, Json], Trying]]:
    return [(dict(one.change), one.verdict) for one in tried_of(end.experiments)]


def test_pairs_of_base_and_change_in_either_order_and_the_verdict(folder: RunFolder) -> None:
    launch = Pretended(halved)
    end = Confirm(folder, launch=launch).run([candidate(WORKERS)])
    (one,) = tried_of(end.experiments)
    assert one.verdict is Trying.CONFIRMED and one.pairs == PAIRS
    assert one.gain.value == pytest.approx(0.5)
    pairs = [launch.started[i : i + 2] for i in range(0, 2 * PAIRS, 2)]
    assert all(first.repeat == second.repeat for first, second in pairs)  # the same data and weights
    assert all({first.settings.num_workers, second.settings.num_workers} == {None, 2} for first, second in pairs)
    base_first = [first.settings.num_workers is None for first, _ in pairs]
    assert base_first[0] != base_first[1] and base_first[2] != base_first[3]  # base, new, new, base or the other way
    assert len({trial.length for trial in launch.started}) == 1


def test_nothing_of_the_sweep_is_touched_and_a_seal_over_the_run_covers_what_was_tried(folder: RunFolder) -> None:
    before = {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file() and p.name != ".lock"}
    Confirm(folder, pairs=1, launch=Pretended(halved)).run([candidate(WORKERS)])
    assert {p: p.read_bytes() for p in before} == before
    assert RunFolder.open(folder.path).read().results == ()
    manifest.create(folder.path, tool="test", now=datetime.now(UTC))
    assert manifest.verify(folder.path).ok
    (folder.path / "confirm/experiments.json").write_text("{}")
    assert manifest.verify(folder.path).wrong_size == ("confirm/experiments.json",)


def test_a_second_call_runs_what_is_missing_only(folder: RunFolder) -> None:
    first, second, third = Pretended(halved), Pretended(halved), Pretended(halved)
    Confirm(folder, pairs=3, launch=first).run([candidate(WORKERS)])
    Confirm(folder, pairs=3, launch=second).run([candidate(WORKERS)])
    assert (len(first.started), second.started) == (6, [])
    end = Confirm(folder, pairs=4, launch=third).run([candidate(WORKERS), candidate(THREADS)])
    assert len(third.started) == 2 + 8  # one more pair of the first, four of the second
    assert [one.pairs for one in tried_of(end.experiments)] == [4, 4]
    ids = [trial.id for launch in (first, third) for trial in launch.started]
    assert len(set(ids)) == len(ids)


def test_what_was_killed_between_two_trials_goes_on_there(folder: RunFolder) -> None:
    def killed(trial: Trial) -> None:
        if len(launch.started) == 3:
            raise KeyboardInterrupt  # as sudden as a kill, for all that is on disk

    launch = Pretended(halved, killed)
    with pytest.raises(KeyboardInterrupt):
        Confirm(folder, pairs=3, launch=launch).run([candidate(WORKERS)])
    again = Pretended(halved)
    end = Confirm(folder, pairs=3, launch=again).run([candidate(WORKERS)])
    assert len(again.started) == 3
    assert verdicts(end) == [(WORKERS, Trying.CONFIRMED)]


@pytest.mark.parametrize("left", [(), ("trials",)])
def test_a_folder_without_a_plan_is_made_anew(folder: RunFolder, left: tuple[str, ...]) -> None:
    for path in ("", *left):
        (nested_folder(folder.path) / path).mkdir()
    end = Confirm(folder, pairs=1, launch=Pretended(halved)).run([candidate(WORKERS)])
    assert len(end.experiments.results) == 2


def test_a_folder_of_something_else_is_left_alone(folder: RunFolder) -> None:
    nested_folder(folder.path).mkdir()
    (nested_folder(folder.path) / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="Move it away"):
        Confirm(folder, launch=Pretended(halved)).run([candidate(WORKERS)])


def test_a_change_that_cannot_be_run_ends_after_one_pair_with_its_reason(folder: RunFolder) -> None:
    launch = Pretended(lambda settings: None if settings.threads else 1.0)
    end = Confirm(folder, launch=launch).run([candidate(THREADS), candidate({"threads": 2, "num_workers": 1})])
    assert len(launch.started) == 4
    told = tried_of(end.experiments)
    assert [one.verdict for one in told] == [Trying.NOT_TRIED] * 2
    assert "planted" in told[0].why


def test_what_no_longer_fits_into_the_time_is_left_out_and_said(folder: RunFolder) -> None:
    # A trial is foreseen to take 1 + 0.5 s and 203 steps of 0.01 s: 3.53 s; three pairs 21 s.
    launch = Pretended(halved)
    end = Confirm(folder, time_budget_s=20.0, launch=launch).run([candidate(WORKERS)])
    assert launch.started == []
    (one,) = tried_of(end.experiments)
    assert one.verdict is Trying.NOT_TRIED and "21 s" in one.why
    assert tried_of(read_experiments(folder.path)) == (one,)
    end = Confirm(folder, time_budget_s=30.0, launch=launch).run([candidate(WORKERS)])
    assert verdicts(end) == [(WORKERS, Trying.CONFIRMED)]  # it is no longer among what was left out


def on(device: str) -> Candidate:
    return candidate(WORKERS, of=dataclasses.replace(base(), settings=Settings(batch_size=8, device=device)))


def test_what_is_left_out_is_kept_apart_by_its_device(folder: RunFolder) -> None:
    late = tuple(not_tried(on(device), "no time") for device in ("cpu", "cuda:0"))
    assert Confirm(folder, launch=Pretended(halved), refused=late).run([]).experiments.left_out == late
    assert read_experiments(folder.path).left_out == late
    end = Confirm(folder, launch=Pretended(halved)).run([on("cpu")])
    assert [one.where for one in tried_of(end.experiments)] == ["cpu, batch 8", "cuda:0, batch 8"]
    assert end.experiments.left_out == late[1:]


def test_what_an_older_version_left_out_is_known_by_its_batch_size(folder: RunFolder) -> None:
    Confirm(folder, launch=Pretended(halved), refused=(not_tried(on("cpu"), "no time"),)).run([])
    file = nested_folder(folder.path) / "experiments.json"
    written = json.loads(file.read_text())
    del written["left_out"][0]["base"]
    file.write_text(json.dumps(written))
    (old,) = read_experiments(folder.path).left_out
    assert old.base is None and tried_of(Experiments(left_out=(old,)))[0].where == "batch 8"
    assert Confirm(folder, launch=Pretended(halved)).run([on("cpu")]).experiments.left_out == ()


class Taking(Pretended):
    """Pretended trials that take so many seconds of a clock by hand."""

    now_s = 0.0

    def __init__(self, takes_s: float, starting_s: float = 0.0) -> None:
        super().__init__(halved)
        self.takes_s, self.starting_s = takes_s, starting_s

    def start(self, request: Request) -> Ended:
        self.now_s += 0.0 if self.started else self.starting_s
        super().start(request)
        return Waiting(self)

    def clock(self) -> float:
        return self.now_s


class Waiting(Ended):
    def __init__(self, launch: Taking) -> None:
        super().__init__()
        self.launch = launch

    def wait(self, timeout_s: float) -> int:
        self.launch.now_s += self.launch.takes_s
        return super().wait(timeout_s)


CHANGES: list[dict[str, Json]] = [{"num_workers": 1}, {"num_workers": 2}, {"num_workers": 3}]


def in_time(folder: RunFolder, launch: Taking, budget_s: float) -> list[tuple[Json, int]]:
    """The changes and their pairs after so much time; each of three is thought to take 7 s a pair."""
    confirm = Confirm(folder, time_budget_s=budget_s, launch=launch, clock=launch.clock)
    end = confirm.run([candidate(change) for change in CHANGES])
    return [(one.change["num_workers"], one.pairs) for one in tried_of(end.experiments)]


def test_pairs_that_turn_out_dear_leave_one_change_finished_and_no_second_one_begun(folder: RunFolder) -> None:
    # Thought: 3 x 7 s, so that two changes fit into a minute. Found: 20 s a pair.
    assert in_time(folder, Taking(10.0), 60.0) == [(1, 3), (2, 0), (3, 0)]


def test_what_was_begun_is_finished_before_the_next_one_is_begun(folder: RunFolder) -> None:
    assert in_time(folder, Taking(10.0), 45.0) == [(1, 2), (2, 0), (3, 0)]  # two pairs of 20 s
    (one, left, _) = tried_of(read_experiments(folder.path))
    assert one.verdict is Trying.TOO_EARLY and "2 pairs ran whole" in one.why
    assert left.verdict is Trying.NOT_TRIED and "3 pairs would take about 60 s, and 5 s" in left.why
    # What trials took in an earlier call is in their records; pretended ones took no time at all there.
    assert in_time(folder, Taking(10.0), 85.0)[:2] == [(1, 3), (2, 3)]


def test_the_time_that_the_server_takes_to_start_is_no_part_of_a_pair(folder: RunFolder) -> None:
    # 30 s to start and 3 x 8 s: with the start in it the first pair would take 38 s, and two more of it not fit.
    assert in_time(folder, Taking(4.0, starting_s=30.0), 60.0)[0] == (1, 3)


def test_an_experiment_begun_behind_one_that_was_passed_over_keeps_its_trials(folder: RunFolder) -> None:
    dear = dataclasses.replace(candidate(THREADS), start_s=1000.0)
    Confirm(folder, time_budget_s=60.0, launch=Pretended(halved)).run([dear, candidate(WORKERS)])
    end = Confirm(folder, time_budget_s=None, launch=Pretended(halved)).run([dear, candidate(WORKERS)])
    told = tried_of(end.experiments)
    assert sorted(str(one.change) for one in told) == sorted([str(THREADS), str(WORKERS)])
    assert [one.pairs for one in told] == [PAIRS, PAIRS]
    first = [one.first_repeat for one in end.experiments.planned]
    assert len(set(first)) == 2 and len(end.experiments.results) == 4 * PAIRS  # no base is shared


def compiling(until_warm_up: int) -> Pretended:
    """Trials with the change still compile when they are measured, unless their warm-up has so many steps."""

    def more(trial: Trial) -> dict[str, Any]:
        if not trial.settings.num_workers or trial.length.warmup_steps >= until_warm_up:
            return {}
        return {"facts": {"warmup_ended": STILL_COMPILING}, "steady": False}

    return Pretended(halved, more=more)


def test_what_did_not_settle_is_left_after_three_pairs_and_tried_anew_after_a_longer_warm_up(folder: RunFolder) -> None:
    launch = compiling(until_warm_up=100)
    end = Confirm(folder, steps=100, launch=launch).run([candidate(WORKERS)])
    assert verdicts(end) == [(WORKERS, Trying.NOT_SETTLED)] and end.unfinished == 0
    assert len(launch.started) == 6  # with three of five pairs lost no verdict can come of the others
    ahead = Confirm(folder, steps=100).foresee([candidate(WORKERS)])
    assert ahead[0].missing == PAIRS
    end = Confirm(folder, steps=100, launch=launch).run([candidate(WORKERS)])
    assert verdicts(end) == [(WORKERS, Trying.CONFIRMED)]
    # As many as a trial has made in all: 3 of warm-up and 100.
    assert {trial.length.warmup_steps for trial in launch.started[6:]} == {103}
    assert len(launch.started) == 6 + 2 * PAIRS == len({trial.id for trial in launch.started})
    assert Confirm(folder, launch=launch).run([candidate(WORKERS)]).experiments.planned == end.experiments.planned
    assert len(launch.started) == 6 + 2 * PAIRS


@pytest.mark.parametrize(("spare_steps", "warm_up_steps"), [(0, None), (20, 23), (500, 103)])
def test_a_script_is_tried_anew_as_far_as_it_has_steps(
    folder: RunFolder, spare_steps: int, warm_up_steps: int | None
) -> None:
    def confirm() -> list[Trial]:
        launch = compiling(until_warm_up=1000)
        confirm = Confirm(folder, steps=100, launch=launch, own_script=True, spare_steps=spare_steps)
        assert verdicts(confirm.run([candidate(WORKERS)])) == [(WORKERS, Trying.NOT_SETTLED)]
        return launch.started

    assert len(confirm()) == 6
    assert [trial.length.warmup_steps for trial in confirm()] == ([] if warm_up_steps is None else [warm_up_steps] * 6)


def test_how_much_is_missing_is_told(folder: RunFolder) -> None:
    launch = Taking(10.0)
    confirm = Confirm(folder, time_budget_s=60.0, launch=launch, clock=launch.clock)
    end = confirm.run([candidate(change) for change in CHANGES])
    assert (end.unfinished, round(end.needs_s)) == (2, 120)  # 2 x 3 pairs of 20 s
    end = Confirm(folder, time_budget_s=None, launch=Pretended(halved)).run([candidate(one) for one in CHANGES])
    assert (end.unfinished, end.needs_s) == (0, 0.0)


class Told:
    """Keeps ``[number/total]`` of every trial that begins."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []

    def started(self, trial: Trial, *, number: int, total: int, left_s: float | None) -> None:
        self.places.append((number, total))

    def ended(self, result: TrialResult) -> None:
        """Only beginnings are of interest."""

    def close(self) -> None:
        """Nothing is kept open."""


def test_the_progress_counts_what_is_going_to_be_tried(folder: RunFolder) -> None:
    launch, told = Taking(10.0), Told()
    confirm = Confirm(folder, time_budget_s=60.0, launch=launch, clock=launch.clock, progress=told)
    confirm.run([candidate(change) for change in CHANGES])
    # Foreseen are 7 s a pair: three pairs of two changes, and two more of the first (56 of 60 s), of 30 trials that are
    # planned. The first pair takes 20 s, so that two more of it are all that fit.
    assert told.places == [(1, 16), (2, 16), (3, 6), (4, 6), (5, 6), (6, 6)]


def test_a_second_call_counts_what_is_left(folder: RunFolder) -> None:
    Confirm(folder, pairs=3, launch=Pretended(halved)).run([candidate(WORKERS)])
    told = Told()
    Confirm(folder, pairs=4, launch=Pretended(halved), progress=told).run([candidate(WORKERS)])
    assert told.places == [(1, 2), (2, 2)]


def test_what_would_be_done_is_told_without_doing_it(folder: RunFolder) -> None:
    wanted = [candidate(WORKERS), candidate(THREADS)]
    before = Confirm(folder, pairs=3).foresee(wanted)
    assert [(one.standing.done, one.missing, one.pairs) for one in before] == [(0, 3, 3), (0, 3, 3)]
    assert before[0].missing_s == pytest.approx(3 * 2 * (1 + 0.5 + 203 * 0.01))
    assert not nested_folder(folder.path).exists()
    Confirm(folder, pairs=3, launch=Pretended(halved)).run(wanted[:1])
    written = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    first, second = Confirm(folder, pairs=4, time_budget_s=20.0).foresee(wanted)
    assert (first.standing.done, first.missing, first.decides) == (3, 1, True)
    # Pretended trials take no time, so that the slowness they show (0) makes the second change look free.
    assert (second.standing.done, second.missing, second.pairs) == (0, 4, 4)
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == written


def test_what_has_failed_is_foreseen_to_end_there(folder: RunFolder) -> None:
    Confirm(folder, launch=Pretended(lambda settings: None if settings.num_workers else 1.0)).run([candidate(WORKERS)])
    (one,) = Confirm(folder).foresee([candidate(WORKERS)])
    assert one.standing.over and (one.missing, one.pairs) == (0, 0)


def test_the_prediction_is_kept_as_it_was_before_the_first_pair(folder: RunFolder) -> None:
    Confirm(folder, pairs=1, launch=Pretended(halved)).run([candidate(WORKERS)])
    known = read_experiments(folder.path)
    (one,) = known.planned
    assert one.about == candidate(WORKERS).about and one.change == WORKERS
    assert one.base.settings == base().settings


def test_a_loop_of_ones_own_cannot_be_run_again(folder: RunFolder) -> None:
    own = base("own-loop", {})
    with pytest.raises(
        InvalidSettings,
        match=r"'own-loop' cannot be run again.*compare before-1,before-2,before-3 after-1,after-2,after-3",
    ):
        Confirm(folder, launch=Pretended(halved)).run([candidate(WORKERS, of=own)])
    assert not nested_folder(folder.path).exists()


def test_a_script_that_is_called_like_a_workload_is_not_tried_as_that_workload(folder: RunFolder) -> None:
    run = folder.header()
    repeatable([candidate(WORKERS)], run)  # what the sweep trained can be trained again
    with pytest.raises(InvalidSettings, match=r"cannot be run again.*it is a training of your own"):
        repeatable([candidate(WORKERS)], dataclasses.replace(run, notes=(OWN_TRAINING,)))


@pytest.mark.parametrize("pairs", [0, 1001])
def test_pairs_that_cannot_be_run_are_refused(folder: RunFolder, pairs: int) -> None:
    with pytest.raises(InvalidSettings, match=f"pairs={pairs}"):
        Confirm(folder, pairs=pairs, launch=Pretended(halved)).run([candidate(WORKERS)])


def test_two_at_once_cannot_try_the_advice_of_one_run(folder: RunFolder) -> None:
    with folder.lock(), pytest.raises(RunError, match="being written by pid"):
        Confirm(RunFolder.open(folder.path), launch=Pretended(halved)).run([candidate(WORKERS)])


def test_damaged_experiments_are_told_with_their_file(folder: RunFolder) -> None:
    Confirm(folder, pairs=1, launch=Pretended(halved)).run([candidate(WORKERS)])
    path = folder.path / "confirm/experiments.json"
    text = path.read_text()
    for broken, words in (
        ("{", "not whole JSON"),
        (text.replace('"schema": 1', '"schema": 99'), "schema 99"),
        (text.replace('"num_workers": 2', '"num_workers": -2'), "num_workers=-2"),
        (text.replace('"first_repeat"', '"first"'), "first_repeat"),
    ):
        path.write_text(broken)
        with pytest.raises(RunError, match=words):
            read_experiments(folder.path)


# -- with real processes; what they wait for is a sleep, which takes no longer where others use the machine, too

SLEEPING: dict[str, Json] = {**MLP, "sleep_per_item_ms": 5.0}


@pytest.fixture(scope="module")
def warm() -> Iterator[ForkServer]:
    """One server for all that is tried here; who is killed below has one of its own."""
    launch = ForkServer(("tests.trials_with_small_ceilings",))
    yield launch
    launch.close()


def swept(root: Path, launch: ForkServer) -> RunFolder:
    """A run of batch 8 of a loader that sleeps, measured in a real process."""
    length = Length.exactly(30, warmup_steps=3)
    trial = dataclasses.replace(base("faulty", SLEEPING), length=length)
    folder = run_folder(root, planned=trial)
    Sweep(folder, launch=launch).run()
    return folder


def really(root: Path, launch: ForkServer, change: Mapping[str, Json], pairs: int) -> Tried:
    """Try one change of batch 8 of a loader that sleeps, in real processes."""
    of = base("faulty", SLEEPING)
    end = Confirm(run_folder(root), pairs=pairs, steps=15, launch=launch).run([candidate(change, of=of)])
    (one,) = tried_of(end.experiments)
    assert one.pairs == pairs, one.why
    return one


@pytest.mark.slow
def test_two_workers_halve_the_wait_for_a_loader_that_sleeps(tmp_path: Path, warm: ForkServer) -> None:
    """Batch 8 sleeps 40 ms; two workers make a batch each in that time, so that a step takes 20 ms."""
    one = really(tmp_path, warm, {"num_workers": 2, "persistent_workers": True}, 5)
    assert one.verdict is Trying.CONFIRMED
    # Two workers cannot give a sample in less than 2.5 ms, but for one batch of 15 that may be ready at the beginning.
    assert 0.25 < one.gain.value <= 1 - 2.5e-3 * 14 / 15 / one.base_s + 0.02
    assert one.base_s > 5e-3  # each sample sleeps 5 ms


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"num_workers": 0},  # what it is anyway: equal against equal
        {"freeze_gc": True},  # the collector is not what this training waits for
    ],
)
def test_what_does_nothing_to_a_loader_that_sleeps_is_not_confirmed(
    tmp_path: Path, warm: ForkServer, change: dict[str, Json]
) -> None:
    one = really(tmp_path, warm, change, 5)
    assert one.verdict in (Trying.REFUTED, Trying.INCONCLUSIVE)


@pytest.mark.slow
def test_the_ceiling_of_a_sleeping_loader_is_nearly_the_whole_step(tmp_path: Path, warm: ForkServer) -> None:
    one = really(tmp_path, warm, {"ceiling": "cached_batches"}, 3)
    assert one.ceiling and one.gain.value > 0.7


@pytest.mark.slow
def test_from_a_sweep_to_a_verdict_that_was_measured(tmp_path: Path, warm: ForkServer) -> None:
    folder = swept(tmp_path, warm)
    run = folder.read()
    before = diagnose(run)
    assert before.verdict.code == "INP001"
    wanted = candidates(run, before, only=["INP001"])
    assert [one.ceiling for one in wanted] == [False, True]
    Confirm(folder, pairs=4, steps=20, launch=warm).run(wanted)
    after = diagnose(run, experiments=read_experiments(folder.path))
    assert after.verdict.code == "INP001"
    finding = next(item for item in after.findings if item.code == "INP001")
    assert finding.recoverable.measured and finding.recoverable.low > 0.1


CONFIRM = ["confirm", "run", "--results-dir", ".", "--quiet", "--pairs", "3", "--steps", "10", "--only", "INP001"]


def written(root: Path, name: str) -> dict[Path, int]:
    """When each tried trial's file of this name was written, in ns."""
    return {path: path.stat().st_mtime_ns for path in root.glob(f"run/confirm/trials/*/{name}")}


@pytest.mark.slow
def test_kill_9_at_random_moments_then_go_on(
    tmp_path: Path, warm: ForkServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing complete is run twice or lost."""
    swept(tmp_path, warm)
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "tests.trials.briefly", *CONFIRM]
    randomly = random.Random(1)
    complete: dict[Path, int] = {}
    for begun in (2, 4, 7):
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 300
        while len(written(tmp_path, "started.json")) < begun:
            assert process.poll() is None and time.monotonic() < deadline, f"fewer than {begun} trials began"
            time.sleep(0.05)
        time.sleep(randomly.uniform(0.0, 1.5))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        now = written(tmp_path, "result.json")
        assert complete.items() <= now.items(), "a complete trial was lost or run again"
        complete = now
    assert 6 <= len(complete) < 12  # of seven that had begun, the last kill found at most one unfinished
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("perf_diagnostics.trials.confirm.confirm.launcher", lambda preload: Outlives(warm))
    assert main(CONFIRM) == 0
    now = written(tmp_path, "result.json")
    assert complete.items() <= now.items() and len(now) == 12  # a remedy and its ceiling, three pairs each
    assert "num_workers" in capsys.readouterr().out
