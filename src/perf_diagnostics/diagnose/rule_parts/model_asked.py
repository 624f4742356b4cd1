"""How often the trained model is asked without being trained, in the steps in which it is, and what a call takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Remedy
from perf_diagnostics.diagnose.wording import duration, percent
from perf_diagnostics.records import Bools, Float64, Phase

#: A call without gradients of as many samples as a training batch has takes about as long as a forward does. One of
#: less than this part of it has fewer samples.
_SMALLER = 0.25

#: From so many calls on that are made now and then it is worth saying what one takes.
_LEAST_CALLS = 3

#: From this part of a time on its calls are told beside what else takes it; a judgement.
WORTH_SAYING = 0.1

#: A backward that takes so many times the middle one may be that of several calls.
_LONGER = 2.0


@dataclass(frozen=True, eq=False)
class ModelAsked:
    """Calls that are not trained on, in a step that has them beyond what most steps have.

    ``call_s`` is the most that one of them takes, in s: what such steps take longer where these calls lie, over their
    calls. ``forward_s`` is what a call takes that is trained on. ``part`` is the part that this has of all time in
    the phase where these calls lie. ``with_gradients`` is set where they are made in training mode with gradients, and
    no backward follows. ``steps`` are those that have them, of shape ``(steps,)``.
    """

    steps: Bools
    calls: float
    call_s: float
    forward_s: float
    part: float
    with_gradients: bool = False

    @property
    def in_small_batches(self) -> bool:
        """Whether a call has surely fewer samples than one that is trained on."""
        return self.call_s < _SMALLER * self.forward_s

    def of_lost(self, lost_ns: Float64) -> ModelAsked:
        """The same calls as the part of a loss that lies in their steps; ``lost_ns`` has the shape ``(steps,)``."""
        lost = float(lost_ns.sum())
        return replace(self, part=float(lost_ns[self.steps].sum()) / lost if lost > 0 else 0.0)

    @property
    def remedy(self) -> Remedy:
        """What to try, by how many samples a call has."""
        return Remedy(f"In some steps the model is called {self.calls:,.0f} times without training on it{self._how}")

    @property
    def remedy_for_a_part(self) -> Remedy:
        """The same where most of that time is something else: it begins with how much of it this is about."""
        calls = f"{self.calls:,.0f} calls of the model in some steps, without training on it"
        return Remedy(f"{percent(self.part)} of that time is {calls}{self._how}")

    @property
    def _how(self) -> str:
        """How long a call takes, and what can be done about that."""
        if self.with_gradients:
            return (
                f", up to {duration(self.call_s)} a call, in training mode and with gradients. If that evaluates, call "
                "model.eval() before and model.train() after it, and do it under torch.inference_mode(): dropout and "
                "batch norm then do as they will in use, and nothing is kept for a backward."
            )
        if self.in_small_batches:
            return (
                f", at most {duration(self.call_s)} a call, where a forward of a training batch takes "
                f"{duration(self.forward_s)}: give it more samples at once, in inference mode."
            )
        return f", up to {duration(self.call_s)} a call: do it less often, or on fewer samples."


def model_asked(facts: TrialFacts) -> ModelAsked | None:
    """Calls without gradients, or in evaluation mode, of a trial on the CPU; None where none come now and then."""
    calls, trained = ask(facts.column, "forwards_without_gradients"), ask(facts.column, "forwards")
    forward, other = facts.table.host_ns(Phase.FORWARD), facts.table.host_ns(Phase.OTHER)
    if calls is None or trained is None or forward is None or other is None or facts.on_accelerator:
        return None
    if not float(trained.sum()) > 0:
        return None
    return _asked(calls, other, forward_s=float(forward.sum()) / float(trained.sum()) / 1e9)


def asked_with_gradients(facts: TrialFacts) -> ModelAsked | None:
    """Calls in training mode with gradients that no backward follows, of a trial on the CPU, now and then.

    They lie in the forward pass. Steps with more or longer backwards than most train on what they call.
    """
    calls, backwards = ask(facts.column, "forwards"), ask(facts.column, "backwards")
    forward, backward = facts.table.host_ns(Phase.FORWARD), facts.table.host_ns(Phase.BACKWARD)
    if calls is None or backwards is None or forward is None or backward is None or facts.on_accelerator:
        return None
    trained = (backwards > np.median(backwards)) | (backward > _LONGER * np.median(backward))
    untrained = np.where(trained, np.median(calls), calls)
    usual = untrained <= np.median(calls)
    if not float(calls[usual].sum()) > 0:
        return None
    forward_s = float(forward[usual].sum()) / float(calls[usual].sum()) / 1e9
    return _asked(untrained, forward, forward_s=forward_s, with_gradients=True)


def _asked(
    calls: NDArray[Any], times_ns: NDArray[Any], *, forward_s: float, with_gradients: bool = False
) -> ModelAsked | None:
    """By the calls of each step and the time of the phase that they lie in, both of shape ``(steps,)``."""
    usual = float(np.median(calls))
    beats = calls >= usual + _LEAST_CALLS
    count = float((calls[beats] - usual).sum())
    if not beats.any() or beats.mean() > 1 / 2:
        return None
    longer = float((times_ns[beats] - np.median(times_ns[~beats])).sum())
    if not longer > 0:
        return None
    part = min(1.0, longer / float(times_ns.sum()))
    return ModelAsked(beats, count / int(beats.sum()), longer / count / 1e9, forward_s, part, with_gradients)
