"""What an operator that torch runs has to do with the border between host and device."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

ATEN = torch.ops.aten
COPIES = (ATEN._to_copy, ATEN.copy_)
_INDEXING = (ATEN.index, ATEN.index_put, ATEN.index_put_, ATEN._index_put_impl_)
#: Operators that hand the device no work, and whose schema does not say so.
_FREE = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "_unsafe_view"),
        *("_reshape_alias", "detach", "alias", "lift", "lift_fresh", "resize_", "set_"),
    }
)


def is_non_blocking(packet: Any, args: Any, named: Any) -> bool:
    """Whether a copy is ``non_blocking``."""
    return bool(named.get("non_blocking", args[2] if packet is ATEN.copy_ and len(args) > 2 else False))


def tensors_in(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def asks_for_a_shape(func: Any, packet: Any, args: Any) -> bool:
    """Whether the host had to wait for a number of elements before the operator could go on."""
    if packet in _INDEXING:  # only by a mask, whose ones have to be counted
        return any(one.dtype in (torch.bool, torch.uint8) for one in tensors_in(args[1] if len(args) > 1 else ()))
    return torch.Tag.dynamic_output_shape in getattr(func, "tags", ())


def hands_no_work(func: Any, packet: Any) -> bool:
    """Whether an operator hands the device no work: it makes room, or gives another view of what is there."""
    if name_of(packet) in _FREE:
        return True
    schema = getattr(func, "_schema", None)
    aliases = [] if schema is None else [one.alias_info for one in schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def name_of(packet: Any) -> str:
    return str(getattr(packet, "__name__", packet))
