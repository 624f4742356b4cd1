"""Trains a small model in this process, in turns under one measuring tool and without it, and notes the steps' times.

    python benchmarks/overhead_worker.py CONTENDER --rows N --block STEPS --blocks N --out FILE

``overhead.py`` runs this, each contender in processes of its own; ``traceml-ai`` runs it through its launcher.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

#: Imports, first allocations, the tools' own warm-up.
WARM_UP_STEPS = 50
#: Before each block, at most: what a tool does in the first steps after it was turned on.
SETTLING_STEPS = 10


@dataclass
class Work:
    """A real training whose step's length is set by the rows of its batch; one thread."""

    rows: int
    model: torch.nn.Module = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    loader: DataLoader[Any] = field(init=False)

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        layers = torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)
        self.loader = DataLoader(_Same(torch.randn(self.rows, 32), torch.randn(self.rows, 1)), batch_size=None)

    def batches(self, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return itertools.islice(self.loader, steps)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        torch.nn.functional.mse_loss(self.model(x), y).backward()
        self.optimizer.step()

    def plain(self, steps: int) -> None:
        for x, y in self.batches(steps):
            self.step(x, y)


class _Same(IterableDataset[Any]):
    """The same batch without end: what a loader costs is not the question here."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self._batch = x, y

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(self._batch)


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
            measured.end_step(samples=len(x))

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
        for x, y in work.batches(steps):
            work.step(x, y)
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
                work.step(x, y)

    yield Bench(run)


CONTENDERS: dict[str, Callable[[Work], contextlib.AbstractContextManager[Bench]]] = {
    "bare": bare,
    "probe": probe,
    "attach": attach,
    "torch.profiler": torch_profiler,
    "lightning": lightning_simple,
    "traceml-ai": traceml,
}


def measure(contender: str, rows: int, block: int, blocks: int) -> dict[str, Any]:
    """Mean seconds a step of each block and of its plain neighbour, bytes a step of growth, steps run and recorded.

    Blocks take turns as plain, measured, measured, plain, so that a drift that is even over two pairs cancels.
    """
    work = Work(rows)
    work.plain(WARM_UP_STEPS)
    block_s: list[float] = []
    plain_s: list[float] = []
    grown: list[float] = []
    steps = 0
    settling = max(3, min(SETTLING_STEPS, block))
    with CONTENDERS[contender](work) as bench:

        def measured() -> None:
            nonlocal steps
            bench.on()
            bench.run(settling)
            before = resident_bytes()
            block_s.append(timed(bench.run, block))
            after = resident_bytes()
            bench.off()
            steps += settling + block
            if before is not None and after is not None:
                grown.append((after - before) / block)

        def plain() -> None:
            work.plain(settling)
            plain_s.append(timed(work.plain, block))

        for pair in range(blocks):
            for turn in (measured, plain) if pair % 2 else (plain, measured):
                turn()
    return {
        "contender": contender,
        "block_s": block_s,
        "plain_s": plain_s,
        "steps": steps,
        "recorded": bench.recorded(),
        "bytes_a_step": median(grown[1:]) if len(grown) > 1 else None,  # a block may import something, once
    }


def timed(run: Callable[[int], None], steps: int) -> float:
    """Seconds a step."""
    began = time.perf_counter_ns()
    run(steps)
    return (time.perf_counter_ns() - began) / 1e9 / steps


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
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--block", type=int, required=True)
    parser.add_argument("--blocks", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found = measure(asked.contender, asked.rows, asked.block, asked.blocks)
    asked.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
