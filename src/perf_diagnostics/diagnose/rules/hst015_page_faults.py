"""HST015: each step takes the memory from the kernel anew that the step before gave back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.facts.memory_facts import fullness
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, percent_between

#: Won over what the loop's thread had spent in the kernel, when freed memory was kept: 1.02 to 1.07 in four pairs of
#: runs (convolutions, a transformer with a large vocabulary on one thread and on two), 1.75 to 1.87 in DistilBERT's
#: three, there 0.8 to 1.05 of what all threads had. Machines with more cores were not tried.
REALISED = 0.9

#: What a page takes in a training, over what it takes when one thread alone touches pages in a row: 0.9 to 1.3 were
#: seen in these trainings, 1.2 to 2 in DistilBERT's, whose threads wait for each other in the kernel.
CHEAPEST, DEAREST = 0.8, 2.0

#: What a page costs at most where no virtual machine makes it dear: the catalogue's pilot, 0.1 to 0.25 us. By this
#: price a training is told from the machine: healthy ones of a few MB took 6 to 26 % of their steps at 1.8 us a page.
NATIVE_PAGE_S = 0.25e-6

#: Findings about tensors that need not be made: without them nobody asks the kernel for their memory.
NEEDLESS = (
    *("CMP009", "CMP016", "CMP023", "CMP025", "CMP026", "CMP027", "CMP029", "CMP030", "CMP031", "CMP032", "CMP033"),
    *("CMP034", "CMP035", "CMP036", "CMP037", "CMP038", "CMP039", "CMP040", "CMP044", "CMP045", "CMP047", "CMP048"),
    *("CMP050", "CMP051", "CMP052", "CMP053", "CMP055"),
)

#: Of what the loop's own thread computes, so much stays: 0.96 to 1.0 in these trainings.
STAYS = 0.9


@dataclass(frozen=True)
class PageFaults:
    """Freed memory goes back to the kernel, and each step faults it in again, page by page.

    What it measures:
        On the CPU: how many pages the loop's thread got from the kernel in steady steps (minor page faults, which read
        nothing from disk), less those by which the process's memory grew, times what a page costs here (measured after
        the steps: touched, cleared and given back); no more than that thread spent in the kernel. At most all that the
        threads of the process spent there.

    Why it matters:
        glibc gives blocks of 32 MiB and more back as soon as they are freed, and the free end of its heap. The next
        tensor of that size then begins with thousands of faults, in each of which the kernel clears a page that the
        operator writes over at once: 1.6 to 2 us a page in the virtual machine where this was tried, 0.1 to 0.25
        where the catalogue's pilot was. Large activations, gradients and logits have this price in every step. What
        would take little at 0.25 us a page is an observation, whatever it takes here.

    What to try:
        Keep freed memory: ``MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647`` in the environment of the process
        (glibc), or an allocator that keeps it (jemalloc, tcmalloc, by ``LD_PRELOAD``). It changes no number, and takes
        up to twice the memory. Where that is not to be had, ``THP_MEM_ALLOC_ENABLE=1`` lets torch ask for pages of
        2 MiB.

    When it is wrong:
        Tensors that need not be made at all (written-out attention, constants) are the cause where they take most of
        the same time, and come first. What is given back to somebody else meanwhile (a cache that fills while another
        one is emptied) looks the same. Where batches differ in length, what was kept may not fit: DistilBERT on
        sentences of all lengths won nothing (-17 to 1 % in three pairs), and no gain is sure. Where operators of
        several threads wait for the one that has most to fetch, more is won than the loop's own thread lost.
    """

    code: ClassVar[str] = "HST015"
    name: ClassVar[str] = "page-faults"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.02, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.05, metadata=limit("… to warn from", "the catalogue: 5 % of the step"))
    critical_share: float = field(default=0.2, metadata=limit("… that is critical", "judgement"))
    room: float = field(
        default=0.5, metadata=limit("share of the memory in use up to which keeping it is tried", "seen: 1.7 times")
    )

    def check(self, facts: TrialFacts) -> Answer:
        if facts.on_accelerator:
            raise facts.missing("loop_page_faults_per_s", "a thread that feeds a device computes little by itself")
        a_step = _given_back_per_s(facts) * facts.step_time_s.value
        share = _share(facts)
        pages = Evidence(metric="pages from the kernel a step", value=a_step)
        numbers = (evidence("getting memory from the kernel", share, "%", limit=self.info_share), pages)
        levels = ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share))
        found = grade(share, (*levels, (Severity.CRITICAL, self.critical_share)))
        if found is None:
            says = f"getting memory from the kernel takes {percent(share.value)} of the step"
            return cleared(self, says, *numbers)
        elsewhere = a_step * NATIVE_PAGE_S / facts.step_time_s.value
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity if elsewhere >= self.warn_share else Severity.INFO,
            summary=f"Each step takes {a_step:,.0f} pages of memory from the kernel anew, given back in the step "
            f"before: {percent_between(share)} of its time.",
            scope=facts.label,
            evidence=(*numbers, Evidence(metric="the same at 0.25 µs a page", value=elsewhere * 100, unit="%")),
            remedies=self._remedies(facts),
            # What is kept does not fit the next batch, where it is of another length.
            recoverable=recoverable(share, self.family, realised=0.0 if facts.lengths_differ else REALISED),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=found.sure, thin=facts.thin),
            claims=processor.lost_by_phase(facts, share.value),
            symptom_of=NEEDLESS,
        )

    def _remedies(self, facts: TrialFacts) -> tuple[Remedy, ...]:
        kept = facts.result.trial.settings.keep_freed_memory
        used = fullness(facts)
        other = Remedy("An allocator that keeps what is freed: jemalloc or tcmalloc, by LD_PRELOAD.")
        if kept:
            return (other,)
        says = "Keep freed memory rather than give it back to the kernel; up to twice the memory, the same numbers"
        if used is None or used <= self.room:
            return (Remedy(f"{says}.", {"keep_freed_memory": True}), other)
        smaller = Remedy("THP_MEM_ALLOC_ENABLE=1 in the environment: pages of 2 MiB, where the kernel has them.")
        return (smaller, Remedy(f"{says}: {percent(used)} of the memory is in use now."))


def _given_back_per_s(facts: TrialFacts) -> float:
    """Pages from the kernel that had been given back: without those by which the memory has grown."""
    grown = ask(facts.quantity, "resident_growth_pages_per_s") or 0.0
    return max(0.0, facts.quantity("loop_page_faults_per_s") - grown)


def _share(facts: TrialFacts) -> Interval:
    """Share of the step that pages from the kernel take, with what may be won at most as its upper end."""
    in_kernel = facts.quantity("loop_system_share")
    page_s = ask(facts.quantity, "page_fault_s")
    if page_s is None:  # too few of them that anybody asked
        return Interval(0.0, 0.0, in_kernel, facts.steps)
    pages = _given_back_per_s(facts) * page_s
    low, value = (min(in_kernel, pages * part) for part in (CHEAPEST, DEAREST))
    # Other threads have the same faults, and an operator ends with the last of them.
    by_all = facts.quantity("process_system_share") * (2 - REALISED)
    most = min(by_all, value * facts.number("threads"))
    ran = ask(facts.quantity, "loop_cpu_share")
    if ran is not None:
        most = min(most, 1 - STAYS * max(0.0, ran - in_kernel))
    return Interval(value, low, max(most, value * (2 - REALISED)), facts.steps).within(0.0, 1.0)
