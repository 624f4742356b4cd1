"""The plumbing of the overhead benchmark on a tiny setting; no time is looked at."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def overhead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("overhead")
    for name in ("overhead", "overhead_worker"):
        sys.modules.pop(name, None)


def test_our_own_contenders_record_every_step_they_run(overhead) -> None:
    worker = sys.modules["overhead_worker"]
    for name in ("bare", "probe", "attach", "torch.profiler"):
        bench = worker.CONTENDERS[name](worker.Work(2))
        with bench as running:
            for steps in (3, 4):
                running.on()
                running.run(steps)
                running.off()
        assert running.recorded() == {"bare": None}.get(name, 7), name


def test_a_worker_in_its_own_process_says_what_it_ran(overhead) -> None:
    worker = sys.modules["overhead_worker"]
    found = overhead.in_a_process("bare", [worker.Length(1, 2), worker.Length(3, 4)], 0.0)
    # Without time for more: four pairs of blocks, settled for at least three steps each.
    assert [one["steps"] for one in found["lengths"]] == [(3 + 2) * 4, (4 + 4) * 4]
    assert found["steps"] == 52 and found["recorded"] is None
    for one in found["lengths"]:
        assert len(one["block_s"]) == len(one["plain_s"]) == 4
        assert all(median_s > 0 and mean_s > 0 for median_s, mean_s in one["block_s"] + one["plain_s"])


def test_a_step_lasts_until_the_next_one_asks_for_its_batch(overhead, monkeypatch) -> None:
    worker = sys.modules["overhead_worker"]
    work, now = worker.Work(1), [0]
    monkeypatch.setattr(worker.time, "perf_counter_ns", lambda: now[0])

    def run(steps: int) -> None:
        for number, _ in enumerate(work.batches(steps)):
            now[0] += (1, 1, 7, 1)[number] * 1000

    assert worker.timed(run, work, 4) == (pytest.approx(1e-6), pytest.approx(2.5e-6))  # 1, 1, 7, 1 us
    with pytest.raises(RuntimeError, match="4 steps asked for 3 batches"):
        worker.timed(lambda _steps: run(3), work, 4)


def test_measured_blocks_are_compared_with_their_plain_neighbours(overhead) -> None:
    def process(plain_s: float, added_s: float) -> dict:
        # One pair of five was disturbed: the median does not see it, the mean of the blocks does.
        plain, added = [plain_s] * 5, [added_s] * 4 + [1.0]
        blocks = [(a + b, a + 2 * b) for a, b in zip(plain, added, strict=True)]
        return {"block_s": blocks, "plain_s": [(s, s) for s in plain], "steps": 10, "bytes_a_step": 100.0}

    bare = [process(s, 0.0) for s in (0.001, 0.002, 0.003)]
    ours = [process(s, s / 100) for s in (0.001, 0.002, 0.003)]
    row = overhead.compared(ours, bare)
    # 10, 20 and 30 us more: mean 20, standard deviation 10, Student's 4.303 / sqrt(3)
    assert row["added_s"] == pytest.approx(20e-6) and row["half_width_s"] == pytest.approx(24.84e-6, rel=1e-3)
    assert row["ratio"] == pytest.approx(1.01) and row["bytes_a_step"] == 100.0 and row["pairs"] == 15
    # Twice 4 * 10, 20, 30 us and 1 s over five pairs: 400,016, 400,032 and 400,048 us.
    assert row["mean_added_s"] == pytest.approx(0.400032) and row["mean_half_width_s"] == pytest.approx(
        39.7e-6, rel=1e-2
    )
    assert row["added_at_best_s"] == pytest.approx(10e-6)
    alone = overhead.compared(bare, bare)
    assert alone["added_s"] == 0.0 and alone["mean_added_s"] == pytest.approx(0.4)
    one = overhead.compared(bare[:1], bare[:1])
    assert one["half_width_s"] is None
    assert "typically +0.0 ± not known us" in overhead.in_words({"length_ms": 1.0, "contender": "bare", **one})


def test_what_was_not_recorded_is_told(overhead) -> None:
    def ran(*recorded: int | None) -> dict[str, int | None]:
        return overhead.dropped([{"steps": 10, "recorded": count} for count in recorded])

    assert ran(10, 7) == {"steps": 20, "dropped": 3}
    assert ran(10, 10) == {"steps": 20, "dropped": 0}
    assert ran(10, None) == {"steps": 20, "dropped": None}
    assert overhead.kept_in_words({"contender": "it", **ran(10, 7)}) == "it: 3 of 20 steps dropped"
    assert "not known how many of 20 steps" in overhead.kept_in_words({"contender": "it", **ran(None, None)})


def test_what_is_not_installed_is_named_with_the_command(overhead, monkeypatch, capsys) -> None:
    monkeypatch.setitem(overhead.NEEDS, "lightning", ("there_is_no_such_module", "pip install lightning"))
    assert not overhead.installed("lightning")
    assert "pip install lightning" in capsys.readouterr().out
    assert overhead.installed("bare")
