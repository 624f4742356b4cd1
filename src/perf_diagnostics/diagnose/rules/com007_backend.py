"""COM007: tensors on a device are exchanged by a backend that carries them through the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.rank_facts import require_several
from perf_diagnostics.diagnose.rule import Answer, cleared
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence

#: Backends that copy a device's tensors to the host, exchange them there, and copy them back.
THROUGH_THE_HOST = ("gloo", "mpi")


@dataclass(frozen=True)
class Backend:
    """A device's gradients are exchanged through the host.

    What it measures:
        The backend that the process group uses for the device that is trained on.

    Why it matters:
        NCCL exchanges GPU to GPU, over NVLink, PCIe or InfiniBand, in kernels that run beside the backward pass. gloo
        copies each bucket to the host, exchanges it there and copies it back; MPI does so unless it was built for CUDA.

    What to try:
        ``init_process_group("nccl")``, or ``"cpu:gloo,cuda:nccl"`` where both kinds of tensors are exchanged.

    When it is wrong:
        The setting alone says that it is slower, not by how much. gloo is right for several ranks on one GPU, which
        NCCL refuses, and for debugging.
    """

    code: ClassVar[str] = "COM007"
    name: ClassVar[str] = "backend"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    def check(self, facts: TrialFacts) -> Answer:
        require_several(facts.result)
        if not facts.on_accelerator:
            raise NotApplicable("backend", "the trial ran on the CPU, where gloo is right")
        backend = facts.word("backend")
        if backend is None:
            raise facts.missing("backend", "the process group's backend was not recorded")
        if backend not in THROUGH_THE_HOST:
            return cleared(self, f"the device's tensors are exchanged by {backend}")
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"Gradients on {facts.result.trial.settings.device} are exchanged by {backend}, "
            "which carries them through the host.",
            scope=facts.label,
            evidence=(Evidence(metric="backend", value=backend),),
            remedies=(Remedy('Use NCCL for the device: init_process_group("cpu:gloo,cuda:nccl").'),),
            confidence=confidence(Tier.CONFIGURATION, sure=True),
        )
