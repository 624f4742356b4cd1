"""Sums up the operations of a step's products, and keeps those with an operand of mostly zeros."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.one_step import gradient_rows
from perf_diagnostics.measure.one_step.flop_formulas import WITHOUT_FORMULA, formulas
from perf_diagnostics.measure.one_step.gradient_rows import GradientRows
from perf_diagnostics.measure.one_step.making import Making
from perf_diagnostics.measure.one_step.operand_zeros import Operands
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, Watcher, memory
from perf_diagnostics.records import Json

SIGNAL = "zero_products"

#: An operand of fewer zeros is not worth keeping.
_LEAST_ZEROS = 0.9

#: So many numbers of operands are looked at in all: some tens of milliseconds on a slow core.
_BUDGET = 1 << 24

#: A product of less than this part of all operations so far is not looked at.
_SMALL = 1 / 1000

#: So many lines are told at most, those with the most operations.
_MOST_TOLD = 8

_ATEN = torch.ops.aten

#: Where an operator's two operands stand among its arguments.
_PRODUCTS = {_ATEN.mm: (0, 1), _ATEN.bmm: (0, 1), _ATEN.addmm: (1, 2), _ATEN.baddbmm: (1, 2)}


class _Sparse:
    """The products of one line with one kind of operand: their calls, operations and seconds, and what made it."""

    def __init__(self, told: dict[str, Json]) -> None:
        self.told = told
        self.calls = 0
        self.forward = self.backward = 0
        self.seconds = {False: 0.0, True: 0.0}
        #: The numbers of the products in forward, and of those operators that their operand came from.
        self.products: set[int] = set()
        self.makers: set[int] = set()


class ZeroProducts(Watcher):
    """Sums up operations, and looks for products with an operand of mostly zeros, and for rows without a gradient.

    Args:
        parameters: where the memories of parameters begin: these are no operands to be looked at.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL, gradient_rows.SIGNAL)

    def __init__(self, parameters: Iterable[int], lines: OperatorLines) -> None:
        self.forward = self.backward = 0
        self._without_formula: set[str] = set()
        self._formulas = formulas()
        self._operands = Operands(_BUDGET)
        self._lines = lines
        self._rows = GradientRows(Operands(_BUDGET), lines.line)
        self._parameters = set(parameters)
        self._found: dict[tuple[Any, ...], _Sparse] = {}
        #: The operands of mostly zeros, by where their memory begins, and its size.
        self._by_memory: dict[tuple[int, int], _Sparse] = {}
        self._making = Making()
        self._on_device = False

    def opens(self) -> None:
        """What memory holds may have been written by an operator that was not shown."""
        self._making.forget_memory()

    def see(self, ran: Ran) -> None:
        self._on_device = self._on_device or ran.seconds is None
        self._rows.follow(ran)
        formula = self._formulas.get(ran.operator)
        number = -1 if ran.in_backward else self._making.see(ran, product=formula is not None)
        if formula is None:
            name = getattr(ran.operator, "__name__", "")
            if name in WITHOUT_FORMULA:
                self._without_formula.add(name)
            return
        flops = int(formula(*ran.args, **ran.named, out_val=ran.result))
        if ran.times_backward:
            self.backward += flops
        else:
            self.forward += flops
        if flops < _SMALL * (self.forward + self.backward):
            return
        self._rows.see(ran.operator, ran.args, flops, in_backward=ran.in_backward)
        operands = [ran.args[place] for place in _PRODUCTS.get(ran.operator, ()) if place < len(ran.args)]
        for place, operand in enumerate(operands):
            if self._adds(operand, flops, ran, left=place == 0):
                if not ran.in_backward:
                    self._by_memory[memory(operand), operand.numel()].products.add(number)
                return

    def _adds(self, operand: torch.Tensor, flops: int, ran: Ran, *, left: bool) -> bool:
        """Whether this operand is of mostly zeros; its product counts then.

        ``left``: it stands left of the other operand, so that its rows choose; of the right one it is its columns.
        """
        at, in_backward = memory(operand), ran.in_backward
        if at in self._parameters:
            return False
        key = at, operand.numel()
        known = self._by_memory.get(key)
        if in_backward and known is None:
            return False  # a gradient is sparse for other reasons: a loss of few positions, a pooling
        zeros = self._operands.zeros(operand)
        if zeros is None or not _LEAST_ZEROS <= zeros < 1:
            return False
        if known is None or not in_backward:
            known = self._by_memory[key] = self._at_line(operand, zeros, ran.operator, left=left)
            maker = self._making.maker_of(operand)
            known.makers |= set() if maker is None else {maker}
        known.seconds[ran.times_backward] += ran.seconds or 0.0
        known.calls += not in_backward
        if ran.times_backward:
            known.backward += flops
        else:
            known.forward += flops
        return True

    def _at_line(self, operand: torch.Tensor, zeros: float, operator: Any, *, left: bool) -> _Sparse:
        """What is kept for the line of the user's own that asks for the product."""
        key, place = self._lines.line()
        key = key or (None, tuple(operand.shape))
        if key not in self._found:
            most = self._operands.most_in_a_row(operand if left else operand.mT)
            self._found[key] = _Sparse(
                {
                    "operation": str(getattr(operator, "__name__", "")),
                    "shape": [int(size) for size in operand.shape],
                    "zeros": zeros,
                    **({} if most is None else {"most_in_a_row": most}),
                    **place,
                }
            )
        return self._found[key]

    @property
    def why_not(self) -> str:
        """Why it has nothing to tell once the step is over; empty where it has."""
        if self._without_formula:
            return f"the step makes use of {', '.join(sorted(self._without_formula))}, for which there is no formula"
        if not self.forward:
            return "in the step that was looked through no product was seen in a model's call, or after it"
        return ""

    @property
    def told(self) -> dict[str, Json]:
        """The operations of all products, and the lines of those with zeros and of rows without a gradient."""
        most = sorted(self._found.values(), key=lambda one: -(one.forward + one.backward))[:_MOST_TOLD]
        return {
            "product_flops_forward": self.forward,
            "product_flops_backward": self.backward,
            SIGNAL: self._told_of(most),
            gradient_rows.SIGNAL: self._rows.told,
        }

    def _told_of(self, found: Sequence[_Sparse]) -> list[Json]:
        """Each of them, with its part of what made the operands; what made several is told of the first."""
        told: list[Json] = []
        counted: set[int] = set()
        products = set().union(*(one.products for one in found))
        for one in found:
            facts = {**one.told, "calls": one.calls, "flops_forward": one.forward, "flops_backward": one.backward}
            if not self._on_device:
                made = self._making.only_for(products, one.makers) - counted
                counted |= made
                facts |= {f"seconds_{phase}": one.seconds[phase == "backward"] for phase in ("forward", "backward")}
                facts["seconds_making"] = self._making.seconds_of(made)
            told.append(facts)
        return told
