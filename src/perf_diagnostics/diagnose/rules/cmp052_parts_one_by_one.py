"""CMP052: parts of a tensor are taken one by one, and each has a gradient as large as the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, operators_at
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer, unless_untried
from perf_diagnostics.diagnose.wording import and_more_lines

_UNBIND = Remedy(
    "Take all of them at once before the loop: parts = x.unbind(1), and parts[t] in place of x[:, t] (for part in "
    "x.unbind(1)). The numbers are the same; the gradient is put together once."
)
_SPLIT = Remedy(
    "Take all of them at once before the loop: parts = x.split(size, dim) (or x.chunk), and parts[i] in place of "
    "x[:, i * size : (i + 1) * size]. The numbers are the same; the gradient is put together once."
)
_PADDED = Remedy(
    "Torch's recurrent layers do that with packed sequences on the CPU, where the padded batch took half as long. If "
    "the layer goes forward only, give it that, and leave padding out of the loss: the outputs of real steps are the "
    "same, and the last state is the output at each sequence's own end. (One that goes both ways would begin with it.)"
)


@dataclass(frozen=True)
class PartsOneByOne:
    """Parts of a tensor are taken one by one in a loop, and each of them has a gradient as large as the whole.

    What it measures:
        In a step of a loop or trial, which is none of those that count: tensors with a gradient of which four parts or
        more are taken by indexing along one dimension (``x[:, t]``, slices that do not overlap). Once the step is
        over, taking these and taking all at once (``unbind``, ``split``) is tried in turn on a tensor that lies alike,
        with the backward. What that saves, by that, of what backward took for the parts in the step, and for adding
        them up, is told. On the CPU.

    Why it matters:
        Backward makes for each part a tensor of zeros as large as the whole, writes the part's gradient into it, and
        adds all of these up: n parts cost n times the whole. A recurrent net over 48 steps, in a loop over
        ``x[:, t]``, took 47 ms a step, and 28 with ``x.unbind(1)`` (torch 2.13, two cores).

    What to try:
        Take the parts at once, before the loop: ``x.unbind(dim)``, or ``x.split(size, dim)``.

    When it is wrong:
        Of a tensor that is changed in place meanwhile, ``unbind`` gives views that must not be changed themselves. One
        step was looked at; on a device nothing is tried, and compiled models are not looked at. For packed sequences,
        which torch's recurrent layers take apart themselves, nothing but the gradients of parts counts, and padding
        would be computed as well: a GRU over 100 steps took 0.47 to 0.59 times as long padded, whether the shortest
        sequence had 0.9 or 0.3 of the longest's steps (8 sequences, width 192, torch 2.13, one core).
    """

    code: ClassVar[str] = "CMP052"
    name: ClassVar[str] = "parts-one-by-one"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        said = self._of(facts, operators_at(facts, "parts_one_by_one"))
        return unless_untried(said, facts, "parts_one_by_one", "parts", least=self.info_share)

    def _of(self, facts: TrialFacts, lines: Sequence[OperatorsAt]) -> Answer:
        """What is said of the lines whose parts would better be taken at once."""
        if not lines:
            return cleared(self, "no tensor's parts are taken one by one where taking them at once takes less")
        first = lines[0]
        parts, single = first.number("parts") or 0.0, first.more.get("single") is True
        packed = first.more.get("packed") is True
        size = " x ".join(f"{one:,}" for one in first.shape)
        told = Told(
            subject="taking parts one by one",
            metric="parts taken one by one",
            what=f"the gradients of {parts:,.0f} parts of a tensor of {size} that "
            f"{'a recurrent layer takes one by one of a packed sequence' if packed else 'are taken one by one'}"
            f"{at_line(first.place, with_text=True)}, each as large as all of it, beyond what taking them at once "
            f"takes{and_more_lines(len(lines))}",
            evidence=(
                Evidence(metric="parts of one tensor", value=parts),
                Evidence(metric="tensors a step", value=sum(one.calls for one in lines)),
            ),
            remedies=(_PADDED if packed else _UNBIND if single else _SPLIT,),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))
