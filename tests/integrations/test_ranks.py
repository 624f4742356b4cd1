"""Several processes of one training make one record, and it says which of them the others wait for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.diagnose.several_runs import together
from perf_diagnostics.integrations.ranks import ranks
from perf_diagnostics.integrations.ranks.ranks import ALONE_AFTER, Meeting
from perf_diagnostics.records import Phase, Run, TrialResult
from perf_diagnostics.store.find import list_runs
from perf_diagnostics.store.run_folder import RunFolder
from tests.integrations.test_run_script import ended_warm
from tests.planted.bench import free_port
from tests.planted.warm import Asked, WarmStart

SCRIPTS = Path(__file__).parent / "scripts"
COMMAND = [sys.executable, "-m", "perf_diagnostics", "run", "--results-dir"]


def of_ranks(count: int) -> list[dict[str, str]]:
    """The variables that torchrun sets for so many ranks."""
    for_all = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return [for_all | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)} for rank in range(count)]


def started(command: list[str], count: int = 2) -> list[subprocess.CompletedProcess[str]]:
    """The command as so many ranks, with the variables that torchrun sets."""
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for environment in of_ranks(count)
    ]
    ended = []
    for process in running:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        ended.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return ended


def job(
    tmp_path: Path, planted: str, steps: int = 60, *, warm: WarmStart | None = None
) -> tuple[Run, list[subprocess.CompletedProcess[str]]]:
    """Run the script as two ranks, each under ``perf-diagnostics run``, and read what they recorded together."""
    results = tmp_path / "results"
    words = [str(SCRIPTS / "ranks.py"), str(tmp_path / "store"), planted, str(steps)]
    command = [*COMMAND, str(results), *words]
    ended = started(command) if warm is None else started_warm(command, warm)
    assert [process.stdout for process in ended] == ["rank 0 ends\n", "rank 1 ends\n"]
    (folder,) = list_runs(results)
    assert [path.name for path in results.iterdir()] == [folder.path.name]  # nobody left anything else behind
    return folder.read(), ended


def started_warm(command: list[str], warm: WarmStart, count: int = 2) -> list[subprocess.CompletedProcess[str]]:
    """The same, in processes that need not import torch."""
    ended = list(ended_warm(warm, *(Asked(command[3:], environment) for environment in of_ranks(count))))
    assert {process.returncode for process in ended} == {0}, [process.stderr for process in ended]
    return ended


@pytest.mark.planted
def test_the_rank_that_waits_for_its_data_is_the_straggler(tmp_path: Path, warm: WarmStart) -> None:
    run, ended = job(tmp_path, "late", warm=warm)
    (result,) = run.results
    assert result.facts["ranks"] == 2 and result.facts["backend"] == "gloo"
    assert result.trial.options == {"ranks": 2}
    assert result.facts["exchanges_per_step_least"] == result.facts["exchanges_per_step_most"] == 1
    assert [len(table) for table in result.steps] == [60, 60]
    facts = RankFacts.of(result)
    # rank 1 waits 40 ms in all, rank 0 10 ms, and then inside its backward for rank 1
    waits_ms = facts.phase_ns(Phase.DATA_WAIT).mean(axis=1) / 1e6
    assert waits_ms[1] - waits_ms[0] == pytest.approx(30, abs=3)
    assert facts.phase_ns(Phase.BACKWARD).mean(axis=1)[0] > facts.phase_ns(Phase.BACKWARD).mean(axis=1)[1]
    found = {finding.code: finding for finding in diagnose(run).findings}
    assert found["COM002"].summary.startswith("Rank 1 of 2 is last in")
    assert "mostly in data wait" in found["COM002"].summary
    assert "perf-diagnostics:" in ended[0].stderr and "perf-diagnostics:" not in ended[1].stderr  # rank 0 speaks


@pytest.mark.planted
def test_the_rank_that_is_slow_in_backward_is_the_straggler(tmp_path: Path, warm: WarmStart) -> None:
    run, _ = job(tmp_path, "slow-backward", warm=warm)
    facts = RankFacts.of(run.results[0])
    assert facts.arrivals is not None and facts.arrivals.count == 9  # of the first ten the very first is not read
    # Rank 1's backward computes 30 ms longer, and rank 0 waits for it in its own, which takes as long.
    assert facts.arrivals.habit_ns(1)[Phase.BACKWARD].value / 1e6 == pytest.approx(30, abs=5)
    backward_ms = np.median(facts.phase_ns(Phase.BACKWARD), axis=1) / 1e6
    assert backward_ms[0] == pytest.approx(backward_ms[1], abs=3)
    diagnosis = diagnose(run)
    found = {finding.code: finding for finding in diagnosis.findings}
    assert found["COM002"].summary.startswith("Rank 1 of 2 is last in")
    assert "mostly in backward" in found["COM002"].summary
    assert "COM004" not in found
    # Whatever the exchange itself costs on this machine, what the other rank waits in it is told beside that.
    (exchange,) = [answer for answer in (*diagnosis.findings, *diagnosis.cleared) if answer.code == "COM001"]
    assert "; the other ranks wait another " in exchange.summary and "the last one, mostly rank 1" in exchange.summary


@pytest.mark.planted
def test_batches_uneven_in_turn_are_no_straggler(tmp_path: Path, warm: WarmStart) -> None:
    run, _ = job(tmp_path, "in-turn", warm=warm)
    found = {finding.code: finding for finding in diagnose(run).findings}
    assert "COM002" not in found
    assert "their samples differ by 50 %" in found["COM004"].summary  # 12 over the mean of 12 and 4, less 1
    # Each timed exchange belongs to its step: what a rank does before backward explains the half of the waits of 30 ms
    # (the ranks lie that far from their mean) but for the machine's noise.
    arrivals = RankFacts.of(run.results[0]).arrivals
    assert arrivals is not None and np.median(np.abs(arrivals.beyond_ns)) < 5e6


@pytest.mark.planted
def test_the_rank_that_waits_now_and_then_is_named_with_its_rhythm(tmp_path: Path, warm: WarmStart) -> None:
    run, _ = job(tmp_path, "now-and-then", steps=150, warm=warm)
    found = {finding.code: finding for finding in diagnose(run).findings}
    # 150 ms in every tenth step of 12 to 20 ms.
    assert found["COM002"].summary.startswith("Rank 1 of 2 is late in ") and "COM004" not in found
    assert "of the steps, every 10 steps, by 1" in found["COM002"].summary
    assert "mostly in data wait" in found["COM002"].summary
    lost = found["COM002"].evidence[0].value
    (result,) = run.results
    wall_ms = np.mean([table.steady.wall_ns.mean() for table in result.steps]) / 1e6
    assert lost == pytest.approx(100 * 15 / wall_ms, abs=8)


@pytest.mark.planted
def test_exchanges_after_each_accumulated_batch_are_counted_and_cost(tmp_path: Path, warm: WarmStart) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "last").mkdir()
    every, _ = job(tmp_path / "all", "exchanges-all", steps=480, warm=warm)
    once, _ = job(tmp_path / "last", "exchanges-last", steps=160, warm=warm)
    found = {finding.code: finding for finding in diagnose(every).findings}["COM009"]
    # 480 exchanges in 120 steps; the first ten of them were counted and timed one by one, and then each hundredth.
    (result,) = every.results
    assert 2 < result.facts["exchanges_per_step_least"] <= 4 <= result.facts["exchanges_per_step_most"]
    assert re.match(r"Each step accumulates 4 batches and exchanges gradients (at least )?[34] times", found.summary)
    assert next(one.value for one in found.evidence if one.metric == "needless exchanges") > 0
    answers = diagnose(once)
    (cleared,) = [answer for answer in answers.cleared if answer.code == "COM009"]
    assert cleared.summary == "4 batches are accumulated, exchanged once"


@pytest.mark.planted
def test_equal_ranks_are_clear(tmp_path: Path, warm: WarmStart) -> None:
    run, _ = job(tmp_path, "even", warm=warm)
    assert {"COM002", "COM004"}.isdisjoint(finding.code for finding in diagnose(run).findings)


@pytest.mark.slow
def test_a_training_that_is_over_before_there_is_a_run_has_all_its_ranks(tmp_path: Path, warm: WarmStart) -> None:
    (result,) = job(tmp_path, "even", steps=8, warm=warm)[
        0
    ].results  # 8 steps of 10 ms, and its process group is gone at its end
    assert [len(table) for table in result.steps] == [8, 8]
    # Three steps, and the one in which a rank may wait for what we do aside on another.
    assert [int(table.columns["warmup"].sum()) for table in result.steps] == [4, 4]
    assert not any(gap.signal in ("ranks", "records") for gap in result.gaps)


@pytest.mark.slow
def test_one_rank_and_two_are_read_together(tmp_path: Path, warm: WarmStart) -> None:
    for count in (1, 2):
        words = ["--name", f"of-{count}", str(SCRIPTS / "ranks.py"), str(tmp_path / f"store-{count}"), "even", "30"]
        started_warm([*COMMAND, str(tmp_path), *words], warm, count)
    runs = [RunFolder.open(tmp_path / f"of-{count}").read() for count in (1, 2)]
    alone, both = diagnose(runs[1]), diagnose(together(runs))
    assert "COM005" in {rule.code for rule in alone.unchecked}
    # How well two ranks scale depends on the machine; that it is asked and answered does not.
    assert "COM005" in {answer.code for answer in (*both.findings, *both.cleared)}


def of_a_framework(tmp_path: Path, name: str, *, launch: bool = True) -> TrialResult:
    """The result of a training of two ranks on a framework, from the folder that both had."""
    command = [sys.executable, str(SCRIPTS / f"ranks_{name}.py"), str(tmp_path / "results")]
    # Lightning starts its other ranks itself.
    ended = started(command) if launch else started_alone(command)
    assert [process.stderr.count("perf-diagnostics: ") for process in ended] == [1, 0][: len(ended)]  # rank 0 speaks
    (folder,) = list_runs(tmp_path / "results")
    assert folder.path.name == "ranks" and len(list((tmp_path / "results").iterdir())) == 1
    (result,) = folder.read().results
    assert result.facts["ranks"] == 2 and result.facts["backend"] == "gloo"
    assert result.facts["exchanges_per_step_least"] == result.facts["exchanges_per_step_most"] == 1
    return result


def started_alone(command: list[str]) -> list[subprocess.CompletedProcess[str]]:
    given = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    ended = subprocess.run(
        command, env={**given, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False, timeout=240
    )
    assert ended.returncode == 0, ended.stderr
    return [ended]


@pytest.mark.slow
def test_the_ranks_of_transformers_trainer_are_one_record(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    result = of_a_framework(tmp_path, "huggingface")
    assert [len(table) for table in result.steps] == [20, 20]
    assert result.facts["accumulation_steps"] == 2


@pytest.mark.slow
def test_the_ranks_of_accelerate_are_one_record(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    result = of_a_framework(tmp_path, "accelerate")
    assert [len(table) for table in result.steps] == [20, 20]  # 320 rows, 2 ranks, 4 a batch, 2 batches a step


@pytest.mark.slow
def test_the_ranks_that_lightning_starts_are_one_record(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    result = of_a_framework(tmp_path, "lightning", launch=False)
    assert [len(table) for table in result.steps] == [40, 40]


@pytest.mark.parametrize(("text", "rank"), [("", 0), ("3", 3), ("x", 0)])
def test_without_a_group_the_rank_is_the_launchers_word(monkeypatch: pytest.MonkeyPatch, text: str, rank: int) -> None:
    monkeypatch.setenv("RANK", text)
    assert ranks.rank() == rank


def test_in_a_group_the_rank_is_the_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch.distributed as dist

    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert (ranks.rank(), ranks.world_size()) == (0, 1)
        assert ranks._backends()["cpu"] == "gloo"
    finally:
        dist.destroy_process_group()
    assert (ranks.rank(), ranks.world_size()) == (3, 8)


class Store:
    """What ranks share, without a wire."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self.kept[key]

    def add(self, key: str, amount: int) -> int:
        self.kept[key] = str(int(self.kept.get(key, b"0")) + amount).encode()
        return int(self.kept[key])

    def check(self, keys: list[str]) -> bool:
        return all(key in self.kept for key in keys)


