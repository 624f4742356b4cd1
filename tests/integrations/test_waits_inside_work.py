"""HST012 on real trainings with two threads of torch's, whose idle one spins through every short wait of the loop's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.records import Run
from perf_diagnostics.store.find import list_runs
from tests.planted.warm import WarmStart

SCRIPT = Path(__file__).parent / "scripts" / "waits_inside.py"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/syscall").exists() or (os.cpu_count() or 1) < 2,
    reason="two threads need two cores, and a kernel that tells what threads wait for",
)


def run(tmp_path: Path, warm: WarmStart, what: str, steps: int = 200) -> Run:
    results, said = tmp_path / "results", tmp_path / "said"
    said.mkdir()
    words = ["run", "--results-dir", str(results), str(SCRIPT), what, str(steps)]
    assert warm.run(words, [os.environ], said=said, timeout_s=300) == [0], (said / "0").read_text()
    (folder,) = list_runs(results)
    return folder.read()


def of(finished: Run) -> Finding | None:
    return next((finding for finding in diagnose(finished).findings if finding.code == "HST012"), None)


@pytest.mark.planted
@pytest.mark.parametrize(("what", "words"), [("sleep", "in a sleep"), ("lock", "for a lock"), ("service", "on a pipe")])
def test_a_short_wait_is_seen_although_another_thread_spins_meanwhile(
    tmp_path: Path, warm: WarmStart, what: str, words: str
) -> None:
    found = of(run(tmp_path, warm, what))
    assert found is not None and f"mostly {words}" in found.summary
    assert found.evidence[0].value > 10


@pytest.mark.planted
@pytest.mark.parametrize(("what", "steps"), [("products", 200), ("contended", 25)])  # whose steps take longer
def test_products_in_two_threads_and_a_contended_lock_of_python_s_are_no_waits(
    tmp_path: Path, warm: WarmStart, what: str, steps: int
) -> None:
    diagnosis = diagnose(run(tmp_path, warm, what, steps))
    assert "HST012" in {rule.code for rule in diagnosis.cleared}  # and not for want of looks
