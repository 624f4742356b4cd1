"""How often the trained model is asked without being trained, in the steps in which it is, and what a call takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Remedy
from perf_diagnostics.diagnose.wording import duration
from perf_diagnostics.records import Phase

#: A call without gradients of as many samples as a training batch has takes about as long as a forward does. One of
#: less than this part of it has fewer samples.
_SMALLER = 0.25

#: From so many calls on that are made now and then it is worth saying what one takes.
_LEAST_CALLS = 3


@dataclass(frozen=True)
class ModelAsked:
    """Calls without gradients, or in evaluation mode, in a step that has them beyond what most steps have.

    ``call_s`` is the most that one of them takes, in s: what such steps take longer outside of the phases, over their
    calls. ``forward_s`` is what a call takes that is trained on.
    """

    calls: float
    call_s: float
    forward_s: float

    @property
    def in_small_batches(self) -> bool:
        """Whether a call has surely fewer samples than one that is trained on."""
        return self.call_s < _SMALLER * self.forward_s

    @property
    def remedy(self) -> Remedy:
        """What to try, by how many samples a call has."""
        times = f"Each time the model is called {self.calls:,.0f} times without training on it"
        if self.in_small_batches:
            return Remedy(
                f"{times}, at most {duration(self.call_s)} a call, where a forward of a training batch takes "
                f"{duration(self.forward_s)}: give it more samples at once, in inference mode."
            )
        return Remedy(f"{times}, up to {duration(self.call_s)} a call: do it less often, or on fewer samples.")


def model_asked(facts: TrialFacts) -> ModelAsked | None:
    """Of a trial on the CPU whose calls were seen; None where such calls do not come now and then."""
    calls, trained = ask(facts.column, "forwards_without_gradients"), ask(facts.column, "forwards")
    forward, other = facts.table.host_ns(Phase.FORWARD), facts.table.host_ns(Phase.OTHER)
    if calls is None or trained is None or forward is None or other is None or facts.on_accelerator:
        return None
    usual = float(np.median(calls))
    beats = calls >= usual + _LEAST_CALLS
    count = float((calls[beats] - usual).sum())
    if not beats.any() or beats.mean() > 1 / 2 or not float(trained.sum()) > 0:
        return None
    longer = float((other[beats] - np.median(other[~beats])).sum())
    if not longer > 0:
        return None
    return ModelAsked(
        calls=count / int(beats.sum()),
        call_s=longer / count / 1e9,
        forward_s=float(forward.sum()) / float(trained.sum()) / 1e9,
    )
