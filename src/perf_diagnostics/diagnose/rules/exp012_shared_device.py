"""EXP012: others held memory of the device while the trial ran on it, and may have computed there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.facts.power_facts import within_steps
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.wording import percent, significant


@dataclass(frozen=True)
class SharedDevice:
    """Others used the device while the trial ran on it.

    What it measures:
        The largest part of the device's memory that processes other than the trial's held meanwhile, by the driver. And
        whether the driver saw kernels for longer than the trial's own stream had work: then others computed.

    Why it matters:
        Programs on one device take turns. Each then sees longer kernels, and no clock of its own tells why.
        Comparisons of trials become chance, so findings of the same configuration lose confidence, and their gains are
        no longer vouched for.

    What to try:
        Measure on a device that nothing else uses: ``nvidia-smi`` lists who does, ``CUDA_VISIBLE_DEVICES`` chooses
        another, a scheduler can give one alone.

    When it is wrong:
        A program that holds memory and does nothing (a notebook with a model in it) costs no time. Several ranks of one
        training on the same device are others to each other. The driver's own reserve is counted as others', so that
        less than 1 GB says nothing; a small program beside the trial is then not seen.
    """

    code: ClassVar[str] = "EXP012"
    name: ClassVar[str] = "shared-device"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    foreign_bytes: int = field(
        default=1_000_000_000,
        metadata=limit("memory that others hold, in bytes", "judgement: an empty context takes up to half of it"),
    )
    computing: float = field(
        default=0.20,
        metadata=limit("driver's utilisation beyond the trial's own, from which others compute", "judgement"),
    )

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("device_memory_foreign")
        foreign = facts.result.value("device_memory_foreign")
        if foreign is None:
            raise facts.missing("gpu_memory_process", "the trial's memory on the device was not told from others'")
        numbers = [
            Evidence(metric="device memory of others", value=foreign / 1e9, unit="GB", limit=self.foreign_bytes / 1e9)
        ]
        if foreign < self.foreign_bytes:
            return cleared(self, f"others held {significant(foreign / 1e9)} GB of the device's memory", *numbers)
        beyond = ask(_beyond_own, facts)
        if beyond is not None:
            most = self.computing * 100
            numbers.append(
                Evidence(metric="utilisation beyond the trial's own", value=beyond * 100, unit="%", limit=most)
            )
        computed = beyond is not None and beyond >= self.computing
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"Others held up to {significant(foreign / 1e9)} GB of the device's memory during the trial"
            f"{_what_they_did(beyond, computed=computed)}. Gains between trials measured like this are not sure.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(Remedy("Measure on a device that nothing else uses (nvidia-smi shows who does)."),),
            confidence=0.9 if computed else 0.5,
        )


def _beyond_own(facts: TrialFacts) -> float:
    """The driver's mean utilisation less the share of the step in which the trial's own stream surely had no wait."""
    used = float(within_steps(facts, "gpu_utilization").values.mean()) / 100
    return used - (1 - facts.exposed_data_wait_share.value)


def _what_they_did(beyond: float | None, *, computed: bool) -> str:
    if computed and beyond is not None:
        return f", and computed: kernels ran for {percent(beyond)} of the time more than it had work for"
    return "; if they computed on it, they took time from it"
