"""What one step's matrix products told: their operations, and those with an operand that is nearly all zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.records import CodePlace, Json

_NOBODY = "no step was looked through operator by operator; in a watched loop one is, after its first second"


@dataclass(frozen=True)
class ZeroProduct:
    """The products that one line asks for with an operand of this part zeros.

    ``place`` is None where no line of the user's own led to it, ``shape`` that of the operand, ``calls`` how often the
    line multiplied in forward. ``forward`` and ``backward`` are the parts of all operations of the step's forward and
    backward that its products are, ``whole`` of both together, each in 0…1; what is computed in backward with the same
    operand counts.
    """

    place: CodePlace | None
    operation: str
    shape: tuple[int, ...]
    zeros: float
    calls: int
    forward: float
    backward: float
    whole: float

    def is_at(self, place: CodePlace) -> bool:
        """Whether this is the line that asks for them."""
        return self.place is not None and (place.file, place.line, place.function) == (
            self.place.file,
            self.place.line,
            self.place.function,
        )


def zero_products(facts: TrialFacts) -> tuple[ZeroProduct, ...]:
    """The products with an operand of mostly zeros that were seen in one step, those of the most operations first.

    Raises:
        NotMeasured: nobody looked at a step's products, or there were none.
    """
    told = facts.result.facts.get("zero_products")
    if not isinstance(told, list):
        raise facts.missing("zero_products", _NOBODY)
    forward, backward = facts.number("product_flops_forward"), facts.number("product_flops_backward")
    if not forward > 0:
        raise NotMeasured("zero_products", "no matrix product was seen in the models' forward")
    found = (_product(one, forward, backward) for one in told)
    return tuple(sorted((one for one in found if one is not None), key=lambda one: -one.whole))


def share_of_operations(products: Sequence[ZeroProduct]) -> float:
    """The part of the operations of a step's products that these are, 0…1."""
    return sum(one.whole for one in products)


def _product(told: Json, forward: float, backward: float) -> ZeroProduct | None:
    if not isinstance(told, dict):
        return None
    zeros, calls, shape = told.get("zeros"), told.get("calls"), told.get("shape")
    parts = [told.get("flops_forward"), told.get("flops_backward")]
    numbers = [float(one) for one in (zeros, *parts) if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < 1 + len(parts) or not isinstance(calls, int) or not isinstance(shape, list):
        return None
    file, line, function = told.get("file"), told.get("line"), told.get("function")
    place = None
    if isinstance(file, str) and isinstance(line, int) and isinstance(function, str):
        place = CodePlace(file=file, line=line, function=function, text=str(told.get("text", "")))
    return ZeroProduct(
        place=place,
        operation=str(told.get("operation", "")),
        shape=tuple(size for size in shape if isinstance(size, int)),
        zeros=numbers[0],
        calls=calls,
        forward=numbers[1] / forward,
        backward=numbers[2] / backward if backward > 0 else 0.0,
        whole=(numbers[1] + numbers[2]) / (forward + backward),
    )
