"""The layer over many classes that a loss compares with labels at each place of a sequence, as a trace shows it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.trace.events import Events, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import ATTENTION, CROSS_ENTROPY, LAYERS, PRODUCTS, Inputs, Sizes

#: A loss with fewer classes takes little beside what lies before it (a judgement).
_CLASSES = 500

#: Attention's arguments: a mask, and whether it is causal.
_MASK, _CAUSAL = 3, 5


@dataclass(frozen=True, eq=False)
class Head:
    """The operators of the steps that make and read one layer's logits, forward and backward.

    ``places`` are the rows that it computes, of ``samples`` sequences. ``sees_all`` says that attention is called, each
    time without a mask, and looks both ways; None where the trace does not tell.
    """

    rows: Events
    places: int
    samples: int
    classes: int
    sees_all: bool | None


def head_of(facts: TraceFacts) -> Head | None:
    """The one whose operators take the longest; None where each sample has one place, or few classes.

    Raises:
        NotApplicable: no loss of classes is in the trace.
        NotMeasured: the trace cannot be trusted, has no steady steps, or does not tell sizes.
    """
    facts.require_sound()
    facts.require_steady()
    trace = facts.trace
    if not trace.named(lambda name: name in CROSS_ENTROPY).any():
        raise NotApplicable("losses", "no loss of classes is in the trace (parts that are compiled whole show none)")
    operators = trace.of(Kind.OPERATOR)
    operators = operators.where((operators.told >= 0) & (facts.steps.windows.containing(operators.start_ns) >= 0))
    if not len(operators):
        raise NotMeasured("input_dims", "the trace does not tell the sizes of operators: record_shapes=True does")
    of_loss, layers, multiplies = (
        trace.named(lambda name, those=those: name in those)[operators.name]  # type: ignore[misc]
        for those in (CROSS_ENTROPY, LAYERS, PRODUCTS)
    )
    logits = {
        size
        for kind in np.unique(operators.told[of_loss]).tolist()
        for size in trace.inputs[kind].sizes[:2]
        if len(size) > 1
    }
    found: list[Head] = []
    for kind in np.unique(operators.told[layers]).tolist():
        size = _layer(trace.inputs[kind])
        if size is None or not any(_are_of(one, *size) for one in logits):
            continue
        samples, places, classes = size
        theirs = np.array([any(_are_of(one, *size) for one in inputs.sizes) for inputs in trace.inputs], np.bool_)
        rows = operators.where(theirs[operators.told] & (of_loss | multiplies) | layers & (operators.told == kind))
        found.append(Head(rows, samples * places, samples, classes, _sees_all(facts, operators)))
    return max(found, key=lambda head: int(head.rows.duration_ns.sum()), default=None)


def _layer(inputs: Inputs) -> tuple[int, int, int] | None:
    """Samples, places of each, and classes of a layer that is given sequences; None of any other."""
    given, weight = (*inputs.sizes, (), ())[:2]
    if len(given) < 3 or len(weight) != 2 or given[-1] not in weight:
        return None
    classes = weight[0] if weight[1] == given[-1] else weight[1]
    places = math.prod(given[1:-1])
    return (given[0], places, classes) if places > 1 and classes >= _CLASSES else None


def _are_of(size: Sizes, samples: int, places: int, classes: int) -> bool:
    """Whether a tensor has one number for each class and place, or for each but one of a sample's."""
    return classes in size and math.prod(size) in {samples * places * classes, samples * (places - 1) * classes}


def _sees_all(facts: TraceFacts, operators: Events) -> bool | None:
    trace = facts.trace
    calls = operators.where(trace.named(lambda name: name == ATTENTION)[operators.name])
    kinds = [trace.inputs[kind] for kind in np.unique(calls.told).tolist()]
    looks_back = {kind.numbers[_CAUSAL] if len(kind.numbers) > _CAUSAL else "" for kind in kinds}
    if not kinds or not looks_back <= {"True", "False"}:
        return None
    return looks_back == {"False"} and not any(len(kind.sizes) > _MASK and kind.sizes[_MASK] for kind in kinds)
