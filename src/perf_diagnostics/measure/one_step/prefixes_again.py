"""Whether a model is called again and again, each time with all that the last call was given and a little more.

So does generation without a cache of keys and values: for each new position all earlier ones go through the model. The
calls are those without gradients in one step. That what a call computes of the earlier positions is what the call
before had computed of them is seen by the operators of two calls: of those whose results grow with the sequence the
first position comes out the same. In a model that looks ahead it would not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isnan
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.fused_attention import leaves_the_past
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.samples_again import arguments_of
from perf_diagnostics.measure.one_step.watcher import Ran, Watcher, aten, tensors_of
from perf_diagnostics.records import Json

SIGNAL = "prefixes_again"

#: So many calls extend the one before, so that it is no accident.
LEAST_CALLS = 4

#: Of a tensor at most so many numbers are compared; of more than these a sequence's features are sampled.
_MOST_NUMBERS, _FEATURES = 1 << 20, 16

#: Of an operator's result so many numbers are compared, which may differ by so much of the largest.
_PRINTED, _NEARLY = 4, 1e-3

#: At least so many of the operators with numbers have a result that grows with the sequence: with a cache only those
#: of attention's scores do.
_LEAST_GROWING = 0.25

#: A mask of fewer positions says nothing about the others.
_LEAST_MASK = 3

#: Modules and operators of few positions take so much each, whatever they compute: transformers of 2 layers took 4 to 5
#: us an operator for one token, and 5 to 6 us with a cache, for one row and for eight (torch 2.13, one core).
_AN_OPERATOR_S = 6e-6

_ATEN = torch.ops.aten

_MASKS = aten("add", "add_", "masked_fill", "masked_fill_", "where")

#: Not those of torch.Tensor, by which who follows the data sees the training's own reads.
_numpy: Callable[[torch.Tensor], Any] = torch._C.TensorBase.numpy
_numel: Callable[[torch.Tensor], int] = torch._C.TensorBase.numel
shape_of: Callable[[torch.Tensor], torch.Size] = torch._C.TensorBase.shape.__get__  # type: ignore[attr-defined]
_tolist: Callable[[torch.Tensor], list[Any]] = torch._C.TensorBase.tolist

#: Of the thread: what others do on a crowded processor meanwhile is no time of a call.
_clock = time.thread_time_ns


class Grown(NamedTuple):
    """What a call was given beyond the last one: of so many ``positions`` so many ``again``, in so many ``rows``."""

    rows: int
    positions: int
    again: int
    #: Along which dimension of what it was given.
    dim: int = 1


class _Print(NamedTuple):
    """Of an operator's result: its shape, and the first numbers of it."""

    name: str
    shape: tuple[int, ...]
    numbers: list[float]


class _Prints(Watcher):
    """Keeps a few numbers of what each operator of a call gives, at its first position."""

    signals: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.prints: list[_Print] = []
        self.draws = self.masks_the_future = False

    def see(self, ran: Ran) -> None:
        self.draws |= ran.operator in (_ATEN.native_dropout, _ATEN.bernoulli_, _ATEN.bernoulli)
        self.masks_the_future |= _masks_the_future(ran)
        for made in tensors_of(ran.result):
            if made.is_floating_point() and made.numel():
                first = made.detach()[(0,) * (made.dim() - 1)] if made.dim() else made.detach().reshape(1)
                self.prints.append(_Print(str(ran.operator), tuple(made.shape), _tolist(first[:_PRINTED].double())))

    @property
    def told(self) -> dict[str, Json]:
        """Nothing by itself."""
        return {}

    def is_causal_as(self, before: _Prints) -> bool:
        """Whether these of a longer sequence agree with those ``before`` at the first position.

        Where random numbers are drawn nothing agrees; then a mask that leaves the past says so.
        """
        now, then = self.prints, before.prints
        least = _LEAST_GROWING * len(now)
        if len(now) > len(then):  # a recurrent layer has operators for each position
            now, then, least = self._beside(before), before._beside(self), 1
        if [one.name for one in now] != [one.name for one in then]:
            return False
        grown = [(one, other) for one, other in zip(now, then, strict=True) if one.shape != other.shape]
        if len(grown) < least:
            return False
        return self.masks_the_future if self.draws else all(_agree(a.numbers, b.numbers) for a, b in grown)

    def _beside(self, other: _Prints) -> list[_Print]:
        """Those of a shape that the other one has none of."""
        shapes = {one.shape for one in other.prints}
        return [one for one in self.prints if one.shape not in shapes]


