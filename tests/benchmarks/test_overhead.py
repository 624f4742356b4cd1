"""The plumbing of the overhead benchmark on a tiny setting; no time is looked at."""

from __future__ import annotations

import importlib
import os
import random
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, dataloader

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def overhead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("overhead")
    for name in ("overhead", "overhead_worker", "overhead_contenders"):
        sys.modules.pop(name, None)


def worker() -> Any:
    return sys.modules["overhead_worker"]


def contenders() -> Any:
    return sys.modules["overhead_contenders"]


def test_our_own_contenders_record_every_step_they_run(overhead) -> None:
    for name in ("bare", "hooks", "probe", "attach", "attached", "torch.profiler"):
        bench = contenders().CONTENDERS[name](contenders().Work(2))
        with bench as running:
            for steps in (3, 4):
                running.on()
                running.run(steps)
                running.off()
        assert running.recorded() == {"bare": None}.get(name, 7), name


def test_bare_hooks_are_out_of_torch_between_stretches_and_afterwards(overhead) -> None:
    places = (torch.Tensor.backward, torch.optim.Optimizer.zero_grad, dataloader._BaseDataLoaderIter.__next__)
    work = contenders().Work(2)

    def now() -> tuple[Any, ...]:
        return torch.Tensor.backward, torch.optim.Optimizer.zero_grad, dataloader._BaseDataLoaderIter.__next__

    with contenders().hooks(work) as bench:
        assert now() == places
        bench.on()
        assert not set(now()) & set(places) and work.model._forward_hooks
    assert now() == places and not work.model._forward_hooks and not work.optimizer._optimizer_step_pre_hooks


def test_the_probes_steps_are_taken_a_thousand_at_a_time_and_none_is_lost(overhead, monkeypatch) -> None:
    monkeypatch.setattr(contenders(), "STEPS_TAKEN", 5)
    with contenders().probe(contenders().Work(2)) as bench:
        for steps in (3, 3, 4):
            bench.on()
            bench.run(steps)
            bench.off()
    assert bench.recorded() == 10


@pytest.mark.slow
def test_a_worker_in_its_own_process_says_what_it_ran(overhead) -> None:
    found = overhead.in_a_process("bare", [worker().Length(1, 2), worker().Length(3, 4)], 0.0)
    # Without time for more: a stretch that is not looked at and four turns, settled for at least three steps each.
    assert [one["steps"] for one in found["lengths"]] == [(3 + 2) * 5, (4 + 4) * 5]
    assert [one["stretch"] for one in found["lengths"]] == [2, 4]
    assert found["steps"] == 65 and found["recorded"] is None
    for one in found["lengths"]:
        turns = overhead.turns_of(one)
        assert len(turns) == 4 and {len(turn) for turn in turns} == {3}
        assert all(min(stretch.took) > 0 for turn in turns for stretch in turn)


def turns_with(overhead, monkeypatch: pytest.MonkeyPatch, bench: Any, now: list[float]) -> Any:
    """Turns of a bench whose steps take 1 ms, on a clock of the test's."""

    def timed(run, _work, steps, *, settling):
        run(settling + steps)
        return worker().Took(0.001, 0.001, 0.001)

    monkeypatch.setattr(worker(), "timed", timed)
    monkeypatch.setattr(worker().time, "perf_counter", lambda: now[0])
    cpu = torch.device("cpu")
    work = SimpleNamespace(device=cpu, plain=lambda steps: bench.run(-steps), resize=lambda rows: None)
    return worker()._Turns(bench, work, worker().Length(1, 5))


