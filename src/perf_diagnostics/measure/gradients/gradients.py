"""Looks, at the ends of the first steps, which parameters got a gradient, and whether anybody uses those there are."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from perf_diagnostics.measure.gradients.embedding_gradients import TableGradients, dense_gradients, is_sparse
from perf_diagnostics.measure.model_scan import class_name, parameters_of, trained_by, unwrapped
from perf_diagnostics.records import Json

#: One look cannot tell a gradient of this step from one that an earlier stage of the training has left.
_LEAST_LOOKS = 2

#: Stands for the optimizers of a loop in which one alone ends each step.
ALONE = 0


class _Size(NamedTuple):
    numbers: int
    size_bytes: int


@dataclass
class _Seen:
    """What the looks after one optimizer's steps have seen; parameters by identity, as of the last look."""

    looks: int = 0
    #: What it holds and may train, and what of that no step has given a gradient, or a sparse one.
    held: dict[int, _Size] = field(default_factory=dict)
    without: dict[int, _Size] = field(default_factory=dict)
    sparse: dict[int, _Size] = field(default_factory=dict)
    tables: TableGradients | None = None
    #: What the optimizer is like, and what it trains; of one that is alone others tell it.
    about: dict[str, Json] = field(default_factory=dict)

    @property
    def enough(self) -> bool:
        return self.looks >= _LEAST_LOOKS

    def facts(self, place: int, turns: int) -> dict[str, Json]:
        """What is told of one of several optimizers, the ``place``-th of them, which has so many turns in a step."""
        return {
            **self.about,
            "place": place,
            "turns": turns,
            "unused_parameters": _numbers(self.without),
            "gradients_used": _numbers(self.held) - _numbers(self.without),
            "sparse_gradients": _numbers(self.sparse),
        }


