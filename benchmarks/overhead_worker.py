"""Trains a small model in this process, in turns under one measuring tool and without it, and notes the steps' times.

    python benchmarks/overhead_worker.py CONTENDER --lengths ROWS:STEPS ... --seconds S --out FILE

``overhead.py`` runs this, each contender in processes of its own; ``traceml-ai`` runs it through its launcher. A step
is timed from the moment at which it asks for its batch to the next step's: the data set notes the clock, which costs
the same under every tool and without one. The plain loop has the same lines in the same order as the measured ones, for
how long a loop holds its last loss alone is seen in steps of a third of a millisecond.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import sqlite3
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset

#: Imports, first allocations, the tools' own warm-up.
WARM_UP_STEPS = 50
#: Before each block, at most: what a tool does in the first steps after it was turned on.
SETTLING_STEPS = 10
#: Of blocks, whatever time they take.
LEAST_PAIRS = 6
#: A tool that takes long to be turned on and off gets longer blocks: so large a part of that time.
SWITCHING_PART = 0.25


#: Of mallopt, in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

#: Of the model's hidden layer.
WIDTH = 256


@dataclass
class Work:
    """A real training whose step's length is set by the rows of its batch; one thread."""

    rows: int
    #: Host clock in ns at which each step since :meth:`begin` asked for its batch.
    asked_ns: array[int] = field(default_factory=lambda: array("q"))
    model: torch.nn.Module = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    loader: DataLoader[Any] = field(init=False)

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        layers = (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)
        self.resize(self.rows)

    def resize(self, rows: int) -> None:
        """From now on batches have so many rows."""
        self.rows = rows
        same = _Same(torch.randn(rows, WIDTH), torch.randn(rows, 1), self.asked_ns)
        self.loader = DataLoader(same, batch_size=None)

    def batches(self, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return itertools.islice(self.loader, steps)

    def plain(self, steps: int) -> None:
        batches = self.batches(steps)
        for _ in range(steps):
            x, y = next(batches)
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


class _Same(IterableDataset[Any]):
    """The same batch without end: what a loader costs is not the question here. Notes when it is asked."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, asked_ns: array[int]) -> None:
        self._batch = x, y
        self._note = asked_ns.append

    def __iter__(self) -> _Same:
        return self

    def __next__(self) -> Any:
        self._note(time.perf_counter_ns())
        return self._batch


@dataclass
class Bench:
    """One contender at work: ``run`` trains so many steps, ``recorded`` counts what the tool kept (None: not known).

    ``on`` and ``off`` are called around each block that the tool measures, outside the time that is taken; a tool that
    cannot be turned off in a process leaves them away, and its plain blocks then hold what it costs at rest.
    """

    run: Callable[[int], None]
    on: Callable[[], None] = lambda: None
    off: Callable[[], None] = lambda: None
    recorded: Callable[[], int | None] = lambda: None


@contextlib.contextmanager
def bare(work: Work) -> Iterator[Bench]:
    yield Bench(work.plain)


@contextlib.contextmanager
def probe(work: Work) -> Iterator[Bench]:
    from perf_diagnostics.measure.probe import Probe

    measured = Probe()
    kept = 0

    def run(steps: int) -> None:
        batches = work.batches(steps)
        for _ in range(steps):
            with measured.data_wait():
                x, y = next(batches)
            with measured.transfer():
                pass
            with measured.forward():
                loss = torch.nn.functional.mse_loss(work.model(x), y)
            with measured.backward():
                loss.backward()
            with measured.optimizer():
                work.optimizer.step()
                work.optimizer.zero_grad()
            measured.end_step(samples=work.rows)  # as the loop knows it: len() of a tensor takes 2 us of its own

    def off() -> None:
        nonlocal kept
        measured.end_block()
        kept += len(measured.take())

    yield Bench(run, measured.start, off, lambda: kept)


@contextlib.contextmanager
def attach(work: Work) -> Iterator[Bench]:
    from perf_diagnostics.integrations import attach as attach_to

    kept = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as attached:
        seen: Any = None

        def on() -> None:
            nonlocal seen
            seen = attached.enter_context(attach_to(work.model, work.optimizer, work.loader, results_dir=folder))

        def off() -> None:
            nonlocal kept
            attached.close()
            kept += len(seen.run.results[0].steps[0]) if seen.run else 0

        yield Bench(work.plain, on, off, lambda: kept)


@contextlib.contextmanager
def torch_profiler(work: Work) -> Iterator[Bench]:
    """Recording all the time; its work at the end of a recording is not in the steps."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    profiler: Any = None
    kept = 0

    def on() -> None:
        nonlocal profiler
        profiler = torch.profiler.profile(activities=activities)
        profiler.start()

    def run(steps: int) -> None:
        batches = work.batches(steps)
        for _ in range(steps):
            x, y = next(batches)
            loss = torch.nn.functional.mse_loss(work.model(x), y)
            loss.backward()
            work.optimizer.step()
            work.optimizer.zero_grad()
            profiler.step()

    def off() -> None:
        nonlocal kept
        profiler.stop()
        kept += sum(event.key.startswith("Optimizer.step") for event in profiler.events())

    yield Bench(run, on, off, lambda: kept)


@contextlib.contextmanager
def lightning_simple(work: Work) -> Iterator[Bench]:
    """The actions by which Lightning's Trainer calls its profiler in a step, without the Trainer around them."""
    from lightning.pytorch.profilers import SimpleProfiler

    profiler = SimpleProfiler()

    def run(steps: int) -> None:
        batches = work.batches(steps)
        for _ in range(steps):
            with profiler.profile("[_TrainingEpochLoop].train_dataloader_next"):
                x, y = next(batches)
            with profiler.profile("run_training_batch"):
                with profiler.profile("[Strategy]SingleDeviceStrategy.batch_to_device"):
                    pass
                with profiler.profile("[Strategy]SingleDeviceStrategy.training_step"):
                    loss = torch.nn.functional.mse_loss(work.model(x), y)
                with profiler.profile("[Strategy]SingleDeviceStrategy.backward"):
                    loss.backward()
                with profiler.profile("[LightningModule]Net.optimizer_step"):
                    work.optimizer.step()
                    work.optimizer.zero_grad()

    yield Bench(run, recorded=lambda: len(profiler.recorded_durations["run_training_batch"]))


@contextlib.contextmanager
def traceml(work: Work) -> Iterator[Bench]:
    """Its automatic mode, under its own launcher; the steps in its database are counted by the parent."""
    import traceml_ai

    traceml_ai.init(mode="auto", on_missing_aggregator="raise")

    def run(steps: int) -> None:
        batches = work.batches(steps)
        for _ in range(steps):
            with traceml_ai.trace_step(work.model):
                x, y = next(batches)
                loss = torch.nn.functional.mse_loss(work.model(x), y)
                loss.backward()
                work.optimizer.step()
                work.optimizer.zero_grad()

    yield Bench(run)


CONTENDERS: dict[str, Callable[[Work], contextlib.AbstractContextManager[Bench]]] = {
    "bare": bare,
    "probe": probe,
    "attach": attach,
    "torch.profiler": torch_profiler,
    "lightning": lightning_simple,
    "traceml-ai": traceml,
}


@dataclass(frozen=True)
class Length:
    """Steps of one length: the rows of their batches, and how many of them are a block."""

    rows: int
    block: int

    @classmethod
    def of(cls, text: str) -> Length:
        """Reads ROWS:STEPS."""
        return cls(*(int(part) for part in text.split(":")))

    def __str__(self) -> str:
        return f"{self.rows}:{self.block}"


def measure(contender: str, lengths: Sequence[Length], seconds: float) -> dict[str, Any]:
    """What each length brought, and over all of them the steps run under the tool and those that it recorded.

    For each length as many pairs of blocks are run as fit into these seconds, an even number and at least four: a tool
    that is slow to turn on and off has fewer.
    """
    keep_memory()
    work = Work(lengths[0].rows)
    work.plain(WARM_UP_STEPS)
    with CONTENDERS[contender](work) as bench:
        found = [_measure(bench, work, length, seconds) for length in lengths]
    return {
        "contender": contender,
        "lengths": found,
        "steps": sum(one["steps"] for one in found),
        "recorded": bench.recorded(),
    }


def _measure(bench: Bench, work: Work, length: Length, seconds: float) -> dict[str, Any]:
    """What a step :class:`Took` in each block and in its plain neighbour, and bytes a step of growth.

    Blocks take turns as plain, measured, measured, plain, so that a drift that is even over two pairs cancels.
    """
    work.resize(length.rows)
    block: list[Took] = []
    plain: list[Took] = []
    grown: list[float] = []
    settling = max(3, min(SETTLING_STEPS, length.block))
    steps = length.block

    def measured_turn() -> float:
        began = time.perf_counter()
        bench.on()
        switching_s = time.perf_counter() - began
        with on_one_core():
            bench.run(settling)
            before = resident_bytes()
            block.append(timed(bench.run, work, steps))
            after = resident_bytes()
        began = time.perf_counter()
        bench.off()
        if before is not None and after is not None:
            grown.append((after - before) / steps)
        return switching_s + time.perf_counter() - began

    def plain_turn() -> None:
        with on_one_core():
            work.plain(settling)
            plain.append(timed(work.plain, work, steps))

    # The first blocks of a new length find everything cold, and may import something.
    plain_turn()
    switching_s = measured_turn()
    ran = settling + steps
    steps = max(steps, round(SWITCHING_PART * switching_s / block[0].median_s))
    for kept in (block, plain, grown):
        kept.clear()
    end = time.perf_counter() + seconds
    while len(plain) < LEAST_PAIRS or time.perf_counter() < end:
        plain_turn()
        measured_turn()
        measured_turn()
        plain_turn()
    return {
        "block": block,
        "plain": plain,
        "steps": ran + (settling + steps) * len(block),
        # Memory comes in pages, so that a single block says little.
        "bytes_a_step": fmean(grown) if grown else None,
    }


class Took(NamedTuple):
    """Seconds a step of one block: median and mean of its steps by the wall's clock, and CPU time of the thread."""

    median_s: float
    mean_s: float
    cpu_s: float


def timed(run: Callable[[int], None], work: Work, steps: int) -> Took:
    """Run a block; its last step ends when they are all done."""
    del work.asked_ns[:]
    cpu_ns = time.thread_time_ns()
    run(steps)
    work.asked_ns.append(time.perf_counter_ns())
    cpu_ns = time.thread_time_ns() - cpu_ns
    if len(work.asked_ns) != steps + 1:
        raise RuntimeError(f"{steps} steps asked for {len(work.asked_ns) - 1} batches; their times cannot be told.")
    took = [(after - before) / 1e9 for before, after in itertools.pairwise(work.asked_ns)]
    return Took(median(took), fmean(took), cpu_ns / 1e9 / steps)


def keep_memory() -> None:
    """From now on glibc's allocator keeps what it has; other allocators stay as they are.

    A tensor that is mapped by itself, or at the heap's end when it is given back, is zeroed page by page for the next
    step: that scatters more than any tool costs.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, 32 << 20)  # the largest that it takes
        set_option(_TRIM_THRESHOLD, (1 << 31) - 1)


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """Keep the calling thread, and what it starts meanwhile, on one core (Linux): elsewhere its caches are cold.

    A tool's own threads and processes, which it started when it was turned on, have the other cores.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def resident_bytes() -> int | None:
    """Memory of this process (Linux), or None."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def steps_in(folder: Path) -> int | None:
    """Steps in a database that traceml-ai left below a folder; None where there is none that is understood."""
    most: int | None = None
    for path in folder.rglob("*"):
        if not path.is_file() or _first_bytes(path) != b"SQLite format 3\0":
            continue
        with contextlib.closing(sqlite3.connect(path)) as database:
            names = [row[0] for row in database.execute("select name from sqlite_master where type = 'table'")]
            for name in names:
                columns = [row[1] for row in database.execute(f'pragma table_info("{name}")')]
                if "step" in columns:
                    (count,) = database.execute(f'select count(distinct step) from "{name}"').fetchone()
                    most = max(most or 0, count)
    return most


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("--lengths", type=Length.of, nargs="+", required=True, metavar="ROWS:STEPS")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found = measure(asked.contender, asked.lengths, asked.seconds)
    asked.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
