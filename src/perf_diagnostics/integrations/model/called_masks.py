"""Counts the padding that a model is called with, by the mask among the arguments of its call.

A mask counts as one of padding where its meaning is certain: by its name and its shape, and by the data, where that
tells. What is not certain is not measured. Nothing here waits for a device: a mask there is counted by the tensor on
the host that it was copied from.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch

from perf_diagnostics.integrations.model.masks import padding_of
from perf_diagnostics.workloads.workload import BatchCount

#: Masks by name, the most certain first, and whether they mark padding (torch's own layers) or tokens (Transformers);
#: None: what they mark is told by the data.
_MARKS_PADDING: dict[str, bool | None] = {
    "src_key_padding_mask": True,
    "key_padding_mask": True,
    "attention_mask": False,
    "padding_mask": None,
    "mask": None,
}
#: Torch's layers take (length, batch) too, with a mask of (batch, length) all the same.
_TORCHS_OWN = ("src_key_padding_mask", "key_padding_mask")

#: What else a model may be called with that is no token, and is computed on as well.
_OTHER_DATA = ("pixel_values", "pixel_values_videos", "input_features", "input_values")
_OF_IMAGES = 4

#: So many batches with padding are looked at to tell what a mask marks: random numbers never tell.
_LOOKS = 16

#: Copies that are kept until a step ends.
_MOST_COPIES = 64

_WRAPPERS = ("OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")

#: The tensors that torch.func hands to what it maps over hold no numbers that can be read. As of torch 2.6 to 2.13.
_is_wrapped: Callable[[torch.Tensor], bool] = getattr(
    getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", lambda _: False
)

#: A copy, the tensor on the host, and how often each was changed in place by then.
_Copied: TypeAlias = tuple[weakref.ref[torch.Tensor], torch.Tensor, int, int]

HostOf = Callable[[torch.Tensor], torch.Tensor | None]


@dataclass(frozen=True)
class CallCount(BatchCount):
    """What a batch holds by the mask that a model was called with; ``by`` is the identity of that model's reader."""

    by: int = 0


def joined(
    before: int | BatchCount | None, found: tuple[int, int] | None, *, by: int, once: bool
) -> int | BatchCount | None:
    """What a batch holds after one more call of a model on it, or on a part of it.

    Args:
        before: what it held by what is known so far.
        found: tokens and padding tokens of the call; None where they could not be told.
        by: the identity of the model's reader; what two different models were called with is not added up.
        once: whether a later call is on the same rows again.
    """
    if before is None or not open_to(before, by=by, once=once):
        return before
    if isinstance(before, CallCount):
        if found is None or before.tokens is None or before.padding_tokens is None:
            return CallCount(before.samples, by=by)
        return CallCount(before.samples, before.tokens + found[0], before.padding_tokens + found[1], by)
    if isinstance(before, BatchCount) and found is None and before.tokens is not None:
        return before
    samples = before if isinstance(before, int) else before.samples
    return CallCount(samples, by=by) if found is None else CallCount(samples, *found, by)


def open_to(before: int | BatchCount | None, *, by: int, once: bool) -> bool:
    """Whether a call may tell something new of a batch: not where the batch told of its padding by itself."""
    if isinstance(before, CallCount):
        return before.by == by and not once
    return isinstance(before, int) or (before is not None and before.padding_tokens is None)


class Copies:
    """Which tensor on the host one on a device was copied from; kept only where a model may be called with a mask."""

    def __init__(self) -> None:
        #: Whether somebody asks.
        self.wanted = False
        self._sources: dict[int, _Copied] = {}
        #: Those of the step before: who copies a batch ahead of its step calls the model with it in the next one.
        self._before: dict[int, _Copied] = {}

    def add(self, source: torch.Tensor, copy: Any) -> None:
        """A tensor was copied to a device; larger things than masks and numbers of tokens are not kept."""
        if type(copy) is torch.Tensor and copy.ndim == 2:
            if len(self._sources) >= _MOST_COPIES:
                self._sources.clear()
            self._sources[id(copy)] = (weakref.ref(copy), source, source._version, copy._version)

    def add_all(self, batch: Any, moved: Any) -> None:
        """Lists, tuples and mappings of tensors were copied to a device as a whole; what has become of other things
        is not known."""
        if isinstance(batch, torch.Tensor):
            if isinstance(moved, torch.Tensor) and batch.device.type == "cpu" != moved.device.type:
                self.add(batch, moved)
        elif isinstance(batch, (list, tuple)):
            if isinstance(moved, (list, tuple)) and len(batch) == len(moved):
                for part, there in zip(batch, moved, strict=True):
                    self.add_all(part, there)
        elif isinstance(batch, Mapping) and isinstance(moved, Mapping) and batch is not moved:
            for key in batch:
                self.add_all(batch[key], moved.get(key))

    def source_of(self, copy: torch.Tensor) -> torch.Tensor | None:
        """The tensor on the host, None where it is not known or either was changed since; itself on the CPU."""
        if copy.device.type == "cpu":
            return copy
        known = self._sources.get(id(copy)) or self._before.get(id(copy))
        if known is None:
            return None
        alive, source, of_source, of_copy = known
        return source if alive() is copy and (source._version, copy._version) == (of_source, of_copy) else None

    def forget(self) -> None:
        """A step has ended; what was copied in it may be used in the next one."""
        self._before, self._sources = self._sources, {}