class Gradients:
    """Which parameters never got a gradient, and of which nobody used it; looked at only while steps are warm-up.

    A gradient is computed in a step if between two looks it was made anew or changed in place, which torch counts.
    Where several optimizers take turns each is looked at after its own step, for the next one's ``zero_grad`` may let
    go of what it had.

    Args:
        about: what is told of an optimizer, by the names of ``TrialResult.facts``, where several take turns.
    """

    def __init__(self, about: Callable[[torch.optim.Optimizer], dict[str, Json]]) -> None:
        self._about = about
        self._seen: dict[int, _Seen] = {}
        #: What no optimizer holds and steps have given gradients.
        self._unheld: dict[int, _Size] = {}
        #: The models, or parts of them, of which that is all.
        self._unheld_of = ""
        #: A gradient that is let go and made anew may lie at the same address, so that its ``id`` says nothing.
        self._before: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}

    def look(
        self,
        models: Iterable[torch.nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        others: Sequence[torch.optim.Optimizer] = (),
        *,
        turn: int = ALONE,
    ) -> None:
        """A step of one optimizer has ended, and its gradients are still there, unless it keeps them elsewhere.

        Args:
            models: those that are trained, and those that a step may ask beside them.
            optimizers: what trains here.
            others: that there are, and that may use gradients later.
            turn: whose turn has ended, by identity, where several take turns.
        """
        models = list(models)
        trained = parameters_of((), optimizers)
        if all(parameter.grad is None for parameter in trained):
            return  # it steps inside the backward, or has flattened them: nothing can be told
        held = {id(parameter) for parameter in trained}
        later = {id(parameter) for parameter in parameters_of((), others)} - held
        seen = self._seen.setdefault(turn, _Seen())
        without: dict[int, _Size] = {}
        now: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        seen.held, seen.sparse = {}, {}
        for parameter in parameters_of(models, optimizers):
            if not parameter.requires_grad or not parameter.is_leaf:
                continue
            this, gradient = id(parameter), parameter.grad
            size = _Size(parameter.numel(), parameter.numel() * parameter.element_size())
            if this in held:
                seen.held[this] = size
                if gradient is not None and is_sparse(gradient):
                    seen.sparse[this] = size
                if gradient is None and (not seen.looks or this in seen.without):
                    without[this] = size
            elif gradient is not None and this not in later:
                now[this] = weakref.ref(gradient), gradient._version
                before, version = self._before.get(this, now[this])
                if before() is not gradient or version != gradient._version:
                    self._unheld[this] = size
        seen.without, self._before = without, now
        seen.looks += 1
        if seen.looks == _LEAST_LOOKS:
            self._unheld_of = _wholly(models, self._unheld)
            seen.tables = dense_gradients(models, without=later)
            if turn != ALONE:
                seen.about = {**self._about(optimizers[0]), "trains": trained_by(models, held)}

    def rename(self, turn: int, to: int) -> None:
        """The one optimizer is gone, and the other one takes its turns."""
        if turn in self._seen:
            self._seen[to] = self._seen.pop(turn)

    def facts(self, turns: Mapping[int, int] | None = None) -> dict[str, Json]:
        """Plain values by the names of ``TrialResult.facts``; none as long as too little was looked at.

        Args:
            turns: how often each of several optimizers steps in a step of the loop, by identity.
        """
        if turns is None or len(turns) <= 1:
            seen = self._seen.get(ALONE)
            return self._together([seen]) if seen is not None and seen.enough else {}
        told = {one: seen for one in turns if (seen := self._seen.get(one)) is not None and seen.enough}
        if not told:
            return {}
        places = {one: place for place, one in enumerate(turns, start=1)}
        each: list[Json] = [seen.facts(places[one], turns[one]) for one, seen in told.items()]
        # What nobody uses, and how much there is of all, is known where all of them were looked at.
        whole = self._together(list(told.values())) if len(told) == len(turns) else {}
        return {"optimizers_in_turn": len(turns), "gradients_of_optimizers": each, **whole}

    def _together(self, several: Sequence[_Seen]) -> dict[str, Json]:
        """What is told of all the optimizers there are; a parameter that two of them hold counts once."""
        held: dict[int, _Size] = {}
        sparse: dict[int, _Size] = {}
        given: set[int] = set()
        for seen in several:
            held |= seen.held
            sparse |= seen.sparse
            given |= seen.held.keys() - seen.without.keys()
        used = _numbers({one: size for one, size in held.items() if one in given})
        held_by = [(at, seen.tables) for at, seen in enumerate(several, start=1) if seen.tables is not None]
        at, tables = max(held_by, key=lambda one: one[1].untouched, default=(0, None))
        which: dict[str, Json] = {"embedding_gradient_optimizer": at} if tables is not None and len(several) > 1 else {}
        return {
            "unused_parameters": _numbers(held) - used,
            "gradients_used": used,
            "gradients_nobody_uses": _numbers(self._unheld),
            "gradient_bytes_nobody_uses": sum(size.size_bytes for size in self._unheld.values()),
            "sparse_gradients": _numbers(sparse),
            **({"gradients_nobody_uses_of": self._unheld_of} if self._unheld_of else {}),
            **({} if tables is None else tables.facts),
            **which,
        }


def _numbers(sizes: Mapping[int, _Size]) -> int:
    return sum(size.numbers for size in sizes.values())


def _wholly(models: Sequence[torch.nn.Module], unheld: Mapping[int, _Size]) -> str:
    """The models, or parts of them by their names, that have parameters and only such as no optimizer holds."""
    found: list[str] = []
    for model in models:
        if not unheld or any(model in other.modules() for other in models if other is not model):
            continue  # told as a part of that one
        name = class_name(model)
        whole = [(name, model), *((f"{name}.{part}", inside) for part, inside in unwrapped(model).named_children())]
        of = [said for said, module in whole if _all_in(module, unheld)]
        found += of[:1] if name in of else of
    return ", ".join(dict.fromkeys(found))


def _all_in(module: torch.nn.Module, unheld: Mapping[int, _Size]) -> bool:
    parameters = list(module.parameters())
    return bool(parameters) and all(id(parameter) in unheld for parameter in parameters)
