"""Calls of a model in evaluation mode that give an answer it gave before: the same inputs, with the same weights.

A gallery that is encoded anew for each batch of queries, a batch whose loss and whose predictions are asked for one
after the other. Inputs and answers are known again by samples of their numbers, weights by a few of theirs, so that
other weights for an evaluation (averages) make other calls. What reads them is seen by no mode of the user's.
"""

from __future__ import annotations

import itertools
import time
import weakref
import zlib
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from perf_diagnostics.integrations.untraced import untraced
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.records import Json

#: About so many numbers are read of a tensor that goes in or comes out, and of a parameter.
_MOST_NUMBERS, _OF_A_PARAMETER = 16_384, 64

#: Of a sequence of inputs so many parts are read, of a model so many parameters.
_MOST_PARTS, _MOST_PARAMETERS = 16, 8

#: So many answers are kept of a model, with one set of weights.
_MOST_KEPT = 4096

#: Once so many calls were read, reading may take this part of their time. From then on calls are only timed, and quick
#: ones, in which nothing is to be won, not even that (judgements).
_ENOUGH_CALLS, _MOST_COST, _QUICK_NS = 50, 0.05, 200_000

#: What is the same where it is equal, beside tensors.
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)

_clock = time.perf_counter_ns
_INNER: Any = torch._C


class _Call(NamedTuple):
    """A call that is under way: when it began, the answers that its model gave (None: it is only timed), and what it is
    known by among these.
    """

    began_ns: int
    answers: dict[Hashable, int] | None = None
    key: Hashable = None


class _Unreadable(Exception):
    """Something that a model is called with, or gives, has no numbers that can be read here."""


@dataclass
class _Asked:
    """A model: some of its parameters, what they were like when it was called last, and its answers since then."""

    parameters: list[weakref.ref[torch.Tensor]]
    weights: Hashable = None
    answers: dict[Hashable, int] = field(default_factory=dict)


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
        self._calls = self._read = self._known = self._unread = 0
        self._calls_ns = self._read_ns = self._known_ns = self._looking_ns = 0
        self._models: weakref.WeakKeyDictionary[torch.nn.Module, _Asked] = weakref.WeakKeyDictionary()
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
            return _Call(began)
        try:
            with _unseen():
                asked = self._asked(module)
                key = _print((args, kwargs))
        except _Unreadable:
            self._cannot_be_read()
            return None
        except FAULTS:
            self.wanted = False
            return None
        now = self._clock()
        self._looking_ns += now - began
        return _Call(now, asked.answers, key)

    def ends(self, call: _Call, made: Any) -> Any:
        """The model has been called; returns what it made."""
        ended = self._clock()
        took = ended - call.began_ns
        if call.answers is None:
            self._calls, self._calls_ns = self._calls + 1, self._calls_ns + took
            return made
        try:
            with _unseen():
                answer = hash(_print(made))
        except _Unreadable:
            self._cannot_be_read()
            return made
        except FAULTS:
            self.wanted = False
            return made
        self._calls, self._calls_ns = self._calls + 1, self._calls_ns + took
        self._read, self._read_ns = self._read + 1, self._read_ns + took
        if call.answers.get(call.key) == answer:
            self._known, self._known_ns = self._known + 1, self._known_ns + took
        elif len(call.answers) < _MOST_KEPT:
            call.answers[call.key] = answer
        self._looking_ns += self._clock() - ended
        if self._read >= _ENOUGH_CALLS and self._looking_ns > _MOST_COST * self._read_ns:
            self._reads = False
            self._models.clear()
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
            "evaluation_calls_read": self._read,
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

    def _asked(self, module: torch.nn.Module) -> _Asked:
        """What is known of a model; of one with other weights than before no answer is."""
        asked = self._models.get(module)
        held = [] if asked is None else [one for reference in asked.parameters if (one := reference()) is not None]
        if asked is None or len(held) < len(asked.parameters):
            every: list[torch.Tensor] = list(module.parameters())
            held = every[:: max(1, len(every) // _MOST_PARAMETERS)]
            asked = self._models[module] = _Asked([weakref.ref(one) for one in held])
        # Its own memory: what other weights take its place are read as well.
        weights = tuple(_bytes_of(one.data, _OF_A_PARAMETER) for one in held if one.numel())
        if weights != asked.weights:
            asked.weights, asked.answers = weights, {}
        return asked


@contextmanager
def _unseen() -> Iterator[None]:
    """Here what reads tensors meets no mode of the user's."""
    with _INNER._DisableTorchDispatch(), _INNER.DisableTorchFunction():
        yield


def _print(given: Any) -> Hashable:
    """What is equal for equal numbers; raises _Unreadable where these cannot be read."""
    if type(given) in (torch.Tensor, torch.nn.Parameter):  # other kinds may hold their numbers elsewhere
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
