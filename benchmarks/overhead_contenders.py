"""What ``overhead_worker.py`` runs: a small training whose steps tell when they begin, bare and under each tool."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, dataloader

#: Of the model's hidden layer.
WIDTH = 256

#: Of a probe, before they are made into a table: in trainings these are as many and more.
STEPS_TAKEN = 1000

#: After a second, attach writes for the first time, and then looks through one step.
ATTACH_BEGINS_S = 1.3
STEPS_BEGUN = 50

#: CPython (3.11 and later) keeps what it knows of a class where an attribute was looked up, and learns it anew after
#: some 50 look-ups where the class was changed meanwhile.
SETTLED_AGAIN = 60

#: Of a step that is only clocked: the fetch, forward, backward, the optimizer and the gradients' clearing, two each.
BORDERS = 10


@dataclass
class Work:
    """A real training whose step's length is set by the rows of its batch; one thread, its batch on the device."""

    rows: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    #: Host clock in ns at which each step asked for its batch.
    asked_ns: array[int] = field(default_factory=lambda: array("q"))
    model: torch.nn.Module = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    data: _Same = field(init=False)
    loader: DataLoader[Any] = field(init=False)

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        layers = (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))
        self.model = torch.nn.Sequential(*layers).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)
        self.data = _Same(self.asked_ns, self.wait)
        self.loader = DataLoader(self.data, batch_size=None)
        self.resize(self.rows)

    def resize(self, rows: int) -> None:
        """From now on batches have so many rows; the loader stays, for a tool may know it by now."""
        self.rows = rows
        self.data.batch = torch.randn(rows, WIDTH, device=self.device), torch.randn(rows, 1, device=self.device)

    def wait(self) -> None:
        """Until the device has done all that it was given."""
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)

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
    """The same batch without end: what a loader costs is not the question here. Notes when it is asked.

    The first batches of each pass, ``settling`` of them, are asked for without a note.
    """

    def __init__(self, asked_ns: array[int], wait: Callable[[], None]) -> None:
        self.batch: tuple[torch.Tensor, torch.Tensor] | None = None
        self._asked_ns, self._wait = asked_ns, wait
        self.settling = 0
        #: CPU time of the thread when the first batch was asked for that is noted.
        self.cpu_began_ns = 0

    def __iter__(self) -> Iterator[Any]:
        note, clock, batch = self._asked_ns.append, time.perf_counter_ns, self.batch
        for _ in range(self.settling):
            yield batch
        self._wait()
        self.cpu_began_ns = time.thread_time_ns()
        while True:
            note(clock())
            yield batch


@dataclass
class Bench:
    """One contender at work: ``run`` trains so many steps, ``recorded`` counts what the tool kept (None: not known).

    ``on`` and ``off`` are called around each stretch that the tool measures, outside the time that is taken; a tool
    that cannot be turned off in a process leaves them away, and its plain stretches then hold what it costs at rest.
    ``beginning_s``: for so long after ``on`` it does what it does once in a training, and not again. ``settling``: so
    many steps come before each stretch, plain ones included, where that is more than others have.
    """

    run: Callable[[int], None]
    on: Callable[[], None] = lambda: None
    off: Callable[[], None] = lambda: None
    recorded: Callable[[], int | None] = lambda: None
    beginning_s: float = 0.0
    settling: int = 0


@contextlib.contextmanager
def bare(work: Work) -> Iterator[Bench]:
    yield Bench(work.plain)


@contextlib.contextmanager
def probe(work: Work) -> Iterator[Bench]:
    from perf_diagnostics.measure.steps.device_clock import event_source
    from perf_diagnostics.measure.steps.probe import Probe

    measured = Probe(events=event_source(work.device, time.perf_counter_ns))
    kept = on_tape = 0

    def run(steps: int) -> None:
        nonlocal on_tape
        on_tape += steps
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
        nonlocal kept, on_tape
        measured.end_block()
        if on_tape >= STEPS_TAKEN:
            kept, on_tape = kept + len(measured.take()), 0

    yield Bench(run, measured.start, off, lambda: kept + len(measured.take()))


@contextlib.contextmanager
def attach(work: Work) -> Iterator[Bench]:
    """Without what comes when the training is over: the measurement of its own cost, and the line with the verdict."""
    from perf_diagnostics.integrations import attach as attach_to

    kept = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as attached:
        seen: Any = None

        def on() -> None:
            nonlocal seen
            watched = attach_to(work.model, work.optimizer, work.loader, results_dir=folder, quiet=True)
            seen = attached.enter_context(watched)
            seen._watch.recording.with_own_cost = lambda result, _probe, _clock: result

        def off() -> None:
            nonlocal kept
            attached.close()
            kept += len(seen.run.results[0].steps[0]) if seen.run else 0

        yield Bench(work.plain, on, off, lambda: kept, beginning_s=ATTACH_BEGINS_S)


