"""COM015: of several devices in one process, one computes at a time while the others wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.devices import Devices
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import warn_and_critical
from perf_diagnostics.diagnose.wording import listing, percent

#: Of what perfect overlap would win, a pipeline of two micro-batches wins half, if both cost half of one batch each.
_TWO_MICRO_BATCHES = 0.5


@dataclass(frozen=True)
class DevicesTakeTurns:
    """Several devices belong to one process, and only one of them computes at a time.

    What it measures:
        For each device the share of the step in which its kernels compute (collectives left out), the share in which
        those of more than one do, and how much of the step some device computes while the busiest one does not.

    Why it matters:
        Together the devices look busy all the time, but each of them idles while another works: two devices do the
        work of one. It is what a model does whose layers are spread over devices (``device_map="auto"``,
        ``.to("cuda:1")`` on its second half) and that is given one batch at a time.

    What to try:
        One copy of the model a device (``DistributedDataParallel``), or ``FSDP`` where it does not fit; a pipeline that
        keeps several micro-batches on their way (``torch.distributed.pipelining``); one device alone, which is about as
        fast as long as the model fits on it.

    When it is wrong:
        If the model fits on no device and its batch cannot be divided, there is nothing to overlap. Two models that
        need each other's results in turns (a generator and its discriminator, a teacher and its student) cannot
        compute at once either. The gain holds if micro-batches use a device as well as whole batches.
    """

    code: ClassVar[str] = "COM015"
    name: ClassVar[str] = "devices-take-turns"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trace"]] = "trace"

    warn_share: float = field(
        default=0.10,
        metadata=limit("share of the step in which others compute than the busiest, to warn from", "as COM001"),
    )
    critical_share: float = field(default=0.25, metadata=limit("… that is critical", "as COM001"))
    overlap: float = field(
        default=0.20,
        metadata=limit(
            "part of the computing in which several devices do, from which they do not take turns",
            "judgement: halves of a model in turns reach 0, data-parallel copies nearly 1",
        ),
    )

    def check(self, facts: TraceFacts) -> Answer:
        devices = Devices.of(facts)
        alone = devices.beside_the_busiest
        overlap = devices.together.value / devices.any_of_them.value if devices.any_of_them.value else 0.0
        numbers = (
            evidence("a device computes, the busiest one does not", alone, "%", limit=self.warn_share),
            Evidence(metric="computing of several devices at once, of all", value=overlap * 100, unit="%",
                     limit=self.overlap * 100),
            *(evidence(f"device {name} computes", share, "%") for name, share in devices.shares),
        )  # fmt: skip
        level = grade(alone, warn_and_critical(self.warn_share, self.critical_share))
        if level is None or overlap >= self.overlap:
            says = f"several devices compute at once in {percent(overlap)} of the time in which any does"
            return cleared(self, says, *numbers)
        each = listing([f"device {name} {percent(share.value)}" for name, share in devices.shares])
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity,
            summary=f"The {len(devices.shares)} devices of this process take turns: {each} of each step, and more than "
            f"one computes at a time in {percent(devices.together.value)}.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy("If the model fits on one device: a copy on each (DistributedDataParallel), else FSDP."),
                Remedy(
                    "If it has to be spread by layers: a pipeline with several micro-batches on their way "
                    "(torch.distributed.pipelining)."
                ),
                Remedy("Or use one device alone, if the model fits: as it is, the others save memory, not time."),
            ),
            recoverable=recoverable(alone, self.family, realised=_TWO_MICRO_BATCHES),
            confidence=confidence(Tier.DEEP_WINDOW, sure=level.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Part.COMPUTE): alone.value},
        )
