"""HST003: memory is taken from the driver, or given back, in every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import found, warn_and_critical
from perf_diagnostics.diagnose.wording import percent, percent_between, significant

#: PyTorch's allocator keeps what a step frees, and gives it back all at once. From so many places of a step on, each
#: apart from the others, it keeps nothing, or is told to by as many calls of empty_cache() (judgement).
_MANY_PLACES = 20

_CACHING = Remedy(
    "Unset PYTORCH_NO_CUDA_MEMORY_CACHING (on ROCm also PYTORCH_NO_HIP_MEMORY_CACHING), if it is set: with it, each "
    "tensor is the driver's."
)


@dataclass(frozen=True)
class AllocationChurn:
    """Memory is taken from the driver again and again.

    What it measures:
        The device's idle time inside the driver's allocation calls (``cudaMalloc``, ``cudaFree``, ``cudaHostAlloc``,
        ``cuMemCreate``, ``cuMemMap`` and HIP's), in how many of the steps there are any, and how many give memory
        back, for which the driver waits until every stream of the device is done.

    Why it matters:
        PyTorch keeps memory and reuses it; in a steady step there is no such call. Each one is slow, and freeing
        waits for the device.

    What to try:
        ``PYTORCH_NO_CUDA_MEMORY_CACHING`` unset, where memory is given back at many places of a step; no
        ``empty_cache()`` in the loop; ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``; the same shapes in each
        step (pad, or bucket lengths); less memory, if the allocator frees and retries.

    When it is wrong:
        The first steps allocate, and so does the first batch of a new largest size; a trace of few steps may show
        just these.
    """

    code: ClassVar[str] = "HST003"
    name: ClassVar[str] = "allocation-churn"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trace"]] = "trace"

    warn_share: float = field(default=0.02, metadata=limit("idle time in allocation to warn from", "judgement"))
    critical_share: float = field(default=0.10, metadata=limit("… that is critical", "judgement"))
    step_share: float = field(default=0.5, metadata=limit("share of steps that allocate, to be churn", "judgement"))

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("allocation")
        share = facts.share(Part.ALLOCATION)
        runtime = facts.trace.runtime
        calls = facts.calls_in_steps(runtime.where(facts.launches.names.allocation(runtime)))
        steps = float(np.mean(calls > 0))
        frees = facts.calls_in_steps(runtime.where(facts.launches.names.freeing(runtime)))
        numbers = (
            Evidence(metric="allocation calls a step", value=float(calls.mean()), n=len(facts.steps)),
            Evidence(metric="of them freeing, which waits for all streams", value=float(frees.mean())),
            Evidence(metric="steps that allocate", value=steps * 100, unit="%", limit=self.step_share * 100),
        )
        level = grade(share, warn_and_critical(self.warn_share, self.critical_share))
        if level is None or steps < self.step_share:
            number = evidence("idle in allocation", share, "%", limit=self.warn_share)
            return cleared(self, f"allocation takes {percent_between(share)} of a step", number, *numbers)
        places = _places_of_freeing(facts)
        uncached = places >= _MANY_PLACES
        return found(
            self,
            facts,
            level,
            share,
            part=Part.ALLOCATION,
            metric="idle in allocation",
            summary=f"{percent_between(share)} of each step goes to the driver's allocation calls with the device idle "
            f"({significant(float(calls.mean()), 2)} calls a step, in {percent(steps)} of the steps)"
            f"{f', and gives memory back at {places:.0f} places of it: nothing keeps it' if uncached else ''}.",
            more=numbers,
            remedies=(
                *((_CACHING,) if uncached else ()),
                Remedy("Take empty_cache() out of the loop."),
                Remedy("Keep shapes equal: pad or bucket lengths."),
                Remedy("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."),
            ),
        )


def _places_of_freeing(facts: TraceFacts) -> float:
    """At how many places of a step memory is given back, with launches or allocations between them."""
    runtime = facts.trace.runtime
    freeing = facts.launches.names.freeing(runtime)
    calls = runtime.where(freeing | facts.launches.launching | facts.launches.names.allocation(runtime))
    frees = facts.launches.names.freeing(calls)
    return float(facts.calls_in_steps(calls.where(frees & ~np.append(False, frees)[:-1])).mean())
