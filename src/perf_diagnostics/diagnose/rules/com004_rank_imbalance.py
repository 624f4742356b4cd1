"""COM004: ranks get batches of uneven size, and whichever has the largest makes the others wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rank_facts import RankFacts
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class RankImbalance:
    """In every step some rank is late, and it is not always the same one.

    What it measures:
        What the ranks wait on average for the one that arrives last at the exchange (COM002 says by what), over the
        wall time of a step, where no single rank is last in most steps; and how uneven their tokens (or samples) are.
        In traces of all ranks: how much of that wait is the late rank's device computing longer than the others'. What
        could be won at most is what the rank with the most to do computes beyond the mean: in backward it is waited for
        as well, unseen.

    Why it matters:
        Random batches of texts differ in length. With many ranks the longest of them sets the pace of every step, and
        the more ranks there are the longer it is.

    What to try:
        Sort samples of similar length together *across* ranks (a length-grouped distributed sampler), or give batches
        a fixed number of tokens instead of samples.

    When it is wrong:
        Noise of shared machines also makes ranks late in turn; then the loads are even, and the confidence is low.
    """

    code: ClassVar[str] = "COM004"
    name: ClassVar[str] = "rank-imbalance"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.10, metadata=limit("mean wait for the last rank, of the step", "as for a straggler: 10 %")
    )
    same_rank_share: float = field(
        default=0.60, metadata=limit("share of steps from which one rank is a straggler instead", "COM002")
    )
    uneven: float = field(
        default=0.10, metadata=limit("(largest - mean) / mean of the ranks' tokens or samples", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        ranks = RankFacts.of(facts.result)
        often = max(ranks.often_last(rank) for rank in range(ranks.count))
        waited = ranks.waited
        noun, spread = self._load(ranks)
        numbers = [
            evidence("mean wait for the last rank", waited, "%", limit=self.warn_share),
            Evidence(metric="steps in which the same rank is last", value=often * 100, unit="%", n=ranks.steps),
        ]
        if spread is not None:
            numbers.append(
                Evidence(metric=f"largest over mean {noun}", value=100 * spread, unit="%", limit=100 * self.uneven)
            )
        graded = grade(waited, [(Severity.WARNING, self.warn_share)])
        if graded is None or often >= self.same_rank_share:
            same = ", mostly for the same one (COM002)" if graded is not None else ""
            return cleared(self, f"the ranks wait {percent(waited.value)} of a step for each other{same}", *numbers)
        explained = spread is not None and spread >= self.uneven
        why = f"their {noun} differ by {percent(spread)}" if explained and spread is not None else "the loads are even"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity if explained else Severity.INFO,
            summary=f"The {ranks.count} ranks wait {percent(waited.value)} of each step for whichever is last, and it "
            f"is not always the same; {why}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                Remedy("Group samples of similar length across the ranks, or give batches a fixed number of tokens."),
            )
            if explained
            else (),
            recoverable=recoverable(_with_backward(ranks, noun), self.family) if explained else None,
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if explained else Tier.SHARE,
                sure=graded.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.BACKWARD): waited.value},
        )

    @staticmethod
    def _load(ranks: RankFacts) -> tuple[str, float | None]:
        """What was counted, and how uneven it is; None where nothing was."""
        for noun in ("tokens", "samples"):
            spread = ask(ranks.load_spread, noun)
            if spread is not None:
                return noun, spread
        return "load", None


def _with_backward(ranks: RankFacts, noun: str) -> Interval:
    """The wait that was seen, with an upper end that holds the wait inside of backward."""
    most = ask(ranks.evened_out, noun)
    return ranks.waited if most is None else ranks.waited.reaching(most.value if most.high is None else most.high)