class MaskReader:
    """Finds the mask among the arguments of one model's calls.

    Args:
        names: of the masks that its forward may take.
        places: at which position its forward takes what by that name.
        inputs: the name of what its forward takes first, None where it takes nothing by name.
        conventional: whether the model keeps to Transformers' conventions.
    """

    def __init__(
        self, names: Sequence[str], places: Mapping[str, int], inputs: str | None, *, conventional: bool
    ) -> None:
        self._names = list(names)
        self._places = places
        self._inputs = inputs
        #: Masks whose first axis is known to be the batch: where it is as long as the other one, nobody could tell.
        self._by_row = {name for name in names if name in _TORCHS_OWN or (conventional and name == "attention_mask")}
        self._marks_padding = {name: _MARKS_PADDING[name] for name in names}
        self._looks = {name: _LOOKS if self._marks_padding[name] is None else 1 for name in names}

    def read(self, args: Sequence[Any], kwargs: Mapping[str, Any], host_of: HostOf) -> tuple[int, int] | None:
        """Tokens and padding tokens of a call; None where they cannot be told.

        Args:
            args: what the model is called with.
            kwargs: what it is called with by name.
            host_of: gives the tensor on the host that another one was copied from, None where there is none.
        """
        inputs: torch.Tensor | None = None
        for name in self._names:
            mask = self._value(name, args, kwargs)
            if type(mask) is not torch.Tensor or mask.ndim != 2:
                continue
            inputs = self._inputs_of(args, kwargs, mask) if inputs is None else inputs
            if inputs is None:
                return None
            padding = self._padding(name, mask, inputs, host_of)
            if padding is not None:
                return None if _holds_other_data(args, kwargs, inputs) else (mask.numel(), padding)
        return None

    def _value(self, name: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if name is None:
            return None
        place = self._places.get(name)
        return args[place] if place is not None and place < len(args) else kwargs.get(name)

    def _inputs_of(self, args: Sequence[Any], kwargs: Mapping[str, Any], mask: torch.Tensor) -> torch.Tensor | None:
        """What the mask is of: the first argument, or the first tensor by the name that Transformers gives it."""
        for value in (self._value(self._inputs, args, kwargs), kwargs.get("input_ids"), kwargs.get("inputs_embeds")):
            if type(value) is torch.Tensor and value.ndim >= 2 and value is not mask:
                return value
        return None

    def _padding(self, name: str, mask: torch.Tensor, inputs: torch.Tensor, host_of: HostOf) -> int | None:
        length_first = False
        if mask.shape != inputs.shape[:2]:
            length_first = name in _TORCHS_OWN and mask.shape == inputs.shape[1::-1]
            if not length_first:
                return None  # of another shape than (batch, length): attention from each place to each
        if mask.shape[0] != mask.shape[1]:
            self._by_row.add(name)
        elif name not in self._by_row:
            return None
        host = host_of(mask)
        if host is None or host.layout is not torch.strided or _is_wrapped(host):
            return None
        marks_padding = self._marks_padding[name]
        if marks_padding is None and host.is_floating_point():
            return None
        padding = padding_of(host, marks_padding=marks_padding is True)
        if padding is None:
            return None
        if marks_padding is None and padding in (0, mask.numel()):
            return 0  # all alike: a batch of nothing but padding there is not
        if 0 < padding < mask.numel() and self._looks[name] and not host.is_floating_point():
            if not self._look(name, host, host_of(inputs), length_first=length_first):
                return None
            if marks_padding is None and self._marks_padding[name]:
                padding = mask.numel() - padding
        return padding if padding < mask.numel() else None

    def _look(self, name: str, mask: torch.Tensor, inputs: torch.Tensor | None, *, length_first: bool) -> bool:
        """See by the data what a mask marks; false where that is not known, or is not what its name says."""
        said = self._marks_padding[name]
        self._looks[name] -= 1
        square = mask.shape[0] == mask.shape[1] and name in _TORCHS_OWN
        shown = None
        if inputs is not None and not square and not _is_wrapped(inputs):
            shown = _marks_padding(mask, inputs.detach().transpose(0, 1) if length_first else inputs.detach())
        if shown is not None:
            self._looks[name] = 0
        if said is None:
            self._marks_padding[name] = shown
        wrong = said is not None and shown is not None and shown != said
        if wrong or (said is None and shown is None and not self._looks[name]):
            self._names.remove(name)
        return not wrong and self._marks_padding[name] is not None


class Call(NamedTuple):
    """A call of a model that may be called with a mask."""

    reader: MaskReader
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    host_of: HostOf


def count_call(
    batches: list[int | BatchCount | None], masked: int | BatchCount | None, call: Call, *, once: bool
) -> int | BatchCount | None:
    """Put down what a call tells of the batch that came last, or where none was seen of what is called with.

    Args:
        batches: those of the step; the last one is replaced.
        masked: what the step's calls without a batch hold so far.
        call: what is called.
        once: whether a later call of the step is on the same rows again.

    Returns:
        What the step's calls without a batch hold now.
    """
    before = batches[-1] if batches else masked
    by = id(call.reader)
    if not open_to(before, by=by, once=once):
        return masked
    now = joined(before, call.reader.read(call.args, call.kwargs, call.host_of), by=by, once=once)
    if not batches:
        return now
    batches[-1] = now
    return masked


def reader_of(module: torch.nn.Module) -> MaskReader | None:
    """What finds the masks that a model is called with; None where its forward takes none by a name that is known."""
    inner = _unwrapped(module)
    try:
        parameters = list(inspect.signature(inner.forward).parameters.values())
    except (TypeError, ValueError):  # of what is not written in Python
        return None
    by_place = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    takes_any = len(by_name) < len(parameters)
    names = [name for name in _MARKS_PADDING if takes_any or name in by_name]
    if not names:
        return None
    conventional = any(
        kind.__name__ == "PreTrainedModel" and kind.__module__.startswith("transformers.")
        for kind in type(inner).__mro__
    )
    places = {name: place for place, name in enumerate(by_place)}
    return MaskReader(names, places, by_place[0] if by_place else None, conventional=conventional)


def _unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside of torch's own wrappers, which pass on whatever they are called with."""
    inner = module
    while type(inner).__name__ in _WRAPPERS and type(inner).__module__.startswith("torch."):
        held = inner._modules.get("_orig_mod", inner._modules.get("module"))
        if held is None:
            break
        inner = held
    return inner


def _holds_other_data(args: Sequence[Any], kwargs: Mapping[str, Any], inputs: torch.Tensor) -> bool:
    """Whether a call is on images or sound as well: of what is computed then, the tokens are a part."""
    if any(kwargs.get(name) is not None and kwargs[name] is not inputs for name in _OTHER_DATA):
        return True
    return any(isinstance(value, torch.Tensor) and value.ndim >= _OF_IMAGES for value in (*args, *kwargs.values()))


def _marks_padding(mask: torch.Tensor, inputs: torch.Tensor) -> bool | None:
    """Whether what is not zero in a mask is padding, by the data; None where they do not tell.

    Padding is one value throughout and lies at one end of the rows; of tokens there are several. Numbers of tokens
    that were masked to be guessed have one value, too, and lie in the midst of the rows.

    Args:
        mask: shape (batch, length); some of it is zero, and some is not.
        inputs: shape (batch, length) or (batch, length, features), on the same host.
    """
    marked = mask != 0
    alike = [bool((side == side[0]).all()) for side in (inputs[marked], inputs[~marked])]
    if alike[0] == alike[1]:
        return None
    padding = marked if alike[0] else ~marked
    after, before = padding[:, 1:], padding[:, :-1]
    at_one_end = bool((after >= before).all()) or bool((after <= before).all())
    return alike[0] if at_one_end else None
