"""What measuring itself costs a step: after the timed steps, blocks with the probe and blocks without it take turns."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from scipy import special

from perf_diagnostics.measure.device_clock import EventSource, event_source
from perf_diagnostics.measure.observation import Unreadable
from perf_diagnostics.measure.probe import Probe
from perf_diagnostics.records import Quantity
from perf_diagnostics.trials.afterwards import Timed
from perf_diagnostics.trials.training_step import EndlessBatches, TrainingStep

#: Of the time that the trial has taken so far, at most this part, and never more than so many seconds.
SHARE = 0.05
MOST_S = 3.0

#: With fewer pairs Student's quantile alone makes the interval say nothing.
LEAST_PAIRS = 4
MOST_PAIRS = 40

#: A longer block only averages over what another pair would tell more of.
BLOCK_S = 0.05


class ProbeOverhead:
    """Brings ``probe_overhead_s`` with the ends of its 95 % interval, all in seconds a step.

    Pairs of blocks, one under a probe and one under a stand-in that does nothing, in the order ABBA, so that a drift
    that is even over two pairs cancels. A block's wall time is taken around it, with the device synchronised at both
    ends; the interval is Student's over the pairs' differences. It may span 0: of long steps the cost cannot be told
    from their scatter.

    Args:
        clock: host clock in ns.
        events_of: makes the event source of the device.
    """

    name: ClassVar[str] = "probe_overhead_s"

    def __init__(
        self,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        events_of: Callable[..., EventSource | None] = event_source,
    ) -> None:
        self._clock = clock
        self._events_of = events_of

    def __call__(self, timed: Timed) -> Iterable[Quantity]:
        """The cost and its interval.

        Raises:
            Unreadable: there is no time for enough pairs.
        """
        pairs, steps = affordable(timed.spent_s, timed.step_s)
        if pairs < LEAST_PAIRS:
            raise Unreadable(
                f"{LEAST_PAIRS} pairs of blocks of steps of {timed.step_s:.3g} s would take more than "
                f"{SHARE:.0%} of the trial's {timed.spent_s:.3g} s"
            )
        if not timed.affords(2 * pairs * steps + 2):
            raise Unreadable(f"what is left of the trial's time does not hold {2 * pairs * steps} more steps")
        events = self._events_of(timed.device, self._clock)
        probe = Probe(clock=self._clock, events=events)
        batches = dataclasses.replace(timed.training, batches=OneStream(timed.training.batches))
        settings = timed.trial.settings
        measured = TrainingStep(batches, settings, timed.device, probe)
        plain = TrainingStep(batches, settings, timed.device, Unmeasured())
        wait = _nothing if events is None else events.synchronize
        plain()  # the data's iterator begins anew

        def under_probe() -> float:
            probe.start()
            took = self._block(measured, steps, wait)
            probe.end_block()
            probe.take()
            return took

        under_probe()
        differences = []
        for pair in range(pairs):
            if pair % 2:
                bare = self._block(plain, steps, wait)
                differences.append(under_probe() - bare)
            else:
                differences.append(under_probe() - self._block(plain, steps, wait))
        mean, low, high = student_interval(differences)
        source = f"{pairs} pairs of alternating blocks of {steps} steps, Student's interval of their differences"
        return [
            Quantity(name, value, "s", source)
            for name, value in (
                ("probe_overhead_s", mean),
                ("probe_overhead_low_s", low),
                ("probe_overhead_high_s", high),
            )
        ]

    def _block(self, step: Callable[[], None], steps: int, wait: Callable[[], None]) -> float:
        """Seconds a step."""
        wait()
        began = self._clock()
        for _ in range(steps):
            step()
        wait()
        return (self._clock() - began) / 1e9 / steps


def affordable(spent_s: float, step_s: float) -> tuple[int, int]:
    """How many pairs of blocks, of how many steps, fit into the part of a trial's time that may be spent on them."""
    steps = math.floor(min(SHARE * spent_s, MOST_S) / step_s) if step_s > 0 else 0
    pairs = min(MOST_PAIRS, steps // 2) // 2 * 2  # drift cancels over two
    if not pairs:
        return 0, 0
    longest = max(1, math.ceil(BLOCK_S / step_s))
    return pairs, max(1, min(steps // (2 * pairs), longest))


def student_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean of at least two values and the ends of its 95 % interval by Student's distribution."""
    found = np.asarray(values, dtype=np.float64)
    mean = float(found.mean())
    half = float(special.stdtrit(found.size - 1, 0.975)) * float(found.std(ddof=1)) / math.sqrt(found.size)
    return mean, mean - half, mean + half


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
