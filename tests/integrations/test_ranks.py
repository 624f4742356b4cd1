"""Several processes of one training make one record, and it says which of them the others wait for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.rank_facts import RankFacts
from perf_diagnostics.integrations import ranks
from perf_diagnostics.records import Phase, Run
from perf_diagnostics.store.find import list_runs

SCRIPT = Path(__file__).parent / "scripts" / "ranks.py"


def job(tmp_path: Path, planted: str) -> tuple[Run, list[subprocess.CompletedProcess[str]]]:
    """Run the script as two ranks, each under ``perf-diagnostics run``, and read what they recorded together."""
    command = [sys.executable, "-m", "perf_diagnostics", "run", "--results-dir", str(tmp_path / "results"), str(SCRIPT)]
    started = [
        subprocess.Popen(
            [*command, str(tmp_path / "store"), planted],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ended = []
    for process in started:
        out, err = process.communicate(timeout=120)
        ended.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    assert [(process.returncode, process.stdout) for process in ended] == [(0, "rank 0 ends\n"), (0, "rank 1 ends\n")]
    (folder,) = list_runs(tmp_path / "results")
    return folder.read(), ended


@pytest.mark.slow
def test_the_rank_that_waits_for_its_data_is_the_straggler(tmp_path: Path) -> None:
    run, ended = job(tmp_path, "late")
    (result,) = run.results
    assert result.facts["ranks"] == 2
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


@pytest.mark.slow
def test_batches_uneven_in_turn_are_no_straggler(tmp_path: Path) -> None:
    run, _ = job(tmp_path, "in-turn")
    found = {finding.code: finding for finding in diagnose(run).findings}
    assert "COM002" not in found
    assert "their samples differ by 50 %" in found["COM004"].summary  # 12 over the mean of 12 and 4, less 1


@pytest.mark.slow
def test_equal_ranks_are_clear(tmp_path: Path) -> None:
    run, _ = job(tmp_path, "even")
    assert {"COM002", "COM004"}.isdisjoint(finding.code for finding in diagnose(run).findings)


@pytest.mark.parametrize(("text", "rank"), [("", 0), ("3", 3), ("x", 0)])
def test_the_rank_is_the_launchers_word(monkeypatch: pytest.MonkeyPatch, text: str, rank: int) -> None:
    monkeypatch.setenv("RANK", text)
    assert ranks.rank() == rank


def test_without_a_process_group_nobody_can_be_asked() -> None:
    assert ranks.published() is None
