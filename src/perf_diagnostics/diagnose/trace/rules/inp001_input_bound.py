"""INP001 for traces: the loader's ranges while the device has nothing to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rule_parts.worker_advice import IF_STREAM
from perf_diagnostics.diagnose.rules.inp001_input_bound import InputBound
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import found
from perf_diagnostics.diagnose.wording import percent, percent_between


@dataclass(frozen=True)
class WaitingForInput:
    """The training waits for its next batch: time inside ``enumerate(DataLoader)`` in which the device is idle."""

    code: ClassVar[str] = InputBound.code
    name: ClassVar[str] = InputBound.name
    family: ClassVar[Family] = InputBound.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: InputBound = field(default_factory=InputBound)

    def check(self, facts: TraceFacts) -> Answer:
        raw = facts.share_of(facts.loading.within(facts.steps.on_host))
        share = facts.share(Part.INPUT)
        levels = (
            (Severity.INFO, self.limits.info_share),
            (Severity.WARNING, self.limits.warn_share),
            (Severity.CRITICAL, self.limits.critical_share),
        )
        level = grade(share, levels)
        hidden = evidence("inside the loader, exposed or not", raw, "%")
        if level is None:
            number = evidence("exposed data wait", share, "%", limit=self.limits.info_share)
            return cleared(self, f"the wait for data takes {percent_between(share)} of a step", number, hidden)
        return found(
            self,
            facts,
            level,
            share,
            part=Part.INPUT,
            metric="exposed data wait",
            summary=_summary(facts, share, raw),
            more=(hidden,),
            remedies=_remedies(facts),
        )


def _summary(facts: TraceFacts, share: Interval, raw: Interval) -> str:
    says = f"{percent_between(share)} of each step is waiting for the next batch"
    if not facts.on_device:
        return f"{says}."
    return (
        f"{says} with nothing for the device to do; {percent(raw.value)} is spent in the loader, "
        "the rest of it behind the device's work."
    )


def _remedies(facts: TraceFacts) -> tuple[Remedy, ...]:
    alone = any("SingleProcess" in name for name in facts.trace.names)
    workers = (
        # No change to try: a trace knows neither the data set, which a stream has to share among them, nor the cores.
        Remedy(f"Load in worker processes (the trace shows none). {IF_STREAM}")
        if alone
        else Remedy("More workers or a larger prefetch_factor, as far as there are free cores.")
    )
    return (workers, Remedy("Make a batch cheaper: decode less, preprocess once and store, decode on the device."))
