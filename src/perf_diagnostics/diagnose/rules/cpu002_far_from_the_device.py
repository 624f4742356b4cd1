"""CPU002: the trial runs on cores of another NUMA node than its device's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.facts.power_facts import within_steps
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, significant
from perf_diagnostics.records import Phase

_BIND = Remedy(
    "Bind the process to the device's node, memory included: numactl --cpunodebind=N --membind=N, or the launcher's "
    "binding; N is in /sys/bus/pci/devices/<address>/numa_node (nvidia-smi topo -m shows it, too)."
)
_ASK = Remedy("Ask the scheduler for cores of the device's node: the trial may run on none of them.")


@dataclass(frozen=True)
class FarFromTheDevice:
    """The process runs on cores of another NUMA node than its device's.

    What it measures:
        The part of the samples in which the trial's own thread was on a core of another node than the device's, and
        how fast large copies from pinned memory are from where it runs against the same copies bound to the device's
        node.

    Why it matters:
        Each copy then crosses the link between processors, and each launch takes longer to arrive.

    What to try:
        Bind process and memory to the device's node: ``numactl``, the launcher's own option, the scheduler's.

    When it is wrong:
        Most links between processors carry more than PCIe, and then only latency is lost: without slower copies this
        is an info. Loader workers and the memory of their batches are not looked at. A virtual machine may show one
        node where there are two.
    """

    code: ClassVar[str] = "CPU002"
    name: ClassVar[str] = "far-from-the-device"
    family: ClassVar[Family] = Family.PROCESSOR
    looks_at: ClassVar[Literal["trial"]] = "trial"

    far_share: float = field(default=0.5, metadata=limit("part of the samples on another node", "the majority"))
    slow_copies: float = field(
        default=0.7, metadata=limit("rate of copies over that from the device's node, to warn below", "catalogue: 70 %")
    )
    warn_share: float = field(
        default=0.05, metadata=limit("share of the step that copies take, for slow ones to matter", "as XFR001")
    )

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("near_device")
        nodes = Evidence(metric="NUMA nodes", value=facts.quantity("numa_nodes"))
        if facts.quantity("numa_nodes") <= 1:
            return cleared(self, "the machine has one NUMA node", nodes)
        samples = within_steps(facts, "near_device")
        far = 1 - float(samples.values.mean())
        numbers = [
            Evidence(
                metric="samples on another node than the device's",
                value=far * 100,
                unit="%",
                limit=self.far_share * 100,
                n=int(samples.values.size),
                source=samples.source,
            ),
            nodes,
        ]
        rate = _relative_rate(facts)
        if rate is not None:
            numbers.append(
                Evidence(
                    metric="rate of copies, of that from the device's node",
                    value=rate * 100,
                    unit="%",
                    limit=self.slow_copies * 100,
                )
            )
        if far <= self.far_share:
            return cleared(self, f"{percent(1 - far)} of the samples were on the device's NUMA node", *numbers)
        return self._far(facts, far, rate, numbers)

    def _far(self, facts: TrialFacts, far: float, rate: float | None, numbers: list[Evidence]) -> Finding:
        copying = ask(lambda: facts.share(Phase.TRANSFER))
        if copying is not None:
            numbers.append(evidence("copies to the device", copying, "%", limit=self.warn_share))
        slow = rate is not None and rate < self.slow_copies
        matters = slow and copying is not None and copying.surely_at_least(self.warn_share)
        nowhere_near = facts.result.value("usable_cores_near") == 0
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if matters else Severity.INFO,
            summary=f"The trial ran on another NUMA node than its device's in {percent(far)} of the samples; "
            f"{_copies(rate)}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(_ASK, _BIND) if nowhere_near else (_BIND,),
            recoverable=None if copying is None or rate is None else recoverable(_lost(copying, rate), self.family),
            confidence=confidence(
                Tier.CONFIGURATION if rate is None else Tier.SHARE_AND_CAUSE,
                sure=True,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={} if copying is None or rate is None else {str(Phase.TRANSFER): _lost(copying, rate).value},
        )


def _relative_rate(facts: TrialFacts) -> float | None:
    """The rate of copies as placed over that from the device's node; None where both were not measured."""
    placed, near = (facts.result.value(f"host_to_device_bandwidth{where}") for where in ("", "_near"))
    return placed / near if placed is not None and near else None


def _lost(copying: Interval, rate: float) -> Interval:
    return copying.scaled(max(0.0, 1 - rate))


def _copies(rate: float | None) -> str:
    if rate is None:
        return "what that costs its copies was not measured"
    return f"large copies reach {significant(rate * 100, 2)} % of the rate that they have from the device's node"