def test_every_turn_has_one_stretch_under_the_tool_and_two_without_it_in_an_order_that_is_drawn(
    overhead, monkeypatch
) -> None:
    did: list[str | int] = []
    bench = contenders().Bench(did.append, lambda: did.append("on"), lambda: did.append("off"))
    turns = turns_with(overhead, monkeypatch, bench, [0.0])
    orders = iter([[1, 0, 2], [0, 1, 2], [2, 1, 0], [1, 2, 0]])

    def shuffle(order: list[int]) -> None:
        order[:] = next(orders)

    found = turns.run(0.0, shuffle)
    # Ten steps are a plain stretch of minus ten here: five settling, five timed.
    tool: list[str | int] = ["on", 10, "off"]
    first = [-10, *tool]
    assert did == [*first, -10, *tool, -10, *tool, -10, -10, -10, -10, *tool, -10, -10, *tool]
    assert found["steps"] == 50 and len(found["turns"]) == 4


def test_the_stretches_of_a_turn_are_told_apart_whatever_their_order(overhead, monkeypatch) -> None:
    length = worker().Length(1, 5)
    ran: list[bool] = []
    turns = worker()._Turns(contenders().Bench(lambda steps: None), contenders().Work(1), length)

    def stretch(*, under_tool: bool) -> Any:
        ran.append(under_tool)
        return worker().Stretch(worker().Took(float(under_tool), 1.0, 1.0), 0, 0)

    monkeypatch.setattr(turns, "stretch", stretch)
    found = turns.run(0.0, random.Random(0).shuffle)
    assert [[one.took.mean_s for one in turn] for turn in found["turns"]] == [[1.0, 0.0, 0.0]] * 4
    orders = [ran[at : at + 3].index(True) for at in range(2, 14, 3)]
    assert len(set(orders)) > 1


def test_what_takes_long_to_turn_on_gets_longer_stretches_and_so_do_the_plain_ones(overhead, monkeypatch) -> None:
    now, ran = [0.0], []

    def turn_on() -> None:
        now[0] += 0.4

    bench = contenders().Bench(ran.append, turn_on)
    found = turns_with(overhead, monkeypatch, bench, now).run(0.0, lambda order: None)
    # A quarter of 0.4 s is 100 steps of 1 ms; each stretch is settled for five steps, and the first ones have five.
    assert ran == [-10, 10] + [105, -105, -105] * 4
    assert found["steps"] == 10 + 4 * 105 and found["stretch"] == 100


def test_a_tool_that_begins_for_a_while_has_its_beginning_told_apart(overhead, monkeypatch) -> None:
    now, ran = [0.0], []

    def run(steps: int) -> None:
        ran.append(steps)
        now[0] += max(0, steps) * 0.001 + (0.03 if steps == 50 else 0.0)

    bench = contenders().Bench(run, beginning_s=0.05)
    found = turns_with(overhead, monkeypatch, bench, now).run(0.0, lambda order: None)
    # 50 steps of 1 ms begin, and take 30 ms longer; a quarter of that are 20 steps, settled for five.
    assert ran == [-10, 50, 10] + [50, 25, -25, -25] * 4
    assert found["steps"] == 60 + 4 * 75
    assert [turn[0].once_s for turn in found["turns"]] == pytest.approx([0.03] * 4)
    assert all(plain.once_s is None for turn in found["turns"] for plain in turn[1:])
    row = overhead.compared([found], [process(0.001, 0.0)])
    assert row["once_s"] == pytest.approx(0.03)
    words = overhead.in_words({"length_ms": 1.0, "contender": "attach", "reach_s": None, **row})
    assert "; once 30 ms; plain against plain" in words


def test_the_thread_is_on_one_core_in_a_stretch_and_on_all_again_afterwards(overhead) -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system ties no thread to a core")
    cores = os.sched_getaffinity(0)
    with pytest.raises(ValueError, match="boom"), worker().on_one_core():
        assert os.sched_getaffinity(0) == {max(cores)}
        found: list[set[int]] = []
        thread = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
        assert found == [cores] and os.sched_getaffinity(0) == {max(cores)}
        raise ValueError("boom")
    assert os.sched_getaffinity(0) == cores


