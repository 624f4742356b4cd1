"""COM004: ranks get batches of uneven size, and whichever has the largest makes the others wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.diagnose.ranks.rank_loads import evened_out, load_spread, most_loaded_is_last
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class RankImbalance:
    """In every step some rank is late, and it is not always the same one.

    What it measures:
        What the ranks wait on average for the one that arrives last at the exchange (COM002 says by what), over the
        wall time of a step, where no single rank is last in most steps, nor the one that nearly all waits are for; how
        uneven their tokens (or samples) are; and, where at least ten steps show it, in how many of them it is the rank
        with the most that the others wait for. Unless that is surely more than by chance, the lengths are not why.
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
        Noise of shared machines also makes ranks late in turn; then the loads are even, or whoever has the most is not
        the one who is late, and it is only mentioned.
    """

    code: ClassVar[str] = "COM004"
    name: ClassVar[str] = "rank-imbalance"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.10, metadata=limit("mean wait for the last rank, of the step", "as for a straggler: 10 %")
    )
    same_rank_share: float = field(
        default=0.60, metadata=limit("share of steps, or of all waits, from which one rank is a straggler", "COM002")
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
        mostly_one = ranks.waited_for.part(ranks.waited_for.most).surely_at_least(self.same_rank_share)
        if graded is None or often >= self.same_rank_share or mostly_one:
            same = ", mostly for the same one (COM002)" if graded is not None else ""
            return cleared(self, f"the ranks wait {percent(waited.value)} of a step for each other{same}", *numbers)
        fits = ask(most_loaded_is_last, ranks, noun)
        if fits is not None:
            numbers.append(evidence(f"steps in which the rank with the most {noun} is the one waited for", fits, "%"))
        differ = spread is not None and spread >= self.uneven
        explained = differ and (fits is None or fits.surely_at_least(1 / ranks.count))
        why = _why(noun, spread if differ else None, fits)
        by_phase = ranks.lost_in_turn()
        numbers += [
            Evidence(metric=f"time lost to late ranks in {str(phase).replace('_', ' ')}", value=100 * share, unit="%")
            for phase, share in by_phase.items()
            if share > 0  # elsewhere the late rank has caught up
        ]
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity if explained else Severity.INFO,
            summary=f"The {ranks.count} ranks wait {percent(waited.value)} of each step for whichever is last, and it "
            f"is not always the same; {why}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(explained, by_phase),
            recoverable=recoverable(_with_backward(ranks, noun), self.family) if explained else None,
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if explained else Tier.SHARE,
                sure=graded.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.BACKWARD): waited.value},
            symptom_of=("COM013", "COM014"),
        )

    @staticmethod
    def _load(ranks: RankFacts) -> tuple[str, float | None]:
        """What was counted, and how uneven it is; None where nothing was."""
        for noun in ("tokens", "samples"):
            spread = ask(load_spread, ranks, noun)
            if spread is not None:
                return noun, spread
        return "load", None


def _remedies(explained: bool, by_phase: Mapping[Phase, float]) -> tuple[Remedy, ...]:
    """What evens the ranks out: their lengths or, where these are not why and data are waited for, their loaders."""
    if explained:
        says = "Group samples of similar length across the ranks, or give batches a fixed number of tokens."
    elif by_phase and max(by_phase, key=lambda each: by_phase[each]) is Phase.DATA_WAIT:
        says = "Let the ranks' loaders run ahead: more workers or a larger prefetch_factor even slow batches out."
    else:
        return ()
    return (Remedy(says),)


def _why(noun: str, spread: float | None, fits: Interval | None) -> str:
    """What the loads say; ``spread`` is None where they are even."""
    if spread is None:
        return "the loads are even"
    differ = f"their {noun} differ by {percent(spread)}"
    if fits is None:
        return differ
    return f"{differ}, and in {percent(fits.value)} of the steps with a wait it is for the rank with the most"


def _with_backward(ranks: RankFacts, noun: str) -> Interval:
    """The wait that was seen, with an upper end that holds the wait inside of backward."""
    most = ask(evened_out, ranks, noun)
    return ranks.waited if most is None else ranks.waited.reaching(most.value if most.high is None else most.high)
