"""What is known of each tensor's memory in one step: whose numbers lie in it, which value, and who wrote it last.

The memory is known by torch's own storage object, of which a weak reference is kept: it holds no number alive, and as
long as it is there no other storage gets the same address.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

#: So many numbers of a memory that was not made in the step are compared, where it may have been written unseen.
_COMPARED = 4

_weak: Callable[[Any], Any] = StorageWeakRef

_tolist: Callable[[torch.Tensor], list[Any]] = torch._C.TensorBase.tolist
_numpy: Callable[[torch.Tensor], Any] = torch._C.TensorBase.numpy


class Origin(enum.IntFlag):
    """What went into a value."""

    UNKNOWN = 1  # the batch, and all that was not followed
    PARAMETER = 2
    CONSTANT = 4  # made of nothing but numbers in the code
    RANDOM = 8


class Held:
    """One storage; two with one ``value`` hold the same numbers. ``writer`` is -1 where the step did not make it.

    ``fixed`` is whether the same lies there in each step, as far as is known. ``given`` says of which calls' arguments
    it is made beside that, as a number with one bit a call; 0: of none, -1: of what changes otherwise. ``named`` is its
    value, with places in the stead of what those arguments hold, of which the first begins ``base`` numbers in;
    ``handed`` is whether it is such an argument itself, whatever made it. ``picked`` is the operator that took a part
    of it last of which a tensor's number said which one; -1: none did. ``sized`` is whether how many numbers
    there are, or in a part of it, may depend on numbers. ``size`` are its bytes.
    """

    __slots__ = (
        *("base", "chain", "compared", "fixed", "given", "handed", "maker", "named", "origin"),
        *("picked", "size", "sized", "value", "version", "weak", "window", "writer"),
    )

    def __init__(self, weak: Any, value: int, origin: int, writer: int, window: int, *, fixed: bool) -> None:
        self.weak = weak
        self.size = 0
        self.value = value
        self.fixed = fixed
        self.origin = origin
        self.base = 0
        self.is_given(0 if fixed else -1, value)
        self.maker = self.writer = writer
        self.picked, self.sized = -1, False
        self.window = window
        self.version = 0
        self.compared: tuple[Any, ...] = ()
        #: The product of parameters that lies in it, if one does.
        self.chain: Any = None

    def is_given(self, given: int, named: int, *, handed: bool = False) -> None:
        self.given, self.named, self.handed = given, named, handed


class Storages:
    """All storages that were met in the step.

    Args:
        parameters: where the memories of parameters begin.
        trained: those of parameters that have a gradient.
    """

    def __init__(self, parameters: Iterable[int], trained: Iterable[int] = ()) -> None:
        self._parameters = {one for one in parameters if one}
        self._trained = {one for one in trained if one}
        #: Where the memories begin of those of models that nobody trains, whether they ask for gradients or not.
        self.untrained: set[int] = set()
        self._held: dict[int, Held] = {}
        self._values = 0
        self._window = 0
        #: Made in the step, and not yet seen to have gone.
        self._living: list[Held] = []
        self._sweep_at = 64

    def opens(self) -> list[Held]:
        """Something may have run unseen: gives what was made until now and may have been read there."""
        self._window += 1
        living, self._living = self._living, []
        return living

    def new_value(self) -> int:
        """One that nothing else has."""
        self._values += 1
        return hash(("value", self._values))

    def of(self, tensor: torch.Tensor) -> Held:
        """What is known of a tensor's memory; it is taken note of where it was not met before."""
        storage = tensor.untyped_storage()
        held = self._held.get(storage._cdata)
        if held is None:
            origin = Origin.PARAMETER if storage.data_ptr() in self._parameters else Origin.UNKNOWN
            asks = tensor.requires_grad or storage.data_ptr() in self._trained
            trained = asks and storage.data_ptr() not in self.untrained
            held = self._add(storage, self.new_value(), origin, -1, fixed=not trained)
            held.compared = _some_numbers(tensor, storage)
            held.version = _version(tensor)
        elif held.window != self._window:
            held.window = self._window
            now = _some_numbers(tensor, storage) if held.writer < 0 else ()
            if held.version != _version(tensor) or held.compared != now:
                held.value, held.origin, held.fixed = self.new_value(), held.origin | Origin.UNKNOWN, False
                held.is_given(-1, held.value)
                held.compared, held.chain = now, None
                held.version = _version(tensor)
        return held

    def known(self, tensor: torch.Tensor) -> Held | None:
        """What is known of it, without taking note of it."""
        return self._held.get(tensor.untyped_storage()._cdata)

    def made(self, tensor: torch.Tensor, value: int, origin: int, writer: int, *, fixed: bool) -> Held:
        """An operator has made this tensor's memory."""
        held = self._add(tensor.untyped_storage(), value, origin, writer, fixed=fixed)
        held.version = _version(tensor)
        self._living.append(held)
        return held

    def written(
        self, held: Held, tensor: torch.Tensor, value: int, origin: int, writer: int, *, fixed: bool = False
    ) -> None:
        """An operator has written into it; autograd counts the version up after the operator has been shown."""
        held.value, held.origin, held.fixed = value, held.origin | origin, fixed
        held.is_given(0 if fixed else -1, value)
        held.version = _version(tensor) + 1
        if held.writer >= 0:
            held.writer = writer
        else:
            held.compared = _some_numbers(tensor, tensor.untyped_storage())

    @property
    def all(self) -> list[Held]:
        """Every one that is known of, gone ones among them."""
        return [*self._held.values()]

    def sweep(self, *, now: bool = False) -> int:
        """Forget what has been let go. Is asked while operators are shown, so that nothing read it unseen.

        Returns:
            How much there is that was made in the step and is left.
        """
        if now or len(self._living) >= self._sweep_at:
            self._living = [held for held in self._living if not held.weak.expired()]
            self._sweep_at = 2 * len(self._living) + 64
        return len(self._living)

    def forget_the_step(self, keep: Iterable[Held]) -> None:
        """The step is over: nothing but what is to be kept is known any more."""
        kept = {id(one) for one in keep}
        self._held = {at: held for at, held in self._held.items() if id(held) in kept}
        for held in self._held.values():
            held.base, held.picked, held.sized = 0, -1, False
            held.is_given(0 if held.fixed else -1, held.value)
        self._living = []

    def _add(self, storage: Any, value: int, origin: int, writer: int, *, fixed: bool) -> Held:
        held = Held(_weak(storage), value, origin, writer, self._window, fixed=fixed)
        held.size = storage.nbytes()
        self._held[storage._cdata] = held
        return held


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)


def _some_numbers(tensor: torch.Tensor, storage: Any) -> tuple[Any, ...]:
    """Some of what lies in a memory, spread over it; as text, for what is not a number is not equal to itself."""
    count = storage.nbytes() // max(1, tensor.element_size())
    if tensor.is_quantized or count < _COMPARED:
        return ()
    # Torch's own method: that of torch.Tensor may be one that tells who reads.
    some = _tolist(tensor.as_strided((_COMPARED,), (count // _COMPARED,), 0))
    return tuple(repr(one) for one in some)


def bytes_of(tensor: torch.Tensor) -> bytes:
    """All that lies in a tensor on the CPU, bit by bit."""
    held: bytes = _numpy(tensor.detach().reshape(-1).view(torch.uint8)).tobytes()
    return held
