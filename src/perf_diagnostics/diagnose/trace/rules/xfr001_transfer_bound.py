"""XFR001 for traces: copies between host and device during which nothing is computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.xfr001_transfer_bound import TransferBound
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import found, warn_and_critical
from perf_diagnostics.diagnose.wording import percent_between


@dataclass(frozen=True)
class ExposedCopies:
    """The device waits for copies between host and device."""

    code: ClassVar[str] = TransferBound.code
    name: ClassVar[str] = TransferBound.name
    family: ClassVar[Family] = TransferBound.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: TransferBound = field(default_factory=TransferBound)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("copies")
        share = facts.share_of(facts.split.crossing_exposed)
        raw = evidence("copies, exposed or not", facts.share_of(facts.split.crossing), "%")
        level = grade(share, warn_and_critical(self.limits.warn_share, self.limits.critical_share))
        if level is None:
            number = evidence("exposed copies", share, "%", limit=self.limits.warn_share)
            says = "copies between host and device, with nothing computed meanwhile, take"
            return cleared(self, f"{says} {percent_between(share)} of a step", number, raw)
        return found(
            self,
            facts,
            level,
            share,
            part=Part.COPIES,
            metric="exposed copies",
            summary=f"Copies between host and device, with nothing computed meanwhile, take {percent_between(share)} "
            "of each step.",
            more=(raw,),
            # The copies are the device's own busy time: hidden behind its computing, only that remains.
            removable=share,
            remedies=(
                Remedy("Pin the host's memory and copy non_blocking.", {"pin_memory": True}),
                Remedy("Copy the next batch on a stream of its own while this one is computed."),
                Remedy("Send smaller types and convert on the device."),
            ),
        )
