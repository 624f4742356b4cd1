"""Whether the samples that models are called with come again later, told by what lies in some of them.

A sample is a row of a call's arguments, so that it is known again in whichever batch it comes. Of all samples those are
kept whose numbers make a hash that ends in some zeros: the same ones in each pass over the data, so that the share of
these that were met before is that of all.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import numpy as np
import torch

from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.module_calls import TimedCalls, own_call, stands_in
from perf_diagnostics.measure.observation import in_words

_INNER: Any = torch._C

_numpy: Callable[[torch.Tensor], Any] = torch._C.TensorBase.numpy

#: So many numbers of a row decide whether it is kept; of a kept row so many bytes are compared, spread over it.
_NUMBERS, _COMPARED = 32, 1 << 16

#: Of a call some two rows are kept at first, and at most so many of all; then half of them go, with their like.
_KEPT_A_CALL, _MOST_KEPT = 2, 8192

#: After so many calls of which none was kept there are few different ones, as of a prompt that is always the same: then
#: all are.
_UNKEPT_CALLS = 8

#: The share of what was kept last that had been met before, of so many rows.
_WINDOW = 64

#: What comes again so many times is known, and nothing more is compared.
_PASSES = 4

#: So much of the time since it began may go into comparing, and so much at first. Then it is given up.
_SHARE, _ALLOWANCE_NS = 200, 50_000_000

_MOST_TENSORS, _DEEPEST = 16, 3

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PLAIN = (torch.Tensor, torch.nn.Parameter)

#: Of the thread: what others do on a crowded processor meanwhile costs the training nothing.
_clock, _own_clock = time.perf_counter_ns, time.thread_time_ns


@dataclass(frozen=True)
class Samples:
    """What a model was called with: so many ``rows``, of which about ``different`` ones, and the share of the last ones
    that had come ``again``. ``compared`` are the rows that this is known from.
    """

    rows: int
    different: int
    again: float
    compared: int


class RowsSeen:
    """The rows of one model's calls, and which of them had come before."""

    def __init__(self) -> None:
        self.rows = self.calls = 0
        #: Why nothing is known; empty where something is.
        self.why_not = ""
        self._modulus = 0
        #: By what a kept row holds the number that decided so, and how often it came.
        self._kept: dict[int, list[int]] = {}
        self._last: deque[bool] = deque(maxlen=_WINDOW)
        #: By the width of a row the numbers of it that decide whether it is kept.
        self._places: dict[int, Any] = {}
        self._began_ns = _clock()
        self._took_ns = 0
        self.settled = False

    def see(self, args: Sequence[Any], named: Mapping[str, Any]) -> None:
        """A call with these arguments begins; raises nothing."""
        try:
            given = [*_tensors([*args, *named.values()])]
            rows = given[0].shape[0] if given and given[0].dim() else 1
            self.rows += rows
            self.calls += 1
            if self.settled or self.why_not:
                return
            began = _own_clock()
            self._compare(given, rows, [*_numbers([*args, *sorted(named.items())])])
            self._took_ns += _own_clock() - began
            if self._took_ns > _ALLOWANCE_NS + (_clock() - self._began_ns) // _SHARE:
                self.why_not = "its calls are too short to compare what each is given with what came before"
        except FAULTS as fault:
            self.why_not = in_words(fault)

    def _compare(self, given: Sequence[torch.Tensor], rows: int, numbers: Sequence[Any]) -> None:
        if not given:
            raise ValueError("it is called with no tensor")
        arrays = [_as_integers(one) for one in given]
        by_row = [one.reshape(rows, -1) for one in arrays if one.ndim and one.shape[0] == rows and one.size]
        whole = [_some_bytes(one.reshape(-1)) for one in arrays if not one.ndim or one.shape[0] != rows]
        if not by_row:
            raise ValueError("nothing that it is called with has rows")
        keys = sum(self._keys(one) for one in by_row)
        keys = (keys ^ (keys >> _SHIFT)) * _ODD >> _SHIFT
        if not self._modulus:
            self._modulus = 1 << max(0, (rows // _KEPT_A_CALL).bit_length() - 1)
        if not self._kept and self.calls > _UNKEPT_CALLS:
            self._modulus = 1
        for row in np.flatnonzero((keys & (self._modulus - 1)) == 0).tolist():
            held = hash((*numbers, *whole, *(_some_bytes(one[row]) for one in by_row)))
            known = self._kept.setdefault(held, [int(keys[row]), 0])
            self._last.append(known[1] > 0)
            known[1] += 1
        if len(self._kept) > _MOST_KEPT:
            self._modulus *= 2
            self._kept = {held: known for held, known in self._kept.items() if not known[0] % self._modulus}
        compared = sum(known[1] for known in self._kept.values()) if self._last and self._last[-1] else 0
        self.settled = compared >= max(_WINDOW, _PASSES * len(self._kept)) and all(self._last)

    def _keys(self, rows: Any) -> Any:
        """A number for each row, of some of what lies in it."""
        width = rows.shape[1]
        places = self._places.get(width)
        if places is None:
            places = self._places[width] = np.unique(np.linspace(0, width - 1, _NUMBERS).astype(np.int64))
        return rows[:, places].astype(np.int64) @ _WEIGHTS[: len(places)]

    @property
    def told(self) -> Samples:
        kept = len(self._kept)
        return Samples(
            rows=self.rows,
            different=min(self.rows, kept * self._modulus),
            again=sum(self._last) / max(1, len(self._last)),
            compared=sum(known[1] for known in self._kept.values()),
        )


class SamplesAgain:
    """Sees the calls of a few models, from when they are named until the end.

    Args:
        quiet: whether nothing is to be compared now, since a step is looked through.
    """

    def __init__(self, quiet: Callable[[], bool]) -> None:
        self._quiet = quiet
        self._numbers: dict[int, int] = {}
        self._seen: dict[int, RowsSeen] = {}
        self._undo = ExitStack()

    def number(self, model: torch.nn.Module) -> int:
        """A model's; models of this step that live at once have different ones."""
        return self._numbers.setdefault(id(model), len(self._numbers))

    def begin(self, models: Sequence[torch.nn.Module], numbers: int) -> None:
        """See from now on the calls of those of these models whose numbers are bits of ``numbers``."""
        for model in models:
            number = self._numbers.get(id(model))
            if number is not None and numbers >> number & 1 and number not in self._seen:
                self._seen[number] = seen = RowsSeen()
                self._undo.callback(self._stand_in(model, seen))

    def stop(self) -> None:
        """See no more."""
        self._undo.close()

    def told(self, numbers: int) -> list[RowsSeen]:
        """What was seen of the calls of these models."""
        return [seen for number, seen in self._seen.items() if numbers >> number & 1]

    def _stand_in(self, model: torch.nn.Module, seen: RowsSeen) -> TimedCalls:
        before, thread, compiling = stands_in(model), get_ident(), torch.compiler.is_dynamo_compiling
        transformed, quiet = _INNER._are_functorch_transforms_active, self._quiet

        def compared(*args: Any, **kwargs: Any) -> Any:
            call = own_call(model) if before is None else before
            if not compiling() and get_ident() == thread and not transformed() and not quiet():
                seen.see(args, kwargs)
            return call(*args, **kwargs)

        return TimedCalls(model, compared)


def arguments_of(args: Sequence[Any], named: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors that a model is called with, those in lists and dictionaries included."""
    return [*_tensors([*args, *named.values()])][:_MOST_TENSORS]


def _tensors(given: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    for one in given.values() if isinstance(given, Mapping) else given:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, list | tuple | Mapping) and depth < _DEEPEST:
            yield from _tensors(one, depth + 1)


def _numbers(given: Any, depth: int = 0) -> Iterator[Any]:
    for one in given.values() if isinstance(given, Mapping) else given:
        if isinstance(one, int | float | str | None):
            yield one
        elif isinstance(one, list | tuple | Mapping) and depth < _DEEPEST:
            yield from _numbers(one, depth + 1)


def _as_integers(tensor: torch.Tensor) -> Any:
    """What lies in it, bit by bit."""
    if type(tensor) not in _PLAIN or not tensor.is_cpu or tensor.layout is not torch.strided:
        raise ValueError("it is called with a tensor that does not lie in memory in one piece")
    plain = tensor.detach() if tensor.requires_grad else tensor
    return _numpy(plain.view(_INTEGERS[tensor.element_size()]))


def _some_bytes(row: Any) -> bytes:
    step = max(1, row.nbytes // _COMPARED)
    held: bytes = row[::step].tobytes()
    return held


#: Whole numbers that overflow, as those of arrays do in silence.
_ODD, _SHIFT = np.int64(0x1E3779B97F4A7C15), 31
_WEIGHTS = np.random.default_rng(0).integers(1 << 62, size=_NUMBERS) | 1
