"""CMP041: on the CPU dropout draws a random number for each of its mask's, which takes longer than it has to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, operators_at
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer
from perf_diagnostics.diagnose.wording import and_more_lines, percent

#: What drawing from words takes of drawing number by number, where it was not tried: 0.25 to 0.57 was seen.
LEFT_UNTRIED = 0.5

#: More than a whole step: dropout is no fault.
_NEVER = 2.0

BITS = Remedy(
    "Draw the masks from whole random words, 16 bits for each number. Other random numbers, the same distribution but "
    "for a probability rounded to 1/65,536; compiled models draw in their own way.",
    {"masks_from_bits": True},
)
LESS = Remedy(
    "Leave dropout out where the model does not need it (with much data for its size, or beside other regularisation): "
    "p=0 draws nothing. This changes what is trained."
)


@dataclass(frozen=True)
class DropoutMasks:
    """Drawing dropout's masks takes a considerable part of the step on the CPU, and can take less.

    What it measures:
        In a step of a loop or trial, which is none of those that count: the time of ``bernoulli_`` on the CPU, which
        draws the masks of dropout and of attention with dropout. After the step as many numbers are drawn from whole
        random words, 16 bits each: what that takes less counts. In a trace of the CPU half of what drawing takes.

    Why it matters:
        torch draws a random number for each number of a mask, in one thread, at 8 to 15 ns: the forward of a T5 of
        width 96 took 63 ms with dropout and 24 without, at another time of that day 87 and 40 (torch 2.13, one thread).
        ``confirm`` measured 25 % (21 to 29) of such a model's step for drawing them from words.

    What to try:
        ``masks_from_bits`` puts the other way of drawing into the process (``perf_diagnostics.masks_from_bits()`` in
        a script of your own). Or no dropout, where it is not needed.

    When it is wrong:
        One step was looked at. Dropout is no fault, and so this is an observation only. A seed gives other numbers
        then. Compiled models draw in their own way, and are not looked at; nor are devices, where drawing is cheap.
    """

    code: ClassVar[str] = "CMP041"
    name: ClassVar[str] = "dropout-masks"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step that is saved, to mention", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        drawn = operators_at(facts, "drawn_masks")
        lines = [saved for one in drawn if (saved := _saved(one)).whole > 0]
        if not lines:
            return cleared(self, "no masks are drawn at random that could be drawn in less time")
        whole = sum(one.whole for one in drawn)
        told = Told(
            subject="drawing dropout's masks, beyond what it has to take,",
            metric="drawing masks, beyond what it has to take",
            what=_what(lines, left=1 - sum(one.whole for one in lines) / whole),
            evidence=(
                Evidence(metric="masks drawn a step", value=sum(one.calls for one in drawn)),
                Evidence(metric="numbers of masks a step", value=sum(one.number("numbers") or 0 for one in drawn)),
            ),
            remedies=(BITS, LESS),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, _NEVER))


def _saved(one: OperatorsAt) -> OperatorsAt:
    """The same masks with what drawing them from words saves of their time."""
    left = one.number("left")
    part = max(0.0, 1 - (LEFT_UNTRIED if left is None else left))
    return replace(one, forward=one.forward * part, backward=one.backward * part, whole=one.whole * part)


def _what(lines: Sequence[OperatorsAt], *, left: float) -> str:
    where = f"{at_line(lines[0].place, with_text=True)}{and_more_lines(len(lines))}"
    return (
        f"drawing dropout's masks number by number{where}, beyond what drawing as many from whole random words takes "
        f"({percent(left)} of it)"
    )
