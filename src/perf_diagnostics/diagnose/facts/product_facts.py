"""What one step's products told: their operations, those with an operand that is nearly all zeros, and those for rows
that got no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.facts.looked_through import not_looked_for
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.records import CodePlace, Json


class Seconds(NamedTuple):
    """How long products took in the step looked at, in s, and what made their operand of tensors of its size."""

    forward: float
    backward: float
    making: float


@dataclass(frozen=True)
class ZeroProduct:
    """The products that one line asks for with an operand of this part zeros.

    ``place`` is None where no line of the user's own led to it, ``shape`` that of the operand, ``calls`` how often the
    line multiplied in forward. ``most_in_a_row`` is the most numbers other than zero in one of 128 of its rows (of its
    columns, where it stands right of the other operand); None where none was looked at. ``forward`` and ``backward``
    are the parts of all operations of the step's forward and backward that its products are, ``whole`` of both
    together, each in 0…1; what is computed in backward with the same operand counts. ``seconds`` is how long they
    took in that step; None where that was not seen. ``columns``: of how many numbers a row of the other operand is.
    """

    place: CodePlace | None
    operation: str
    shape: tuple[int, ...]
    zeros: float
    calls: int
    forward: float
    backward: float
    whole: float
    most_in_a_row: int | None = None
    seconds: Seconds | None = None
    columns: float = math.inf

    def is_at(self, place: CodePlace) -> bool:
        """Whether this is the line that asks for them."""
        return self.place is not None and (place.file, place.line, place.function) == (
            self.place.file,
            self.place.line,
            self.place.function,
        )


@dataclass(frozen=True)
class IdleRows:
    """The products that one line asks for, in which this part of the rows got no gradient (0…1).

    ``place`` is None where no line of the user's own led to it; ``shape`` that of the largest such gradient, its rows
    first. ``forward`` and ``backward`` are the parts of all operations of the step's forward and backward that were
    for these rows, ``whole`` of both together, each in 0…1. ``library``: of whose ``forward`` the layer is, where that
    is an installed package's; empty where it is the user's own. ``chosen``: the part of them whose gradient would come
    by way of a choice of the largest (a maximum, a pooling), 0…1.
    """

    place: CodePlace | None
    shape: tuple[int, ...]
    rows: float
    forward: float
    backward: float
    whole: float
    library: str = ""
    chosen: float = 0.0


def rows_without_gradient(facts: TrialFacts) -> tuple[IdleRows, ...]:
    """The lines whose products had many rows without a gradient in one step, those of the most operations first.

    Raises:
        NotMeasured: nobody looked at a step's products, or there were none.
    """
    told, forward, backward = _told(facts, "rows_without_gradient")
    found = []
    for one in told:
        numbers = _numbers(one, "rows", "flops_forward", "flops_backward")
        if numbers is not None and isinstance(one, dict):
            rows, ahead, back = numbers
            found.append(
                IdleRows(
                    place=place_of(one),
                    shape=_shape(one),
                    rows=rows,
                    forward=ahead / forward,
                    backward=back / backward if backward > 0 else 0.0,
                    whole=(ahead + back) / (forward + backward),
                    library=str(one.get("library", "")),
                    chosen=(_numbers(one, "chosen") or (0.0,))[0],
                )
            )
    return tuple(sorted(found, key=lambda one: -one.whole))


def zero_products(facts: TrialFacts) -> tuple[ZeroProduct, ...]:
    """The products with an operand of mostly zeros that were seen in one step, those of the most operations first.

    Raises:
        NotMeasured: nobody looked at a step's products, or there were none.
    """
    told, forward, backward = _told(facts, "zero_products")
    found = (_product(one, forward, backward) for one in told)
    return tuple(sorted((one for one in found if one is not None), key=lambda one: -one.whole))


def operators_of(facts: TrialFacts, products: Sequence[ZeroProduct], *, making: bool) -> tuple[OperatorsAt, ...]:
    """The same by their time: what part of all operators' time they are, perhaps with what made their operand.

    Raises:
        NotMeasured: the operators were not timed.
    """
    forward, backward = facts.number("operator_seconds_forward"), facts.number("operator_seconds_backward")
    found = []
    for one in products:
        if one.seconds is None or not forward > 0:
            raise NotMeasured("operator_seconds_forward", "how long these products took was not seen")
        ahead = one.seconds.forward + (one.seconds.making if making else 0.0)
        back = one.seconds.backward
        found.append(
            OperatorsAt(
                place=one.place,
                shape=one.shape,
                calls=one.calls,
                forward=ahead / forward,
                backward=back / backward if backward > 0 else 0.0,
                whole=(ahead + back) / (forward + backward),
                more={},
            )
        )
    return tuple(found)


def share_of_operations(products: Sequence[ZeroProduct | IdleRows]) -> float:
    """The part of the operations of a step's products that these are, 0…1."""
    return sum(one.whole for one in products)


def _told(facts: TrialFacts, name: str) -> tuple[list[Json], float, float]:
    """A list of the look's, and the operations of the step's forward and backward."""
    told = facts.result.facts.get(name)
    if not isinstance(told, list):
        raise not_looked_for(facts, name)
    forward, backward = facts.number("product_flops_forward"), facts.number("product_flops_backward")
    if not forward > 0:
        raise NotMeasured(name, "no matrix product was seen in the models' forward")
    return told, forward, backward


def _product(told: Json, forward: float, backward: float) -> ZeroProduct | None:
    numbers = _numbers(told, "zeros", "flops_forward", "flops_backward")
    if numbers is None or not isinstance(told, dict):
        return None
    calls = told.get("calls")
    if not isinstance(calls, int) or not isinstance(told.get("shape"), list):
        return None
    zeros, ahead, back = numbers
    most = told.get("most_in_a_row")
    seconds = _numbers(told, "seconds_forward", "seconds_backward", "seconds_making")
    return ZeroProduct(
        place=place_of(told),
        operation=str(told.get("operation", "")),
        shape=_shape(told),
        zeros=zeros,
        calls=calls,
        forward=ahead / forward,
        backward=back / backward if backward > 0 else 0.0,
        whole=(ahead + back) / (forward + backward),
        most_in_a_row=most if isinstance(most, int) else None,
        seconds=None if seconds is None else Seconds(*seconds),
        columns=ahead / max(1.0, 2.0 * calls * math.prod(_shape(told))) or math.inf,
    )


def _numbers(told: Json, *names: str) -> tuple[float, ...] | None:
    """Those of a dictionary's values, or None where one is no number."""
    values = [told.get(name) for name in names] if isinstance(told, dict) else []
    numbers = tuple(float(one) for one in values if isinstance(one, int | float) and not isinstance(one, bool))
    return numbers if len(numbers) == len(names) else None


def _shape(told: dict[str, Json]) -> tuple[int, ...]:
    shape = told.get("shape")
    return tuple(size for size in shape if isinstance(size, int)) if isinstance(shape, list) else ()
