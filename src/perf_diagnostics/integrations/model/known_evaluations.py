"""Calls of a model in evaluation mode that give an answer it gave before: the same inputs, with the same weights.

A gallery that is encoded anew for each batch of queries, a batch whose loss and whose predictions are asked for one
after the other. Inputs and answers are known again by samples of their numbers, weights by a few of theirs, so that
other weights for an evaluation (averages) make other calls. Read by NumPy alone, which no mode of torch's sees.
"""

from __future__ import annotations

import itertools
import time
import weakref
import zlib
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import torch

from perf_diagnostics.integrations.untraced import untraced
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.records import Json

#: About so many numbers are read of a tensor that goes in or comes out, and of a parameter.
_MOST_NUMBERS, _OF_A_PARAMETER = 16_384, 64

#: Of a sequence of inputs so many parts are read, of a model so many parameters.
_MOST_PARTS, _MOST_PARAMETERS = 16, 8

#: So many answers are kept, of one set of weights.
_MOST_KEPT = 4096

#: Once so many calls were read, reading may take this part of their time. From then on calls are only timed, and quick
#: ones, in which nothing is to be won, not even that (judgements).
_ENOUGH_CALLS, _MOST_COST, _QUICK_NS = 50, 0.05, 200_000

#: What is the same where it is equal, beside tensors.
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)

_clock = time.perf_counter_ns


class _Call(NamedTuple):
    """A call that is under way: what it is known by (None: not read), and when it began."""

    key: Hashable
    began_ns: int


class _Unreadable(Exception):
    """Something that a model is called with, or gives, has no numbers that can be read here."""


class KnownEvaluations:
    """The calls of a training's models in evaluation mode, and which of them gave an answer that was known.

    Args:
        clock: in ns.
    """

    def __init__(self, clock: Any = _clock) -> None:
        self._clock = clock
        #: Whether calls are to be looked at.
        self.wanted = True
        #: Whether they are read, too.
        self._reads = True
        self._began_ns = clock()
        self._weights: Hashable = None
        self._answers: dict[Hashable, int] = {}
        self._calls = self._read = self._known = self._unread = 0
        self._calls_ns = self._read_ns = self._known_ns = self._looking_ns = 0
        self._parameters: weakref.WeakKeyDictionary[torch.nn.Module, list[weakref.ref[torch.Tensor]]]
        self._parameters = weakref.WeakKeyDictionary()
        untraced(KnownEvaluations.begins, KnownEvaluations.ends, and_what_they_call=True)

    def training_begins(self) -> None:
        """What comes from now on counts: the first step is over."""
        self._began_ns = self._clock()
        self._calls = self._read = self._known = 0
        self._calls_ns = self._read_ns = self._known_ns = self._looking_ns = 0

    def begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Call | None:
        """A model is about to be called in evaluation mode; None where its call cannot be known again."""
        began = self._clock()
        if not self._reads:
            return _Call(None, began)
        try:
            weights = id(module), *self._weights_of(module)
            key = id(module), _print((args, dict(kwargs)))
        except _Unreadable:
            self._cannot_be_read()
            return None
        except FAULTS:
            self.wanted = False
            return None
        if weights != self._weights:
            self._weights = weights
            self._answers.clear()
        now = self._clock()
        self._looking_ns += now - began
        return _Call(key, now)

    def ends(self, call: _Call, made: Any) -> Any:
        """The model has been called; returns what it made."""
        ended = self._clock()
        took = ended - call.began_ns
        if call.key is None:
            self._calls, self._calls_ns = self._calls + 1, self._calls_ns + took
            return made
        try:
            answer = hash(_print(made))
        except _Unreadable:
            self._cannot_be_read()
            return made
        except FAULTS:
            self.wanted = False
            return made
        self._calls, self._calls_ns = self._calls + 1, self._calls_ns + took
        self._read, self._read_ns = self._read + 1, self._read_ns + took
        if self._answers.get(call.key) == answer:
            self._known, self._known_ns = self._known + 1, self._known_ns + took
        elif len(self._answers) < _MOST_KEPT:
            self._answers[call.key] = answer
        self._looking_ns += self._clock() - ended
        if self._read >= _ENOUGH_CALLS and self._looking_ns > _MOST_COST * self._read_ns:
            self._reads = False
            self._answers.clear()
            self.wanted = self._read_ns >= _QUICK_NS * self._read
        return made

    def facts(self) -> dict[str, Json]:
        """Numbers and seconds of the calls, and the seconds they lay in; empty without any that could be read.

        Of those that were only timed as many are taken for known as of those that were read.
        """
        if not self._read or not self._read_ns or not self.wanted:
            return {}
        known_ns = self._known_ns * (self._calls_ns / self._read_ns)
        return {
            "evaluation_calls": self._calls,
            "evaluation_calls_known": round(self._known * (self._calls / self._read)),
            "evaluation_calls_s": self._calls_ns / 1e9,
            "evaluation_calls_known_s": known_ns / 1e9,
            "evaluation_calls_within_s": (self._clock() - self._began_ns) / 1e9,
        }

    def _cannot_be_read(self) -> None:
        """A call was looked at for nothing: one that is to be trained in spite of evaluation mode, or on a device."""
        self._unread += 1
        if self._unread >= _ENOUGH_CALLS and self._unread > self._calls:
            self.wanted = False

    def _weights_of(self, module: torch.nn.Module) -> tuple[Hashable, ...]:
        """A number of some of its parameters each, from all over the model."""
        chosen = self._parameters.get(module)
        if chosen is None:
            every = list(module.parameters())
            apart = max(1, len(every) // _MOST_PARAMETERS)
            chosen = [weakref.ref(one) for one in every[::apart]]
            self._parameters[module] = chosen
        found: list[Hashable] = []
        for reference in chosen:
            parameter = reference()
            if parameter is not None and parameter.numel():
                # Its own memory: what other weights take its place are read as well.
                found.append(_bytes_of(parameter.data, _OF_A_PARAMETER))
        return tuple(found)


def _print(given: Any) -> Hashable:
    """What is equal for equal numbers; raises _Unreadable where these cannot be read."""
    if isinstance(given, torch.Tensor):
        return given.shape, given.dtype, _bytes_of(given)
    if isinstance(given, _PLAIN):
        return given
    if isinstance(given, Mapping):
        return tuple((key, _print(value)) for key, value in itertools.islice(given.items(), _MOST_PARTS))
    if isinstance(given, tuple | list):
        return type(given).__name__, len(given), tuple(_print(one) for one in given[:_MOST_PARTS])
    raise _Unreadable


def _bytes_of(tensor: torch.Tensor, most: int = _MOST_NUMBERS) -> int:
    """A checksum of about so many of its numbers, evenly from all of its dimensions."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.requires_grad:
        raise _Unreadable
    try:
        numbers = tensor.numpy()
    except (TypeError, RuntimeError) as error:  # of a type that NumPy lacks, or of a mode that holds none
        raise _Unreadable from error
    if numbers.size > most:
        each = max(1, int(most ** (1 / numbers.ndim)))
        numbers = numbers[tuple(slice(None, None, -(-length // each)) for length in numbers.shape)]
    return zlib.crc32(numbers.tobytes())
