"""Tells whether parameters have changed: by torch's count of changes, by where their values lie, or by the values."""

from __future__ import annotations

import ctypes
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from perf_diagnostics.measure.steps.device_clock import captures

#: A parameter of so many elements is compared as a whole; of a larger one it is the element with
#: the largest gradient, which is looked for while it is not known yet who trains.
SMALL = 4096

#: So many parameters are looked at, the smallest of those next to the loss.
_MOST_WATCHED = 2

_FUNCTORCH: Any = getattr(torch._C, "_functorch", None)


@dataclass
class _Watched:
    """One parameter as it was."""

    tensor: weakref.ref[torch.Tensor]
    small: bool
    index: tuple[int, ...]
    version: int
    pointer: int
    #: None where computing with it would be a part of something else.
    values: bytes | None

    @classmethod
    def of(cls, tensor: torch.Tensor, gradient: torch.Tensor | None) -> _Watched:
        small = tensor.numel() <= SMALL and tensor.is_contiguous()
        if _belongs_elsewhere(tensor):
            return cls(weakref.ref(tensor), small, (), tensor._version, tensor.data_ptr(), None)
        alike = gradient is not None and gradient.shape == tensor.shape
        index = () if small else _largest(gradient if gradient is not None and alike else tensor)
        values = _values(tensor, index)
        return cls(weakref.ref(tensor), small, index, tensor._version, tensor.data_ptr(), values)

    def told(self, tensor: torch.Tensor) -> bool:
        """Whether it was changed in a way that torch counts, or its values lie elsewhere; nothing waits for that."""
        return tensor._version != self.version or tensor.data_ptr() != self.pointer

    def changed(self, tensor: torch.Tensor, *, waits: bool) -> bool:
        """Whether it has changed; ``waits``: also on a device, which has to come to that."""
        if self.told(tensor):
            return True
        if self.values is None or not (waits or self._may_be_compared(tensor)) or _belongs_elsewhere(tensor):
            return False
        return _values(tensor, self.index) != self.values

    def was(self, tensor: torch.Tensor) -> bool:
        """Whether it had the values that another tensor has, as far as they are known."""
        if self.values is None or _belongs_elsewhere(tensor):
            return False
        if self.index:
            alike = len(self.index) == tensor.dim() and all(map(int.__lt__, self.index, tensor.shape))
        else:
            alike = tensor.nbytes == len(self.values)
        return alike and _values(tensor, self.index) == self.values

    def renew(self, tensor: torch.Tensor) -> None:
        """This is what it is like now, as far as nothing waits for that."""
        self.version, self.pointer = tensor._version, tensor.data_ptr()
        if self.values is not None and self._may_be_compared(tensor) and not _belongs_elsewhere(tensor):
            self.values = _values(tensor, self.index)

    def _may_be_compared(self, tensor: torch.Tensor) -> bool:
        return self.small and tensor.device.type == "cpu"


