"""How the operators of a step's forward hang together: who makes what others use, and what each takes, there and back.

Tensors are told apart by the memory that they lie in. A view is an operation that takes no time, and stands between the
one that wrote the memory and those that read the view. What backward computes is booked on the operation of forward
whose node of autograd's graph asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.one_step.operator_lines import backward_node, forward_node
from perf_diagnostics.measure.one_step.operator_traits import traits_of
from perf_diagnostics.measure.one_step.step_totals import bytes_moved
from perf_diagnostics.measure.one_step.watcher import Ran, Watcher, memory
from perf_diagnostics.records import Json

#: On a device no operator's time is known: there its bytes stand for it, at a rate that cancels in shares.
_BYTES_A_SECOND = 1e12

#: So many operators above one it is looked for draws.
_MOST_ABOVE = 6

_ATEN = torch.ops.aten

#: What treats each number by itself, and is not marked so by torch.
_ALSO_POINTWISE = frozenset((_ATEN._to_copy, _ATEN.clone, _ATEN.native_dropout, _ATEN.copy_, _ATEN.masked_fill))


@dataclass(slots=True, eq=False)
class Operation:
    """An operator of forward that has run: ``inputs`` made what it was given, ``readers`` were given what it made.

    ``forward`` and ``backward`` are seconds in these phases of the step, ``numel`` the numbers of the largest tensor
    that it made. ``reached`` is whether backward asked for an operator in its name.
    """

    operator: Any
    inputs: tuple[Operation, ...]
    numel: int
    is_view: bool
    forward: float
    backward: float = 0.0
    reached: bool = False
    readers: list[Operation] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """What it takes in forward and backward together."""
        return self.forward + self.backward


class OperatorGraph(Watcher):
    """Keeps the operators of a step's forward as they hang together."""

    sees_parts: ClassVar[bool] = True

    def __init__(self) -> None:
        #: The operation of the operator that is shown now; None in backward, and where none is kept of it.
        self.last: Operation | None = None
        self.forward = self.backward = 0.0
        self._broken = False
        self._by_memory: dict[int, Operation] = {}
        self._by_node: dict[int, Operation] = {}

    def opens(self) -> None:
        self._by_memory.clear()

    def see(self, ran: Ran) -> None:
        self.last, self._broken = None, True
        took = seconds_or_bytes(ran)
        self._adds_to_whole(ran, took)
        if ran.in_backward:
            node = backward_node()
            known = None if node is None else self._by_node.get(node)
            if known is not None:
                known.reached = True
                if ran.times_backward:
                    known.backward += took
                else:
                    known.forward += took
        else:
            made = [*ran.made()] or [*traits_of(ran.operator).writes(ran.args, ran.named)]
            self.last = self._add(ran.operator, [*ran.given()], made, took)
        self._broken = False

    def passes_over(self, ran: Ran) -> None:
        """It takes its time all the same; on a device nothing is known of it."""
        self._adds_to_whole(ran, ran.seconds or 0.0)

    def _adds_to_whole(self, ran: Ran, took: float) -> None:
        if ran.times_backward:
            self.backward += took
        else:
            self.forward += took

    def _add(
        self, operator: Any, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor], took: float
    ) -> Operation:
        before = {memory(one): one for one in given}
        inputs = {id(one): one for at in before if (one := self._by_memory.get(at)) is not None}
        is_view = bool(made) and all(memory(one) in before and not any(one is arg for arg in given) for one in made)
        numel = max((one.numel() for one in made), default=0)
        operation = Operation(operator, tuple(inputs.values()), numel, is_view, took)
        for one in operation.inputs:
            one.readers.append(operation)
        for tensor in made:
            self._by_memory[memory(tensor)] = operation
        self._by_node.setdefault(forward_node(), operation)
        return operation

    def maker(self, tensor: torch.Tensor) -> Operation | None:
        """What wrote, or viewed last, the memory that a tensor lies in; None where that was before, or in backward.

        While an operator is shown this is the operator itself, for what it made.
        """
        return self._by_memory.get(memory(tensor))

    @property
    def why_not(self) -> str:
        """Why what hangs together is not known."""
        return "the operators of the step could not be put together" if self._broken else ""

    @property
    def told(self) -> dict[str, Json]:
        """Nothing by itself."""
        return {}

    @property
    def seconds(self) -> float:
        """What all operators take in forward and backward."""
        return self.forward + self.backward

    def share(self, operations: Iterable[Operation]) -> dict[str, Json]:
        """What these take of all operators' time: of ``forward``, of ``backward`` and of both (``whole``), 0…1."""
        forward = backward = 0.0
        for one in {id(one): one for one in operations}.values():
            forward, backward = forward + one.forward, backward + one.backward
        return self.share_of(forward, backward)

    def share_of(self, forward: float, backward: float) -> dict[str, Json]:
        """What so many seconds are of all operators' time, as :meth:`share` tells it."""
        both = self.seconds
        return {
            "forward": forward / self.forward if self.forward else 0.0,
            "backward": backward / self.backward if self.backward else 0.0,
            "whole": (forward + backward) / both if both else 0.0,
        }


def seconds_or_bytes(ran: Ran) -> float:
    """How long an operator took, in s; on a device what its bytes stand for."""
    return bytes_moved(ran.args, ran.result) / _BYTES_A_SECOND if ran.seconds is None else ran.seconds


@cache
def _tags(operator: Any) -> frozenset[Any]:
    return frozenset(tag for name in getattr(operator, "overloads", tuple)() for tag in getattr(operator, name).tags)


def is_pointwise(operator: Any) -> bool:
    """Whether each number that it makes comes of one number of each tensor that it is given, by torch's own tag."""
    return operator in _ALSO_POINTWISE or torch.Tag.pointwise in _tags(operator)


def is_drawn(operation: Operation | None) -> bool:
    """Whether its numbers are drawn at random, or come of such by what is written over them: a dropout's mask."""
    for _ in range(_MOST_ABOVE):
        if operation is None or torch.Tag.nondeterministic_seeded in _tags(operation.operator):
            return operation is not None
        if len(operation.inputs) != 1:
            return False
        operation = operation.inputs[0]
    return False


def through_views(operation: Operation) -> Operation:
    """What made the memory that this views, or itself."""
    while operation.is_view and operation.inputs:
        operation = operation.inputs[0]
    return operation


def readers(operation: Operation) -> list[Operation]:
    """Who reads what an operation made, also through views; an operation that views it is none."""
    found, left = [], [*operation.readers]
    while left:
        one = left.pop()
        if one.is_view:
            left += one.readers
        else:
            found.append(one)
    return found


def read_by_none_but(operations: Iterable[Operation], made: Iterable[Operation]) -> bool:
    """Whether only these operations read what was ``made``, also through views."""
    inside = {*operations}
    return all(one in inside for each in made for one in readers(each))


def made_for(
    operations: Iterable[Operation],
    fits: Callable[[Operation], bool],
    *,
    reads: Callable[[Operation], bool] = lambda _: True,
) -> list[Operation]:
    """What was computed for some operations and for nobody else, as far up as it ``fits``; who ``reads`` counts."""
    inside = {id(one) for one in operations}
    found: list[Operation] = []
    left = [above for one in operations for above in one.inputs]
    while left:
        one = left.pop()
        if id(one) in inside or not all(id(reader) in inside for reader in one.readers if reads(reader)):
            continue
        if not one.is_view and not fits(one):
            continue
        inside.add(id(one))
        found.append(one)
        left += one.inputs
    return found
