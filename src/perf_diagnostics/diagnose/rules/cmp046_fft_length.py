"""CMP046: Fourier transforms have lengths with large prime factors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import operators_at
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer
from perf_diagnostics.diagnose.wording import and_more_lines

#: Of the trace rule, too.
PAD = Remedy(
    "Pad to a length of small prime factors, and cut the result as before: n = scipy.fft.next_fast_len(n, real=True), "
    "then torch.fft.rfft(x, n=n). A convolution comes out the same, as long as n is at least both lengths less one; a "
    "spectrum has other frequencies."
)


@dataclass(frozen=True)
class FftLength:
    """Fourier transforms have lengths with large prime factors.

    What it measures:
        In a step of a loop or trial, which is none of those that count: the transforms of forward and the loss along
        one dimension whose length has a prime factor above 13, and what each takes beyond the same of the next even
        length of the factors 2, 3, 5 and 7, which is tried. Backward's transforms, which have the same lengths, count
        by the same part. On the CPU.

    Why it matters:
        A fast transform divides its length into its prime factors. A convolution over 1,440 positions by transforms of
        2,879 numbers, a prime, took 132 ms a step, and 58 with 2,880 (torch 2.13, two cores).

    What to try:
        Pad to the next fast length, and cut the result.

    When it is wrong:
        Where the length is the signal's own, as of a spectrum, another length is another spectrum. One step was looked
        at; transforms along several dimensions at once, and compiled models, are not. GPUs have libraries of their own,
        for which nothing is said.
    """

    code: ClassVar[str] = "CMP046"
    name: ClassVar[str] = "fft-length"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "fft_lengths")
        if not lines:
            return cleared(self, "no Fourier transform has a length that makes it slow")
        first = lines[0]
        length, instead = (first.number(name) or 0.0 for name in ("length", "instead"))
        told = Told(
            subject="what transforms take for their length",
            metric="slow lengths of Fourier transforms",
            what=f"Fourier transforms of {length:,.0f} numbers{at_line(first.place, with_text=True)}, beyond what "
            f"those of {instead:,.0f} take{and_more_lines(len(lines))}",
            evidence=(
                Evidence(metric="length of the transforms", value=length),
                Evidence(metric="length that was tried", value=instead),
            ),
            remedies=(PAD,),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))