class Job:
    """Two ranks in one process: whoever's turn it is."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.store = 0, Store()
        numbers: dict[str, Any] = {"count": [iter(range(9)), iter(range(9))]}
        monkeypatch.setattr(ranks, "rank", lambda: self.now)
        monkeypatch.setattr(ranks, "world_size", lambda: 2)
        monkeypatch.setattr(ranks, "_store", lambda: self.store)
        monkeypatch.setattr(
            ranks, "_TRAININGS", type("Count", (), {"__next__": lambda _: next(numbers["count"][self.now])})()
        )
        self.results, self.place = tmp_path / "results", tmp_path / "results" / "run" / "trials" / "1"
        self.place.mkdir(parents=True)

    def rank(self, rank: int) -> Meeting:
        self.now = rank
        return Meeting(self.results)

    def agree(self, *meetings: Meeting) -> None:
        for meeting in meetings:
            self.now = meeting.rank
            meeting.agree()

    def leaves(self, meeting: Meeting) -> None:
        room = meeting.room()
        assert room is not None
        (room / f"steps.rank{meeting.rank}-000.parquet").write_text("steps")
        meeting.leave(room)

    def makes_the_run(self, meeting: Meeting) -> None:
        (self.place / "steps.rank0-000.parquet").write_text("steps")
        meeting.tell(self.place)

    @property
    def brought(self) -> list[str]:
        return sorted(path.name for path in self.place.iterdir())


BOTH = ["steps.rank0-000.parquet", "steps.rank1-000.parquet"]


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, monkeypatch)


def test_what_a_rank_left_before_there_was_a_run_is_brought_to_it(two: Job) -> None:
    zero, one = two.rank(0), two.rank(1)
    two.agree(zero, one)
    two.leaves(one)
    assert one.place() is None and two.brought == []
    two.makes_the_run(zero)
    zero.collect(two.place)
    assert two.brought == BOTH
    assert [path.name for path in two.results.iterdir()] == ["run"]


def test_what_a_ranks_boards_used_is_brought_before_its_steps(two: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    zero, one = two.rank(0), two.rank(1)
    two.agree(zero, one)
    room = one.room()
    assert room is not None
    (room / "energy.rank1.json").write_text("joules")
    two.leaves(one)
    two.makes_the_run(zero)
    moved: list[str] = []
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, to: (moved.append(path.name), rename(path, to))[1])
    zero.collect(two.place)
    # By its steps it is told that a rank is done, and then the place goes.
    assert moved == ["energy.rank1.json", "steps.rank1-000.parquet"]
    assert two.brought == ["energy.rank1.json", *BOTH]
    assert [path.name for path in two.results.iterdir()] == ["run"]


def test_a_rank_that_ends_after_rank_0_brings_its_steps_itself(two: Job) -> None:
    zero, one = two.rank(0), two.rank(1)
    two.agree(zero, one)
    two.makes_the_run(zero)
    zero.collect(two.place)
    assert one.place() == two.place
    two.leaves(one)
    assert two.brought == BOTH
    assert [path.name for path in two.results.iterdir()] == ["run"]


def test_who_asks_too_early_asks_again(two: Job) -> None:
    zero, one = two.rank(0), two.rank(1)
    two.agree(one)
    assert one.path is None and one.room() is None and one.place() is None
    two.agree(zero, one)
    assert one.path == zero.path is not None


def test_each_training_of_a_process_has_a_place_of_its_own(two: Job) -> None:
    first, second = two.rank(0), two.rank(0)
    two.agree(first, second)
    one, other = two.rank(1), two.rank(1)
    two.agree(one, other)
    assert one.path == first.path != second.path == other.path


def test_a_rank_that_cannot_see_the_folder_has_nowhere_to_go(two: Job) -> None:
    zero, one = two.rank(0), two.rank(1)
    two.agree(zero)
    zero.close()  # stands for another machine, which has no such folder
    two.agree(one)
    assert one.path is None and one.room() is None


def test_where_only_rank_0_is_measured_nothing_is_left_behind(two: Job) -> None:
    zero = two.rank(0)
    two.agree(*[zero] * ALONE_AFTER)
    two.makes_the_run(zero)
    zero.collect(two.place)
    assert [path.name for path in two.results.iterdir()] == ["run"]


def test_another_rank_may_still_come_where_few_steps_were_seen(two: Job) -> None:
    zero, one = two.rank(0), two.rank(1)
    two.agree(zero)
    two.makes_the_run(zero)
    zero.collect(two.place)
    two.agree(one)
    two.leaves(one)
    assert two.brought == BOTH


def test_one_process_alone_makes_no_folder(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path / "results")
    meeting.agree()
    assert meeting.path is None and not meeting.several and not (tmp_path / "results").exists()
    meeting.tell(tmp_path)
    meeting.collect(tmp_path)


def test_a_job_without_a_group_has_several_ranks_and_no_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    meeting = Meeting(tmp_path / "results")
    meeting.agree()
    assert meeting.several and meeting.path is None and meeting.backends == {}


def abandoned(place: Path, *, age_s: float = 3600.0) -> None:
    """What a rank that was killed leaves: nobody holds its file any more."""
    place.mkdir(parents=True, exist_ok=True)
    (place / ".held").touch()
    os.utime(place / ".held", (time.time() - age_s,) * 2)


def test_a_place_whose_ranks_were_killed_is_cleared_and_its_steps_go_to_their_run(two: Job) -> None:
    trial = two.results / "run" / "trials" / "t"
    trial.mkdir(parents=True)
    place = two.results / ".ranks-killed"
    for name in ("rank1", ".rank2"):  # handed over, and not any more
        (place / name).mkdir(parents=True)
        (place / name / f"steps.{name.strip('.')}-000.parquet").write_bytes(name.encode())
        (place / name / f"energy.{name.strip('.')}.json").write_bytes(name.encode())
    (place / "place").write_text(str(trial), encoding="utf-8")
    abandoned(place)
    empty = two.results / ".ranks-empty"
    abandoned(empty)
    zero = two.rank(0)
    two.agree(zero)
    assert not place.exists() and not empty.exists() and zero.path is not None and zero.path.is_dir()
    assert (trial / "steps.rank1-000.parquet").read_bytes() == b"rank1"
    assert (trial / "steps.rank2-000.parquet").read_bytes() == b".rank2"
    assert (trial / "energy.rank1.json").read_bytes() == b"rank1"
    assert (trial / "energy.rank2.json").read_bytes() == b".rank2"


def test_a_place_stays_where_somebody_lives_or_where_its_steps_have_no_run(two: Job) -> None:
    living = two.rank(0)
    two.agree(living)
    assert living.path is not None
    abandoned(living.path)  # old by now, but held
    young = two.results / ".ranks-young"
    abandoned(young, age_s=1.0)
    unknown = two.results / ".ranks-unknown"
    unknown.mkdir()  # nobody can tell whose it is
    for name, sealed in (("nowhere", False), ("sealed", True)):
        place = two.results / f".ranks-{name}"
        (place / "rank1").mkdir(parents=True)
        (place / "rank1" / "steps.rank1-000.parquet").touch()
        trial = two.results / "run" / "trials" / "t"
        if sealed:
            trial.mkdir(parents=True)
            (two.results / "run" / "manifest.json").touch()
            (place / "place").write_text(str(trial), encoding="utf-8")
        abandoned(place)
    before = {path.name for path in two.results.glob(".ranks-*")}
    second = two.rank(0)
    two.agree(second)
    assert second.path is not None
    assert {path.name for path in two.results.glob(".ranks-*")} == before | {second.path.name}


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ({}, None),
        ({"LOCAL_WORLD_SIZE": "4"}, 4),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
        ({"LOCAL_WORLD_SIZE": ""}, None),
    ],
)
def test_how_many_ranks_are_here_is_what_the_launcher_says(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, str], count: int | None
) -> None:
    for variable in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in told.items():
        monkeypatch.setenv(variable, value)
    assert ranks.local_world_size() == count
