"""How many operations an operator takes, by torch's own formulas and some that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import flop_counter

_ATEN = torch.ops.aten

#: Attention for which torch has no formula of its own, by the operator whose formula fits.
_ATTENTION = {
    "_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_fused_attention_overrideable": "_scaled_dot_product_efficient_attention",
}

#: Recurrent layers and whole encoders in one kernel, for which there is no formula.
WITHOUT_FORMULA = frozenset(
    (
        *("mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"),
        *("_transformer_encoder_layer_fwd", "_native_multi_head_attention"),
    )
)

Formula = Callable[..., int]


def formulas() -> Mapping[Any, Formula]:
    """By operator, such as ``torch.ops.aten.mm``: what gives its operations for its arguments and ``out_val``."""
    found: dict[Any, Formula] = dict(flop_counter.flop_registry)
    for name, like in _ATTENTION.items():
        for end in ("", "_backward"):
            operator, formula = getattr(_ATEN, name + end, None), found.get(getattr(_ATEN, like + end, None))
            if operator is not None and formula is not None:
                found.setdefault(operator, formula)
    return found
