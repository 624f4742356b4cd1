"""CMP035: a model is called for one more position at a time, and computes all earlier positions again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.diagnose.facts.prefix_facts import PrefixCalls, phase_of, prefixes_again
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.one_step import in_one_step, with_what_goes_beside
from perf_diagnostics.diagnose.wording import and_more_lines, counted, percent_between

#: One step was looked at: of another one a share may be so many times as small.
_SCATTER = 1.5

#: Of what was predicted of recurrent layers so much is surely won: five forecasts (RNN, GRU, LSTM; histories of 2 to 48
#: positions, 8 to 24 more) won 1.06 to 2.2 times as much by their CPU time (torch 2.13, one core of a busy machine).
_REALISED = 0.8

_CACHE = Remedy(
    "Keep the keys and values of each attention layer (of a recurrent model its state), and call the model with the "
    "new positions alone: torch.cat((kept, new), dim=-2) before attention, and positions that begin where the last "
    "call ended. In transformers generate(use_cache=True), which config.use_cache and gradient checkpointing turn off."
)
_STATE = Remedy(
    "Keep the state: out, state = rnn(new_steps, state), where new_steps are the positions that have come since the "
    "last call (at first all of the history, with state = None). Results and gradients stay the same."
)
_SHORTER = Remedy(
    "If the loop needs only the scores of a sequence that is known, one call on all of it gives them for each position."
)


@dataclass(frozen=True)
class PrefixComputedAgain:
    """A model is called for one more position at a time, and computes all earlier positions again.

    What it measures:
        In a step of a loop or trial, which is none of those that count: the calls of its models without gradients, and
        of these which are given all that the same model was given by the call before, along one dimension with more
        after it, and otherwise the same. Whether the earlier positions come out the same again is seen by the operators
        of two such calls: of results that grow with the sequence the first position must not change; where dropout
        draws at random, attention must be masked. The time of the other calls is taken as it is, on the CPU. A cache
        leaves each call its new positions, and some microseconds for each operator. The ends of the gain are that a
        call with a cache takes as long as the shortest one, and that nothing is left but the new positions' part.

        Likewise, with gradients, the recurrent layers (``nn.RNN``, ``nn.GRU``, ``nn.LSTM``, one way) of what is
        trained: calls whose sequence begins with all of the call before, the weights and the state that it begins with
        being the same. Here it is the time of their operators, in forward and in backward, as a share of the step; what
        a call takes however few positions it has stays. At the lower end as many operators stay as a call with the new
        positions alone has, each as long as one of the whole sequence; of a layer in one kernel the time of ten
        positions more, and 40 µs for each operator.

    Why it matters:
        n positions one after the other are n² / 2 positions to compute. A transformer of 4 layers and 256 features that
        went on from 16 to 64 tokens took 2.8 s for 16 rows, and 0.3 s with a cache (torch 2.13, one core).

    What to try:
        A cache of keys and values (transformers: ``use_cache=True``), or the state of a recurrent model.

    When it is wrong:
        A cache takes memory, two numbers a feature, layer and position of each row. Where rollouts do not come in each
        step, the share is that of the one looked at. A model that changes during the rollout needs its earlier
        positions again. With dropout each call draws anew, which a cache does not. A buffer of fixed length that is
        filled position by position, a window that slides, and calls with gradients of anything but a recurrent layer
        are not told, nor are packed sequences and recurrent layers of the user's own. On a device calls are not
        compared.
    """

    code: ClassVar[str] = "CMP035"
    name: ClassVar[str] = "prefix-computed-again"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("share of the step that a cache would save to mention", "judgement")
    )
    warn_share: float = field(
        default=0.10, metadata=limit("share of the step that a cache would save to warn from", "as HST006; a judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        found = prefixes_again(facts)
        if not found:
            return cleared(self, "no model is called again and again with what it was given before and a little more")
        value, least, most = (sum(ends) for ends in zip(*map(_ends, found), strict=True))
        share = Interval(value, value / _SCATTER, min(1.0, max(value, most)), 1)
        saved = Interval(value, least, share.high, 1)
        if any(one.recurrent for one in found):  # it is known by its operators
            saved = with_what_goes_beside(facts, saved)
        number = in_one_step("computing earlier positions again", share, limit=self.info_share)
        graded = grade(share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if graded is None:
            return cleared(self, "a model computes earlier positions again, which takes little of the step", number)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=_summary(found, share),
            scope=facts.label,
            evidence=(
                number,
                Evidence(metric="share of positions computed again", value=_again(found[0]) * 100, unit="%"),
            ),
            remedies=_remedies(found),
            recoverable=recoverable(
                saved, self.family, realised=_REALISED if all(one.recurrent for one in found) else None
            ),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims=_claims(facts, found),
        )


def _remedies(found: Sequence[PrefixCalls]) -> tuple[Remedy, ...]:
    kinds = dict.fromkeys(bool(one.recurrent) for one in found)
    return (*(_STATE if recurrent else _CACHE for recurrent in kinds), _SHORTER)


def _claims(facts: TrialFacts, found: Sequence[PrefixCalls]) -> dict[str, float]:
    """What is saved, by phase."""
    claims: dict[str, float] = {}
    without = sum(one.saved.value for one in found if not one.recurrent)
    for phases in ({str(phase_of(facts, without)): without} if without else {}, *(one.phases for one in found)):
        for phase, share in phases.items():
            claims[phase] = claims.get(phase, 0.0) + share
    return claims


def _ends(one: PrefixCalls) -> tuple[float, float, float]:
    value, low, high = one.saved.value, one.saved.low, one.saved.high
    return value, value if low is None else low, value if high is None else high


def _again(one: PrefixCalls) -> float:
    return one.again / one.positions if one.positions else 0.0


def _summary(found: Sequence[PrefixCalls], share: Interval) -> str:
    first = found[0]
    return (
        f"{percent_between(share)} of each step computes earlier positions of a sequence again: "
        f"{_who(first)}, so that of {first.positions:,} positions {first.again:,} had been computed "
        f"(up to {first.longest:,} in {counted(first.rows, 'row')}){and_more_lines(len(found))}."
    )


def _who(one: PrefixCalls) -> str:
    at = at_line(one.place, with_text=True)
    if one.recurrent:
        calls = f"{counted(one.calls, 'call')} of the {one.recurrent}{at}"
        return f"{calls} begin with all that the call before was given, whose state is dropped"
    return f"{counted(one.calls, 'call')} without gradients{at} begin with all that the call before was given"