class _Calls:
    """The calls of one model at one line, one longer than the other."""

    def __init__(self, told: dict[str, Json]) -> None:
        self.told = told
        self.grown: list[tuple[Grown, float | None]] = []
        self.prints: _Prints | None = None
        self.operators = 0
        self.causal: bool | None = None

    def entry(self) -> dict[str, Json] | None:
        """What is told; None where nothing is sure."""
        timed = [(grown, seconds) for grown, seconds in self.grown if seconds is not None]
        if len(self.grown) < LEAST_CALLS or self.causal is not True or not timed:
            return None
        a_position = sum(seconds for _, seconds in timed) / sum(grown.positions for grown, _ in timed)
        shortest = min(seconds for _, seconds in timed)
        least = value = most = whole = 0.0
        for grown, known in self.grown:
            seconds = known if known is not None else grown.positions * a_position
            new = seconds * (1 - grown.again / grown.positions)
            whole += seconds
            most += seconds - new
            value += max(0.0, seconds - max(new, self.operators * _AN_OPERATOR_S))
            least += max(0.0, seconds - shortest)
        return {
            **self.told,
            "calls": len(self.grown),
            "rows": max(grown.rows for grown, _ in self.grown),
            "longest": max(grown.positions for grown, _ in self.grown),
            "positions": sum(grown.rows * grown.positions for grown, _ in self.grown),
            "positions_again": sum(grown.rows * grown.again for grown, _ in self.grown),
            "seconds": whole,
            "seconds_again": value,
            "seconds_again_least": min(least, value),
            "seconds_again_most": most,
        }


class PrefixesAgain:
    """Is shown the calls of models without gradients in the step that is looked through."""

    def __init__(self) -> None:
        self._lines = OperatorLines()
        self._calls: dict[Any, _Calls] = {}
        #: What each model was called with last, in numbers of our own.
        self._last: dict[int, list[Any]] = {}
        self._on_a_device = False

    def call(
        self,
        model: torch.nn.Module,
        args: Sequence[Any],
        named: Mapping[str, Any],
        mode: OperatorMode,
        looks: Callable[[], bool],
    ) -> Callable[[], None] | None:
        """A call begins; None, or what is called when it is over.

        Calls that extend the last one are shown to nobody else: the first two of them here, and of the others the time
        is taken as they are.

        Args:
            model: what is called.
            args: what it is called with.
            named: the same, by name.
            mode: shows the operators of the step.
            looks: whether that step still goes on once the call is over.
        """
        grown = self._grown(id(model), arguments_of(args, named))
        key, told = self._lines.line()
        if grown is None or key is None:
            return None
        calls = self._calls.setdefault((id(model), key), _Calls(told))
        was_open, was_beside = mode.is_open, mode.beside
        mode.close()
        prints = OperatorMode([_Prints()]) if calls.causal is None else None
        if prints is not None:
            prints.open()
        began = _clock()

        def ends() -> None:
            took = (_clock() - began) * 1e-9
            if prints is not None:
                prints.close()
                _compare(calls, prints)
            calls.grown.append((grown, None if prints is not None else took))
            if was_open and looks():
                mode.open(beside=was_beside)

        return ends

    def _grown(self, model: int, given: Sequence[torch.Tensor]) -> Grown | None:
        """How a model's arguments go on from those of its last call; None where they do not."""
        if any(not one.is_cpu for one in given):
            self._on_a_device = True
            return None
        before, now = self._last.get(model, []), [sampled(one) for one in given]
        self._last[model] = now
        return grown_from(before, now)

    @property
    def why_not(self) -> str:
        """Why there is nothing to tell; empty where there is."""
        return "models were called with what lies on a device, which is not compared" if self._on_a_device else ""

    @property
    def told(self) -> list[Json]:
        """For each model and line that called it: how many ``calls`` went on from the one before, in so many ``rows``
        and up to how many positions (``longest``), how many ``positions`` they computed in all, how many of these
        ``again``, and in seconds what they took, and what of it a cache would save: at least, at most, and probably.
        """
        found = [entry for one in self._calls.values() if (entry := one.entry()) is not None]
        return [*sorted(found, key=lambda one: -float(str(one["seconds_again"])))]

    def join(self, facts: dict[str, Json], gaps: dict[str, str]) -> None:
        """Add what is told to that of recurrent layers among these facts, or why nothing is to the gaps.

        Args:
            facts: what the step's watchers tell, by the names of ``TrialResult.facts``.
            gaps: why some of them do not.
        """
        recurrent = facts.pop(SIGNAL, [])
        found = [*self.told, *(recurrent if isinstance(recurrent, list) else [])]
        why_not = self.why_not or gaps.pop(SIGNAL, "")
        if found or not why_not:
            facts[SIGNAL] = found
        else:
            gaps[SIGNAL] = why_not


