"""COM001: the device communicates with nothing to compute meanwhile."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.collectives import Collectives, collectives, exposed_share
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.passes import passes_of
from perf_diagnostics.diagnose.trace.rule import found
from perf_diagnostics.diagnose.wording import percent, percent_between, significant, times

#: So many collectives for each gradient, where there are many gradients, and they are exchanged one by one (judgement).
_ONE_BY_ONE, _MANY = 0.5, 20


@dataclass(frozen=True)
class CommunicationBound:
    """The device communicates while it has nothing to compute.

    What it measures:
        The share of the step in which collective kernels (NCCL, RCCL and the like) run and no other kernel does (in a
        trace of the CPU alone: in which a range of gloo's lasts and no operator runs), and the overlap: how much of
        all communication is hidden behind computation. Beside it how many collectives a step has and, where the trace
        tells their messages, how much they move and how much of what is exposed are messages under 1 MB.

    Why it matters:
        Hidden communication costs nothing. What is exposed, every rank waits for, and it grows with the job.

    What to try:
        Gradient buckets that are complete early, so that the exchange starts during the backward pass;
        gradient accumulation without synchronising every micro-step; compression of gradients; a faster network path.
        Many small messages: bundle them, for each costs a latency however little it moves.

    When it is wrong:
        A collective also lasts as long as it waits for the last rank to arrive: on the ranks that wait, the fault
        lies with a slower one (compare all ranks' traces: COM002). Where the host cannot launch fast enough, hiding
        communication wins little; the gain allows for that. Beside a device's work, collectives of a backend without
        kernels (gloo) are not seen.
    """

    code: ClassVar[str] = "COM001"
    name: ClassVar[str] = "communication-bound"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trace"]] = "trace"

    info_share: float = field(
        default=0.05, metadata=limit("exposed communication over the step to mention", "TraceLens reports from 5 %")
    )
    warn_share: float = field(default=0.10, metadata=limit("… to warn from", "TensorBoard advises from 10 %"))
    critical_share: float = field(
        default=0.25, metadata=limit("… that is critical", "judgement; public traces: 0.10 to 0.66")
    )

    small_bytes: float = field(
        default=1e6, metadata=limit("bytes below which a message costs its latency, not its length", "judgement")
    )

    def check(self, facts: TraceFacts) -> Answer:
        talking = facts.split.communicating
        if not len(talking) and (facts.trace.world_size or 1) > 1:
            raise NotMeasured(
                "communication",
                f"a job of {facts.trace.world_size} ranks without one collective kernel: a backend whose communication "
                "is not on the device is not seen"
                if facts.on_device
                else f"a job of {facts.trace.world_size} ranks, and no collective left a range in the trace",
            )
        if not len(talking):
            facts.require_device("communication")
        share = facts.share(Part.COMMUNICATION)
        level = grade(
            share,
            (
                (Severity.INFO, self.info_share),
                (Severity.WARNING, self.warn_share),
                (Severity.CRITICAL, self.critical_share),
            ),
        )
        if level is None:
            number = evidence("exposed communication", share, "%", limit=self.info_share)
            return cleared(self, f"exposed communication takes {percent_between(share)} of a step", number)
        all_of_it = facts.share_of(talking)
        overlap = 1 - share.value / all_of_it.value
        messages = collectives(facts)
        small = exposed_share(facts, messages.below(self.small_bytes)) if messages.sized else None
        bound = found(
            self,
            facts,
            level,
            share,
            part=Part.COMMUNICATION,
            metric="exposed communication",
            summary=f"{percent_between(share)} of each step is communication with nothing computed meanwhile; "
            f"{percent(overlap)} of all communication overlaps with computation{_says(messages)}.",
            more=(
                evidence("communication, exposed or not", all_of_it, "%"),
                Evidence(metric="overlap with computation", value=overlap * 100, unit="%"),
                *_numbers(facts, messages),
                *self._small(small),
            ),
            removable=share,
            remedies=_remedies(facts, messages, bundling=small is not None and small >= share.value / 2),
        )
        # Whoever waits for a late rank waits inside a collective: the same seconds, and the late rank (always the same
        # one, or each in turn) is their cause; or buffers are what is sent.
        return dataclasses.replace(bound, symptom_of=("COM002", "COM004", "COM009", "COM012"))

    def _small(self, share: float | None) -> tuple[Evidence, ...]:
        if share is None:
            return ()
        return (Evidence(metric=f"exposed under {self.small_bytes / 1e6:g} MB a message", value=share * 100, unit="%"),)


def _says(messages: Collectives) -> str:
    if not len(messages):
        return ""
    each = len(messages) / messages.steps
    of_kind = f" ({', '.join(f'{kind}' for kind, _ in messages.kinds.most_common(2))})" if messages.kinds else ""
    middle = f", with a median of {significant(float(np.median(messages.bytes)) / 1e6)} MB" if messages.sized else ""
    return f"; {times(each, 'collective')} a step{of_kind}{middle}"


def _numbers(facts: TraceFacts, messages: Collectives) -> tuple[Evidence, ...]:
    steps = messages.steps
    found = [Evidence(metric="collectives a step", value=len(messages) / steps, n=steps)]
    if facts.gradients_a_step is not None:
        found.append(Evidence(metric="gradients a step", value=facts.gradients_a_step, n=steps))
    if messages.sized:
        moved = float(messages.bytes[messages.bytes >= 0].sum()) / steps
        found.append(Evidence(metric="moved a step", value=moved / 1e6, unit="MB", n=steps))
    return tuple(found)


def _remedies(facts: TraceFacts, messages: Collectives, *, bundling: bool) -> tuple[Remedy, ...]:
    """What fits what is exchanged; fewer messages first, where they are small or as many as there are gradients."""
    if messages.mostly == "route":
        return (
            Remedy("Let what each rank is sent overlap with computing that does not need it: fetch a batch ahead."),
            Remedy("Send less: exchange embeddings or experts' tokens in a lower precision."),
        )
    gradients, reduced, a_pass = _of_one_pass(facts, messages)
    if gradients >= _MANY and reduced >= _ONE_BY_ONE * gradients:
        first = Remedy(
            f"Exchange gradients in buckets, as DistributedDataParallel does: there are {gradients:,.0f} gradients and "
            f"{reduced:,.0f} all-reduces a {a_pass}."
        )
    elif bundling:
        first = Remedy("Bundle messages: larger buckets (bucket_cap_mb), or fewer and larger sharded units.")
    elif messages.mostly == "shard":
        first = Remedy("Gather the next unit's parameters while this one computes (prefetch), in fewer, larger units.")
    else:
        first = Remedy(
            "Start the exchange earlier: smaller buckets, and no find_unused_parameters=True without static_graph=True."
        )
    return (
        first,
        Remedy("With gradient accumulation, synchronise in the last micro-step only (no_sync)."),
        Remedy("Send less: compress gradients, or shard the optimizer."),
    )


def _of_one_pass(facts: TraceFacts, messages: Collectives) -> tuple[float, float, str]:
    """Gradients and all-reduces of a step, or, where it accumulates batches, of a backward pass that exchanges."""
    gradients, reduced = facts.gradients_a_step or 0.0, messages.all_reduces / messages.steps
    passes = passes_of(facts)
    if passes is None or not passes.accumulate or not passes.exchanging:
        return gradients, reduced, "step"
    return gradients / passes.a_step, reduced / (passes.a_step * passes.exchanging), "backward pass"
