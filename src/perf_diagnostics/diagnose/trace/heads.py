"""The layer over many classes that a loss compares with labels at each place of a sequence, as a trace shows it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.trace.events import Bool, Events, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import (
    ATTENTION,
    CROSS_ENTROPY,
    LAYERS,
    LOOK_UPS,
    PRODUCTS,
    Inputs,
    Sizes,
)

#: A loss with fewer classes takes little beside what lies before it (a judgement).
_CLASSES = 500

#: What a loss by labels calls: others have something to say of each place (CTC, a teacher's distribution).
_LOSS = ("aten::nll_loss_forward", "aten::nll_loss2d_forward")

#: What connects places in other ways than torch's own attention: by hand, or step by step.
_CONNECTS = re.compile(r"^aten::(_softmax|lstm|gru|rnn_\w+|\w+_cell|mkldnn_rnn_layer|_thnn_fused_\w+|_cudnn_rnn)$")

#: Attention's arguments: a mask, and whether it is causal.
_MASK, _CAUSAL = 3, 5


@dataclass(frozen=True, eq=False)
class Head:
    """The operators of the steps that make and read one layer's logits, forward and backward.

    ``places`` are the rows that it computes in a call, at most. ``sees_all`` says that tokens are looked up, and that
    all that connects places is attention without a mask that looks both ways.
    """

    rows: Events
    places: int
    classes: int
    sees_all: bool


def head_of(facts: TraceFacts) -> Head | None:
    """The one whose operators take the longest; None where each sample has one place, or few classes.

    Raises:
        NotApplicable: no loss of classes is in the trace.
        NotMeasured: the trace cannot be trusted, has no steady steps, does not tell sizes, or has layers as wide as
            there are classes, whose products sizes do not tell from the head's.
    """
    facts.require_sound()
    facts.require_steady()
    trace = facts.trace
    if not trace.named(lambda name: name in _LOSS).any():
        raise NotApplicable("losses", "no loss of classes is in the trace (parts that are compiled whole show none)")
    operators = trace.of(Kind.OPERATOR)
    operators = operators.where((operators.told >= 0) & (facts.steps.windows.containing(operators.start_ns) >= 0))
    facts.require_sizes(operators)
    losses, of_loss, layers, multiplies = (
        trace.named(lambda name, those=those: name in those)[operators.name]  # type: ignore[misc]
        for those in (_LOSS, CROSS_ENTROPY, LAYERS, PRODUCTS)
    )

    def kinds(rows: Bool) -> list[int]:
        return [int(kind) for kind in np.unique(operators.told[rows])]

    logits = {size for kind in kinds(losses) for size in trace.inputs[kind].sizes[:1] if len(size) > 1}
    given = {kind: _layer(trace.inputs[kind]) for kind in kinds(layers)}
    heads: dict[tuple[int, ...], dict[int, _Size]] = {}
    for kind, size in given.items():
        if size is not None and size.places > 1 and size.classes >= _CLASSES and any(map(size.is_of, logits)):
            heads.setdefault((size.width, size.classes), {})[kind] = size
    found: list[Head] = []
    for (_, classes), sizes in heads.items():
        if any(one is not None and one.width == classes for one in given.values()):
            raise NotMeasured("input_dims", f"a layer is {classes:,} wide, and there are as many classes")
        theirs = [kind for kind, inputs in enumerate(trace.inputs) if _any_of(inputs, sizes.values())]
        chosen = np.isin(operators.told, theirs) & (of_loss | multiplies) | layers & np.isin(operators.told, [*sizes])
        places = max(size.samples * size.places for size in sizes.values())
        found.append(Head(operators.where(chosen), places, classes, _sees_all(facts, operators)))
    return max(found, key=lambda head: int(head.rows.duration_ns.sum()), default=None)


@dataclass(frozen=True)
class _Size:
    """What a layer is given and gives: places of samples (or samples of places), so wide, and so many classes."""

    samples: int
    places: int
    width: int
    classes: int

    def is_of(self, size: Sizes) -> bool:
        """Whether a tensor has one number for each class and place, or for each but one of a sample's."""
        return self.classes in size and math.prod(size) // self.classes in {
            self.samples * self.places,
            self.samples * (self.places - 1),
            (self.samples - 1) * self.places,
        }


def _layer(inputs: Inputs) -> _Size | None:
    """A layer that is given at least one row; None of any other product."""
    given, weight = (*inputs.sizes, (), ())[:2]
    if len(given) < 2 or len(weight) != 2 or given[-1] not in weight or not math.prod((*given, *weight)):
        return None
    classes = weight[0] if weight[1] == given[-1] else weight[1]
    return _Size(given[0], math.prod(given[1:-1]), given[-1], classes)


def _any_of(inputs: Inputs, sizes: Iterable[_Size]) -> bool:
    return any(size.is_of(one) for size in sizes for one in inputs.sizes)


def _sees_all(facts: TraceFacts, operators: Events) -> bool:
    """Whether tokens are looked up, and attention without a mask, both ways, is all that connects places."""
    trace = facts.trace
    if not trace.named(lambda name: name in LOOK_UPS).any() or trace.named(_CONNECTS.match).any():
        return False
    calls = operators.where(trace.named(lambda name: name == ATTENTION)[operators.name])
    kinds = [trace.inputs[kind] for kind in np.unique(calls.told).tolist()]
    looks_back = {kind.numbers[_CAUSAL] if len(kind.numbers) > _CAUSAL else "" for kind in kinds}
    return looks_back == {"False"} and not any(len(kind.sizes) > _MASK and kind.sizes[_MASK] for kind in kinds)
