"""XFR003: many small copies go to the device one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, grade, limit
from perf_diagnostics.diagnose.rule_parts.crossings import WAITS, Crossings, crossing_lines, crossing_source
from perf_diagnostics.diagnose.wording import percent_between, times

REMEDIES = (
    Remedy("Make the tensors on the device: torch.zeros(…, device=device) instead of torch.zeros(…).to(device)."),
    Remedy("Copy them together: stack them on the host, copy once, and take views of the copy."),
)


@dataclass(frozen=True)
class ManySmallCopies:
    """Many small tensors are copied to the device one by one.

    What it measures:
        How many copies of less than 64 KiB a step makes from host to device, and what they cost: a copy that is not
        ``non_blocking`` waits until the device has done all that was queued, and from there to the next operator that
        computes, further small copies included, the device has nothing to do. A few steps that do not count are
        looked at operator by operator; in a profiler window, it is the time inside their calls and in the gaps after
        them in which the device computes nothing.

    Why it matters:
        A small copy takes as long as its call, and its wait empties the queue: a hundred numbers of 4 bytes cost more
        than one of 400.

    What to try:
        Make tensors on the device; send numbers together in one tensor; keep what does not change there.

    When it is wrong:
        Looking slows the host, so that work which would have been queued meanwhile comes later; a few µs at each copy
        are the look's own. Copies that nobody waits for are counted, and cost what any launch costs (HST001).
    """

    code: ClassVar[str] = "XFR003"
    name: ClassVar[str] = "many-small-copies"
    family: ClassVar[Family] = Family.TRANSFER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    most_copies: int = field(default=20, metadata=limit("small copies a step that are no matter", "the catalogue's 20"))
    info_share: float = field(
        default=0.02, metadata=limit("what they cost over the step, to mention", "the catalogue's 2 %")
    )
    warn_share: float = field(default=0.05, metadata=limit("… to warn from", "judgement; as XFR001"))

    def check(self, facts: TrialFacts) -> Answer:
        seen = Crossings.of(
            facts,
            ("small_copies_per_step", "copies under 64 KiB a step"),
            ("small_copies_cost", "cost of small copies"),
            limit=self.info_share,
            most=self.most_copies,
        )
        median = _median(facts, crossing_source(facts, "small_copies_per_step"))
        found = grade(seen.share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if seen.count <= self.most_copies or found is None:
            says = f"{times(seen.count, 'small copy', 'small copies')} a step {'costs' if seen.count == 1 else 'cost'}"
            says = f"{says} {percent_between(seen.share)} of it"
            return cleared(self, says, *seen.numbers, *median)
        return seen.finding(
            self,
            facts,
            found,
            summary=f"{seen.count:g} copies of less than 64 KiB go to the device in each step, one by one, "
            f"which costs {percent_between(seen.share)} of it.{crossing_lines(facts, 'small copy')}",
            remedies=REMEDIES,
            claims={WAITS: seen.share.value},
            more=median,
        )


def _median(facts: TrialFacts, source: str) -> tuple[Evidence, ...]:
    median = facts.result.value("copies_in_median_bytes")
    return () if median is None else (Evidence(metric="median copy", value=median, unit="bytes", source=source),)
