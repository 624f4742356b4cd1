"""What measuring itself costs a step: after the timed steps, blocks with the probe and blocks without it take turns."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.alternating import LEAST_PAIRS, Added, alternate, block_of
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.stand_in import LAYERS, StandIn
from perf_diagnostics.measure.steps.beside_steps import MEMORY_INTERVAL_NS
from perf_diagnostics.measure.steps.device_clock import EventSource, event_source
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.measure.steps.step_memory import StepMemory
from perf_diagnostics.measure.without_collections import without_collections
from perf_diagnostics.records import Quantity, Settings
from perf_diagnostics.trials.afterwards.afterwards import Timed
from perf_diagnostics.trials.steps.endless_batches import EndlessBatches
from perf_diagnostics.trials.steps.training_step import TrainingStep
from perf_diagnostics.workloads.workload import BatchCount, Training

#: Of the time that the trial has taken so far, at most this part goes into its own steps, and never more seconds.
SHARE = 0.05
MOST_S = 3.0
MOST_PAIRS = 40

#: A longer block only averages over what another pair would tell more of.
BLOCK_S = 0.05

#: Stand-in steps take at most so many seconds, and this part of a short trial's time, but at least the least.
STAND_IN_S = 0.5
STAND_IN_SHARE = 0.1
LEAST_STAND_IN_S = 0.1
STAND_IN_BLOCK_S = 0.002
STAND_IN_PAIRS = 200
_MOST_STAND_IN_STEPS = 20


def kept_s(budget_s: float) -> float:
    """Of so many seconds for a trial's steps, those that are kept for its own cost; a trial may use up the others."""
    return min(STAND_IN_S, STAND_IN_SHARE * max(0.0, budget_s))


class ProbeOverhead:
    """Brings ``probe_overhead_s`` with the ends of its 95 % interval, all in seconds a step.

    The trial's own steps take turns where enough of them fit into :data:`SHARE` of its time: pairs of blocks, one under
    a probe and one under a stand-in that does nothing. Where they are too long for that, it is small steps of a
    training made for it (:mod:`perf_diagnostics.measure.stand_in`) that take turns: they go through the same training
    step with the same marks, the same settings of the probe, and as many readings of the memory a step.

    A block's wall time is taken around it, with the device synchronised at both ends; of stand-in steps on the CPU it
    is the time for which their only thread had a core, the same where nobody else wants one. The interval may span 0:
    the cost cannot always be told from the steps' scatter.

    Args:
        clock: host clock in ns.
        thread_cpu: CPU time of the calling thread in ns.
        events_of: makes the event source of the device.
        stand_in: makes the small training for a device and a number of micro-steps.
    """

    name: ClassVar[str] = "probe_overhead_s"

    def __init__(
        self,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        thread_cpu: Callable[[], int] = time.thread_time_ns,
        events_of: Callable[..., EventSource | None] = event_source,
        stand_in: Callable[[torch.device, int], Training] | None = None,
    ) -> None:
        self._clock = clock
        self._thread_cpu = thread_cpu
        self._events_of = events_of
        self._stand_in = stand_in_training if stand_in is None else stand_in

    def __call__(self, timed: Timed) -> Iterable[Quantity]:
        """The cost and its interval."""
        spent_s, step_s = timed.spent_s, timed.step_s
        pairs, steps = affordable(spent_s, step_s, timed.left_s())
        memory = StepMemory.of(timed.device, Observations())
        try:
            if pairs >= LEAST_PAIRS:
                added = self._on_own_steps(timed, memory, pairs, steps)
                return added.quantities("probe_overhead", "the trial's own steps")
            added = self._on_stand_ins(timed, memory, min(STAND_IN_S, max(LEAST_STAND_IN_S, STAND_IN_SHARE * spent_s)))
            return added.quantities(
                "probe_overhead",
                f"stand-in steps of {added.plain_s * 1e3:.2g} ms because this trial's own steps of {step_s:.2g} s are "
                f"too long to alternate within {100 * SHARE:g} % of its time",
            )
        finally:
            memory.close()

    def _on_own_steps(self, timed: Timed, memory: StepMemory, pairs: int, steps: int) -> Added:
        training = dataclasses.replace(timed.training, batches=OneStream(timed.training.batches))
        events = self._events_of(timed.device, self._clock)
        turns = _Turns(
            training, timed.trial.settings, timed.device, self._probe(events, memory), events=events, clock=self._clock
        )
        turns.plain(1)  # the data's iterator begins anew
        turns.measured(steps)
        return alternate(turns.measured, turns.plain, pairs=pairs, steps=steps)

    def _on_stand_ins(self, timed: Timed, memory: StepMemory, seconds: float) -> Added:
        began = self._clock()
        settings = timed.trial.settings
        parts = settings.accumulation_steps or 1
        training = self._stand_in(timed.device, parts)
        # What these change is the work, which is another one here; the marks stay the same.
        same_marks = settings.replace(precision="float32", channels_last=None, ceiling=None)
        events = self._events_of(timed.device, self._clock)
        clock = self._thread_cpu if events is None else self._clock
        turns = _Turns(training, same_marks, timed.device, self._probe(events, memory), events=events, clock=clock)
        with without_collections():
            for block in (turns.plain, turns.measured, turns.plain, turns.measured):
                block(2)
            length_s = turns.plain(2)
            turns.probe.read_memory_every(memory_interval_ns(length_s, timed.step_s))
            steps = math.ceil(STAND_IN_BLOCK_S / length_s) if length_s > 0 else _MOST_STAND_IN_STEPS
            return alternate(
                turns.measured,
                turns.plain,
                pairs=STAND_IN_PAIRS,
                steps=min(steps, _MOST_STAND_IN_STEPS),
                late=lambda: (self._clock() - began) / 1e9 > seconds,
            )

    def _probe(self, events: EventSource | None, memory: StepMemory) -> Probe:
        return Probe(clock=self._clock, events=events, memory=memory)


