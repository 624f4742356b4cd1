"""CMP036: autograd works out the gradient of a penalty on the weights, which the optimizer adds by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, operators_at
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer
from perf_diagnostics.diagnose.rules.opt006_work_before_the_update import CALLS_AGAIN
from perf_diagnostics.diagnose.wording import and_more_lines, counted

_DECAY = Remedy(
    "Leave the penalty out of the loss, and give the optimizer weight_decay=2 * coefficient: 1e-5 for 0.5 * 1e-5 * the "
    "sum of squares. In SGD, Adam and RMSprop that is the same gradient, for parameters that have one from the loss. "
    "If not all parameters were penalised: a parameter group for those that were, weight_decay=0 for the others."
)
_ANY_OPTIMIZER = Remedy(
    "With AdamW, whose weight_decay is another method (it shrinks the weights beside the gradient), or where gradients "
    "are clipped: after backward, under torch.no_grad(), torch._foreach_add_([p.grad for p in penalised], penalised, "
    "alpha=2 * coefficient)."
)
AVERAGED = Remedy("A mean instead of a sum: the coefficient is divided by how many numbers each tensor has.")
_DISTANCE = Remedy(
    "No option of an optimizer gives it. Leave it out of the loss, and after backward, under torch.no_grad(): "
    "torch._foreach_add_([p.grad for p in penalised], torch._foreach_sub(penalised, others), alpha=2 * coefficient); "
    "if each number has a weight of its own (EWC), multiply the differences by them before (torch._foreach_mul_)."
)
_SIGNS = Remedy(
    "No option of an optimizer gives it. Leave it out of the loss, and after backward, under torch.no_grad(): "
    "torch._foreach_add_([p.grad for p in penalised], torch._foreach_sign(penalised), alpha=coefficient)."
)
_DIRECTIONS = Remedy(
    "If the square was meant, norm() ** 2: weight_decay=2 * coefficient of the optimizer. Else torch._foreach_norm of "
    "all parameters at once, and their gradients by hand: after backward, under torch.no_grad(), torch._foreach_add_("
    "[p.grad for p in penalised], torch._foreach_div(penalised, torch._foreach_norm(penalised)), alpha=coefficient)."
)


#: What it writes is as large as the model, and new memory in each step: without it others find theirs again. Of two
#: tables of embeddings it took 23 to 28 % of a step by its operators, and 52 to 70 % went with it.
_BESIDE = 4.0

#: Their weight_decay shrinks the weights beside the gradient.
DECOUPLED = ("AdamW", "Muon")


class Penalty(NamedTuple):
    """What is said of a kind of penalty; ``needless`` is the part (0…1) of what it takes that goes without it."""

    words: str
    remedies: tuple[Remedy, ...]
    needless: float


#: By hand one or two passes over the weights are left of about six, where an optimizer's option has none left.
PENALTIES: Mapping[str, Penalty] = MappingProxyType(
    {
        "squares": Penalty("the squares", (_DECAY, _ANY_OPTIMIZER), 1.0),
        "distances": Penalty("squared distances", (_DISTANCE,), 0.75),
        "absolute": Penalty("the absolute values", (_SIGNS,), 0.75),
        "norms": Penalty("the norms", (_DIRECTIONS,), 0.5),
    }
)


@dataclass(frozen=True)
class PenaltyByGradients:
    """A penalty on the weights goes into the loss, so that autograd works out its gradient in each step.

    What it measures:
        In a step of a loop or trial, which is none of those that count: operators of forward and the loss that square
        trained parameters as they are (``p.pow(2)``, ``p * p``, ``p.norm() ** 2``, ``mse_loss`` with zeros), take their
        absolute values or norms, or their squared distance from what is not trained, and the sum of which goes into
        nothing but the loss, times a constant. On the CPU each operator's time is taken in forward and, by autograd's
        node, in backward. What adding the penalty's gradient to the other one takes is not in it, for that stays.

    Why it matters:
        The gradient of c·p² is 2·c·p. Autograd writes the squares to add them up, and in backward up to three more
        tensors of each parameter's size, all of it whatever the batch: in an MLP of 1.5 million weights, 16 rows a
        step, 27 to 36 % of the loop (torch 2.13, one core).

    What to try:
        Squares: ``weight_decay`` of the optimizer, or for AdamW by hand. Only squares are a warning; for the others no
        optimizer has an option, and their gradients can be added by hand for less.

    When it is wrong:
        The loss that is logged no longer has the penalty in it. ``weight_decay`` leaves out parameters without a
        gradient from the loss, is not clipped with the gradients, and is added once a step where a penalty may be added
        for each micro-batch. A coefficient that changes from step to step has to be set in ``param_groups``. AdamW's
        ``weight_decay`` is decoupled: another method, whose best coefficient is another one. Penalties through products
        of the weights, and on activations or gradients, are not told. One step was looked at; compiled models are not.
        On a device only the bytes are known.
    """

    code: ClassVar[str] = "CMP036"
    name: ClassVar[str] = "penalty-by-gradients"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("share of the step, or of all operators' bytes, to mention", "judgement")
    )
    warn_share: float = field(
        default=0.10, metadata=limit("share of the step to warn from, for squares", "as HST006; a judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "weight_penalties")
        if not lines:
            return cleared(self, "no penalty on the weights themselves goes into the loss")
        if facts.word("optimizer") in CALLS_AGAIN:
            return cleared(self, f"{facts.word('optimizer')} compares losses, and needs the penalty in them")
        kind = _kind(lines)
        lines = tuple(one for one in lines if one.more.get("kind") == kind)
        penalty = PENALTIES[kind]
        remedies = penalty.remedies[:: -1 if facts.word("optimizer") in DECOUPLED else 1]
        averaged = kind == "squares" and any(one.more.get("averaged") is True for one in lines)
        told = Told(
            subject="a penalty on the weights",
            metric="penalties on the weights",
            what=_what(lines, penalty),
            evidence=(Evidence(metric="penalised weights", value=_number(lines, "weights")),),
            remedies=(*remedies, AVERAGED) if averaged else remedies,
            needless=penalty.needless,
            beside=_BESIDE,
        )
        warns = self.warn_share if kind == "squares" else math.inf
        return answer(self, facts, lines, told, levels=(self.info_share, warns))


def _kind(lines: Sequence[OperatorsAt]) -> str:
    """The kind that takes most: one is told, for its remedies are its own."""
    shares = {kind: sum(one.whole for one in lines if one.more.get("kind") == kind) for kind in PENALTIES}
    return max(shares, key=lambda kind: shares[kind])


def _what(lines: Sequence[OperatorsAt], penalty: Penalty) -> str:
    tensors = counted(_number(lines, "tensors"), "tensor")
    return (
        f"a penalty on the weights in the loss{at_line(lines[0].place, with_text=True)}{and_more_lines(len(lines))}: "
        f"{penalty.words} of {_number(lines, 'weights'):,} weights in {tensors}, and their gradients by autograd"
    )


def _number(lines: Sequence[OperatorsAt], name: str) -> int:
    return int(sum(one.number(name) or 0.0 for one in lines))