def test_a_stretch_knows_for_which_part_of_it_somebody_else_had_the_core_and_what_the_process_grew_by(
    overhead, monkeypatch
) -> None:
    seconds = iter([3.0, 3.0025, 5.0, 5.0])
    monkeypatch.setattr(worker(), "had_by_others_s", lambda: next(seconds))
    sizes = iter([1000, 9192, 9192, 9192])
    monkeypatch.setattr(worker(), "resident_bytes", lambda: next(sizes))
    turns = turns_with(overhead, monkeypatch, contenders().Bench(lambda steps: None), [0.0])
    # 2.5 ms of five steps of 1 ms; and the same way without the tool.
    assert turns.stretch(under_tool=True)[1:] == (pytest.approx(0.5), 8192, None)
    assert turns.stretch(under_tool=False)[1:] == (0.0, 0, None)


def test_what_others_had_is_the_threads_own_delay_and_the_steal_of_its_core(overhead, monkeypatch) -> None:
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("this system does not tell")
    files = {
        "/proc/thread-self/schedstat": "235755928 2937682 57\n",
        "/proc/stat": "cpu  1 2 3 4 5 6 7 100 0 0\ncpu0 1 2 3 4 5 6 7 60 0 0\ncpu1 1 2 3 4 5 6 7 40 0 0\nintr 9\n",
    }
    monkeypatch.setattr(worker().Path, "read_text", lambda self, **_kwargs: files[str(self)])
    monkeypatch.setattr(worker().os, "sched_getaffinity", lambda pid: {1})
    monkeypatch.setattr(worker().os, "sysconf", {"SC_CLK_TCK": 100}.get)
    assert worker().had_by_others_s() == pytest.approx(0.002937682 + 0.4)


def test_turns_are_left_out_where_others_had_the_core_for_more_than_a_thousandth_of_a_stretch(overhead) -> None:
    found = process(0.001, 0.0)
    for turn, stretch, part in ((0, 0, 0.001), (1, 0, 0.0011), (2, 1, 0.0011), (3, 2, 0.5)):
        found["turns"][turn][stretch][1] = part
    turns = overhead.turns_of(found)
    assert overhead.undisturbed(turns) == [turns[0], turns[4]]


def test_a_step_lasts_until_the_next_one_asks_for_its_batch(overhead, monkeypatch) -> None:
    work, now = contenders().Work(1), [0]
    clock = worker().time
    monkeypatch.setattr(clock, "perf_counter_ns", lambda: now[0])

    def run(steps: int) -> None:
        for number, _ in enumerate(work.batches(steps)):
            now[0] += (1, 1, 7, 1)[number % 4] * 1000

    cpu = iter((500, 8500, 0, 20_000))
    monkeypatch.setattr(clock, "thread_time_ns", lambda: next(cpu))
    # 1, 1, 7, 1 us of wall; 8 us of CPU time over four steps
    assert worker().timed(run, work, 4) == (pytest.approx(2.5e-6), pytest.approx(1e-6), pytest.approx(2e-6))
    # The first four of eight settle.
    assert worker().timed(run, work, 4, settling=4) == (
        pytest.approx(2.5e-6),
        pytest.approx(1e-6),
        pytest.approx(5e-6),
    )
    monkeypatch.setattr(clock, "thread_time_ns", lambda: 0)
    with pytest.raises(RuntimeError, match="4 steps asked for 3 batches"):
        worker().timed(lambda _steps: run(3), work, 4)


def process(plain_s: float, added_s: float, *, disturbed: float = 0.0) -> dict[str, Any]:
    """Five turns of a worker; in the last one something took a second more, and others had the core for a part of it.

    Medians are added half of what means are, CPU time twice; the second plain stretch is a microsecond quicker.
    """

    def stretch(mean_s: float, median_s: float, cpu_s: float, grown: int) -> list[Any]:
        return [[mean_s, median_s, cpu_s], 0.0, grown]

    turns = []
    for number in range(5):
        late_s = 1.0 if number == 4 else 0.0
        tool = stretch(plain_s + added_s + late_s, plain_s + added_s / 2 + late_s, plain_s + 2 * added_s, 4096)
        plain = stretch(plain_s + 0.5e-6, plain_s, plain_s, 0)
        again = stretch(plain_s - 0.5e-6, plain_s, plain_s, 0)
        if number == 4:
            again[1] = disturbed
        turns.append([tool, plain, again])
    return {"turns": turns, "stretch": 20, "steps": 100}


