"""Has a few steps of a training on a device looked through for what crosses between it and the host."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch

from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, DATA_WAIT, LoopProbe
from perf_diagnostics.integrations.steps.step_state import NOTHING
from perf_diagnostics.measure.crossings.crossings import Crossings, Kind, showing_waits
from perf_diagnostics.measure.crossings.summed import STEPS, quantities
from perf_diagnostics.measure.module_calls import TimedCalls, own_call, stands_in
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.one_step import mode_stack
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.steps.tape import KEEPS, LEAVE, code_of, times_and_codes
from perf_diagnostics.records import ALL_PHASES, Json, Phase, Quantity

#: What a gap says of whose count is missing: the first of the numbers, as in a sweep.
SIGNAL = "copies_in_per_step"

#: The fact that names the lines.
LINES = "crossings_at"

#: So many lines of each kind are told, those with most calls first.
_MOST_LINES = 8

#: After so many steps that cannot be used nobody looks any more.
_MOST_SPOILT = 5

#: The last marks of a step where backward has ended, and nothing has begun since.
_BACKWARD_ENDED = ([BACKWARD, LEAVE], [KEEPS, LEAVE])

#: Of the step's last marks so many are looked at for waits for data.
_MARKS = 256


class CrossingsLook:
    """Looks at a few steps in a row, none of which counts, for copies in and for values that the host waits for.

    All of the step is seen but the loader, wherever it lies: forward, backward, the optimizer, and what is between. A
    step in which a trained model is evaluated is none of these steps: from there on nothing is seen until the next one.

    Args:
        observations: where it is noted why nobody looked.
        probe: of the loop; it knows the phase that is under way.
        why_not: why this training's operators are not to be shown, asked with whether several processes train
            together; empty where they may be.
        models: those that are trained and that the loop calls.
        on_device: whether a tensor lies on the accelerator.
        wanted: whether there is an accelerator; default: whether the probe times one.
        clock: the probe's.
    """

    def __init__(
        self,
        observations: Observations,
        probe: LoopProbe,
        why_not: Callable[[bool], str],
        models: Callable[[], Sequence[torch.nn.Module]],
        *,
        on_device: Callable[[torch.Tensor], bool] = lambda tensor: tensor.device.type not in ("cpu", "meta"),
        wanted: Callable[[], bool] | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._observations, self._probe, self._why_not, self._models = observations, probe, why_not, models
        self._on_device = on_device
        self._wanted = wanted or (lambda: probe.device_clock != "host")
        self._clock = clock
        self._mode: Crossings | None = None
        self._thread = 0
        self._spoilt, self._spoilt_steps = False, 0
        self._lines = OperatorLines()
        #: By kind and line, over all steps, and of the one that is under way.
        self._counted: collections.Counter[tuple[Kind, Hashable]] = collections.Counter()
        self._of_step: list[tuple[Kind, Hashable]] = []
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
        with self._observations.guard(SIGNAL) as attempt:
            if self._mode is None:
                why_not = self._why_not(several)
                if why_not:
                    self._gives_up(why_not)
                    return
                self._mode, self._thread = self._made(), get_ident()
                mode_stack.off_in_forks(self._mode)
            if not mode_stack.is_on(self._mode) and not mode_stack.is_alone():
                self._gives_up("something else changes what torch's operators do")
                return
            self._shows(self._mode)
        if attempt.failed:
            self._stop()

    def end(self) -> None:
        """The step is over."""
        mode = self._mode
        if mode is None:
            return
        if mode.failed:  # the guard has noted why
            self._stop()
            return
        if self._spoilt:
            self._spoilt_steps += 1
            self._drop_step()
            if self._spoilt_steps == _MOST_SPOILT:
                self._gives_up("a model that is trained is evaluated in each step, or is trained in evaluation mode")
            return
        mode.step_ends()
        self._counted.update(self._of_step)
        self._of_step = []
        if len(mode.steps) < STEPS:
            return
        self._stop()
        with self._observations.guard(SIGNAL):
            self.quantities = quantities(mode, "that do not count")
            self.facts = {LINES: self._told()}

    def step_lost(self) -> None:
        """The step that was under way ends in no record: it is none of those that are looked through."""
        if self._mode is not None:
            self._drop_step()

    def training_ended(self) -> None:
        """No step comes any more."""
        if self._mode is not None or self.wants:
            self._observations.note(
                SIGNAL, f"the training ended before {STEPS} steps were looked through, after the first ones"
            )
        self._stop()

    def measuring_ended(self) -> None:
        """Nobody tells when a step ends from here on, while the training goes on.

        Asked in another thread than the loop's, whose stack is out of reach from there, the mode stays on it until the
        training ends, and counts nothing any more.
        """
        if self._mode is not None and get_ident() == self._thread:
            self._gives_up("measuring ended early")

    def _made(self) -> Crossings:
        state = self._probe.state
        return Crossings(
            clock=self._clock,
            on_device=self._on_device,
            phase=self._phase,
            data_wait_ns=self._elsewhere_ns,
            tell=self._tell,
            counts=lambda: state.active and state.inside != DATA_WAIT,
            guard=lambda: self._observations.guard(SIGNAL),
        )

    def _shows(self, mode: Crossings) -> None:
        """From here on all is seen, if it is not by now."""
        self._spoilt = False
        if not mode_stack.is_on(mode):
            self._undo.close()
            self._undo.callback(mode_stack.take_off, mode)
            mode_stack.put_on(mode)
            self._undo.enter_context(showing_waits(torch.device("cuda"), mode))
            for model in self._models():
                self._see_evaluations(model, mode)

    def _see_evaluations(self, model: torch.nn.Module, mode: Crossings) -> None:
        before, thread, compiling = stands_in(model), get_ident(), torch.compiler.is_dynamo_compiling

        def looked(*args: Any, **kwargs: Any) -> Any:
            call = own_call(model) if before is None else before
            if not model.training and not compiling() and get_ident() == thread and not self._spoilt:
                with self._observations.guard(SIGNAL):
                    self._spoilt = True
                    mode_stack.take_off(mode)
            return call(*args, **kwargs)

        self._undo.callback(TimedCalls(model, looked))

    def _drop_step(self) -> None:
        if self._mode is not None:
            self._mode.step_lost()
        self._of_step = []

    def _gives_up(self, why: str) -> None:
        self._observations.note(SIGNAL, why)
        self._stop()

    def _stop(self) -> None:
        self._mode, self._over = None, True
        with self._observations.guard(SIGNAL):
            self._undo.close()

    def _phase(self) -> Phase | None:
        """What is under way; from the end of a watched loop's backward on the optimizer, as in its record."""
        inside = self._probe.state.inside
        if inside != NOTHING:
            return ALL_PHASES[inside]
        if self._probe.bridged and [code_of(one) for one in self._probe.marks[-2:]] in _BACKWARD_ENDED:
            return Phase.OPTIMIZER
        return None

    def _elsewhere_ns(self, since_ns: int, until_ns: int) -> int:
        """For how long it was not the loop that went on: it waited for data, or we were at work between two steps."""
        began_ns = self._probe.block_began_ns
        ours = max(0, min(began_ns, until_ns) - since_ns)
        times, codes = times_and_codes(self._probe.marks[-_MARKS:])
        waited = 0
        for number, code in enumerate(codes):
            if code == DATA_WAIT:
                ended = int(times[number + 1]) if number + 1 < len(codes) else until_ns
                waited += max(0, min(ended, until_ns) - max(int(times[number]), since_ns, began_ns))
        return ours + waited

    def _tell(self, kind: Kind) -> None:
        """A crossing happens at some line."""
        if kind is Kind.LARGE_COPY:
            return
        key, place = self._lines.line()
        if key is not None:
            self._places.setdefault(key, place)
            self._of_step.append((kind, key))

    def _told(self) -> list[Json]:
        told: list[Json] = []
        for kind in (Kind.READ, Kind.WAIT, Kind.SMALL_COPY):
            those = [(key, calls) for (which, key), calls in self._counted.most_common() if which is kind]
            told += [
                {"kind": str(kind), "calls": calls / STEPS, **self._places[key]} for key, calls in those[:_MOST_LINES]
            ]
        return told
