"""How long one call of a layer takes with the rows of several, beside those by themselves, tried on tensors alike."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from perf_diagnostics.measure.one_step.tried_again import Like
from perf_diagnostics.measure.one_step.undisturbed import undisturbed
from perf_diagnostics.measure.one_step.watcher import Ran

#: Each is tried so often, or once where that would take long, and so many calls by themselves in one try.
TRIES, BY_ITSELF = 3, 4

_ATEN = torch.ops.aten
_EMBEDDING = _ATEN.embedding

#: At which places of their arguments the rows and the weight stand.
PLACES = {_ATEN.addmm: (1, 2), _ATEN.mm: (0, 1), _ATEN.convolution: (0, 1), _EMBEDDING: (1, 0)}


class Kind(NamedTuple):
    """What calls that are tried as one have in common: ``rest`` are the arguments beside rows and weight, ``shape`` and
    ``dtype`` those of the rows without their number, and what asks for a gradient.
    """

    operator: Any
    rest: tuple[Any, ...]
    weight: Like
    shape: tuple[int, ...]
    dtype: torch.dtype
    weight_learns: bool
    rows_learn: bool = False

    @classmethod
    def of(cls, ran: Ran, *, learns: bool) -> Kind:
        """That of a call which has rows and a weight; ``learns``: whether autograd keeps what backward needs."""
        at = PLACES[ran.operator]
        rows, weight = (ran.args[one] for one in at)
        return cls(
            ran.operator,
            tuple(_plain(one) for place, one in enumerate(ran.args) if place not in at),
            Like(tuple(weight.shape), tuple(weight.stride()), weight.dtype),
            () if ran.operator is _EMBEDDING else tuple(rows.shape[1:]),
            rows.dtype,
            learns and weight.requires_grad,
        )

    @property
    def numbers(self) -> int:
        """How many numbers a row has that is given."""
        return prod(self.shape)


class Took(NamedTuple):
    """Seconds of the thread in forward and in backward."""

    forward: float
    backward: float

    @property
    def both(self) -> float:
        return self.forward + self.backward


class Tried(NamedTuple):
    """What a call takes by itself, and as a part of one call for several."""

    alone: Took
    at_once: Took


def tried(kind: Kind, rows: int, calls: int, *, often: bool) -> Tried:
    """What a call takes by itself and as a part of one for so many, by the quickest of some tries in turn."""
    alone, together = [], []
    by_itself = BY_ITSELF if often else 1
    for _ in range(TRIES if often else 1):
        alone.append(took_s(kind, rows, by_itself))
        together.append(took_s(kind, rows * calls, 1))
    if not often:
        alone.append(took_s(kind, rows, 1))  # the first one may wait for memory
    apart, at_once = (Took(*map(min, zip(*times, strict=True))) for times in (alone, together))
    return Tried(
        Took(apart.forward / by_itself, apart.backward / by_itself),
        Took(at_once.forward / calls, at_once.backward / calls),
    )


def took_s(kind: Kind, rows: int, calls: int) -> Took:
    """How long some calls of so many rows take in forward and backward, whatever the user has under way around it."""
    learns = kind.weight_learns or kind.rows_learn
    with undisturbed(learns=learns):
        weight = kind.weight.make({}).requires_grad_(kind.weight_learns)
        given = [_rows(kind, rows) for _ in range(calls)]
        rest = [_made(one) for one in kind.rest]
        began = time.thread_time()
        made = [_applied(kind, one, weight, rest) for one in given]
        forward = time.thread_time() - began
        if not learns:
            return Took(forward, 0.0)
        asked = [*([weight] if kind.weight_learns else []), *(one for one in given if one.requires_grad)]
        weights = [torch.ones_like(one) for one in made]
        began = time.thread_time()
        torch.autograd.grad(made, asked, weights)
        return Took(forward, time.thread_time() - began)


def _rows(kind: Kind, rows: int) -> torch.Tensor:
    if kind.operator is _EMBEDDING:
        return torch.arange(rows, dtype=kind.dtype, device="cpu") % kind.weight.shape[0]
    return torch.full((rows, *kind.shape), 0.5, dtype=kind.dtype, device="cpu").requires_grad_(kind.rows_learn)


def _applied(kind: Kind, rows: torch.Tensor, weight: torch.Tensor, rest: Sequence[Any]) -> torch.Tensor:
    at = dict(zip(PLACES[kind.operator], (rows, weight), strict=True))
    left = iter(rest)
    made: torch.Tensor = kind.operator(*(at[place] if place in at else next(left) for place in range(len(rest) + 2)))
    return made


class _Bias(NamedTuple):
    shape: tuple[int, ...]
    dtype: torch.dtype


def _plain(argument: Any) -> Any:
    """An argument without its numbers, so that equal ones can be told."""
    if isinstance(argument, torch.Tensor):
        return _Bias(tuple(argument.shape), argument.dtype)
    return tuple(argument) if isinstance(argument, list) else argument


def _made(argument: Any) -> Any:
    if isinstance(argument, _Bias):
        return torch.zeros(argument.shape, dtype=argument.dtype, device="cpu")
    return [*argument] if isinstance(argument, tuple) else argument
