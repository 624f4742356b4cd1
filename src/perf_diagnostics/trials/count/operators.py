"""Watches the operators that torch runs, and sums up their floating point operations and the bytes they touch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode

from perf_diagnostics.measure.crossings.operator_kinds import tensors_in

_ATEN = torch.ops.aten


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Attention that ``torch.utils.flop_counter`` has no formula for, by name, as not every version has every operator.
_ATTENTION_FORWARD = ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_fused_attention_overrideable")
_ATTENTION_BACKWARD = tuple(f"{name}_backward" for name in _ATTENTION_FORWARD)

#: Products of two activations: they grow with the square of the sequence, and hold no weight.
_BETWEEN_ACTIVATIONS = ("bmm", "baddbmm")

#: Operators that move numbers and compute none.
_MOVES = _names(
    "clone copy_ _to_copy cat stack fill_ zero_ zeros ones full zeros_like ones_like full_like new_zeros new_ones "
    "new_full scalar_tensor arange embedding index index_select gather slice_scatter select_scatter scatter "
    "constant_pad_nd repeat roll flip unfold tril triu where masked_fill masked_fill_ lift_fresh_copy "
    "native_dropout_mask _foreach_zero_ _foreach_copy_"
)

#: Operators that overwrite their first operand without reading it.
_OVERWRITES = _names("fill_ zero_ copy_ normal_ uniform_ bernoulli_ random_ exponential_ _foreach_zero_")

#: Look-ups read the rows they return, not the whole table.
_LOOK_UPS = _names("embedding index index_select gather")

#: Operators that only make room, or give another view of what is there, but whose schema does not say so.
_FREE = _names(
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted _unsafe_view detach alias lift_fresh "
    "_reshape_alias resize_ set_ _local_scalar_dense _has_compatible_shallow_copy_type"
)

#: Recurrent layers in one kernel, for which there is no formula.
_UNCOUNTED = _names(
    "mkldnn_rnn_layer mkldnn_rnn_layer_backward _cudnn_rnn _cudnn_rnn_backward miopen_rnn miopen_rnn_backward "
    "_thnn_fused_gru_cell _transformer_encoder_layer_fwd _native_multi_head_attention"
)
_OURS = frozenset(("aten", "prim", "prims"))

Formula = Callable[..., int]


def formulas() -> Mapping[Any, Formula]:
    """torch's own formulas by operator, and those it lacks: attention on the CPU, and matrix by vector."""
    found: dict[Any, Formula] = dict(flop_counter.flop_registry)
    by_shape: Any = flop_counter.shape_wrapper
    attention = _ATEN._scaled_dot_product_efficient_attention
    backward = _ATEN._scaled_dot_product_efficient_attention_backward
    added: list[tuple[Iterable[str], Formula]] = [
        (_ATTENTION_FORWARD, found[attention]),
        (_ATTENTION_BACKWARD, found[backward]),
        (("mv",), by_shape(_matrix_by_vector)),
        (("addmv",), by_shape(lambda _bias, matrix, vector, **_named: _matrix_by_vector(matrix, vector))),
    ]
    for names, formula in added:
        for name in names:
            operator = getattr(_ATEN, name, None)
            if operator is not None:
                found.setdefault(operator, formula)
    return found


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums over all operators run inside it; ``backward`` is set by the caller when the backward pass begins.

    An operator's traffic is each operand read once and each result written once: what a machine without caches, and a
    program without fusion, would move. Views move nothing.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.backward = False
        self.flops = 0.0
        self.recomputed_flops = 0.0
        self.attention_flops = 0.0
        self.other_operations = 0.0
        self.traffic_bytes = 0.0
        self.uncounted: set[str] = set()
        self._formulas = formulas()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        packet = getattr(func, "_overloadpacket", func)
        formula = self._formulas.get(packet)
        if formula is None and isinstance(func, torch._ops.OpOverload) and func.namespace == "aten":
            with self:  # an operator made of others is counted by its parts
                result = func.decompose(*args, **named)
            if result is not NotImplemented:
                return result
        result = func(*args, **named)
        if formula is not None:
            self._add_flops(packet, float(formula(*args, **named, out_val=result)))
        if isinstance(func, torch._ops.OpOverload):
            self._add_traffic(func, args, named, result, product=formula is not None)
        return result

    def _add_flops(self, packet: Any, flops: float) -> None:
        self.flops += flops
        name = getattr(packet, "__name__", str(packet))
        if name in _BETWEEN_ACTIVATIONS or "attention" in name:
            self.attention_flops += flops
        # A recomputed forward wants gradients; the operators of the backward pass itself do not.
        if self.backward and torch.is_grad_enabled():
            self.recomputed_flops += flops

    def _add_traffic(self, func: Any, args: Any, named: Any, result: Any, *, product: bool) -> None:
        name = func._overloadpacket.__name__
        if name in _UNCOUNTED or func.namespace not in _OURS:
            self.uncounted.add(str(func._overloadpacket))
        if name in _FREE or func.namespace == "prim" or _only_views(func):
            return
        written = _written(func, args, named)
        results = [t for t in tensors_in(result) if not any(t is other for other in written)]
        read = tensors_in((args, named))
        if name in _OVERWRITES:
            read = read[1:] if not name.startswith("_foreach") else []
        elif name in _LOOK_UPS:
            read = [*results, *read[1:]]
        self.traffic_bytes += sum(map(_bytes, (*_once(read), *written, *results)))
        if not product and name not in _MOVES:
            floating = [t.numel() for t in (*read, *results) if t.is_floating_point()]
            self.other_operations += max(floating, default=0)


def _only_views(func: Any) -> bool:
    aliases = [one.alias_info for one in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _written(func: Any, args: Any, named: Any) -> list[torch.Tensor]:
    """The operands that an operator changes in place."""
    found: list[torch.Tensor] = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else named.get(argument.name)
            found += tensors_in(value)
    return found


def _once(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(tensor): tensor for tensor in tensors}.values())


def _bytes(tensor: torch.Tensor) -> int:
    """The memory a tensor reaches: an expanded dimension is read again and again from the same place."""
    if tensor.layout is not torch.strided:
        return int(tensor.numel() * tensor.element_size())
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0 or size == 0)
    return int(math.prod(sizes) * tensor.element_size())


def _matrix_by_vector(matrix: Any, _vector: Any, *_rest: Any, **_named: Any) -> int:
    rows, columns = matrix
    return int(2 * rows * columns)