@contextlib.contextmanager
def attached(work: Work) -> Iterator[Bench]:
    """One training that ``attach`` watches from the process's first steps to its last.

    In plain stretches all that it has put into torch and the model is out of them, and for those under the tool it is
    put back: that takes microseconds, so that stretches can be as short as the probe's. What it does twice a second and
    more seldom is seen more often than it is in a training, for it befalls stretches under the tool only. Its thread
    looks at the loop's lines in both kinds of stretches; what that takes, ``attach`` has in its figure, and this not.
    """
    from perf_diagnostics.integrations import attach as attach_to

    with tempfile.TemporaryDirectory() as folder:
        parts = PutIn(work)
        with attach_to(work.model, work.optimizer, work.loader, results_dir=folder, quiet=True) as seen:
            seen._watch.recording.with_own_cost = lambda result, _probe, _clock: result
            end = time.perf_counter() + ATTACH_BEGINS_S
            begun = 0
            while time.perf_counter() < end:
                work.plain(STEPS_BEGUN)
                begun += STEPS_BEGUN
            parts.out()
            yield Bench(work.plain, parts.back, parts.out, lambda: seen.steps - begun, settling=SETTLED_AGAIN)
            parts.back()


@contextlib.contextmanager
def hooks(work: Work) -> Iterator[Bench]:
    """The least that watching from outside can do in Python: a clock read at each border of a phase, and kept.

    Hooks on the model and the optimizer, and wrappers around the fetch, the backward and the clearing of gradients; no
    look at what goes by. What a tool that watches an unchanged loop takes above this, is its own doing.
    """
    clock, borders = time.perf_counter_ns, array("q")
    note = borders.append

    def on_border(*_: Any) -> None:
        note(clock())

    def between(call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            note(clock())
            try:
                return call(*args, **named)
            finally:
                note(clock())

        return timed

    parts = PutIn(work)
    work.model.register_forward_pre_hook(on_border)
    work.model.register_forward_hook(on_border)
    work.optimizer.register_step_pre_hook(on_border)
    work.optimizer.register_step_post_hook(on_border)
    fetching = (dataloader._BaseDataLoaderIter, "__next__")
    for kind, name in (fetching, (torch.Tensor, "backward"), (torch.optim.Optimizer, "zero_grad")):
        setattr(kind, name, between(getattr(kind, name)))
    parts.out()
    seen = 0

    def off() -> None:
        nonlocal seen
        parts.out()
        seen += len(borders) // BORDERS
        del borders[:]

    try:
        yield Bench(work.plain, parts.back, off, lambda: seen, settling=SETTLED_AGAIN)
    finally:
        parts.out()


class PutIn:
    """What a tool puts into torch and a training after this was made: it can be taken out, and put back.

    Args:
        work: the training.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._before = [dict(self._entries(place)) for place in self._places()]
        self._ours: list[dict[str, Any]] = []

    def _places(self) -> list[Any]:
        model, optimizer = self._work.model, self._work.optimizer
        hooks: list[Any] = [model._forward_pre_hooks, model._forward_hooks]
        hooks += [optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks]
        iterators = [
            kind for name, kind in vars(dataloader).items() if name.endswith("LoaderIter") and isinstance(kind, type)
        ]
        classes = [torch.Tensor, torch.nn.Module, torch.optim.Optimizer, DataLoader, *iterators]
        return [torch.autograd, *classes, self._work.model.__dict__, *hooks]

    @staticmethod
    def _entries(place: Any) -> Any:
        return place if isinstance(place, dict) else vars(place)

    def out(self) -> None:
        """Take out what is in by now."""
        self._ours = []
        for place, before in zip(self._places(), self._before, strict=True):
            entries = self._entries(place)
            changed = [name for name in {*entries, *before} if entries.get(name) is not before.get(name)]
            self._ours.append({name: entries[name] for name in changed if name in entries})
            for name in changed:
                _put(place, name, before)

    def back(self) -> None:
        """Put it back."""
        for place, ours in zip(self._places(), self._ours, strict=True):
            for name in ours:
                _put(place, name, ours)


def _put(place: Any, name: str, wanted: dict[str, Any]) -> None:
    """Make an entry what it is to be, or remove it where it is not to be."""
    if isinstance(place, dict):
        if name in wanted:
            place[name] = wanted[name]
        else:
            del place[name]
    elif name in wanted:
        setattr(place, name, wanted[name])
    else:
        delattr(place, name)


@contextlib.contextmanager
def torch_profiler(work: Work) -> Iterator[Bench]:
    """Recording all the time; its work at the end of a recording is not in the steps."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if work.device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
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
    "hooks": hooks,
    "probe": probe,
    "attach": attach,
    "attached": attached,
    "torch.profiler": torch_profiler,
    "lightning": lightning_simple,
    "traceml-ai": traceml,
}


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
