"""Looks at a training's lines for a day and longer: whatever they meet, what is kept of them does not grow."""

from __future__ import annotations

import gc
import json
import linecache
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType

import pytest

from perf_diagnostics.measure.code import code_sampling, code_watch, own_code, stacks
from perf_diagnostics.measure.code.code_sampling import MOST_WAITING, CodeSampling
from perf_diagnostics.measure.code.code_watch import CodeWatch
from perf_diagnostics.measure.code.own_code import Kind, OwnCode
from perf_diagnostics.measure.code.stacks import MOST_STACKS, MOST_WALKS, Stacks
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.store.files.code_samples import encode_code
from perf_diagnostics.testing import FakeClock


def looker(clock: FakeClock) -> CodeSampling:
    """Looks at the calling thread."""
    return CodeSampling(clock, OwnCode(main="", frameworks=[]), threading.get_ident(), thread_cpu=lambda: 0)


def lines_of(file: Path, count: int) -> Callable[[Callable[[], None]], None]:
    """A function that calls what it is given at so many lines of its own."""
    file.write_text("def f(look):\n" + "    look()\n" * count, encoding="utf-8")
    space: dict[str, Callable[[Callable[[], None]], None]] = {}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), space)
    return space["f"]


def test_of_a_block_without_end_few_looks_wait_and_stand_for_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(code_sampling, "MOST_WAITING", 64)
    sampling = looker(FakeClock())
    first, second = lines_of(tmp_path / "first.py", 1), lines_of(tmp_path / "second.py", 1)
    for number in range(4000):
        (second if number < 1000 else first)(sampling.look)
        assert len(sampling._looked) <= 64
    looks = sampling.take()
    weight = 4000 / 64 * 2  # of 64 looks and fewer, of which half go each time
    assert {look.weight for look in looks} == {64}
    seen = {"first.py": 0, "second.py": 0}
    for look in looks:
        code, _ = sampling.stacks[look.stack].lines[0]
        seen[Path(code.co_filename).name] += look.weight
    assert sum(seen.values()) == pytest.approx(4000, abs=weight)
    assert seen["second.py"] == pytest.approx(1000, abs=weight)
    sampling.look()
    assert [look.weight for look in sampling.take()] == [1]  # the next block begins


class InForward(Probe):
    """Every moment lies in a forward."""

    def phases_at(self, times_ns: Sequence[int]) -> list[tuple[str, str] | None]:
        return [("forward", "")] * len(times_ns)


def watch_of(sampling: CodeSampling) -> CodeWatch:
    watch = CodeWatch(FakeClock(), Observations())
    watch._sampling = sampling
    return watch


def test_a_look_counts_for_those_that_it_stands_for() -> None:
    sampling = looker(FakeClock())
    watch = watch_of(sampling)
    sampling.look()
    (look,) = sampling.take()
    sampling._looked = [look._replace(weight=4), look._replace(weight=4, rare=True)]
    watch.block_ended(InForward(), counts=True)
    code = watch.samples()
    assert code is not None
    assert [(path.looks, path.rare) for path in code.paths] == [(4, 4)]


def test_functions_that_a_library_makes_anew_each_time_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MOST_CODES", 5)
    met = Stacks(OwnCode(main="", frameworks=[]))

    def made(number: int) -> CodeType:
        """As torch.fx makes them: a file and a function of its own each time."""
        space: dict[str, Callable[[], None]] = {}
        exec(compile("def forward(): pass\ndef __call__(): pass", f"<eval_with_key>.{number}", "exec"), space)
        return space["forward" if number % 2 else "__call__"].__code__

    alive: list[weakref.ref[CodeType]] = []
    for number in range(100):
        code = made(number)
        alive.append(weakref.ref(code))
        assert met._is_wrapper(code) is (number % 2 == 0)
        del code
    gc.collect()
    assert sum(code() is not None for code in alive) == len(met._kept) == len(met._wrappers) == 5


def test_files_that_are_made_anew_each_time_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_code, "MOST_FILES", 8)
    kinds = OwnCode(main="", frameworks=[])
    for number in range(100):
        assert kinds.kind_of(f"<eval_with_key>.{number}") is Kind.LIBRARY
        assert kinds.kind_of("/projects/mine/train.py") is Kind.OWN
        assert len(kinds._known) <= 8


def a_day(folder: Path, held: list[int], records: list[int], counted: list[int]) -> None:
    """Looks for 24 hours; each hour's code is new, and has more lines than all that are told apart."""
    clock = FakeClock()
    sampling = looker(clock)
    sampling._looks = code_sampling.OFTEN_LOOKS
    watch = watch_of(sampling)
    probe = InForward()

    def look() -> None:
        clock.advance(3600 * 10**9 // lines)
        sampling.look()

    lines = MOST_STACKS + 404
    for hour in range(24):
        at_all_lines = lines_of(folder / f"hour{hour}.py", lines)
        at_all_lines(look)
        watch.block_ended(probe, counts=True)
        code = watch.samples()
        assert code is not None
        assert len(code.places) <= code_watch.MOST_PATHS * stacks.MOST_OWN_FRAMES
        linecache.clearcache()
        records.append(len(json.dumps(encode_code(code))))
        counted.append(code.looks)
        gc.collect()
        held.append(sys.getallocatedblocks())
    for _ in range(3 * MOST_WAITING // lines + 1):  # hours in which no step ends
        at_all_lines(look)
        assert len(sampling._looked) + len(sampling._seen) <= MOST_WAITING
    assert len(sampling.stacks) <= MOST_STACKS
    assert len(sampling._stacks._numbers) <= MOST_STACKS
    assert len(sampling._stacks._walks) <= MOST_WALKS


@pytest.mark.slow
def test_a_day_of_looks_at_ever_new_lines_is_kept_in_as_much_as_an_hour(tmp_path: Path) -> None:
    held: list[int] = []
    records: list[int] = []
    counted: list[int] = []
    thread = threading.Thread(target=a_day, args=(tmp_path, held, records, counted))  # its stack is not deep
    thread.start()
    thread.join()
    assert counted[-1] == 24 * (MOST_STACKS + 404)  # none is lost, whatever line it saw
    assert max(records) <= 1.1 * records[0]
    # Blocks of Python's allocator, after one hour and after 24: a kept stack is ten of them, and 100,000 came.
    assert held[-1] - held[0] < 20_000
