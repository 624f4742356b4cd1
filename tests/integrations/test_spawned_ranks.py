"""Processes that a script starts with ``torch.multiprocessing.spawn`` are measured as ranks of its training."""

from __future__ import annotations

import contextlib
import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.integrations.ends.endings import Ending
from perf_diagnostics.integrations.ranks.spawned_ranks import SpawnedRanks, watch_spawned
from perf_diagnostics.integrations.run_script import Session
from perf_diagnostics.records import Outcome
from perf_diagnostics.store.find import list_runs
from tests.integrations.test_run_script import both

TORCHS: Any = importlib.import_module("torch.multiprocessing.spawn")

HEARD: list[object] = []


class Ear:
    """Hears what a session is told."""

    def __init__(self, index: int) -> None:
        HEARD.append(index)

    def begin(self) -> None:
        HEARD.append("begin")

    def end(self, ending: Ending) -> None:
        HEARD.append(ending)

    def say(self) -> None:
        HEARD.append("say")


def trains(index: int, what: str) -> None:
    HEARD.append((index, what))
    if what == "fails":
        raise ValueError("no data")
    if what == "leaves":
        sys.exit(3)


def in_its_process(what: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens in process 1 of those that ``spawn(trains, (what,))`` starts; the process itself is left out."""
    monkeypatch.setattr(TORCHS, "_prctl_pr_set_pdeathsig", lambda _signal: None)  # we outlive our parent
    HEARD.clear()
    with contextlib.ExitStack() as installed:
        watch_spawned(SpawnedRanks(Ear), installed)
        taken_along = pickle.dumps(TORCHS._wrap)
    pickle.loads(taken_along)(trains, 1, (what,), str(folder / "error"))


def test_a_started_process_is_measured_around_the_scripts_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_its_process("trains", tmp_path, monkeypatch)
    assert HEARD == [1, "begin", (1, "trains"), (Outcome.COMPLETED, "", "script_ended"), "say"]


def test_what_the_function_raised_is_how_the_training_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as left:
        in_its_process("fails", tmp_path, monkeypatch)
    assert left.value.code == 1
    assert HEARD[3:] == [(Outcome.CRASHED, "ValueError: no data", "crashed"), "say"]
    told = pickle.loads((tmp_path / "error").read_bytes())
    assert "perf_diagnostics" not in told and "ValueError: no data" in told


def test_a_function_that_leaves_by_itself_has_ended_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as left:
        in_its_process("leaves", tmp_path, monkeypatch)
    assert left.value.code == 3
    assert HEARD[3:] == [(Outcome.COMPLETED, "ended by sys.exit(3)", "exit"), "say"]


def test_a_process_that_is_forked_off_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TORCHS, "_prctl_pr_set_pdeathsig", lambda _signal: None)
    HEARD.clear()
    before = TORCHS._wrap
    ranks = SpawnedRanks(Ear)
    with contextlib.ExitStack() as installed:
        watch_spawned(ranks, installed)
        TORCHS._wrap(trains, 0, ("forked",), str(tmp_path / "error"))
    assert HEARD == [(0, "forked")] and not ranks.started and TORCHS._wrap is before


def test_the_first_process_gets_the_runs_name_unless_it_is_taken(tmp_path: Path) -> None:
    of_rank = Session(workload="train", name="mine", results_dir=tmp_path, deep=True)._of_rank
    assert [(of_rank(index)._name, of_rank(index)._deep) for index in (0, 1)] == [("mine", True), (None, False)]
    (tmp_path / "mine").mkdir()
    assert of_rank(0)._name is None


STARTS = """
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
    mp.spawn(main, args=(os.path.abspath(f"store-{os.getpid()}"), sys.argv[1]), nprocs=2)
    print("both are done")
"""


def the_rank_s_failure(told: str) -> str:
    """The traceback that torch brings from the process that failed first, without our lines."""
    lines = [line for line in told.splitlines(keepends=True) if not line.startswith("perf-diagnostics: ")]
    return "".join(lines).partition("terminated with the following error:")[2].rstrip()


@pytest.mark.slow
@pytest.mark.parametrize(("how", "outcome"), [("works", Outcome.COMPLETED), ("fails", Outcome.CRASHED)])
def test_ranks_that_the_script_spawns_are_one_record(tmp_path: Path, how: str, outcome: Outcome) -> None:
    (tmp_path / "train.py").write_text(STARTS, encoding="utf-8")
    plain, watched = both(tmp_path, "train.py", how, options=("--name", "both"))
    assert watched.stdout == plain.stdout != "" and watched.returncode == plain.returncode == int(how == "fails")
    assert (failure := the_rank_s_failure(watched.stderr)) == the_rank_s_failure(plain.stderr)
    assert ("ValueError: after the training" in failure) is (how == "fails")
    assert watched.stderr.count("perf-diagnostics: results/both: ") == 1 and "step was measured" not in watched.stderr
    (folder,) = list_runs(tmp_path / "results")
    (result,) = folder.read().results
    assert [len(table) for table in result.steps] == [20, 20]
    assert result.outcome is outcome and result.facts["ranks"] == 2
