"""What is known of an operator before it runs: what it writes, whether it draws, what it takes only the shape of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from perf_diagnostics.measure.one_step.watcher import tensors_of

#: Operators that take nothing but shape, type and device from a tensor, by the beginnings of their names.
_LIKE = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")

#: What lies in their results nobody knows: memory as it was, or numbers that Python handed in.
_UNKNOWN = ("empty", "new_empty", "lift", "from_", "_efficientzerotensor", "resize", "set_", "_reshape_from_tensor")

#: Of batch norm in training: read only to be written, so that they do not decide what comes out.
_RUNNING = ("running_mean", "running_var")


@dataclass(frozen=True)
class Traits:
    """One operator.

    ``written`` are positions and names of arguments it writes, ``unread`` those that do not decide its results in
    training, ``dropout`` and ``training`` where these arguments stand, or None. ``known`` is False where nothing may be
    concluded from it: operators that are not torch's own may read files, keep state, or talk to others. ``sizes`` is
    whether numbers in what it is given may decide how many come out.
    """

    name: str
    known: bool
    written: frozenset[int | str]
    draws: bool
    shape_only: bool
    gives_unknown: bool
    sizes: bool
    unread: frozenset[int]
    dropout: int | None
    training: int | None

    def writes(self, args: Sequence[Any], named: Mapping[str, Any]) -> Iterator[torch.Tensor]:
        """The tensors that this call writes into."""
        for at in self.written:
            if isinstance(at, str):
                yield from tensors_of(named.get(at))
            elif at < len(args):
                yield from tensors_of(args[at])

    def draws_with(self, args: Sequence[Any], named: Mapping[str, Any]) -> bool:
        """Whether this call draws random numbers: attention is one that may, and with a dropout of 0 does not."""
        if not self.draws or self.dropout is None:
            return self.draws
        given = args[self.dropout] if len(args) > self.dropout else named.get("dropout_p", 0.0)
        return bool(given != 0)

    def sizes_with(self, args: Sequence[Any]) -> bool:
        """Whether in this call they do: of indices only those that say of each number whether it is taken."""
        if not self.sizes or self.name != "index":
            return self.sizes
        return any(isinstance(one, torch.Tensor) and one.dtype in (torch.bool, torch.uint8) for one in args[1])

    def deciding(self, args: Sequence[Any]) -> list[Any]:
        """The arguments by position that decide the results."""
        if self.training is None or len(args) <= self.training or not args[self.training]:
            return list(args)
        return [one for at, one in enumerate(args) if at not in self.unread]


@cache
def traits_of(operator: Any) -> Traits:
    """Of an operator such as ``torch.ops.aten.mm``, without its overload."""
    all_of_them = [getattr(operator, name) for name in getattr(operator, "overloads", tuple)()]
    # TorchScript's own are never dispatched, such as aten::sort's for its lists, which it sorts in place.
    overloads = [one for one in all_of_them if torch._C._dispatch_has_kernel(one.name())] or all_of_them
    name = str(operator.__name__)
    own = str(getattr(operator, "_qualified_op_name", "")).startswith(("aten::", "prims::", "prim::"))
    written: set[int | str] = set()
    places: dict[str, int] = {}
    for overload in overloads:
        for at, argument in enumerate(overload._schema.arguments):
            places.setdefault(argument.name, at)
            if argument.alias_info is not None and argument.alias_info.is_write:
                written.add(argument.name)
                if not argument.kwarg_only:
                    written.add(at)
    draws = any(torch.Tag.nondeterministic_seeded in overload.tags for overload in overloads)
    return Traits(
        name=name,
        known=own,
        written=frozenset(written),
        draws=draws,
        shape_only=name.startswith(_LIKE),
        gives_unknown=name.startswith(_UNKNOWN),
        sizes=any(torch.Tag.dynamic_output_shape in overload.tags for overload in overloads),
        unread=frozenset(places[one] for one in _RUNNING if one in places),
        dropout=places.get("dropout_p"),
        training=places.get("training", places.get("train")),
    )
