"""The plumbing of the overhead benchmark on a tiny setting; no time is looked at."""

from __future__ import annotations

import importlib
import os
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
    # Without time for more: a block that is not looked at and six pairs, settled for at least three steps each.
    assert [one["steps"] for one in found["lengths"]] == [(3 + 2) * 7, (4 + 4) * 7]
    assert found["steps"] == 91 and found["recorded"] is None
    for one in found["lengths"]:
        assert len(one["block"]) == len(one["plain"]) == 6
        assert all(min(worker.Took(*took)) > 0 for took in one["block"] + one["plain"])


def test_what_takes_long_to_turn_on_gets_longer_blocks_and_so_do_its_plain_neighbours(overhead, monkeypatch) -> None:
    worker = sys.modules["overhead_worker"]
    now, ran = [0.0], []

    def timed(run, _work, steps):
        run(steps)
        return worker.Took(0.001, 0.001, 0.001)

    def turn_on() -> None:
        now[0] += 0.4

    monkeypatch.setattr(worker, "timed", timed)
    monkeypatch.setattr(worker.time, "perf_counter", lambda: now[0])
    work = worker.Work(1)
    monkeypatch.setattr(work, "plain", lambda steps: ran.append(("plain", steps)))
    bench = worker.Bench(lambda steps: ran.append(("measured", steps)), turn_on)
    found = worker._measure(bench, work, worker.Length(1, 5), 0.0)
    # A quarter of 0.4 s is 100 steps of 1 ms; each block is settled for five steps, and the first ones have five.
    settled = [steps for _, steps in ran[1::2]]
    assert settled == [5, 5] + [100] * 12 and {steps for _, steps in ran[::2]} == {5}
    assert [name for name, _ in ran[5::2]] == ["plain", "measured", "measured", "plain"] * 3
    assert found["steps"] == 10 + 6 * 105


def test_the_thread_is_on_one_core_in_a_block_and_on_all_again_afterwards(overhead) -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system ties no thread to a core")
    worker = sys.modules["overhead_worker"]
    cores = os.sched_getaffinity(0)
    with pytest.raises(ValueError, match="boom"), worker.on_one_core():
        assert os.sched_getaffinity(0) == {max(cores)}
        raise ValueError("boom")
    assert os.sched_getaffinity(0) == cores


def test_a_step_lasts_until_the_next_one_asks_for_its_batch(overhead, monkeypatch) -> None:
    worker = sys.modules["overhead_worker"]
    work, now = worker.Work(1), [0]
    monkeypatch.setattr(worker.time, "perf_counter_ns", lambda: now[0])

    def run(steps: int) -> None:
        for number, _ in enumerate(work.batches(steps)):
            now[0] += (1, 1, 7, 1)[number] * 1000

    cpu = iter((500, 8500))
    monkeypatch.setattr(worker.time, "thread_time_ns", lambda: next(cpu, 0))
    # 1, 1, 7, 1 us of wall; 8 us of CPU time over four steps
    assert worker.timed(run, work, 4) == (pytest.approx(1e-6), pytest.approx(2.5e-6), pytest.approx(2e-6))
    with pytest.raises(RuntimeError, match="4 steps asked for 3 batches"):
        worker.timed(lambda _steps: run(3), work, 4)


def test_measured_blocks_are_compared_with_their_plain_neighbours(overhead) -> None:
    def process(plain_s: float, added_s: float) -> dict:
        # One pair of five was disturbed: the median does not see it, the mean of the blocks does.
        plain, added = [plain_s] * 5, [added_s] * 4 + [1.0]
        blocks = [(a + b, a + 2 * b, a + b / 2) for a, b in zip(plain, added, strict=True)]
        return {"block": blocks, "plain": [(s, s, s) for s in plain], "steps": 10, "bytes_a_step": 100.0}

    bare = [process(s, 0.0) for s in (0.001, 0.002, 0.003)]
    ours = [process(s, s / 100) for s in (0.001, 0.002, 0.003)]
    row = overhead.compared(ours, bare)
    # 10, 20 and 30 us more: mean 20, standard deviation 10, Student's 4.303 / sqrt(3)
    assert row["added_s"] == pytest.approx(20e-6) and row["half_width_s"] == pytest.approx(24.84e-6, rel=1e-3)
    assert row["ratio"] == pytest.approx(1.01) and row["bytes_a_step"] == 100.0 and row["pairs"] == 15
    assert row["cpu_added_s"] == pytest.approx(10e-6) and row["cpu_half_width_s"] == pytest.approx(12.42e-6, rel=1e-3)
    # Twice 4 * 10, 20, 30 us and 1 s over five pairs: 400,016, 400,032 and 400,048 us.
    assert row["mean_added_s"] == pytest.approx(0.400032) and row["mean_half_width_s"] == pytest.approx(
        39.7e-6, rel=1e-2
    )
    assert row["added_at_best_s"] == pytest.approx(10e-6)
    alone = overhead.compared(bare, bare)
    assert alone["added_s"] == 0.0 and alone["mean_added_s"] == pytest.approx(0.4)
    one = overhead.compared(bare[:1], bare[:1])
    assert one["half_width_s"] is None
    words = overhead.in_words({"length_ms": 1.0, "contender": "bare", "reach_s": None, **one})
    assert "typically +0.0 ± not known us" in words and "at most" not in words


@pytest.mark.parametrize(
    ("added_us", "half_width_us", "within"),
    [(8.0, 1.5, True), (12.0, 1.5, False), (8.0, 3.0, None), (12.0, 3.0, None), (0.0, None, None)],
)
def test_a_reach_is_kept_or_not_or_the_interval_is_too_wide(overhead, added_us, half_width_us, within) -> None:
    half_width_s = None if half_width_us is None else half_width_us / 1e6
    assert overhead.within_reach(added_us / 1e6, half_width_s, 10e-6) is within


def test_the_reach_is_ten_microseconds_below_a_millisecond_and_a_hundredth_from_there_on(overhead) -> None:
    assert overhead.reach_s("probe", 0.3, 0.0003) == 10e-6
    assert overhead.reach_s("attach", 0.3, 0.0003) == 15e-6
    assert overhead.reach_s("probe", 1.0, 0.0012) == pytest.approx(12e-6)
    assert overhead.reach_s("attach", 50.0, 0.05) == pytest.approx(500e-6)
    assert overhead.reach_s("bare", 0.3, 0.0003) is None and overhead.reach_s("lightning", 1.0, 0.001) is None


def test_the_words_say_whether_the_reach_is_kept(overhead) -> None:
    row = {
        "length_ms": 1.0, "contender": "probe", "plain_s": 0.001, "added_s": 8e-6, "half_width_s": 3e-6, "ratio": 1.008,
        "cpu_added_s": 7e-6, "cpu_half_width_s": 1e-6, "mean_added_s": 9e-6, "mean_half_width_s": 20e-6,
        "added_at_best_s": 8e-6, "bytes_a_step": None, "pairs": 60, "rounds": 2, "reach_s": 10e-6,
    }  # fmt: skip
    # 8 ± 3 reaches beyond 10 us, 7 ± 1 does not.
    end = "; at most 10.0 us typically: the interval is too wide to tell; of CPU time: yes"
    assert overhead.in_words(row).endswith(end)
    alone = row | {"half_width_s": None, "cpu_half_width_s": None, "rounds": 1}
    assert "typically: one process alone has no interval;" in overhead.in_words(alone)


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
