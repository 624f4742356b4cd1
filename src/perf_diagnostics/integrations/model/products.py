"""Sums up the operations of a step as torch runs them, and shows them to who looks for what is computed for nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode

from perf_diagnostics.integrations.model import gradient_rows
from perf_diagnostics.integrations.model.gradient_rows import GradientRows
from perf_diagnostics.integrations.model.product_operands import Operands
from perf_diagnostics.integrations.shield import FAULTS
from perf_diagnostics.measure.code.code_places import CodePlaces
from perf_diagnostics.measure.code.own_code import Kind, OwnCode
from perf_diagnostics.measure.observation import in_words
from perf_diagnostics.measure.steps.device_clock import captures
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

_MOST_FRAMES = 400

_ATEN = torch.ops.aten

#: Where an operator's two operands stand among its arguments.
_PRODUCTS = {_ATEN.mm: (0, 1), _ATEN.bmm: (0, 1), _ATEN.addmm: (1, 2), _ATEN.baddbmm: (1, 2)}

#: Attention for which torch has no formula of its own, by the operator whose formula fits.
_ATTENTION = {
    "_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_fused_attention_overrideable": "_scaled_dot_product_efficient_attention",
}

#: Recurrent layers and whole encoders in one kernel, for which there is no formula.
_WITHOUT_FORMULA = frozenset(
    (
        *("mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"),
        *("_transformer_encoder_layer_fwd", "_native_multi_head_attention"),
    )
)

Formula = Callable[..., int]


def _formulas() -> Mapping[Any, Formula]:
    found: dict[Any, Formula] = dict(flop_counter.flop_registry)
    for name, like in _ATTENTION.items():
        for end in ("", "_backward"):
            operator, formula = getattr(_ATEN, name + end, None), found.get(getattr(_ATEN, like + end, None))
            if operator is not None and formula is not None:
                found.setdefault(operator, formula)
    return found


class _Sparse:
    """The products of one line with one kind of operand."""

    def __init__(self, told: dict[str, Json]) -> None:
        self.told = told
        self.calls = 0
        self.forward = self.backward = 0


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums up the operations of what runs inside of it, and keeps the products with an operand of mostly zeros.

    Args:
        parameters: where the memories of parameters begin: these are no operands to be looked at.
    """

    supports_higher_order_operators = True

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.in_backward = False
        self.forward = self.backward = 0
        self.problem = ""
        self.without_formula: set[str] = set()
        self._formulas = _formulas()
        self._operands = Operands(_BUDGET)
        self._rows = GradientRows(Operands(_BUDGET), self._line)
        self._parameters = {_memory(one) for one in parameters}
        self._own, self._places = OwnCode(), CodePlaces()
        self._found: dict[tuple[Any, ...], _Sparse] = {}
        #: The operands of mostly zeros, by where their memory begins, and its size.
        self._by_memory: dict[tuple[int, int], _Sparse] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        if not self.problem:
            try:
                self._see(getattr(func, "_overloadpacket", func), args, named, result)
            except FAULTS as fault:
                self.problem = in_words(fault)
        return result

    def _see(self, operator: Any, args: Any, named: Any, result: Any) -> None:
        formula = self._formulas.get(operator)
        if formula is None:
            name = getattr(operator, "__name__", "")
            if name in _WITHOUT_FORMULA:
                self.without_formula.add(name)
            return
        flops = int(formula(*args, **named, out_val=result))
        if self.in_backward:
            self.backward += flops
        else:
            self.forward += flops
        given = [one for one in args if isinstance(one, torch.Tensor)]
        plain = all(type(one) in (torch.Tensor, torch.nn.Parameter) and not captures(one.device) for one in given)
        if not plain or flops < _SMALL * (self.forward + self.backward):
            return
        self._rows.see(operator, args, flops, in_backward=self.in_backward)
        operands = [args[number] for number in _PRODUCTS.get(operator, ()) if number < len(args)]
        for operand in operands:
            if self._adds(operand, flops, operator):
                return

    def _adds(self, operand: torch.Tensor, flops: int, operator: Any) -> bool:
        """Whether this operand is of mostly zeros; its product counts then."""
        memory = _memory(operand)
        if memory in self._parameters:
            return False
        key = memory, operand.numel()
        known = self._by_memory.get(key)
        if self.in_backward and known is None:
            return False  # a gradient is sparse for other reasons: a loss of few positions, a pooling
        zeros = self._operands.zeros(operand)
        if zeros is None or not _LEAST_ZEROS <= zeros < 1:
            return False
        if known is None or not self.in_backward:
            known = self._by_memory[key] = self._at_line(operand, zeros, operator)
        if self.in_backward:
            known.backward += flops
        else:
            known.forward += flops
            known.calls += 1
        return True

    def _at_line(self, operand: torch.Tensor, zeros: float, operator: Any) -> _Sparse:
        """What is kept for the line of the user's own that asks for the product."""
        key, place = self._line()
        key = key or (None, tuple(operand.shape))
        if key not in self._found:
            self._found[key] = _Sparse(
                {
                    "operation": str(getattr(operator, "__name__", "")),
                    "shape": [int(size) for size in operand.shape],
                    "zeros": zeros,
                    **place,
                }
            )
        return self._found[key]

    def _line(self) -> tuple[tuple[Any, ...] | None, dict[str, Json]]:
        """The line of the user's own that asks for the operation under way: a key, and as facts tell it; or nothing."""
        frame = sys._getframe(1)
        for _ in range(_MOST_FRAMES):
            if frame.f_back is None or self._own.kind_of(frame.f_code.co_filename) is Kind.OWN:
                break
            frame = frame.f_back
        code, line = frame.f_code, frame.f_lineno
        if self._own.kind_of(code.co_filename) is not Kind.OWN:
            return None, {}
        place = self._places.place(code, line)
        return (code, line), {"file": place.file, "line": place.line, "function": place.function, "text": place.text}

    @property
    def facts(self) -> dict[str, Json]:
        """Plain values by the names of ``TrialResult.facts``."""
        most = sorted(self._found.values(), key=lambda one: -(one.forward + one.backward))[:_MOST_TOLD]
        return {
            "product_flops_forward": self.forward,
            "product_flops_backward": self.backward,
            SIGNAL: [
                {**one.told, "calls": one.calls, "flops_forward": one.forward, "flops_backward": one.backward}
                for one in most
            ],
            gradient_rows.SIGNAL: self._rows.told,
        }


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())
