"""Has a few steps of a training on a device looked through for what crosses between it and the host."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Hashable
from contextlib import ExitStack

import torch

from perf_diagnostics.integrations.one_step import mode_stack
from perf_diagnostics.integrations.one_step.operator_lines import OperatorLines
from perf_diagnostics.integrations.shield import FAULTS
from perf_diagnostics.integrations.steps.loop_probe import DATA_WAIT, LoopProbe
from perf_diagnostics.integrations.steps.step_state import NOTHING
from perf_diagnostics.measure.crossings.crossings import Crossings, Kind, showing_waits
from perf_diagnostics.measure.crossings.summed import STEPS, quantities
from perf_diagnostics.measure.observation import Observations, in_words
from perf_diagnostics.measure.steps.tape import times_and_codes
from perf_diagnostics.records import ALL_PHASES, Json, Phase, Quantity

#: What a gap says of whose count is missing: the first of the numbers, as in a sweep.
SIGNAL = "copies_in_per_step"

#: The fact that names the lines.
LINES = "crossings_at"

#: So many lines of each kind are told, those with most calls first.
_MOST_LINES = 8

#: Of the step's last marks so many are looked at for waits for data.
_MARKS = 256


class CrossingsLook:
    """Looks at a few steps in a row, none of which counts, for copies in and for values that the host waits for.

    All of the step is seen but the loader, wherever it lies: forward, backward, the optimizer, and what is between.

    Args:
        observations: where it is noted why nobody looked.
        probe: of the loop; it knows the phase that is under way.
        why_not: why this training's operators are not to be shown, asked with whether several processes train
            together; empty where they may be.
        on_device: whether a tensor lies on the accelerator.
        wanted: whether there is an accelerator; default: whether the probe times one.
        clock: the probe's.
    """

    def __init__(
        self,
        observations: Observations,
        probe: LoopProbe,
        why_not: Callable[[bool], str],
        *,
        on_device: Callable[[torch.Tensor], bool] = lambda tensor: tensor.device.type not in ("cpu", "meta"),
        wanted: Callable[[], bool] | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._observations, self._probe, self._why_not, self._on_device = observations, probe, why_not, on_device
        self._wanted = wanted or (lambda: probe.device_clock != "host")
        self._clock = clock
        self._mode: Crossings | None = None
        self._lines = OperatorLines()
        self._counted: collections.Counter[tuple[Kind, Hashable]] = collections.Counter()
        self._places: dict[Hashable, dict[str, Json]] = {}
        self._undo = ExitStack()
        self._over = False
        #: What was found, in numbers a step; none where nobody looked.
        self.quantities: list[Quantity] = []
        #: The lines that asked for it, by the names of ``TrialResult.facts``.
        self.facts: dict[str, Json] = {}

    @property
    def under_way(self) -> bool:
        """Whether the step that goes on is looked through."""
        return self._mode is not None

    @property
    def wants(self) -> bool:
        """Whether another step is to be looked through."""
        return not self._over and self._wanted()

    def begin(self, *, several: bool) -> None:
        """The next step is looked through, if that can be done; between two steps, in the loop's thread."""
        if self._mode is not None:
            return
        with self._observations.guard(SIGNAL) as attempt:
            why_not = self._why_not(several)
            if not why_not and not mode_stack.is_alone():
                why_not = "something else changes what torch's operators do"
            if why_not:
                self._observations.note(SIGNAL, why_not)
                self._over = True
                return
            state = self._probe.state
            mode = Crossings(
                clock=self._clock,
                on_device=self._on_device,
                phase=self._phase,
                data_wait_ns=self._data_wait_ns,
                tell=self._tell,
                counts=lambda: state.active and state.inside != DATA_WAIT,
                faults=FAULTS,
            )
            self._mode = mode
            self._undo.callback(mode_stack.take_off, mode)
            mode_stack.off_in_forks(mode)
            mode_stack.put_on(mode)
            self._undo.enter_context(showing_waits(torch.device("cuda"), mode))
        if attempt.failed:
            self._stop()

    def end(self) -> None:
        """The step is over."""
        mode = self._mode
        if mode is None:
            return
        mode.step_ends()
        if len(mode.steps) < STEPS and mode.fault is None:
            return
        self._stop()
        if mode.fault is not None:
            self._observations.note(SIGNAL, in_words(mode.fault))
            return
        with self._observations.guard(SIGNAL):
            self.quantities = quantities(mode, "that do not count")
            self.facts = {LINES: self._told()}

    def training_ended(self) -> None:
        """No step comes any more."""
        if self._mode is not None or self.wants:
            self._observations.note(
                SIGNAL, f"the training ended before {STEPS} steps were looked through, after the first ones"
            )
        self._stop()

    def _stop(self) -> None:
        self._mode, self._over = None, True
        with self._observations.guard(SIGNAL):
            self._undo.close()

    def _phase(self) -> Phase | None:
        inside = self._probe.state.inside
        return None if inside == NOTHING else ALL_PHASES[inside]

    def _data_wait_ns(self, since_ns: int, until_ns: int) -> int:
        """For how long the loop waited for data, by the marks of the step so far."""
        times, codes = times_and_codes(self._probe.marks[-_MARKS:])
        waited = 0
        for number, code in enumerate(codes):
            if code == DATA_WAIT:
                ended = int(times[number + 1]) if number + 1 < len(codes) else until_ns
                waited += max(0, min(ended, until_ns) - max(int(times[number]), since_ns))
        return waited

    def _tell(self, kind: Kind) -> None:
        """A crossing happens at some line."""
        if kind is Kind.LARGE_COPY:
            return
        key, place = self._lines.line()
        if key is not None:
            self._places.setdefault(key, place)
            self._counted[kind, key] += 1

    def _told(self) -> list[Json]:
        told: list[Json] = []
        for kind in (Kind.READ, Kind.WAIT, Kind.SMALL_COPY):
            those = [(key, calls) for (which, key), calls in self._counted.most_common() if which is kind]
            told += [
                {"kind": str(kind), "calls": calls / STEPS, **self._places[key]} for key, calls in those[:_MOST_LINES]
            ]
        return told
