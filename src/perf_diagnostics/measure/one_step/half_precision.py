"""How long the products of a step in float32 would take in bfloat16, on a CPU that has units for it.

On one and two cores with AVX-512 BF16 (torch 2.13) products and convolutions with their gradients were 1.6 to 2.2 times
as fast under autocast, an LSTM twice.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from perf_diagnostics.measure.one_step.flop_formulas import WITHOUT_FORMULA, formulas
from perf_diagnostics.measure.one_step.tried_again import TriedAgain
from perf_diagnostics.measure.one_step.watcher import ON_A_DEVICE, Ran, Watcher
from perf_diagnostics.records import Json

SIGNAL = "float32_products"

#: What trying may take in all, in s of the thread.
_BUDGET_S = 0.5


class HalfPrecision(Watcher):
    """Notes the products and convolutions in float32 on the CPU, and tries them in bfloat16 when the step is over.

    For a processor that has units for it: on others torch converts each operand, which takes long.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self) -> None:
        self._formulas = formulas()
        self._products = TriedAgain({torch.float32: torch.bfloat16}, _BUDGET_S)
        self._on_device = False

    def see(self, ran: Ran) -> None:
        if ran.seconds is None:
            self._on_device = True
        elif self._multiplies(ran.operator) and any(one.dtype is torch.float32 for one in ran.given()):
            self._products.add(ran)

    def _multiplies(self, operator: object) -> bool:
        name = getattr(operator, "__name__", "")
        return operator in self._formulas or name.removesuffix("_backward") in WITHOUT_FORMULA

    @property
    def why_not(self) -> str:
        return ON_A_DEVICE if self._on_device else ""

    @property
    def told(self) -> dict[str, Json]:
        """By ``SIGNAL``: seconds of the step's products in float32, ``forward`` and ``backward``; of these what was
        ``tried_…``, what that would take in bfloat16, ``half_…``, and casting all that they are given, ``casts_…``.
        """
        return {SIGNAL: self._products.told("half")}