class ParameterChanges:
    """A few parameters, as they were when they were looked at last."""

    def __init__(self) -> None:
        self._watched: list[_Watched] = []

    def look(self, tensors: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> None:
        """From now on these are looked at, or some of them; ``gradients`` are theirs, shape for shape."""
        smallest = sorted(zip(tensors, gradients, strict=True), key=lambda pair: pair[0].numel())[:_MOST_WATCHED]
        small = [pair for pair in smallest if pair[0].numel() <= SMALL]
        self._watched = [_Watched.of(tensor, gradient) for tensor, gradient in small or smallest[:1]]

    def any(self, *, waits: bool) -> bool:
        """Whether one has changed since it was looked at; ``waits``: also by values of large ones, and on a device."""
        return any(one.changed(tensor, waits=waits) for one, tensor in self._alive())

    @property
    def can_be_told(self) -> bool:
        """Whether what has changed by now is told without waiting for a device, and without knowing its gradient."""
        return any(one.changed(tensor, waits=False) for one, tensor in self._alive())

    def renew(self) -> None:
        """They are looked at as they are now, as far as nothing waits for that."""
        for one, tensor in self._alive():
            one.renew(tensor)

    def were_copies_of(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether each of them had the values that one of these has."""
        return bool(self._watched) and all(any(map(one.was, tensors)) for one in self._watched)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Those that are looked at."""
        return [tensor for _, tensor in self._alive()]

    @property
    def alive(self) -> bool:
        """Whether one of them is still there."""
        return bool(self._alive())

    def _alive(self) -> list[tuple[_Watched, torch.Tensor]]:
        return [(one, tensor) for one in self._watched if (tensor := one.tensor()) is not None]


def reached(outputs: Sequence[Any], *, nodes: int, leaves: int) -> list[torch.Tensor]:
    """The tensors that a backward from these outputs gives gradients to, those next to them first.

    Args:
        outputs: what the backward begins at.
        nodes: so many operators of the graph are looked at.
        leaves: so many tensors are enough.
    """
    starts = [getattr(one, "grad_fn", None) or getattr(one, "node", None) for one in outputs]
    waiting = deque(node for node in starts if node is not None)
    seen, found = set(waiting), list[torch.Tensor]()
    while waiting and len(seen) < nodes and len(found) < leaves:
        node = waiting.popleft()
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            found.append(variable)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return found


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that torch.func's transforms have wrapped."""
    while _FUNCTORCH is not None and _FUNCTORCH.is_functorch_wrapped_tensor(tensor):
        tensor = _FUNCTORCH.get_unwrapped(tensor)
    return tensor


def inside_transforms() -> int:
    """How many of torch.func's transforms are around; 0 without any."""
    if _FUNCTORCH is None or not torch._C._are_functorch_transforms_active():
        return 0
    level: int = _FUNCTORCH.maybe_current_level()
    return level


def _belongs_elsewhere(tensor: torch.Tensor) -> bool:
    """Whether computing with it would be a part of something: a transform of torch.func, or a CUDA graph's capture,
    which reading a number even breaks off."""
    return bool(inside_transforms()) or captures(tensor.device)


def modules_of(tensors: Sequence[torch.Tensor], modules: Iterable[torch.nn.Module]) -> list[torch.nn.Module]:
    """The modules whose parameters these may be, by their shapes: all are among a module's own, and half of these."""
    shapes = Counter(tensor.shape for tensor in tensors)
    found = []
    for module in modules:
        own = [parameter.shape for parameter in module.parameters()]
        if own and 2 * len(tensors) >= len(own) and shapes <= Counter(own):
            found.append(module)
    return found


def _values(tensor: torch.Tensor, index: tuple[int, ...]) -> bytes:
    """The bytes of a part of a tensor. On the CPU they are read where they lie: operators of torch are ten times as
    dear, and what follows all operators would see them."""
    if index or not tensor.is_contiguous() or tensor.device.type != "cpu":
        return tensor.detach()[index].cpu().flatten().view(torch.uint8).numpy().tobytes()
    size = tensor.nbytes
    if tensor.untyped_storage().nbytes() < tensor.storage_offset() * tensor.element_size() + size:
        return b""  # its memory was let go
    return ctypes.string_at(tensor.data_ptr(), size)


def _largest(tensor: torch.Tensor) -> tuple[int, ...]:
    """Where its largest element lies, or its smallest one if no other is above 0; of a sparse one, its first row."""
    tensor = tensor.detach()
    if tensor.is_sparse:
        return tuple(tensor._indices()[:, 0].tolist())
    largest = tensor.argmax()  # not of the sizes, for they would be as many again
    place, index = int(largest if tensor.flatten()[largest] > 0 else tensor.argmin()), list[int]()
    for size in reversed(tensor.shape):
        place, here = divmod(place, size)
        index.insert(0, here)
    return tuple(index)
