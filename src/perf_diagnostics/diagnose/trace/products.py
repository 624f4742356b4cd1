"""The matrix products of a trace by their sizes, and which of these sizes do not suit tensor cores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import PRODUCTS, Inputs, Sizes
from perf_diagnostics.diagnose.trace.kernels import of_device, outermost

#: Of how many elements a row has to be a multiple, by type: 16 bytes for tensor cores (NVIDIA, Matrix Multiplication
#: Background, "tensor core requirements"). Products of float32 have to only where a kernel says that it uses TF32.
_MULTIPLE: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("c10::Half", "c10::BFloat16"), 8),
        **dict.fromkeys(("c10::Float8_e4m3fn", "c10::Float8_e5m2", "signed char", "unsigned char"), 16),
    }
)
_TF32_MULTIPLE = 4

#: CUTLASS's "s1688" without another type is TF32 as well.
_TF32 = re.compile(r"tf32|tensorop_s1688gemm", re.IGNORECASE)


@dataclass(frozen=True)
class Product:
    """One form of matrix product: ``(batch, m, k) x (batch, k, n)``, its type, and the device's time on it in ns.

    ``odd`` are the lengths of rows that are no multiple of what tensor cores take; ``known`` is false where the trace
    does not say how the factors lie in memory, so that any odd size stands for a row.
    """

    batch: int
    m: int
    n: int
    k: int
    type: str
    device_ns: int
    odd: tuple[int, ...]
    known: bool

    def __str__(self) -> str:
        sizes = f"{self.m} x {self.k} by {self.k} x {self.n}"
        return sizes if self.batch == 1 else f"{self.batch} of {sizes}"


def products(facts: TraceFacts) -> tuple[Product, ...]:
    """The products of the steps whose sizes the trace tells, the longest first.

    Raises:
        NotMeasured: the trace cannot be trusted, nothing ran on a device, or no product's sizes were recorded.
    """
    facts.require_device("kernels")
    facts.require_steady()
    trace = facts.trace
    chosen = trace.named(lambda name: name in PRODUCTS)
    operators = trace.of(Kind.OPERATOR)
    operators = operators.where(chosen[operators.name] & (operators.told >= 0))
    if not len(operators):
        raise NotMeasured(
            "input_dims",
            "the trace does not tell the sizes of matrix products; record it with record_shapes=True (parts that run "
            "in CUDA graphs show none)",
        )
    rows, owner = outermost(facts.launches, operators)
    owned = of_device(facts.launches, owner)
    device = trace.device
    inside = (facts.steps.windows.containing(device.start_ns) >= 0) & (owned >= 0)
    faster = trace.named(_TF32.search)
    # Operator, inputs and whether the kernel says TF32 in one number, so that each form is summed at once.
    form = (rows.name[owned[inside]].astype(np.int64) * len(trace.inputs) + rows.told[owned[inside]]) * 2
    form += faster[device.name[inside]]
    forms, index = np.unique(form, return_inverse=True)
    time = np.bincount(index, weights=device.duration_ns[inside], minlength=forms.size)
    found = []
    for number, ns in zip(forms.tolist(), time.tolist(), strict=True):
        name, inputs = divmod(number // 2, len(trace.inputs))
        product = _product(trace.names[name], trace.inputs[inputs], int(ns), tf32=bool(number % 2))
        if product is not None:
            found.append(product)
    return tuple(sorted(found, key=lambda product: -product.device_ns))


def _product(operator: str, inputs: Inputs, device_ns: int, *, tf32: bool) -> Product | None:
    """None for inputs that are no two factors."""
    first = PRODUCTS[operator]
    one, two = (_at(inputs.sizes, place) for place in (first, first + 1))
    if len(one) not in (2, 3) or len(one) != len(two) or one[-1] != two[-2]:
        return None
    kind = inputs.types[first] if first < len(inputs.types) else ""
    multiple = _TF32_MULTIPLE if tf32 else _MULTIPLE.get(kind, 1)
    batch, (m, k), n = (one[0] if len(one) == 3 else 1), one[-2:], two[-1]
    lying = [_row(_at(inputs.strides, place), sizes) for place, sizes in ((first, one), (first + 1, two))]
    known = None not in lying
    lengths = (n, *(row for row in lying if row is not None)) if known else (m, n, k)
    odd = tuple(sorted({length for length in lengths if length % multiple}))
    return Product(batch, m, n, k, "TF32" if tf32 else kind, device_ns, odd, known)


def _at(given: tuple[Sizes, ...], place: int) -> Sizes:
    return given[place] if place < len(given) else ()


def _row(strides: Sizes, sizes: Sizes) -> int | None:
    """How many elements lie between two rows (or columns, if these lie in one piece) of a factor; None if not known.

    A factor that lies neither way is copied first, and its copy's rows are as long as it is wide.
    """
    if len(strides) != len(sizes):
        return None
    rows, columns = strides[-2:]
    if columns == 1:
        return rows if sizes[-2] > 1 else sizes[-1]
    if rows == 1:
        return columns if sizes[-1] > 1 else sizes[-2]
    return sizes[-1]
