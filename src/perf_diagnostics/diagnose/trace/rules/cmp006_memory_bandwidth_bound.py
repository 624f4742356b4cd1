"""CMP006 for traces: kernels one after another that each go over memory, and that one could do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp006_memory_bandwidth_bound import MemoryBandwidthBound
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.trace.breakdown import SWITCHING_NS, Part
from perf_diagnostics.diagnose.trace.events import Bool, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.rule import of_the_step
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Int64

#: Kernels of torch's own that go over their inputs once, and compute little on each number: what a compiler fuses.
#: Reading and writing by index is not among them, nor what a compiler has made.
_PASSES = re.compile(
    r"^(?!triton_).*((?<!index_)(?<!gather_)elementwise_kernel|(?<!splitK)(?<!all_)reduce_kernel|layer_?norm|batch_norm"
    r"|rms_?norm|group_?norm|GammaBeta|softmax|dropout|CatArrayBatchedCopy)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class PassesInARow:
    """Kernels one after another each go over memory, and a compiler could make one of them."""

    code: ClassVar[str] = MemoryBandwidthBound.code
    name: ClassVar[str] = MemoryBandwidthBound.name
    family: ClassVar[Family] = MemoryBandwidthBound.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    saved_share: float = field(
        default=0.10,
        metadata=limit("share of the step that goes if each row of such kernels were its longest one", "judgement"),
    )
    compute_share: float = field(
        default=0.85, metadata=limit("computing over the step from which kernels set the pace", "as CMP003")
    )
    prompt_share: float = field(
        default=0.05, metadata=limit("f20 up to which the device is fed", "17 public traces: fed 0.00 to 0.03")
    )

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("kernels")
        computing = facts.share(Part.COMPUTE)
        passes = _passes(facts)
        share = facts.part_of_computing(passes)
        most = of_the_step(facts, _saved_ns(facts, passes) / facts.computing_ns)
        numbers = (
            Evidence(
                metric="part of the step that would go with one kernel for each row",
                value=most.value * 100,
                unit="%",
                limit=self.saved_share * 100,
            ),
            Evidence(metric="passes over memory, of the device's work", value=share * 100, unit="%"),
            evidence("computing", computing, "%", limit=self.compute_share),
        )
        if computing.value < self.compute_share or facts.prompt_share > self.prompt_share:
            return cleared(
                self, f"computing takes {percent(computing.value)} of a step: it is not kernels alone", *numbers
            )
        if most.value < self.saved_share:
            says = f"one kernel for each row of passes over memory would save {percent(most.value)} of a step at most"
            return cleared(self, says, *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(share)} of the device's work is kernels that go over memory and compute little "
            "(activations, norms, dropout, sums), often one after another: with one kernel for each such row at most "
            f"{percent(most.value)} of the step would go.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy("Compile the model, which fuses them.", {"compile_mode": "default"}),),
            # Results that backward needs are written all the same.
            recoverable=recoverable(Interval(most.value / 2, 0.0, most.high, most.n), self.family),
            confidence=confidence(Tier.SHARE, sure=True, coverage=facts.coverage, thin=facts.thin),
        )


def _passes(facts: TraceFacts) -> Bool:
    """Which of the device's events go over memory once; of a step whose backward is seen no more than what was launched
    until its end, for what comes then is no part of the model.
    """
    trace, launches = facts.trace, facts.launches
    named = trace.named(_PASSES.search)
    found: Bool = named[trace.device.name] & (trace.device.kind == Kind.KERNEL) & facts.computing
    found &= ~launches.names.matrix_product(trace.device)
    operators = trace.of(Kind.OPERATOR)
    engine = trace.named(lambda name: name.startswith(ENGINE))
    backward = operators.where(engine[operators.name])
    step = facts.steps.on_host.containing(backward.start_ns)
    ends = np.zeros(len(facts.steps) + 1, np.int64)  # the last for launches in no step
    np.maximum.at(ends, step[step >= 0], backward.end_ns[step >= 0])
    end = ends[facts.steps.on_host.containing(launches.call_start_ns)]
    found[launches.linked] &= (end == 0) | (launches.call_start_ns <= end)
    update = facts.update
    return found if update is None else found & ~update.launched


def _saved_ns(facts: TraceFacts, passes: Bool) -> int:
    """What would go if of each row of such kernels, one after another on a stream, the longest alone remained."""
    device = facts.trace.device
    order = np.lexsort((device.start_ns, device.track))
    order = order[facts.steps.windows.containing(device.start_ns[order]) >= 0]
    rows, mine = device.where(order), passes[order]
    if not mine.any():
        return 0
    follows = (
        mine[1:]
        & mine[:-1]
        & (rows.track[1:] == rows.track[:-1])
        & (rows.start_ns[1:] - rows.end_ns[:-1] <= SWITCHING_NS)
    )
    begins = np.concatenate((np.ones(1, np.bool_), ~follows))
    first: Int64 = np.flatnonzero(begins)
    whole = np.add.reduceat(rows.duration_ns, first)
    longest = np.maximum.reduceat(rows.duration_ns, first)
    return int((whole - longest)[mine[first]].sum())
