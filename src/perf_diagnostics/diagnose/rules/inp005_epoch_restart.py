"""INP005: each pass over the data begins with a long wait, because the loader starts anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.loaders.loading_cost import (
    each_step_begins,
    epoch_begins,
    exposed_wait_ns,
    made_anew,
    restarts,
    starting_steps,
)
from perf_diagnostics.diagnose.loaders.waits_by_looks import loader_looks
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.excess import with_aftermath
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.worker_advice import LONGER, ONE_ITERATOR, begins_cheaper, keep_workers
from perf_diagnostics.diagnose.statistics.time_series import cycle_ratio
from perf_diagnostics.diagnose.wording import counted, duration, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class EpochRestart:
    """Each pass over the data begins with a long wait.

    What it measures:
        The wait for the first batch of each pass beyond the median wait of all other steps, over all time; from the
        first pass that begins within the steady steps to the last. Where workers are started anew, also that for the
        batches after it, as many as their queue holds, in whose place surely most passes wait longer. What could be won
        at most is all that these steps and the next ones take beyond those around them: after a fork the loop copies
        each page of memory that it writes. Where
        nearly each step begins a pass that has more batches than it takes (``next(iter(loader))``), there is no other
        wait to compare with: then it is the part of the wait in which the loop was seen to make the iterator or to ask
        the sampler, without workers.

    Why it matters:
        A loader whose workers are not kept starts new processes for each pass, which import, open files and fill their
        queues while the training waits. In a planted fault a step took 17.0 ms on average, and 11.0 with workers that
        stay.

    What to try:
        ``persistent_workers=True``, and one loader for all passes: the workers of a loader that is built for each
        pass are new in any case. Without workers or with ones that stay: longer passes, or a sampler that goes on for
        several of them; nothing expensive in ``__iter__`` or in the sampler. Where each step makes an iterator: one
        iterator for all of them.

    When it is wrong:
        A trial over few samples has more passes than the training will have. What runs between passes (validation,
        saving) counts as wait only if it happens inside the iterator.
    """

    code: ClassVar[str] = "INP005"
    name: ClassVar[str] = "epoch-restart"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.05, metadata=limit("extra wait of first batches over all time to warn from", "pilot: 26 to 28 %")
    )
    least_passes: int = field(default=2, metadata=limit("passes that must begin in the steady steps", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        begins = epoch_begins(facts)
        if begins.size < self.least_passes:
            raise NotMeasured(
                "epoch", f"{counted(begins.size, 'pass', 'passes')} over the data began within the steady steps"
            )
        if each_step_begins(facts):
            return self._of_each_step(facts)
        if int(begins.size) >= facts.steps - 1:
            raise NotMeasured("epoch", "each step is a pass over the data, so there is no other wait to compare with")
        waits, first = exposed_wait_ns(facts), starting_steps(facts)
        lost = np.where(first, np.maximum(0.0, waits - float(np.median(waits[~first]))), 0.0)
        share = cycle_ratio(lost, facts.table.wall_ns, begins).within(0.0, 1.0)
        each_ns = float(np.add.reduceat(lost, begins).mean())
        numbers = (
            evidence("extra wait for first batches", share, "%", limit=self.warn_share),
            Evidence(metric="extra wait at a pass's begin", value=each_ns / 1e6, unit="ms"),
            Evidence(metric="passes that began", value=int(begins.size)),
        )
        found = grade(share, ((Severity.WARNING, self.warn_share),))
        if found is None:
            return cleared(self, f"first batches of a pass take {percent_between(share)} of all time", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"Each pass over the data begins with {duration(each_ns / 1e9)} of waiting, "
            f"{percent_between(share)} of all time{_why(facts)}.",
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts),
            # What the first step does not write to, and so does not copy, the second one does.
            recoverable=recoverable(with_aftermath(facts, first | np.roll(first, 1), share, begins), self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if restarts(facts) else Tier.SHARE,
                sure=found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.DATA_WAIT): share.value},
        )

    def _of_each_step(self, facts: TrialFacts) -> Answer:
        """Of an iterator that each step makes: what making it takes of the wait, and what of it workers would redo."""
        batches, wait = int(facts.number("batches_a_pass")), facts.exposed_data_wait_share
        seen = loader_looks(facts)
        anew = restarts(facts)
        if seen is None and not anew:
            raise NotMeasured(
                "code", "each step begins a pass over the data, and what its wait goes to was not seen often enough"
            )
        # Workers are forked, and what they fetched ahead is dropped, in each step: all of the wait is the begin's.
        part = Interval(1.0, None, None, facts.steps) if seen is None else seen.begins
        low = wait.value if wait.low is None else wait.low
        high = wait.value if wait.high is None else wait.high
        share = Interval(
            wait.value * part.value,
            low * (part.value if part.low is None else part.low),
            high * (part.value if part.high is None else part.high),
            facts.steps,
        )
        numbers = (
            evidence("beginning passes over the data", share, "%", limit=self.warn_share),
            Evidence(metric="batches that a pass would have", value=batches),
            Evidence(metric="passes that began", value=int(epoch_begins(facts).size)),
        )
        found = grade(share, ((Severity.WARNING, self.warn_share),))
        if found is None:
            return cleared(
                self, f"each step begins a pass over the data, which takes {percent_between(share)} of it", *numbers
            )
        how = "with workers that are started for it" if anew else "with its iterator and the order of its sampler"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"Each step begins a pass over the data anew, {how}, and drops the rest of its {batches} batches: "
            f"beginning takes {percent_between(share)} of all time.",
            scope=facts.label,
            evidence=numbers,
            remedies=(ONE_ITERATOR,),
            # Without the begins a batch finds its caches warm, and what they leave behind is not freed: where it was
            # tried, more was won than the part of the wait that begins, about as much as all of it (37 % of 31 to 37).
            recoverable=recoverable(share.reaching(high), self.family),
            confidence=confidence(
                Tier.SHARE if seen is None else Tier.SHARE_AND_CAUSE,
                sure=found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            # Each wait is the first one of a pass: whoever speaks of waits speaks of these.
            claims={str(Phase.DATA_WAIT): wait.value},
        )


def _why(facts: TrialFacts) -> str:
    if not restarts(facts):
        return ""
    says = ": the loader's workers are started anew"
    return f"{says}, for each pass has a DataLoader of its own" if made_anew(facts) else says


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    if restarts(facts):
        return (keep_workers(facts), LONGER)
    return begins_cheaper(facts)