class _Turns:
    """The two kinds of block, timed by ``clock``: under a probe, and plain."""

    def __init__(
        self,
        training: Training,
        settings: Settings,
        device: torch.device,
        probe: Probe,
        *,
        events: EventSource | None,
        clock: Callable[[], int],
    ) -> None:
        wait = _nothing if events is None else events.synchronize
        self.probe = probe
        self._measured = block_of(TrainingStep(training, settings, device, probe), clock, wait)
        self.plain = block_of(TrainingStep(training, settings, device, Unmeasured()), clock, wait)

    def measured(self, steps: int) -> float:
        """A block under the probe; seconds a step."""
        self.probe.start()
        took = self._measured(steps)
        self.probe.end_block()
        self.probe.take()
        return took


def affordable(spent_s: float, step_s: float, left_s: float | None = None) -> tuple[int, int]:
    """How many pairs of blocks, of how many steps, fit into the part of a trial's time that may be spent on them.

    What is left of its budget limits them, too, but for a tenth of a second, which stand-in steps would take as well.
    """
    seconds = min(SHARE * spent_s, MOST_S)
    if left_s is not None:
        seconds = min(seconds, max(left_s, LEAST_STAND_IN_S))
    steps = math.floor(seconds / step_s) if step_s > 0 else 0
    pairs = min(MOST_PAIRS, steps // 2) // 2 * 2  # drift cancels over two
    if not pairs:
        return 0, 0
    longest = max(1, math.ceil(BLOCK_S / step_s))
    return pairs, max(1, min(steps // (2 * pairs), longest))


def memory_interval_ns(length_s: float, step_s: float) -> int:
    """How many ns apart memory is read so that as many readings fall on a step as in the trial: at most one."""
    interval_s = MEMORY_INTERVAL_NS / 1e9
    return 0 if step_s >= interval_s else round(MEMORY_INTERVAL_NS * length_s / step_s)


def stand_in_training(device: torch.device, parts: int) -> Training:
    """A small training whose steps have so many micro-steps; each batch has other tokens, as batches of text have."""
    model = StandIn(device, max(1, LAYERS // parts))
    counts = (BatchCount(1, tokens, 0) for tokens in _numbers())
    return Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
        batches=model.batches(),
        loss_of=lambda _model, batch: model(batch),
        count=lambda _batch: next(counts),
    )


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


class OneStream:
    """The batches of several loops as one endless stream, so that a loader's workers are not started twice."""

    def __init__(self, source: Iterable[Any]) -> None:
        self._batches = EndlessBatches(source, on_epoch=_ignored)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._batches)


class Unmeasured:
    """Takes the place of the probe in a plain step. Entering its spans, which do nothing, costs some tenths of a µs."""

    def __init__(self) -> None:
        self.epoch = 0
        self._span = contextlib.nullcontext()

    def data_wait(self) -> contextlib.AbstractContextManager[None]:
        return self._span

    def transfer(self) -> contextlib.AbstractContextManager[None]:
        return self._span

    def forward(self) -> contextlib.AbstractContextManager[None]:
        return self._span

    def backward(self) -> contextlib.AbstractContextManager[None]:
        return self._span

    def optimizer(self) -> contextlib.AbstractContextManager[None]:
        return self._span

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> None:
        """Nothing is kept."""


def _nothing() -> None:
    """On a CPU the host is the device."""


def _ignored(_epoch: int) -> None:
    """Passes over the data are not told apart here."""
