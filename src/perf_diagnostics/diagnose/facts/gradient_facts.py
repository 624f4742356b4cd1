"""What the gradients of the first steps told of each of several optimizers that take turns in a step."""

from __future__ import annotations

from dataclasses import dataclass

from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.records import Json, TrialResult


@dataclass(frozen=True)
class OptimizerGradients:
    """One optimizer of ``count``, and the numbers among what it holds: with gradients, of them sparse, and without.

    ``turns`` is how often it steps in a step of the loop.
    """

    place: int
    count: int
    kind: str
    implementation: str
    trains: str
    turns: int
    used: int
    sparse: int
    unused: int

    @property
    def label(self) -> str:
        """``"optimizer 2 of 2 (Adam, of Generator)"``; the place is that of its turn."""
        said = ", of ".join(word for word in (self.kind, self.trains) if word)
        return f"optimizer {self.place} of {self.count}" + (f" ({said})" if said else "")


@dataclass(frozen=True)
class UnusedBackward:
    """The part of the first steps' backwards, 0…1, that leads to nothing but gradients that nobody uses.

    It is a part of their time where they were ``timed``, else of their operators. ``dropped`` where an optimizer's
    gradients were dropped before it stepped; ``looks`` is how many backwards were looked into.
    """

    share: float
    timed: bool
    dropped: bool
    looks: int


def unused_backward(result: TrialResult) -> UnusedBackward | None:
    """What the looks into the first backwards told; None where nobody looked."""
    facts = result.facts
    looks, operators = facts.get("backwards_looked_into"), facts.get("backward_operators_unused")
    if not isinstance(looks, int) or not isinstance(operators, int | float) or not 0 <= operators <= 1:
        return None
    took, dropped = facts.get("backward_time_unused"), facts.get("gradients_dropped") is True
    if isinstance(took, int | float) and 0 <= took <= 1:
        return UnusedBackward(float(took), True, dropped, looks)
    return UnusedBackward(float(operators), False, dropped, looks)


def optimizers_in_turn(result: TrialResult) -> tuple[OptimizerGradients, ...]:
    """Those of several optimizers whose gradients were looked at, in the order of their turns; none of a single one."""
    told, count = result.facts.get("gradients_of_optimizers"), result.facts.get("optimizers_in_turn")
    if not isinstance(told, list) or not isinstance(count, int):
        return ()
    found = (_one(count, one) for one in told)
    return tuple(one for one in found if one is not None)


def require_all_told(result: TrialResult, signal: str) -> None:
    """Raise NotMeasured where some of the optimizers that take turns showed no gradients."""
    told = optimizers_in_turn(result)
    if told and len(told) < told[0].count:
        why = f"of {told[0].count} optimizers that take turns {len(told)} showed gradients at the ends of their steps"
        raise NotMeasured(signal, why)


def _one(count: int, told: Json) -> OptimizerGradients | None:
    if not isinstance(told, dict):
        return None
    names = ("place", "turns", "gradients_used", "sparse_gradients", "unused_parameters")
    numbers = [value for name in names if isinstance(value := told.get(name), int) and value >= 0]
    if len(numbers) < len(names):
        return None
    place, turns, used, sparse, unused = numbers
    said = (told.get(name) for name in ("optimizer", "optimizer_implementation", "trains"))
    kind, implementation, trains = (word if isinstance(word, str) else "" for word in said)
    return OptimizerGradients(place, count, kind, implementation, trains, turns, used, sparse, unused)
