"""MEM010: the room through which loader workers hand over their batches is nearly used up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import counted, percent, significant

#: From this part on it is most of what is in use.
_MOST = 0.5


@dataclass(frozen=True)
class SharedMemoryFull:
    """Shared memory, through which loader workers hand over their batches, is nearly full.

    What it measures:
        The size of /dev/shm, what was free in it before the training, and the least that was free between blocks of
        steps, when workers have filled their queues.

    Why it matters:
        Workers lay the tensors of their batches there. One that finds no room fails ("unable to allocate shared memory
        (shm) … No space left on device", or "killed by signal: Bus error"), and the training with it, perhaps after
        hours, at its longest batch.

    What to try:
        A larger /dev/shm: of Docker --shm-size or --ipc=host, of Kubernetes a memory-backed emptyDir mounted there.
        Fewer batches that wait in it: a smaller prefetch_factor, fewer workers, smaller batches. Files that ended
        programs left there.

    When it is wrong:
        It is a risk and no loss of time: a training whose batches are all alike may stay below the limit for ever. A
        full queue that emptied before the steps of a block ended was not seen. A large batch with workers may still
        outgrow what is free where this rule is clear.
    """

    code: ClassVar[str] = "MEM010"
    name: ClassVar[str] = "shared-memory-full"
    family: ClassVar[Family] = Family.MEMORY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    full_share: float = field(
        default=0.80, metadata=limit("part of /dev/shm in use to warn from", "the catalogue: 80 %")
    )

    def check(self, facts: TrialFacts) -> Answer:
        workers = facts.number("num_workers")
        if not workers:
            raise NotApplicable("num_workers", "without workers nothing is handed over through shared memory")
        total = facts.quantity("shared_memory_total")
        least, before = facts.quantity("shared_memory_free_least"), facts.quantity("shared_memory_free_before")
        if not total > 0:
            raise NotMeasured("shared_memory_total", "its file system states no size")
        used, used_before = 1 - least / total, 1 - before / total
        numbers = (
            Evidence(metric="shared memory in use", value=used * 100, unit="%", limit=self.full_share * 100),
            Evidence(metric="shared memory in use before the training", value=used_before * 100, unit="%"),
            Evidence(metric="size of shared memory", value=total / 1e6, unit="MB"),
        )
        says = f"{percent(used)} of the {significant(total / 1e6)} MB of /dev/shm"
        if used < self.full_share:
            return cleared(self, f"{says} in use at most", *numbers)
        ours = used - used_before >= _MOST * used
        layers = counted(int(workers), "loader worker lays its", "loader workers lay their")
        whose = "" if ours else f"; {percent(used_before)} were in use before the training"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"{says} were in use, where {layers} batches{whose}: a worker that finds no room fails, and the "
            "training with it.",
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts, int(workers), ours=ours),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, thin=facts.thin),
        )


def _remedies(facts: TrialFacts, workers: int, *, ours: bool) -> tuple[Remedy, ...]:
    """A larger /dev/shm; else fewer batches in it, where it is the training's own that fill it."""
    larger = Remedy(
        "Enlarge /dev/shm: docker run --shm-size=… (or --ipc=host), in Kubernetes a memory-backed emptyDir mounted "
        "there, on a machine of your own mount -o remount,size=… /dev/shm."
    )
    if not ours:
        return (Remedy("Look for what others have in /dev/shm, and files that ended programs left there."), larger)
    ahead = ask(facts.number, "prefetch_factor")
    if ahead is not None and ahead >= 2:
        waiting = counted(workers * int(ahead), "batch", "batches")
        return (larger, Remedy(f"Let fewer than {waiting} wait there.", {"prefetch_factor": int(ahead) // 2}))
    if workers > 1:
        return (larger, Remedy("Half as many loader workers.", {"num_workers": workers // 2}))
    return (larger,)
