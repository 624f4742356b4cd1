"""HST012 on real trainings with two threads of torch's, whose idle one spins through every short wait of the loop's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.records import Run
from perf_diagnostics.store.find import list_runs

SCRIPT = Path(__file__).parent / "scripts" / "waits_inside.py"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/syscall").exists() or (os.cpu_count() or 1) < 2,
    reason="two threads need two cores, and a kernel that tells what threads wait for",
)


def run(tmp_path: Path, what: str, steps: int = 200) -> Run:
    results = tmp_path / "results"
    command = [sys.executable, "-m", "perf_diagnostics", "run", "--results-dir", str(results), str(SCRIPT)]
    ended = subprocess.run([*command, what, str(steps)], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    (folder,) = list_runs(results)
    return folder.read()


def of(finished: Run) -> Finding | None:
    return next((finding for finding in diagnose(finished).findings if finding.code == "HST012"), None)


@pytest.mark.planted
@pytest.mark.parametrize(("what", "words"), [("sleep", "in a sleep"), ("lock", "for a lock"), ("service", "on a pipe")])
def test_a_short_wait_is_seen_although_another_thread_spins_meanwhile(tmp_path: Path, what: str, words: str) -> None:
    found = of(run(tmp_path, what))
    assert found is not None and f"mostly {words}" in found.summary
    assert found.evidence[0].value > 10


@pytest.mark.planted
@pytest.mark.parametrize("what", ["products", "contended"])
def test_products_in_two_threads_and_a_contended_lock_of_python_s_are_no_waits(tmp_path: Path, what: str) -> None:
    assert of(run(tmp_path, what)) is None
