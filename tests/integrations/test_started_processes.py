"""Processes that a script starts by ``multiprocessing`` or torch's are measured, each by itself or as ranks of one."""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import pickle
import sys
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing import context, pool, process, reduction, util
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data._utils.worker import _worker_loop

from perf_diagnostics.integrations.ends.endings import Ending
from perf_diagnostics.integrations.ranks import started_processes
from perf_diagnostics.integrations.ranks.started_processes import StartedProcesses, may_train
from perf_diagnostics.integrations.ranks.started_trainings import StartedTrainings, notes_on_processes
from perf_diagnostics.integrations.run_script import Session
from perf_diagnostics.records import Outcome, TrialResult
from perf_diagnostics.store.find import list_runs
from tests.integrations.test_run_processes import script
from tests.integrations.test_run_script import both
from tests.planted.warm import WarmStart

pools_worker: Any = vars(pool)["worker"]
torchs: Any = importlib.import_module("torch.multiprocessing.spawn")

HEARD: list[object] = []
FAILED: list[tuple[str, str]] = []


def failed(process: str, why: str) -> None:
    FAILED.append((process, why))


class Ear:
    """Hears what a session is told."""

    def __init__(self, process: str) -> None:
        HEARD.append(process)

    def begin(self) -> None:
        HEARD.append("begin")

    def end(self, ending: Ending) -> None:
        HEARD.append(ending)


def trains(what: str) -> None:
    HEARD.append(what)
    if what == "fails":
        raise ValueError("no data")
    if what == "leaves":
        sys.exit(3)


NO_DATA = f"ValueError: no data (test_started_processes.py:{trains.__code__.co_firstlineno + 3})"


class Learner(process.BaseProcess):
    """A class of the script's own."""


