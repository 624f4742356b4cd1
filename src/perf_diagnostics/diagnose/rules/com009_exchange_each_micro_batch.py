"""COM009: batches are accumulated, and gradients exchanged after each of them instead of once a step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.exchange_facts import ExchangeFacts, require_ddp
from perf_diagnostics.diagnose.ranks.rank_facts import require_several
from perf_diagnostics.diagnose.rule import Answer, Grade, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import counted, percent
from perf_diagnostics.records import Phase

#: A step makes a whole number of exchanges but for those that end early; so much less or more is that number.
_SLACK = 0.1

NO_SYNC = Remedy("Put all but the last batch of a step, forward and backward, under model.no_sync().")


@dataclass(frozen=True)
class ExchangeEachMicroBatch:
    """Gradients are exchanged more often than the optimizer steps.

    What it measures:
        How many exchanges DistributedDataParallel counts in an optimizer step, against how many batches are
        accumulated in it; and, where exchanges were timed, what all but one of them cost. Of few timed ones the mean
        has to be twice the limit. Where the count leaves several numbers of exchanges open, the least one counts.

    Why it matters:
        Each backward pass outside of ``no_sync()`` sends all gradients. Of *k* accumulated batches the first *k* - 1
        exchanges are for nothing: the sum that is sent last is the same.

    What to try:
        ``with model.no_sync():`` around forward *and* backward of all but the last batch of a step, or set
        ``model.require_backward_grad_sync``. Accelerate's ``accumulate()``, transformers' Trainer and Lightning do so.

    When it is wrong:
        Gradients are then kept unreduced between the batches, which costs no memory with DistributedDataParallel, but
        does where parameters are sharded (FSDP).
    """

    code: ClassVar[str] = "COM009"
    name: ClassVar[str] = "exchange-each-micro-batch"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    once: float = field(
        default=1.5, metadata=limit("exchanges a step up to which there is one", "judgement: halfway from 1 to 2")
    )
    warn_share: float = field(
        default=0.05, metadata=limit("needless exchanges, exposed, over the step to warn from", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        require_several(facts.result)
        require_ddp(facts.result)
        batches = _batches(facts, self.once)
        if batches <= 1:
            raise NotApplicable("accumulation_steps", "one batch a step: there is nothing to accumulate")
        least, most = facts.number("exchanges_per_step_least"), facts.number("exchanges_per_step_most")
        number = Evidence(metric="exchanges a step", value=least, limit=self.once, source="DDP's count")
        if most < self.once:
            return cleared(self, f"{counted(int(batches), 'batch', 'batches')} are accumulated, exchanged once", number)
        if least < self.once:
            raise NotMeasured("exchanges_per_step", f"DDP's count allows for {least:.2g} to {most:.2g} a step")
        exchange = ask(lambda: ExchangeFacts.of(facts.result))
        needless = None if exchange is None else exchange.exposed.scaled(1 - 1 / exchange.per_step)
        level = None if needless is None else self._grade(needless)
        cost = "" if needless is None else f", {percent(needless.value)} of a step"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if level is None else level.severity,
            summary=f"Each step accumulates {batches:.0f} batches and exchanges gradients {_times(least, most)}; "
            f"all but the last exchange are for nothing{cost}.",
            scope=facts.label,
            evidence=(
                number,
                Evidence(metric="batches accumulated", value=batches),
                *(() if needless is None else (evidence("needless exchanges", needless, "%", limit=self.warn_share),)),
            ),
            remedies=(NO_SYNC,),
            recoverable=None if needless is None else recoverable(needless, self.family),
            confidence=confidence(
                Tier.CONFIGURATION if level is None else Tier.SHARE_AND_CAUSE,
                sure=level is None or level.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={} if needless is None else {str(Phase.BACKWARD): needless.value},
        )

    def _grade(self, needless: Interval) -> Grade | None:
        """How bad it is; the exchanges themselves are counted, so that only what they cost is uncertain.

        Too few of them are timed in a short training for an interval: then the estimate has to be twice the limit.
        """
        if needless.low is None and needless.value >= 2 * self.warn_share:
            return Grade(Severity.WARNING, self.warn_share, sure=False)
        return grade(needless, ((Severity.WARNING, self.warn_share),))


def _times(least: float, most: float) -> str:
    """How often a step exchanges, as far as DDP's count says: it is written down at each hundredth exchange only."""
    few, many = math.ceil(least - _SLACK), math.floor(most + _SLACK)
    return f"{least:.0f} times" if few >= many else f"at least {few} times"


def _batches(facts: TrialFacts, once: float) -> float:
    """Batches in a step: those of the last one or, as that may have been cut short, what the samples tell of.

    Samples are asked only where there are several exchanges a step: batches of uneven size would look like several.
    """
    last = ask(facts.number, "accumulation_steps") or 1.0
    samples, exchanges = ask(facts.column, "samples"), ask(facts.number, "exchanges_per_step_least") or 0.0
    if last > 1 or samples is None or exchanges < once:
        return last
    return float(round(float(np.median(samples)) / facts.batch_size))
