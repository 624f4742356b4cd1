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
    found = overhead.in_a_process("bare", 1, 2, 3)
    assert found["steps"] == (3 + 2) * 3 and min(found["block_s"] + found["plain_s"]) > 0
    assert len(found["block_s"]) == len(found["plain_s"]) == 3


def test_measured_blocks_are_compared_with_their_plain_neighbours(overhead) -> None:
    def process(plain_s: float, added_s: float, recorded: int | None) -> dict:
        # One pair of five was disturbed: the round's median does not see it.
        plain, added = [plain_s] * 5, [added_s] * 4 + [1.0]
        blocks = [a + b for a, b in zip(plain, added, strict=True)]
        return {"block_s": blocks, "plain_s": plain, "steps": 10, "recorded": recorded, "bytes_a_step": 100.0}

    bare = [process(s, 0.0, None) for s in (0.001, 0.002, 0.003)]
    ours = [process(s, s / 100, 9) for s in (0.001, 0.002, 0.003)]
    row = overhead.compared(ours, bare)
    # 10, 20 and 30 us more: mean 20, standard deviation 10, Student's 4.303 / sqrt(3)
    assert row["added_s"] == pytest.approx(20e-6) and row["half_width_s"] == pytest.approx(24.84e-6, rel=1e-3)
    assert row["ratio"] == pytest.approx(1.01) and row["dropped"] == 3 and row["bytes_a_step"] == 100.0
    assert row["added_at_best_s"] == pytest.approx(10e-6)
    alone = overhead.compared(bare, bare)
    assert alone["added_s"] == 0.0 and alone["dropped"] is None
    assert "dropped not known" in overhead.in_words({"length_ms": 1.0, "contender": "bare", **alone})


def test_what_is_not_installed_is_named_with_the_command(overhead, monkeypatch, capsys) -> None:
    monkeypatch.setitem(overhead.NEEDS, "lightning", ("there_is_no_such_module", "pip install lightning"))
    assert not overhead.installed("lightning")
    assert "pip install lightning" in capsys.readouterr().out
    assert overhead.installed("bare")
