"""Who is shown the operators of one step: each watcher looks for one kind of work that is done for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, Protocol
from weakref import ReferenceType

import torch

from perf_diagnostics.records import Json

#: Why whoever weighs operators by their time has nothing to tell.
ON_A_DEVICE = "operators on a device have no times of their own here, without which nothing can be weighed"


class Ran(NamedTuple):
    """An operator that has run."""

    #: As ``torch.ops.aten.mm``, without its overload.
    operator: Any
    #: What it was called with by position, and by name.
    args: Sequence[Any]
    named: Mapping[str, Any]
    #: What it gave: a tensor, several of them, or something else.
    result: Any
    #: Whether the autograd engine asked for it; a checkpoint's second forward is in backward, too.
    in_backward: bool
    #: How long it took, where all of its tensors are on the CPU; None: they are on a device.
    seconds: float | None
    #: Whether a model asked for it that nobody trains, called beside those that are: it may lie in another phase.
    beside: bool = False
    #: How long the thread ran since the operator before, in s; 0 where that is not known.
    before: float = 0.0
    #: Whether sparse tensors stand as tuples of what they are kept in: see :func:`sparse_parts.in_parts`.
    in_parts: bool = False
    #: Whether it ran in the phase of backward; None: that is so where the engine asked for it. What ``autograd.grad``
    #: has the engine do for a loss is forward's time.
    phase_is_backward: bool | None = None

    @property
    def times_backward(self) -> bool:
        """Whether its time is a part of backward's, and not of forward's."""
        return self.in_backward if self.phase_is_backward is None else self.phase_is_backward

    def given(self) -> Iterator[torch.Tensor]:
        """The tensors that it was called with."""
        return tensors_of(*self.args, *self.named.values())

    def made(self) -> Iterator[torch.Tensor]:
        """The tensors that it gave."""
        return tensors_of(self.result)


class Shows(Protocol):
    """Who shows operators to watchers."""

    @property
    def is_open(self) -> bool:
        """Whether operators of this thread are shown."""

    def interrupted(self) -> AbstractContextManager[float]:
        """What is done meanwhile is the look's own; gives how long the thread ran before, in s, since the operator
        before or the last such interruption.
        """


class Watcher:
    """Is shown every operator of a step's forward, loss and backward in its order, after it has run.

    What it computes itself is shown to nobody. It keeps no tensor, for that would change when memory is let go, draws
    no random number from torch, and leaves what it is shown as it is. A fault in it (one of ``FAULTS``) ends its own
    looking, and is told as the gap of its signals.
    """

    #: The names of the facts that it tells.
    signals: ClassVar[tuple[str, ...]] = ()
    #: Whether it is shown those as well for which a model asked beside those that are trained.
    sees_beside: ClassVar[bool] = False
    #: Whether it is shown those on sparse tensors as well, in their parts.
    sees_parts: ClassVar[bool] = False

    def opens(self) -> None:
        """Operators are shown from here on, after others that were not: memory may hold something else by now."""

    def passes_over(self, ran: Ran) -> None:
        """An operator has run that it is not shown, for some of its tensors' numbers lie in no piece of memory."""

    def see(self, ran: Ran) -> None:
        """An operator has run."""
        raise NotImplementedError

    def shown_by(self, mode: ReferenceType[Shows]) -> None:
        """Who shows it the operators."""

    def forward_begins(self) -> None:
        """From here on they are forward's, whatever they were before."""

    def model_called(self, *, begins: bool) -> None:
        """A call of a model that is trained begins, or is over; calls may lie one inside of the other."""

    def ends_forward(self, before: float) -> None:
        """Backward is called, ``before`` s of the thread after the operator before; 0 where that is not known."""

    def is_read(self, tensor: torch.Tensor) -> None:
        """A tensor's numbers are read by other means than an operator; not everybody is told."""

    def step_ended(self) -> None:
        """No more operators are shown, whether it is asked what it tells or not: what it has put into torch goes."""

    @property
    def why_not(self) -> str:
        """Why it has nothing to tell once the step is over; empty where it has."""
        return ""

    @property
    def told(self) -> dict[str, Json]:
        """Plain values by the names of ``TrialResult.facts``."""
        raise NotImplementedError


def aten(*names: str) -> frozenset[Any]:
    """Those of torch's own operators that there are by these names."""
    return frozenset(getattr(torch.ops.aten, name) for name in names if hasattr(torch.ops.aten, name))


def tensors_of(*given: Any) -> Iterator[torch.Tensor]:
    """The tensors among an operator's arguments or results, those in lists included."""
    for one in given:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from tensors_of(*one)


def has_one_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers lie in one piece of memory: not those of a sparse one, nor of a type that does its
    operators itself.
    """
    own = type(tensor) not in (torch.Tensor, torch.nn.Parameter)
    if own and type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return False
    return tensor.layout is torch.strided and not tensor.is_meta


def memory(tensor: torch.Tensor) -> int:
    """Where the memory begins that a tensor, and every view of it, lies in."""
    return int(tensor.untyped_storage().data_ptr())


def stored_numbers(tensor: torch.Tensor) -> int:
    """How many different numbers a tensor has: those that it was expanded over count once."""
    numbers = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        numbers *= size if stride else 1
    return numbers


def stored_bytes(tensor: torch.Tensor) -> int:
    """The bytes of a tensor's different numbers."""
    return stored_numbers(tensor) * tensor.element_size()
