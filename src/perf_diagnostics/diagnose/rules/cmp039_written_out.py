"""CMP039: a function that torch has in one operator is computed by several, one after the other."""

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
from perf_diagnostics.diagnose.wording import and_more_lines, listing

#: Where the one operator was not tried, it takes this part of what it stands for: 0.2 to 0.8 were seen.
_LEFT_UNTRIED = 0.5

#: What a library's own classes are to be told instead, by the library and the function that they write out.
_BY_OPTION = {
    (
        "transformers",
        'F.gelu(x, approximate="tanh")',
    ): 'transformers: activation_function or hidden_act="gelu_pytorch_tanh" in place of "gelu_new"',
}


@dataclass(frozen=True)
class WrittenOut:
    """A function that torch has in one operator is computed by several, one after the other.

    What it measures:
        In a step of a loop or trial, which is none of those that count: operators of forward and the loss that treat
        each number by itself or add up over the last dimension, on 8,192 numbers or more. A few rows of what goes in
        and of what comes out are kept, and held against torch's own GELU (both forms), SiLU, Mish, ReLU, ELU, softplus,
        sigmoid, tanh, softmax, log_softmax, layer norm (of groups of channels: group norm) and RMS norm: these have to
        make the same numbers, to 2e-5 (a norm, whatever its weight and bias, to 5e-4). On the CPU each operator's time
        is taken in forward and, by autograd's node, in backward, and the one operator is tried on a tensor of the same
        shape. What it saves is told. In a trace with sizes: the operators of GELU, softmax, log_softmax, layer and RMS
        norm one after the other, by their names and sizes; whether the numbers are the same, it does not tell.

    Why it matters:
        Each of eight operators reads and writes all numbers, and autograd keeps what lies between; one reads them once
        and keeps little. By their operators a layer's norm written out took 4.5 times as long as torch's, GELU by tanh
        2 to 2.3 times, RMS norm 1.3 times (torch 2.13, two cores).

    What to try:
        Call the function that is named. A compiled model fuses such operators by itself.

    When it is wrong:
        The last digits differ, and a little more where what is added to the variance is not the same. What the script
        keeps of the steps in between and reads later only looks unused. On a device only the bytes are known, and the
        one operator was not tried. One step was looked at; compiled models are not. Norms over other dimensions than
        the last one (batch norm) are not told.
    """

    code: ClassVar[str] = "CMP039"
    name: ClassVar[str] = "written-out"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.03, metadata=limit("share of the step, or of all operators' bytes, to mention", "judgement")
    )
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = [saved for one in operators_at(facts, "written_out_functions") if (saved := _saved(one)).whole > 0]
        if not lines:
            return cleared(self, "no function that torch has in one operator is written out")
        lines.sort(key=lambda one: -one.whole)
        first = lines[0]
        told = Told(
            subject="what writing out functions takes beyond calling them",
            metric="functions written out, beyond calling them",
            what=_what(lines),
            evidence=(
                Evidence(metric="operators that write it out", value=round(first.number("operators") or 0.0, 1)),
                Evidence(metric="times that it is written out", value=first.calls),
            ),
            remedies=(_remedy(lines),),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))


def _saved(one: OperatorsAt) -> OperatorsAt:
    """The same operators with what calling the function saves of their time."""
    instead = one.number("instead")
    left = _LEFT_UNTRIED if instead is None or not one.whole > 0 else instead / one.whole
    part = max(0.0, 1 - left)
    return replace(one, forward=one.forward * part, backward=one.backward * part, whole=one.whole * part)


def _what(lines: Sequence[OperatorsAt]) -> str:
    first = lines[0]
    shape = "×".join(f"{size:,}" for size in first.shape)
    return (
        f"computing {_call(first)}{at_line(first.place, with_text=True)} by {first.number('operators') or 0:.0f} "
        f"operators on {shape} numbers, beyond what its own operator takes{and_more_lines(len(lines))}"
    )


def _call(one: OperatorsAt) -> str:
    return str(one.more.get("call") or "a function of torch")


def _remedy(lines: Sequence[OperatorsAt]) -> Remedy:
    calls = list(dict.fromkeys(map(_call, lines)))
    written = dict.fromkeys((str(one.more.get("library")), _call(one)) for one in lines)
    options = [_BY_OPTION[one] for one in written if one in _BY_OPTION]
    by_option = f" ({'; '.join(options)})" if options else ""
    return Remedy(
        f"Call {listing(calls)} instead{by_option}: the same numbers but for the last digits, as was tried on rows of "
        "this step's own. Or compile the model, which fuses such operators."
    )