def grown_from(before: Sequence[Any], now: Sequence[Any]) -> Grown | None:
    """How a call's arguments go on from those of the one before, as :func:`sampled` kept both; None: they do not."""
    if len(before) != len(now):
        return None
    found: Grown | None = None
    for one, other in zip(before, now, strict=True):
        if one is None or other is None or one.dtype != other.dtype or one.ndim != other.ndim:
            return None
        if one.shape == other.shape:
            if not np.array_equal(one, other):
                return None
            continue
        at = [number for number in range(one.ndim) if one.shape[number] != other.shape[number]]
        if len(at) > 1 or one.shape[at[0]] >= other.shape[at[0]] or not one.shape[at[0]]:
            return None
        old, new = one.shape[at[0]], other.shape[at[0]]
        if not np.array_equal(one, other[(slice(None),) * at[0] + (slice(old),)]):
            return None
        found = found or Grown(1 if at[0] == 0 else int(one.shape[0]), new, old, at[0])
    return found


def _compare(calls: _Calls, mode: OperatorMode) -> None:
    """The operators of a call against those of the one before."""
    (prints,) = mode.watchers
    if not isinstance(prints, _Prints):
        return
    calls.operators = mode.seen
    if mode.problem or mode.problems:
        calls.causal = False
    elif calls.prints is not None:
        calls.causal = prints.is_causal_as(calls.prints)
    calls.prints = prints if calls.causal is None else None


def _masks_the_future(ran: Ran) -> bool:
    """Whether an operator masks what comes later, of attention in one kernel or in several."""
    name = str(getattr(ran.operator, "__name__", ""))
    if name.startswith("_scaled_dot_product"):
        flags: Iterator[Any] = (one for one in (*ran.args[3:], ran.named.get("is_causal")) if isinstance(one, bool))
        masks = [one for one in (*ran.args[3:], ran.named.get("attn_mask")) if isinstance(one, torch.Tensor)]
        return any(flags) or any(leaves_the_past(one, _LEAST_MASK) for one in masks)
    return ran.operator in _MASKS and any(leaves_the_past(one, _LEAST_MASK) for one in ran.given())


def _agree(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = [(a, b) for a, b in zip(one, other, strict=False) if a != b and not (isnan(a) and isnan(b))]
    largest = max((abs(number) for number in (*one, *other) if abs(number) < inf), default=0.0)
    return all(abs(a - b) <= _NEARLY * largest for a, b in pairs)


def sampled(tensor: torch.Tensor) -> Any:
    """Its numbers, of which some features are left out where there are many; None where they are not compared."""
    if tensor.layout is not torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return None
    plain = tensor.detach()
    if _numel(plain) > _MOST_NUMBERS and plain.dim() > 2:
        plain = plain[..., :: max(1, shape_of(plain)[-1] // _FEATURES)]
    if _numel(plain) > _MOST_NUMBERS:
        return None
    return _numpy(plain.float() if plain.dtype is torch.bfloat16 else plain).copy()
