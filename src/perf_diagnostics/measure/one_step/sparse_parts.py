"""Sparse tensors as what they are kept in: places and numbers, each a memory of its own."""

from __future__ import annotations

from typing import Any

import torch

from perf_diagnostics.measure.one_step.watcher import Ran

#: By layout the methods that give what a tensor is kept in; as it is, without checks and nothing put in order first.
_KEPT_IN = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def has_parts(tensor: torch.Tensor) -> bool:
    """Whether it is a sparse tensor of torch's own, whose parts have memory."""
    return type(tensor) is torch.Tensor and tensor.layout in _KEPT_IN and not tensor.is_meta


def in_parts(ran: Ran) -> Ran:
    """An operator with each sparse tensor as a tuple: layout, shape, whether its places are in order, and its parts.

    The parts share their memory with the tensor, so that who follows memories finds what was read and made.
    """
    named = {name: _in_parts(one) for name, one in ran.named.items()}
    return ran._replace(args=tuple(map(_in_parts, ran.args)), named=named, result=_in_parts(ran.result), in_parts=True)


def _in_parts(one: Any) -> Any:
    if isinstance(one, torch.Tensor):
        if one.layout not in _KEPT_IN:
            return one
        ordered = one.layout is not torch.sparse_coo or one.is_coalesced()
        return (one.layout, tuple(one.shape), ordered, *(getattr(one, name)() for name in _KEPT_IN[one.layout]))
    if isinstance(one, list | tuple):
        return tuple(map(_in_parts, one))
    return one
