"""COM006: several GPUs are driven by torch.nn.DataParallel, from one process and one interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence


@dataclass(frozen=True)
class DataParallel:
    """One process feeds all GPUs through ``torch.nn.DataParallel``.

    What it measures:
        The class of the wrapper around the model.

    Why it matters:
        In each step the model is copied to every GPU, one interpreter queues the work of all of them, and the outputs
        and gradients are gathered on the first. PyTorch's own documentation advises against it, also on one machine.

    What to try:
        One process a GPU with DistributedDataParallel: ``torchrun --nproc-per-node=2 train.py``.

    When it is wrong:
        The setting alone says that it is slower, not by how much. With one visible GPU the wrapper does nothing.
    """

    code: ClassVar[str] = "COM006"
    name: ClassVar[str] = "data-parallel"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    def check(self, facts: TrialFacts) -> Answer:
        known = facts.result.facts
        if "matmul_precision" not in known and "data_parallel" not in known:
            raise NotMeasured("data_parallel", "nobody looked at the model's wrappers")
        wrapper = facts.word("data_parallel")
        if wrapper is None:
            raise NotApplicable("data_parallel", "the model is on one device")
        if wrapper != "DataParallel":
            return cleared(self, f"the model is wrapped in {wrapper}")
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary="The model is wrapped in torch.nn.DataParallel: one process drives all GPUs, and copies the model "
            "to each of them in every step.",
            scope=facts.label,
            evidence=(Evidence(metric="wrapper of the model", value=wrapper),),
            remedies=(Remedy("Use DistributedDataParallel, one process a GPU (torchrun --nproc-per-node=…)."),),
            confidence=confidence(Tier.CONFIGURATION, sure=True),
        )
