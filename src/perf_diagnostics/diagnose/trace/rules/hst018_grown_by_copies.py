"""HST018: a loop joins what it has so far and what is new in each round, and so copies all of it each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.grown_cats import grown_cats
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import caused, claims_of
from perf_diagnostics.diagnose.wording import duration, percent

_COLLECT = Remedy(
    "Keep the pieces in a list, pieces.append(new) in each round, and join them once behind the loop: "
    "torch.cat(pieces, dim), or torch.stack(pieces, dim). Where the loop reads what it has so far (keys and values of "
    "attention): a tensor of the whole length, made once, of which each round fills its part, and reads up to there."
)

#: What is copied is new memory each time, and is kept for backward, which takes it apart again round by round: of a
#: decoder's frames, joined a hundred times, 11 % of the step were such joins, and 21 to 43 % went with them.
_BESIDE = 2.0


@dataclass(frozen=True)
class GrownByCopies:
    """A loop joins what it has so far and a new piece, in each round.

    What it measures:
        The time of ``torch.cat`` in forward, in traces of the CPU: of such that come round again at least sixteen times
        a step, and join what the round before has joined and one more, or, where sizes are not told, take longer from
        round to round (rank correlation 0.8, the last quarter three times the first).

    Why it matters:
        Each round copies all that was joined before. Of *n* pieces *n*/2 times their bytes are moved, in new memory,
        where joining them once moves them once.

    What to try:
        A list of the pieces, joined once behind the loop.

    When it is wrong:
        Where each round needs all that there is so far, as attention over what was said does, it has to be joined; a
        tensor of the whole length that is filled part by part needs no copies. Layers whose later ones get wider inputs
        (a DenseNet) are not told: they are fewer, or work on smaller maps later.
    """

    code: ClassVar[str] = "HST018"
    name: ClassVar[str] = "grown-by-copies"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trace"]] = "trace"

    info_share: float = field(default=0.03, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.08, metadata=limit("share of the step to warn from", "judgement"))

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        if facts.on_device:
            raise NotApplicable("operators", "joins on a device take their time in kernels, which are not told apart")
        grown = grown_cats(facts)
        if grown is None:
            return cleared(self, "nothing is joined in forward that takes longer from round to round")
        share = facts.share_of(grown.times)
        number = evidence("joining what grows", share, "%", limit=self.warn_share)
        level = grade(share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if level is None:
            return cleared(self, f"joining what grows takes {percent(share.value)} of a step", number)
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(share.value)} of each step joins what a loop has so far and a new piece, about "
            f"{grown.rounds:.0f} times: aten::cat takes {duration(grown.first_s)} in the first quarter of the rounds, "
            f"and {duration(grown.last_s)} in the last{in_functions(facts, grown.times)}.",
            numbers=(number, Evidence(metric="rounds of the loop", value=grown.rounds)),
            remedies=(_COLLECT,),
            gain=share.reaching(_BESIDE * share.value),
            claims=claims_of(facts, grown.times),
        )