@pytest.fixture
def at_its_end(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What a started process calls when the script's function is over; the process itself is left out."""
    HEARD.clear()
    ends: list[Callable[[], None]] = []
    monkeypatch.setattr(util, "Finalize", lambda _of, end, exitpriority: ends.append(end))
    return ends


def taken_along(one: Any) -> bytes:
    """A process as it goes to its own interpreter."""
    context.set_spawning_popen(one)
    try:
        return bytes(reduction.ForkingPickler.dumps(one))
    finally:
        context.set_spawning_popen(None)


def test_a_started_process_is_measured_up_to_how_its_function_ends(
    at_its_end: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for what, ending in (
        ("trains", (Outcome.COMPLETED, "", "script_ended")),
        ("fails", (Outcome.CRASHED, NO_DATA, "crashed")),
        ("leaves", (Outcome.COMPLETED, "ended by sys.exit(3)", "exit")),
    ):
        HEARD.clear()
        with ExitStack() as installed:
            StartedProcesses(Ear, lambda: False, failed).install(installed)
            one = taken_along(multiprocessing.get_context("spawn").Process(target=trains, args=(what,), name="one"))
        there = pickle.loads(one)
        assert there.name == "one" and HEARD == []
        monkeypatch.setattr(process, "_current_process", there)
        there._after_fork()
        try:
            there.run()
        except (ValueError, SystemExit):
            at_its_end.pop()()
        else:
            at_its_end.pop()()
        assert [*HEARD] == ["one", "begin", what, ending]


class Broken(Ear):
    """Fails where it is told to."""

    fails_at = "make"

    def __init__(self, process: str) -> None:
        self.fail("make")

    def begin(self) -> None:
        self.fail("begin")

    def end(self, ending: Ending) -> None:
        super().end(ending)
        self.fail("end")

    def fail(self, at: str) -> None:
        if at == self.fails_at:
            raise TypeError(f"it cannot {at}")


@pytest.mark.parametrize("at", ["make", "begin", "end"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_fails_of_ours_is_told_to_the_first_process_and_does_nothing_to_the_started_one(
    at_its_end: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch, at: str, method: str
) -> None:
    monkeypatch.setattr(Broken, "fails_at", at)
    FAILED.clear()
    with ExitStack() as installed:
        started = StartedProcesses(Broken, lambda: True, failed)
        started.install(installed)
        there = pickle.loads(taken_along(multiprocessing.get_context("spawn").Process(target=trains, name="one")))
        monkeypatch.setattr(process, "_current_process", there)
        if method == "spawn":
            there._after_fork()
        else:
            monkeypatch.setattr(os, "getppid", os.getpid)
            started._forked()
    for end in at_its_end:  # which is called also where it failed to begin
        end()
    assert [*FAILED] == [("one", f"TypeError: it cannot {at}")]
    assert [*HEARD] == ([] if at == "make" else [(Outcome.COMPLETED, "", "script_ended")])


def test_what_fails_when_a_process_is_left_by_what_measures_the_first_one_does_nothing_to_it(
    at_its_end: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def left() -> bool:
        raise RuntimeError("it does not come off")

    FAILED.clear()
    monkeypatch.setattr(process, "_current_process", process.BaseProcess(target=trains, name="one"))
    with ExitStack() as installed:
        started = StartedProcesses(Ear, left, failed)
        started.install(installed)
        monkeypatch.setattr(os, "getppid", os.getpid)
        started._forked()
    assert [*FAILED] == [("one", "RuntimeError: it does not come off")] and at_its_end == []


def test_what_is_taken_along_is_the_scripts_own_once_nobody_measures(at_its_end: list[Callable[[], None]]) -> None:
    one = multiprocessing.get_context("spawn").Process(target=trains, args=("trains",))
    plain = taken_along(one)
    with ExitStack() as installed:
        StartedProcesses(Ear, lambda: False, failed).install(installed)
        assert taken_along(one) != plain
        assert b"perf_diagnostics" not in taken_along(multiprocessing.get_context("spawn").Process(target=pools_worker))
    assert taken_along(one) == plain and "__reduce_ex__" not in vars(process.BaseProcess)
    pickle.loads(plain)._after_fork()
    assert HEARD == [] and at_its_end == []


@pytest.mark.parametrize("written", [True, False])
def test_torchs_own_way_to_tell_a_failure_is_seen_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, written: bool
) -> None:
    """torch writes down what the function raised, and leaves by ``sys.exit(1)``."""
    monkeypatch.setattr(torchs, "_prctl_pr_set_pdeathsig", lambda _signal: None)  # we outlive our parent
    file = str(tmp_path / "error")
    one = process.BaseProcess(target=torchs._wrap, args=(lambda _rank, what: trains(what), 0, ("fails",), file))
    with pytest.raises(SystemExit) as left:
        one.run()
    if not written:
        Path(file).unlink()
    crashed = (Outcome.CRASHED, NO_DATA, "crashed")
    assert started_processes._ending(one, left.value) == (
        crashed if written else (Outcome.COMPLETED, "ended by sys.exit(1)", "exit")
    )


def test_workers_of_loaders_and_pools_do_not_train() -> None:
    for target, whether in (
        (trains, True),
        (functools.partial(functools.partial(trains, "x")), True),
        (Ear("x").begin, True),
        (torchs._wrap, True),
        (_worker_loop, False),
        (functools.partial(_worker_loop), False),
        (pools_worker, False),
    ):
        assert may_train(process.BaseProcess(target=target)) is whether, target
    assert may_train(Learner()) and not may_train(process.BaseProcess())


def test_word_of_a_record_is_left_and_taken_once(tmp_path: Path) -> None:
    there = StartedTrainings(tmp_path / "word")
    assert there.take() == ([], [])
    for name in ("Process-1", "Learner-2"):
        pickle.loads(pickle.dumps(there)).add(name, tmp_path / name)
    pickle.loads(pickle.dumps(there)).failed("Process-3", "OSError: none")
    told, failed = there.take()
    first, second = told
    assert failed == ["in Process-3: OSError: none"]
    assert (first.process, second.folder.path) == ("Process-1", tmp_path / "Learner-2")
    assert there.take() == ([], []) and not (tmp_path / "word").exists()
    mine, other = notes_on_processes(told)
    assert "the training of Process-1, " in mine and f"{os.path.relpath(tmp_path / 'Learner-2')} (Learner-2)" in other
    assert notes_on_processes([object(), first])[0].endswith("(Process-1).") and notes_on_processes([object()]) == []


def test_a_session_goes_along_as_it_was_before_it_began(tmp_path: Path) -> None:
    session = Session(workload="train", name="mine", results_dir=tmp_path, deep=True)
    with ExitStack() as session._installed:
        session._follow()
        assert session._processes is not None
        there = pickle.loads(pickle.dumps(session._processes._session))(process="Process-1")
    assert (there._name, there._deep, there._process, there._tell) == ("mine", True, "Process-1", None)
    assert there._others == session._others


def test_word_is_taken_where_nobody_is_told_but_not_by_the_processes_themselves(tmp_path: Path) -> None:
    told = StartedTrainings(tmp_path / "word")
    told.add("Process-1", tmp_path)
    for name, left in (("Process-1", True), (None, False)):
        session = Session(workload="train", name=None, results_dir=tmp_path, process=name, others=told)
        session.begun = True
        session.say()
        assert (tmp_path / "word").exists() is left and len(session.started) == (not left)


def results(folder: Path) -> dict[str, TrialResult]:
    """The records, by name."""
    return {run.path.name: result for run in list_runs(folder / "results") for result in run.read().results}


def steps(result: TrialResult) -> list[int]:
    """The steps of each rank, with the first one of a loop without a loader, which is only told of."""
    told = 0 if result.gap("unseen_steps") is None else 1
    return [len(table) + told for table in result.steps]


HOGWILD = """
    import torch.multiprocessing as mp

    def work(model):
        train(20, model)

    if __name__ == "__main__":
        mp.set_start_method(sys.argv[1])
        model = torch.nn.Linear(8, 1).share_memory()
        processes = [mp.Process(target=work, args=(model,)) for _ in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        print("codes", [process.exitcode for process in processes])
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_fault_of_ours_in_a_started_process_is_told_once_it_is_over(
    tmp_path: Path, method: str, warm: WarmStart
) -> None:
    broken = """
        def end(*_):
            raise TypeError("it cannot end")

        def work(model):
            from perf_diagnostics.integrations.watching.watch import Watch
            Watch.end = end
            train(20, model)

        if __name__ == "__main__":
            mp.set_start_method(sys.argv[1])
            process = mp.Process(target=work, args=(torch.nn.Linear(8, 1),))
            process.start(), process.join()
            print("code", process.exitcode)
    """
    name = script(tmp_path, "\nimport torch.multiprocessing as mp\n" + textwrap.dedent(broken))
    plain, watched = both(tmp_path, name, method, warm=warm)
    assert watched.stdout == plain.stdout == "code 0\n" and watched.returncode == plain.returncode == 0
    ours = [line for line in watched.stderr.splitlines() if line.startswith("perf-diagnostics: ")]
    assert plain.stderr == "\n".join(line for line in watched.stderr.splitlines() if line not in ours)
    assert "TypeError: it cannot end" in "".join(ours)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_that_train_by_themselves_have_a_record_each(tmp_path: Path, method: str, warm: WarmStart) -> None:
    plain, watched = both(tmp_path, script(tmp_path, HOGWILD), method, options=("--name", "first"), warm=warm)
    assert watched.stdout == plain.stdout == "codes [0, 0]\n" and watched.returncode == plain.returncode == 0
    found = results(tmp_path)
    assert [steps(result) for result in found.values()] == [[20], [20]] and "first" in found
    assert {result.stop_reason for result in found.values()} == {"script_ended"}
    assert watched.stderr.count("perf-diagnostics: results/first: ") == 1
    (other,) = found.keys() - {"first"}
    assert f"have trained, too: results/{other} (Process-" in watched.stderr


ACTORS = """
    import multiprocessing as mp

    def act(batches):
        while True:
            batches.put([1.0] * 8)

    class Learner(mp.Process):
        def __init__(self, batches):
            super().__init__(name="learner")
            self.batches = batches

        def run(self):
            model = torch.nn.Linear(8, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(20):
                model(torch.tensor([self.batches.get()])).mean().backward()
                optimizer.step()
            raise ValueError("learned enough")

    if __name__ == "__main__":
        context = mp.set_start_method(sys.argv[1])
        batches = mp.Queue(4)
        actor = mp.Process(target=act, args=(batches,), daemon=True)
        learner = Learner(batches)
        actor.start(), learner.start(), learner.join()
        print(learner.exitcode)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_of_a_learner_and_its_actors_the_learner_is_recorded(tmp_path: Path, method: str, warm: WarmStart) -> None:
    plain, watched = both(tmp_path, script(tmp_path, ACTORS), method, options=("--name", "learned"), warm=warm)
    assert watched.stdout == plain.stdout == "1\n" and watched.returncode == plain.returncode == 0
    lines = [line for line in watched.stderr.splitlines() if not line.startswith("perf-diagnostics: ")]
    assert lines == plain.stderr.splitlines() and lines[-1] == "ValueError: learned enough"
    ((name, result),) = results(tmp_path).items()
    assert (name, steps(result)) == ("learned", [20])
    assert result.outcome is Outcome.CRASHED and result.reason.startswith("ValueError: learned enough (")
    assert "perf-diagnostics: This is the training of learner, a process" in watched.stderr


RANKS = """
import os, sys, torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def main(rank, store, fails):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
    for x, y in DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(loss.item(), flush=True)
    dist.destroy_process_group()
    if fails == "fails" and rank == 0:  # else torch may end rank 0 before it has failed itself
        raise ValueError("after the training")

if __name__ == "__main__":
    store = os.path.abspath(f"store-{os.getpid()}")
    if sys.argv[1] == "by-hand":
        ranks = [mp.get_context(sys.argv[2]).Process(target=main, args=(rank, store, "")) for rank in range(2)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
    else:
        mp.start_processes(main, args=(store, sys.argv[1]), nprocs=2, start_method=sys.argv[2])
    print("both are done")
"""


def the_rank_s_failure(told: str) -> str:
    """The traceback that torch brings from the process that failed first, without our lines."""
    lines = [line for line in told.splitlines(keepends=True) if not line.startswith("perf-diagnostics: ")]
    return "".join(lines).partition("terminated with the following error:")[2].rstrip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "method", "outcome"),
    [
        ("works", "spawn", Outcome.COMPLETED),
        ("fails", "spawn", Outcome.CRASHED),
        ("works", "fork", Outcome.COMPLETED),
        ("by-hand", "spawn", Outcome.COMPLETED),
        ("by-hand", "fork", Outcome.COMPLETED),
    ],
)
def test_ranks_that_the_script_starts_are_one_record(
    tmp_path: Path, how: str, method: str, outcome: Outcome, warm: WarmStart
) -> None:
    (tmp_path / "train.py").write_text(RANKS, encoding="utf-8")
    # In a process that was itself forked, ranks that it forks do not always find each other, without us either.
    started = warm if method == "spawn" else None
    plain, watched = both(tmp_path, "train.py", how, method, options=("--name", "both"), warm=started)
    assert watched.stdout == plain.stdout != "" and watched.returncode == plain.returncode == int(how == "fails")
    assert (failure := the_rank_s_failure(watched.stderr)) == the_rank_s_failure(plain.stderr)
    assert ("ValueError: after the training" in failure) is (how == "fails")
    assert watched.stderr.count("perf-diagnostics: results/both: ") == 1 and "step was measured" not in watched.stderr
    assert "have trained, too" not in watched.stderr
    ((name, result),) = results(tmp_path).items()
    assert (name, steps(result), result.outcome, result.facts["ranks"]) == ("both", [20, 20], outcome, 2)


UNTOUCHED = """
    from torch.utils.data import DataLoader, Dataset

    class Loaded(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            ours = sys.modules.get("perf_diagnostics.integrations.run_script")
            threads = __import__("threading").enumerate()
            # One looks at the lines of the others.
            of_script = [one for one in threads if one.name != "perf_diagnostics readings"]
            return torch.tensor([ours is not None, len(of_script)])

    if __name__ == "__main__":
        seen = torch.cat(list(DataLoader(Loaded(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1])))
        print(seen[:, 1].tolist() if sys.argv[1] == "fork" else seen.tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_loaders_are_left_alone(tmp_path: Path, method: str, warm: WarmStart) -> None:
    plain, watched = both(tmp_path, script(tmp_path, UNTOUCHED), method, warm=warm)
    assert watched.stdout == plain.stdout != "" and watched.returncode == plain.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_a_process_that_trains_itself(tmp_path: Path, method: str, warm: WarmStart) -> None:
    """One that is forked off in the midst of a training is left alone, for it has its threads' locks as they were."""
    parent = textwrap.dedent("""
    import multiprocessing

    def child(queue):
        queue.put(train(20))

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        queue = context.Queue()
        print(train(30))
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(queue.get())
        process.join()
        sys.exit(process.exitcode + 4)
    """)
    plain, watched = both(tmp_path, script(tmp_path, parent), method, options=("--name", "parent"), warm=warm)
    assert watched.stdout == plain.stdout and watched.returncode == plain.returncode == 4
    found = results(tmp_path)
    assert steps(found.pop("parent")) == [30] or method == "spawn"
    assert sorted(steps(result) for result in found.values()) == ([] if method == "fork" else [[20]])
    assert ("have trained, too" in watched.stderr) is (method == "spawn")
