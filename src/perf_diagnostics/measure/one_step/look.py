"""Has one step of a training looked through operator by operator: one that does not count."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import chain
from threading import get_ident
from typing import Any

import torch

from perf_diagnostics.measure.model_scan import parameters_of
from perf_diagnostics.measure.module_calls import TimedCalls, is_compiled, own_call, stands_in
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.one_step import engine_passes, known_answers, mode_stack, prefixes_again, unchanging
from perf_diagnostics.measure.one_step.dataflow import StepDataflow
from perf_diagnostics.measure.one_step.denormal_numbers import STATES, denormal_states
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.every_watcher import watchers_of
from perf_diagnostics.measure.one_step.later_looks import LaterLooks
from perf_diagnostics.measure.one_step.outside_of_torch import OutsideOfTorch
from perf_diagnostics.measure.one_step.prefixes_again import PrefixesAgain
from perf_diagnostics.measure.one_step.recurrent_again import RecurrentAgain
from perf_diagnostics.measure.one_step.room import too_little_room
from perf_diagnostics.measure.one_step.samples_again import SamplesAgain, arguments_of
from perf_diagnostics.measure.one_step.update_look import UpdateLook, are_own
from perf_diagnostics.measure.one_step.watcher import has_one_memory, memory
from perf_diagnostics.measure.one_step.zero_products import SIGNAL
from perf_diagnostics.measure.steps.device_clock import captures
from perf_diagnostics.records import Json

#: A step is looked through once so many were measured, and written down.
STEADY_STEPS = 10

#: So often it is looked again, where other models come to be trained: a teacher first, and then its student.
_MOST_AGAIN = 3

_INNER: Any = torch._C

#: Whether the operators of forward are all that the step did beside backward, the optimizer and the loader.
WHOLE_STEP = "operators_of_the_whole_step"

_ENDED = "the training ended before enough steps were looked through to tell what stays the same"

_SEVERAL = "several processes train together, and would wait for the one that looks through a step"


class StepLook:
    """Looks at the operators of one step, which is none of those that count.

    While it looks, the calls of the models and ``torch.autograd.backward`` go through functions of ours, which come off
    where the step ends. Operators are seen from the first call of a model to the end of the backward that follows, the
    loss between them included, and inside of calls of other models before that. What lies around them is seen only by
    who follows the data, and nothing of the loader is; of optimizers that are none of torch's own the updates are seen
    by themselves. Nothing is put into what is compiled,
    scripted, or spread over devices, and nothing into the capture of a CUDA graph. What seems to be the same in each
    step, or for a sample whenever it comes, is looked for in a few later ones again.

    Args:
        observations: where it is noted why nobody looked.
        models: what is trained: the modules that the loop calls.
        beside: the modules that nobody trains and the loop may call.
        optimizers: those that train. Where no module is known, as in a training of plain tensors, operators are seen
            all step long.
        elsewhere: whether the loader or an optimizer is at work, of which nothing is seen. Where that is known, what
            the loop does outside of its models is seen by who follows the data.
        goes_back: whether the phase that is open is backward's; without it: as long as ``torch.autograd.backward``
            runs.
        updates: whether an optimizer is what is at work elsewhere.
    """

    def __init__(
        self,
        observations: Observations,
        models: Callable[[], Sequence[torch.nn.Module]],
        beside: Callable[[], Sequence[torch.nn.Module]] = tuple,
        optimizers: Callable[[], Sequence[torch.optim.Optimizer]] = tuple,
        elsewhere: Callable[[], bool] | None = None,
        *,
        goes_back: Callable[[], bool] = bool,
        updates: Callable[[], bool] = bool,
    ) -> None:
        self._observations = observations
        self._models = models
        self._beside = beside
        self._optimizers, self._elsewhere = optimizers, elsewhere
        self._goes_back, self._update_runs = goes_back, updates
        self._devices: set[torch.device] = set()
        self._undo = ExitStack()
        self._mode: OperatorMode | None = None
        self._over = False
        self._updates: UpdateLook | None = None
        #: What a few later looks are for: what seems to be the same in each step, or for each sample.
        self._later: LaterLooks | None = None
        self._samples = SamplesAgain(lambda: self.under_way)
        self._prefixes = PrefixesAgain()
        #: What was trained when a step was looked at first, and how often that was others since.
        self._trained: frozenset[int] = frozenset()
        self._again = 0
        #: Plain values by the names of ``TrialResult.facts``; none where nobody looked.
        self.facts: dict[str, Json] = {}

    @property
    def under_way(self) -> bool:
        """Whether the step that goes on is looked through."""
        return self._mode is not None

    def may_begin(self, steady_steps: int) -> bool:
        """Whether a step is to be looked through, after so many that count: again once other models are trained."""
        if self._over and self._again < _MOST_AGAIN and self._trained_now() != self._trained:
            self._again += 1
            self._over = False
            self._later_fails()
            self._samples = SamplesAgain(lambda: self.under_way)
            self._prefixes = PrefixesAgain()
        if self._later is not None:
            return self._later.goes_on
        return not self._over and steady_steps >= STEADY_STEPS

    @property
    def is_due(self) -> bool:
        """Whether the first look waits for nothing but a step that counts."""
        return not self._over

    @property
    def due_after(self) -> int | None:
        """After how many more steps the next one is to be looked through; None: at leisure, or never."""
        return None if self._later is None else self._later.due_after

    def too_early_by(self, steady_steps: int) -> int:
        """How many more steps than so many have to count before the first look; 0 where it is not that it waits for."""
        return 0 if self._over or self._later is not None else max(0, STEADY_STEPS - steady_steps)

    def begin(self, *, several: bool) -> None:
        """The next step is looked through, if that can be done; between two steps, in the loop's thread.

        Args:
            several: whether other processes train together with this one.
        """
        self._over = True
        again = self._later
        if again is not None:
            again.lets_go()
            if not again.goes_on:
                self._tell()
                return
        with self._observations.guard(self._signal) as attempt:
            models, beside = self._trained_and_beside()
            self._trained = frozenset(map(id, models))
            parameters = parameters_of(models, () if models else self._optimizers())
            why_not = self._why_not(models, parameters, several=several)
            if why_not:
                self._gives_up(why_not)
                return
            if again is None:
                watchers = watchers_of(parameters)
                trains = self._may_be_trained()
                own = [one for model in models for one in model.parameters()]
                others = [*chain(*(model.parameters() for model in beside)), *(one for one in own if not trains(one))]
                untrained = {memory(one) for one in others if one.is_cpu}
                kept = [*others, *chain(*(model.buffers() for model in (*models, *beside)))]
                untrained -= {memory(one) for one in own if one.is_cpu and trains(one)}  # they may be tied
                for one in watchers:
                    if isinstance(one, StepDataflow):
                        one.storages.untrained = untrained
                    if isinstance(one, OutsideOfTorch):
                        one.also_kept(map(memory, filter(has_one_memory, kept)))
                        one.elsewhere = self._elsewhere or bool
            else:
                watchers = [StepDataflow(again.storages)]
            self._begins(OperatorMode(watchers), models, beside, shown=again is None)
        if attempt.failed:
            self._later_fails()
            self._stop()

    def _begins(
        self,
        mode: OperatorMode,
        models: Sequence[torch.nn.Module],
        beside: Sequence[torch.nn.Module],
        *,
        shown: bool,
    ) -> None:
        """Put what is needed into torch; backward is ``shown``, or only ends what is."""
        self._mode = mode
        mode.goes_back = self._goes_back
        self._undo.callback(mode.step_ended)
        mode_stack.off_in_forks(mode)
        for one in mode.watchers:
            if isinstance(one, RecurrentAgain):
                self._undo.push(one.stand_in(models, mode))
        self._undo.push(engine_passes.stand_in(mode))
        for model in models:
            self._stand_in_for_calls(model, mode)
        for model in beside:
            if not any(isinstance(part, torch.jit.ScriptModule) for part in model.modules()):
                self._stand_in_for_calls_beside(model, mode)
        self._stand_in_for_backward(mode, shown=shown, whole=not models)
        if shown and are_own(self._optimizers()):
            self._updates = UpdateLook(self._observations)
            mode.updates, mode.runs_update = self._update_runs, self._updates.run
        if self._elsewhere is not None:
            elsewhere, of_models = self._elsewhere, bool(models)
            # A closure's model and loss are seen, which the optimizer asks for.
            mode.hides = lambda: (mode.beside or not of_models) and elsewhere()
        if models:
            self._opens_around(mode)
        else:
            self._opens(mode)

    def why_not(self, several: bool) -> str:
        """Why what crosses in a step is not to be looked for now; empty where it may be.

        Args:
            several: whether other processes train together with this one.
        """
        models = self.trained_models()
        why_not = self._why_not(models, parameters_of(models, () if models else self._optimizers()), several=several)
        if not why_not and sum(one.type != "cpu" for one in self._devices) > 1:
            return "the model lies on several devices"
        return why_not

    def trained_models(self) -> list[torch.nn.Module]:
        """The models that the loop calls of which something may be trained."""
        return self._trained_and_beside()[0]

    def _trained_and_beside(self) -> tuple[list[torch.nn.Module], list[torch.nn.Module]]:
        """Of the models that the loop calls those of which something may be trained, and all others."""
        models = list(self._models())
        trains = self._may_be_trained()
        trained = [one for one in models if any(map(trains, one.parameters()))]
        frozen = [one for one in models if all(one is not other for other in trained)]
        return trained, [*frozen, *self._beside()]

    def _may_be_trained(self) -> Callable[[torch.nn.Parameter], bool]:
        """Whether a parameter is: not one that no optimizer has, and that no backward gave a gradient.

        So are those of a backbone that is only called under no_grad, which may ask for gradients all the same. What an
        inner loop has put in a parameter's place is computed from trained ones; torch warns who asks it for a gradient.
        One that asks for none just now, and has one, is trained in turns (a GAN's discriminator beside its generator).
        """
        groups = chain.from_iterable(optimizer.param_groups for optimizer in self._optimizers())
        stepped = {id(one) for group in groups for one in group["params"]}
        return lambda one: (
            (not one.is_leaf or one.requires_grad or one.grad is not None)
            and (not stepped or id(one) in stepped or not one.is_leaf or one.grad is not None)
        )

    def _trained_now(self) -> frozenset[int]:
        trained, _ = self._trained_and_beside()
        return frozenset(map(id, trained)) or self._trained

    def shows_from_here(self) -> None:
        """In the step that is looked through forward begins; all of it is to be seen, not the models' calls alone."""
        mode = self._mode
        if mode is not None:
            with self._observations.guard(SIGNAL):
                self._opens(mode)

    def end(self) -> None:
        """The step is over."""
        updates = self._updates
        mode = self._stop()
        if mode is None:
            return
        followed = next((one for one in mode.watchers if isinstance(one, StepDataflow)), None)
        gaps: dict[str, str] = {}
        if self._later is None:
            with self._observations.guard(SIGNAL):
                self.facts, gaps = mode.conclude()
                self._prefixes.join(self.facts, gaps)
                self.facts |= denormal_states(self._optimizers())
                if updates is not None:
                    self.facts |= updates.facts
                self._prefixes = PrefixesAgain()
                self.facts[WHOLE_STEP] = not self._trained
                for signal, why in gaps.items():
                    self._observations.note(signal, why)
        if followed is not None and unchanging.SIGNAL not in gaps:
            with self._observations.guard(unchanging.SIGNAL) as attempt:
                self._follow(mode, followed)
            if attempt.failed:
                self._later_fails()

    def _follow(self, mode: OperatorMode, followed: StepDataflow) -> None:
        """A step was followed for what is the same in each: the first one, or another one."""
        why_not = mode.why_not or followed.why_not
        if self._later is None:
            self._later = LaterLooks(followed, self._samples, [*chain(*self._trained_and_beside())])
        elif why_not or mode.problems or not mode.seen:
            self._gives_up(why_not or ", ".join(mode.problems.values()) or "another step had no operator to be seen")
            return
        else:
            self._later.saw(followed)
        self._tell()

    def _tell(self) -> None:
        """What is the same in each step, once that is sure."""
        if self._later is not None:
            self.facts = {**self.facts, **self._later.sure}

    def _gives_up(self, why: str) -> None:
        """Nothing more is looked at; what is sure by now stays."""
        signals = (SIGNAL,) if self._later is None else (unchanging.SIGNAL, known_answers.SIGNAL)
        for signal in signals:
            if signal not in self.facts:
                self._observations.note(signal, why)
        self._later_fails()

    def _later_fails(self) -> None:
        self._later = None
        self._samples.stop()

    @property
    def _signal(self) -> str:
        return SIGNAL if self._later is None else unchanging.SIGNAL

    def training_ended(self, why: str = "") -> None:
        """No step comes any more, or none is looked at any more, for this reason."""
        if self._stop() is not None and self._later is None:
            self._observations.note(SIGNAL, why or "the training ended in the step that was looked through")
        later = self._later
        if STATES in self.facts:
            with self._observations.guard(STATES):
                self.facts = {**self.facts, **denormal_states(self._optimizers(), self.facts[STATES])}
        if later is not None:
            if unchanging.SIGNAL not in self.facts:
                self._observations.note(unchanging.SIGNAL, why or _ENDED)
            with self._observations.guard(known_answers.SIGNAL):
                found, why_not = later.answers()
                if why_not and known_answers.SIGNAL not in self.facts:
                    self._observations.note(known_answers.SIGNAL, why or why_not)
                elif not why_not:
                    self.facts = {**self.facts, known_answers.SIGNAL: found}
        self._later_fails()
        self._over = True

    def _stop(self) -> OperatorMode | None:
        mode, self._mode = self._mode, None
        self._updates = None
        with self._observations.guard(SIGNAL):
            self._undo.close()
        return mode

    def _why_not(self, models: Sequence[torch.nn.Module], parameters: Sequence[torch.Tensor], *, several: bool) -> str:
        if several:
            return _SEVERAL
        if not parameters:
            return "it was not known what is trained"
        parts = [part for model in models for part in model.modules()]
        if _has_compiled() or any(map(is_compiled, parts)):
            return "the model, or something else in its process, is compiled (torch.compile), and is left alone"
        if any(isinstance(part, torch.jit.ScriptModule) for part in parts):
            return "the model is scripted (torch.jit)"
        tensors = [*parameters, *(one for model in models for one in model.buffers())]
        if any(type(one) not in (torch.nn.Parameter, torch.Tensor) for one in tensors):
            return "the model's parameters are of a type of their own, such as those spread over devices"
        self._devices = {one.device for one in tensors}
        if any(one.type not in ("cpu", "cuda") or captures(one) for one in self._devices):
            return "the model lies on a device that is not looked at, or whose work is being captured"
        return too_little_room(self._devices)

    def _opens(self, mode: OperatorMode, *, beside: bool = False) -> bool:
        """Operators are seen from here on, unless they are by now, or something else that changes what they do is under
        way, or a graph is being captured.
        """
        if mode is self._mode and mode.is_open and mode.beside and not beside:
            mode.open()
            return False
        if mode is not self._mode or not self._may_show():
            return False
        mode.open(beside=beside)
        return True

    def _may_show(self) -> bool:
        """Whether nothing else that changes what operators do is under way, and no graph is being captured."""
        return mode_stack.is_alone() and not self._captures()

    def _captures(self) -> bool:
        return any(captures(device) for device in self._devices)

    def _shows_call(self, mode: OperatorMode, model: torch.nn.Module, args: Any, named: Any) -> None:
        """What a model is called with, to whoever follows the data."""
        if not mode.is_open or self._captures():
            return
        given = arguments_of(args, named)
        with _INNER._DisableTorchDispatch():
            for one in mode.watchers:
                if isinstance(one, StepDataflow):
                    one.called(self._samples.number(model), given)

    def _goes_on(self, mode: OperatorMode, model: torch.nn.Module, args: Any, named: Any) -> Callable[[], None] | None:
        """A call without gradients that may go on from the one before; what ends it, if it does."""
        if torch.is_grad_enabled() or self._later is not None or mode is not self._mode or mode.in_backward:
            return None
        if not (mode.is_open or self._may_show()):
            return None
        ends = self._prefixes.call(model, args, named, mode, lambda: mode is self._mode)
        if ends is None:
            return None
        over = ends

        def guarded() -> None:
            with self._observations.guard(prefixes_again.SIGNAL):
                over()

        return guarded

    def _opens_around(self, mode: OperatorMode) -> None:
        """What the loop does outside of its models is seen from here on, where that can be told from the rest."""
        if self._elsewhere is not None:
            self._opens(mode, beside=True)

    def _stand_in_for_calls(self, model: torch.nn.Module, mode: OperatorMode) -> None:
        before, thread, compiling = stands_in(model), get_ident(), torch.compiler.is_dynamo_compiling

        def looked(*args: Any, **kwargs: Any) -> Any:
            call = own_call(model) if before is None else before
            if compiling() or get_ident() != thread:
                return call(*args, **kwargs)
            opened = False
            ends: Callable[[], None] | None = None
            with self._observations.guard(SIGNAL):
                if torch.is_grad_enabled():
                    opened = self._opens(mode)
                elif not model.training:  # an evaluation, and no backward comes
                    mode.close()
                mode.model_called(begins=True)
                self._shows_call(mode, model, args, kwargs)
                ends = self._goes_on(mode, model, args, kwargs)
            try:
                return call(*args, **kwargs)
            except BaseException:
                if opened:
                    mode.close()
                raise
            finally:
                with self._observations.guard(SIGNAL):
                    mode.model_called(begins=False)
                if ends is not None:
                    ends()

        self._undo.callback(TimedCalls(model, looked))

    def _stand_in_for_calls_beside(self, model: torch.nn.Module, mode: OperatorMode) -> None:
        before, thread, compiling = stands_in(model), get_ident(), torch.compiler.is_dynamo_compiling

        def looked(*args: Any, **kwargs: Any) -> Any:
            call = own_call(model) if before is None else before
            opened = False
            ends: Callable[[], None] | None = None
            if not compiling() and get_ident() == thread:
                with self._observations.guard(SIGNAL):
                    opened = self._opens(mode, beside=True)
                    self._shows_call(mode, model, args, kwargs)
                    ends = self._goes_on(mode, model, args, kwargs)
            try:
                return call(*args, **kwargs)
            finally:
                if ends is not None:
                    ends()
                if opened:
                    mode.close()

        self._undo.callback(TimedCalls(model, looked))

    def _stand_in_for_backward(self, mode: OperatorMode, *, shown: bool, whole: bool) -> None:
        """Backward is ``shown``, or only ends what is; after it operators are seen where the ``whole`` step is."""
        original, thread = torch.autograd.backward, get_ident()

        def backward(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != thread or mode.in_backward:
                return original(*args, **kwargs)
            with self._observations.guard(SIGNAL):
                if shown:
                    self._opens(mode)
                else:
                    mode.close()
            mode.enter_backward()
            try:
                return original(*args, **kwargs)
            finally:
                with self._observations.guard(SIGNAL):
                    if not whole:
                        mode.close()
                    mode.leave_backward()
                    if whole:
                        self._opens(mode)
                    else:
                        self._opens_around(mode)

        def undo() -> None:
            if torch.autograd.backward is backward:
                torch.autograd.backward = original

        torch.autograd.backward = backward
        self._undo.callback(undo)


def _has_compiled() -> bool:
    """Whether torch.compile has made a graph in this process, by torch's own counter; imports nothing."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None) or {}
    return bool(counters.get("stats", {}).get("unique_graphs", 0))
