"""What watching a training cost its steps: when it is over, small steps made for that are watched and left alone."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from perf_diagnostics.integrations.marked import MarkedLoop
from perf_diagnostics.integrations.record.recording import Recording
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, TRANSFER, LoopProbe
from perf_diagnostics.integrations.steps.step_state import QUICK_NS, unseen
from perf_diagnostics.integrations.watching import loader_patches, patches, transfers, updates
from perf_diagnostics.integrations.watching.watch import Watch
from perf_diagnostics.measure.alternating import Added, alternate, block_of
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.measure.stand_in import LAYERS, StandIn
from perf_diagnostics.measure.steps.beside_steps import MEMORY_INTERVAL_NS
from perf_diagnostics.measure.steps.device_clock import event_source
from perf_diagnostics.measure.without_collections import without_collections
from perf_diagnostics.records import Outcome, TrialResult

SIGNAL = "probe_overhead_s"

#: Seconds that it takes at the end of a training, and in blocks of how long.
SECONDS = 0.15
BLOCK_S = 0.003
_MOST_PAIRS = 100
_MOST_STEPS = 20

#: On a device each block ends with a wait for all of it, and its first step and its last one are ended in full, where
#: those of a training come in blocks of seconds: in blocks of 2 steps of 2.4 ms the cost of a step was 0.17 to 0.49 ms
#: on an H200, give or take 0.1 ms. So these blocks are longer, and so is the time for them.
_LEAST_STEPS_ON_DEVICE = 10
SECONDS_ON_DEVICE = 0.6

#: A watch ends very short steps in a shorter way; those of longer ones are to be clearly longer than that.
_CLEARLY_NS = 1.4 * QUICK_NS
_MOST_LAYERS = 4096


def with_own_cost(result: TrialResult, probe: LoopProbe, clock: Callable[[], int]) -> TrialResult:
    """The result with what watching cost a step, or with the reason why that was not measured.

    It draws no random number, writes no file, and leaves Python's collector and torch as they were.

    Args:
        result: of a training that is over.
        probe: it was marked on.
        clock: host clock in ns.
    """
    observations = Observations()
    quantities = result.quantities
    with observations.guard(SIGNAL), ExitStack() as installed:
        if result.outcome is not Outcome.COMPLETED or result.reason:
            raise Unreadable("the training was cut short, and whoever did that was not kept waiting", lasting=True)
        if probe.by_hand:
            raise Unreadable("the stand-in steps have an optimizer, and the training updates by hand", lasting=True)
        installed.enter_context(unseen())
        installed.enter_context(torch.inference_mode(mode=False))
        installed.enter_context(torch.enable_grad())
        installed.enter_context(without_collections())
        added = _compared(_Rehearsal(result, probe, clock, installed))
        where = f"stand-in steps of {added.plain_s * 1e3:.2g} ms, watched in the same way when the training was over"
        quantities = (*quantities, *added.quantities("probe_overhead", where))
    return dataclasses.replace(result, quantities=quantities, gaps=(*result.gaps, *observations.gaps))


def _compared(rehearsal: _Rehearsal) -> Added:
    began = time.perf_counter_ns()  # somebody waits for it, whatever clock the steps are told by
    length_s = rehearsal.prepared()
    steps = math.ceil(BLOCK_S / length_s) if length_s > 0 else _MOST_STEPS
    least, seconds = (_LEAST_STEPS_ON_DEVICE, SECONDS_ON_DEVICE) if rehearsal.on_device else (1, SECONDS)
    return alternate(
        rehearsal.watched,
        rehearsal.plain,
        pairs=_MOST_PAIRS,
        steps=min(max(steps, least), _MOST_STEPS),
        late=lambda: (time.perf_counter_ns() - began) / 1e9 > seconds,
    )


_UNMARKED: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True)
class _Loop:
    """A loop over the small training: its batches, and where its phases are marked."""

    batches: Iterator[torch.Tensor]
    step: Callable[[], AbstractContextManager[None]] = nullcontext
    transfer: AbstractContextManager[None] = _UNMARKED
    forward: AbstractContextManager[None] = _UNMARKED
    backward: AbstractContextManager[None] = _UNMARKED
    optimizer: AbstractContextManager[None] = _UNMARKED


class _Rehearsal:
    """A small training under the same kind of watch: blocks of its steps that are seen, and blocks that are not."""

    def __init__(self, result: TrialResult, probe: LoopProbe, clock: Callable[[], int], installed: ExitStack) -> None:
        table = result.steps[0].steady if len(result.steps[0].steady) else result.steps[0]
        self._step_ns = float(table.wall_ns.mean())
        self._parts = result.trial.settings.accumulation_steps or 1
        self._device = torch.device(result.trial.settings.device)
        self._model = StandIn(self._device, max(1, LAYERS // self._parts))
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        events = event_source(self._device, clock)
        self.on_device = events is not None
        if probe._bridged:
            self._seen = _watched(self._model, self._optimizer, probe, installed)
        else:
            self._seen = _marked(self._model, self._optimizer, probe, clock, installed)
        own = self._seen.probe
        installed.callback(_forget_collector, own)
        if events is not None:
            self._seen.recording.use_events(events)
        if own.running:
            self._take()
        self._seen.recording.rehearse()
        own.read_memory_every(0 if self._step_ns >= MEMORY_INTERVAL_NS else MEMORY_INTERVAL_NS)
        if not probe.cpu_clock:
            own.stop_wait_clock()
        if not probe.step_clock:
            own.stop_step_clock()
        wait = _nothing if events is None else events.synchronize
        # On the CPU all is done by this thread: the time for which it had a core is no business of other programs.
        timer = time.thread_time_ns if events is None else clock
        self._watched = block_of(lambda: self._step(self._seen.loop), timer, wait)
        left_alone = _Loop(self._model.batches())
        self.plain = block_of(lambda: self._step(left_alone), timer, wait)

    def prepared(self) -> float:
        """Run the first steps, which set things up; gives the seconds of a plain one, made as long as it has to be."""
        for block in (self.watched, self.plain, self.watched):
            block(2)
        length_s = self.plain(3)
        if self._step_ns >= QUICK_NS and 0 < length_s * 1e9 < _CLEARLY_NS:
            more = math.ceil(self._model.layers * _CLEARLY_NS / (length_s * 1e9))
            self._model.layers = min(more, _MOST_LAYERS)
            self.watched(1)
            length_s = self.plain(3)
        return length_s

    def watched(self, steps: int) -> float:
        """A block that is seen; seconds a step."""
        self._seen.sees(True)
        self._seen.probe.start()
        took = self._watched(steps)
        self._seen.sees(False)
        self._take()
        return took

    def _take(self) -> None:
        self._seen.probe.end_block()
        self._seen.recording.before_take()
        self._seen.probe.take()

    def _step(self, loop: _Loop) -> None:
        with loop.step():
            for _ in range(self._parts):
                batch = next(loop.batches)
                with loop.transfer:
                    batch = batch.to(self._device)
                with loop.forward:
                    loss = self._model(batch)
                with loop.backward:
                    loss.backward()
            with loop.optimizer:
                self._optimizer.step()
                self._optimizer.zero_grad(set_to_none=True)


@dataclass(frozen=True)
class _Seen:
    """A loop that is seen: by whom, and what turns that on and off."""

    loop: _Loop
    probe: LoopProbe
    recording: Recording
    sees: Callable[[bool], None]


class _Batches:
    """The loader of the small training; of a class of its own, for it is its class that is patched."""

    def __init__(self, model: StandIn) -> None:
        self._model = model

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self._model.batches()


def _watched(model: StandIn, optimizer: torch.optim.Optimizer, probe: LoopProbe, installed: ExitStack) -> _Seen:
    """The loop as it is, seen by what :func:`~.attached.attach` puts into torch."""
    watch = Watch(optimizers=[optimizer], workload="stand-in", name=None, results_dir=Path())
    # All is known: looking through the objects of a large program for it takes long.
    watch.trained.watch([model])
    installed.callback(watch.trained.let_go)
    watch.steps.find_main()
    watch.steps.settled = True
    patches.watch_backward(watch, installed)
    updates.watch_updates(watch, [optimizer], installed)
    loader = _Batches(model)
    if probe.has_seen(TRANSFER):
        transfers.watch_transfers(watch, installed)
    if probe.has_seen(DATA_WAIT):
        loader_patches.watch_iterable(watch, loader, installed)
    batches = iter(loader)

    def sees(whether: bool) -> None:
        watch.state.see(whether)

    return _Seen(_Loop(batches), watch.probe, watch.recording, sees)


def _marked(
    model: StandIn,
    optimizer: torch.optim.Optimizer,
    probe: LoopProbe,
    clock: Callable[[], int],
    installed: ExitStack,
) -> _Seen:
    """The loop with the marks of an :class:`~.own_loop.OwnLoop`, which also stand in frameworks' trainings."""
    marked = MarkedLoop(
        workload="stand-in",
        name=None,
        results_dir=Path(),
        model=model,
        optimizer=optimizer,
        device=model.weight.device,
        clock=clock,
    )
    marked._settled = True
    marked.watch_calls([model])
    installed.callback(marked.let_go)
    loop = _Loop(
        marked.timed(_Batches(model)) if probe.has_seen(DATA_WAIT) else model.batches(),
        lambda: marked.step(None, None),
        marked.transfer if probe.has_seen(TRANSFER) else _UNMARKED,
        marked.forward if probe.has_seen(FORWARD) else _UNMARKED,
        marked.backward if probe.has_seen(BACKWARD) else _UNMARKED,
        marked.optimizer if probe.has_seen(OPTIMIZER) else _UNMARKED,
    )

    def sees(whether: bool) -> None:
        marked.probe.state.active = whether

    return _Seen(loop, marked.probe, marked.recording, sees)


def _forget_collector(probe: LoopProbe) -> None:
    """A block that something ended in its midst still listens to Python's collector."""
    with contextlib.suppress(ValueError):
        gc.callbacks.remove(probe._on_gc)


def _nothing() -> None:
    """On a CPU the host is the device."""