def test_what_is_added_is_the_mean_over_turns_that_nobody_else_disturbed_and_a_process_is_one_value(overhead) -> None:
    bare = [process(s, 0.0, disturbed=0.01) for s in (0.001, 0.002, 0.003)]
    ours = [process(s, s / 100, disturbed=0.01) for s in (0.001, 0.002, 0.003)]
    row = overhead.compared(ours, bare)
    # 10, 20 and 30 us more: mean 20, standard deviation 10, Student's 4.303 / sqrt(3)
    assert row["added_s"] == pytest.approx(20e-6) and row["added_half_width_s"] == pytest.approx(24.84e-6, rel=1e-3)
    assert row["ratio"] == pytest.approx(1.01) and (row["undisturbed"], row["turns"], row["processes"]) == (12, 15, 3)
    assert row["cpu_added_s"] == pytest.approx(40e-6)
    assert row["cpu_added_half_width_s"] == pytest.approx(49.68e-6, rel=1e-3)
    # Without the disturbed turn all are alike.
    assert row["by_turns_added_s"] == pytest.approx(20e-6)
    assert row["by_turns_added_half_width_s"] == pytest.approx(24.84e-6, rel=1e-3)
    # The median over the turns does not see the disturbed one.
    assert row["typical_added_s"] == pytest.approx(10e-6)
    assert row["typical_added_half_width_s"] == pytest.approx(12.42e-6, rel=1e-3)
    assert row["null_s"] == pytest.approx(1e-6) and row["null_half_width_s"] == pytest.approx(0.0, abs=1e-12)
    assert row["added_at_best_s"] == pytest.approx(5e-6)
    assert row["bytes_a_step"] == pytest.approx(4096 / 20)


def test_a_stall_in_few_turns_moves_the_mean_and_not_the_figure_by_turns(overhead) -> None:
    row = overhead.compared([process(0.001, 1e-5)] * 2, [process(0.001, 0.0)])
    # Four turns add 10 us, and the fifth one a second.
    assert row["added_s"] == pytest.approx(0.2 + 1e-5) and row["by_turns_added_s"] == pytest.approx(1e-5)


def test_what_is_made_once_is_no_growth_a_step(overhead) -> None:
    ours = process(0.001, 0.0)
    ours["turns"][0][0][2] = 50_000_000
    assert overhead.compared([ours], [process(0.001, 0.0)])["bytes_a_step"] == pytest.approx(4096 / 20)


def test_our_own_are_told_as_so_many_times_what_bare_hooks_take(overhead) -> None:
    def row(contender: str, added_s: float | None) -> dict[str, Any]:
        return {"length_ms": 0.3, "contender": contender, "by_turns_added_s": added_s}

    rows = [row("bare", 1e-7), row("hooks", 8e-6), row("probe", 6e-6), row("attached", 12e-6), row("attach", None)]
    assert overhead.against_hooks(rows) == [
        "0.3 ms: probe adds 0.75 times what bare hooks do, by turns",
        "0.3 ms: attached adds 1.50 times what bare hooks do, by turns",
    ]
    assert overhead.against_hooks([row("hooks", -1e-7), *rows[2:]]) == overhead.against_hooks(rows[2:]) == []


def test_what_a_tool_has_put_in_is_out_of_torch_in_plain_stretches_and_the_same_again_afterwards(overhead) -> None:
    work = contenders().Work(2)
    places = (torch.autograd, torch.nn.Module, torch.optim.Optimizer, DataLoader, dataloader._BaseDataLoaderIter)

    def found() -> list[Any]:
        hooks = (work.optimizer._optimizer_step_pre_hooks, work.optimizer._optimizer_step_post_hooks)
        return [*(dict(vars(place)) for place in places), dict(work.model.__dict__), *(dict(one) for one in hooks)]

    before = found()
    with contenders().attached(work) as bench:
        assert found() == before
        bench.on()
        ours = found()
        assert all(mine != theirs for mine, theirs in zip(ours, before, strict=True))
        bench.run(5)
        bench.off()
        assert found() == before
        work.plain(3)
        bench.on()
        assert found() == ours
        bench.run(4)
        bench.off()
        assert bench.recorded() == 9
    assert found() == before


def test_batches_of_another_size_come_from_the_loader_that_a_tool_knows_by_now(overhead) -> None:
    work = contenders().Work(2)
    loader = work.loader
    work.resize(5)
    assert work.loader is loader
    assert [len(x) for x, _ in work.batches(3)] == [5, 5, 5]


def test_nothing_is_left_out_by_its_value(overhead) -> None:
    row = overhead.compared([process(0.001, 1e-5)], [process(0.001, 0.0)])
    # (4 * 10 us + 1 s) / 5
    assert row["added_s"] == pytest.approx(0.20001) and row["added_half_width_s"] is None
    assert row["undisturbed"] == row["turns"] == 5


def test_a_process_without_an_undisturbed_turn_has_no_mean(overhead) -> None:
    loud = process(0.001, 1e-5)
    for turn in loud["turns"]:
        turn[0][1] = 0.01
    quiet = process(0.001, 3e-5, disturbed=0.01)
    both = overhead.compared([loud, quiet], [quiet])
    assert both["added_s"] == pytest.approx(3e-5) and both["added_half_width_s"] is None
    alone = overhead.compared([loud], [quiet])
    assert alone["added_s"] is None and alone["ratio"] is None and alone["null_s"] is None
    assert alone["cpu_added_s"] == pytest.approx(2e-5)
    words = overhead.in_words({"length_ms": 1.0, "contender": "probe", "reach_s": 1e-5, **alone})
    assert "not known us a step more, by turns not known, of CPU time +20.0 ± not known" in words
    assert words.endswith("at most 10.0 us: no interval without undisturbed turns in two processes")


def test_plain_stretches_are_told_against_plain_ones_over_all_processes(overhead) -> None:
    values = overhead.nulls([process(0.001, 0.0), process(0.002, 1.0)])
    assert values == pytest.approx([1e-6, 1e-6])
    words = overhead.null_in_words(0.3, [1e-6, 2e-6, 3e-6])
    # Standard deviation 1 us, Student's 4.303 / sqrt(3)
    assert words == "0.3 ms: plain against plain in all 3 processes +2.0 ± 2.5 us a step"


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
        "length_ms": 1.0, "contender": "probe", "plain_s": 0.001, "added_s": 8e-6, "added_half_width_s": 1e-6,
        "by_turns_added_s": 8e-6, "by_turns_added_half_width_s": 2e-6,
        "ratio": 1.008, "cpu_added_s": 7e-6, "cpu_added_half_width_s": 3e-6, "typical_added_s": 9e-6,
        "typical_added_half_width_s": 20e-6, "null_s": 1e-7, "null_half_width_s": 9e-7, "added_at_best_s": 8e-6,
        "bytes_a_step": None, "once_s": None, "undisturbed": 50, "turns": 60, "processes": 2, "reach_s": 10e-6,
    }  # fmt: skip
    words = overhead.in_words(row)
    assert (
        "+8.0 ± 1.0 us a step more (x1.0080), by turns +8.0 ± 2.0, of CPU time +7.0 ± 3.0, typically +9.0 ± 20.0"
        in words
    )
    assert "plain against plain +0.1 ± 0.9" in words and "(50 of 60 turns undisturbed, 2 processes)" in words
    assert words.endswith("; at most 10.0 us: yes")
    assert overhead.in_words(row | {"added_half_width_s": 3e-6}).endswith(": the interval is too wide to tell")
    assert "at most" not in overhead.in_words(row | {"reach_s": None})


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
