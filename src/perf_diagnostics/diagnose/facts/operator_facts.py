"""What the look at one step's operators found at lines of the user's own, as shares of the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.looked_through import not_looked_for
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.records import CodePlace, Json, Phase

#: One step was timed: of another one a share may be so many times as small.
_SCATTER = 1.5


@dataclass(frozen=True)
class OperatorsAt:
    """Operators that one line asks for, as the look told them.

    ``place`` is None where no line of the user's own led to it, ``shape`` that of the tensor that is told. ``forward``
    and ``backward`` are the parts of all operators' time in the step's forward and backward, ``whole`` of both
    together, and ``optimizer`` that of the updates', each in 0…1; ``more`` is what else was told.
    """

    place: CodePlace | None
    shape: tuple[int, ...]
    calls: int
    forward: float
    backward: float
    whole: float
    more: Mapping[str, Json]
    optimizer: float = 0.0

    def number(self, name: str) -> float | None:
        """One more number, if it was told."""
        value = self.more.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def words(self, name: str) -> tuple[str, ...]:
        """A list of words that was told."""
        value = self.more.get(name)
        return tuple(str(one) for one in value) if isinstance(value, list) else ()


def operators_at(facts: TrialFacts, name: str) -> tuple[OperatorsAt, ...]:
    """What the look tells by this name, those of the most time first.

    Raises:
        NotMeasured: nobody looked.
    """
    told = facts.result.facts.get(name)
    if not isinstance(told, list):
        raise not_looked_for(facts, name)
    found = [one for one in map(_read, told) if one is not None]
    return tuple(sorted(found, key=lambda one: -one.whole))


def operators_timed(facts: TrialFacts) -> bool:
    """Whether all operators' time was seen, as on the CPU; else the bytes that they move stand for it."""
    on_device = facts.number("operator_bytes_forward") + facts.number("operator_bytes_backward")
    return facts.number("operator_seconds_forward") > 0 and not on_device


def share_of_step(facts: TrialFacts, found: Sequence[OperatorsAt]) -> Interval:
    """The share of the step that these operators take, 0…1.

    A phase's length is measured, and these are a part of the thread's time in it in one step. Between operators the
    thread runs Python, or frees what they made: the ends count none, or their part, of that as theirs, the estimate
    half of it; the lower end allows for other steps as well.

    Raises:
        NotMeasured: forward or backward is not timed, or the operators were not.
    """
    if not operators_timed(facts):
        raise NotMeasured("operator_seconds_forward", "the operators run on a device, and only their bytes are known")
    low, value, high = (sum(claims_of(facts, found, between).values()) for between in (0.0, 0.5, 1.0))
    return Interval(value, low / _SCATTER, high, 1)


def claims_of(facts: TrialFacts, found: Sequence[OperatorsAt], between: float = 0.5) -> dict[str, float]:
    """The share of the step that these take, by phase, with this part (0…1) of what lies between operators."""
    parts = {Phase.FORWARD: sum(one.forward for one in found), Phase.BACKWARD: sum(one.backward for one in found)}
    if any(one.optimizer for one in found):
        parts[Phase.OPTIMIZER] = sum(one.optimizer for one in found)
    return {
        str(phase): facts.share(phase).value * min(1.0, part) * in_operators(facts, phase, between)
        for phase, part in parts.items()
    }


def in_operators(facts: TrialFacts, phase: Phase, between: float = 0.5) -> float:
    """The part of the thread's time in a phase that is for operators, 0…1, in the step looked at: that inside of them,
    and this part of what lies ``between`` them.
    """
    inside, outside = facts.number(f"operator_seconds_{phase}"), outside_of_torch_s(facts, phase)
    around = facts.number(f"around_operators_seconds_{phase}")
    return (inside + between * max(0.0, around - outside)) / (inside + around) if inside > 0 else 0.0


def outside_of_torch_s(facts: TrialFacts, phase: Phase) -> float:
    """What is worked on outside of torch in a phase, in s of the step looked at: it is no operator's, nor their calls'.

    0 in backward, and in records that do not tell it.
    """
    return (ask(facts.number, "outside_seconds_forward") or 0.0) if phase is Phase.FORWARD else 0.0


def repeated_share(facts: TrialFacts) -> Interval:
    """The share of the step that forward and backward take for what does not grow with the rows of a batch, 0…1.

    It is that of operators (see :mod:`perf_diagnostics.measure.one_step.fixed_work`) and of what lies between
    them: Python, and their calls. The ends count nothing or all of the latter; looking has made it longer. A product of
    few rows takes less than in proportion longer for more of them, which is not counted.

    Raises:
        NotMeasured: nobody looked, the operators run on a device, or forward or backward is not timed.
    """
    if not operators_timed(facts):
        raise NotMeasured("operator_seconds_forward", "the operators run on a device, and only their bytes are known")
    low, value, high = (
        sum(facts.share(phase).value * _repeated(facts, phase, between) for phase in (Phase.FORWARD, Phase.BACKWARD))
        for between in (0.0, 0.5, 1.0)
    )
    return Interval(value, low / _SCATTER, high, 1)


def _repeated(facts: TrialFacts, phase: Phase, between: float) -> float:
    """The same of the thread's time in forward or backward, with this part of what lies between operators."""
    fixed, inside = facts.number(f"fixed_seconds_{phase}"), facts.number(f"operator_seconds_{phase}")
    outside = outside_of_torch_s(facts, phase)
    around = between * max(0.0, facts.number(f"around_operators_seconds_{phase}") - outside)
    return min(1.0, (fixed + around) / (inside + around + outside)) if inside > 0 else 0.0


def _read(told: Json) -> OperatorsAt | None:
    if not isinstance(told, dict):
        return None
    shares = [told.get(name) for name in ("forward", "backward", "whole")]
    numbers = [float(one) for one in shares if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) != len(shares):
        return None
    shape, calls, optimizer = told.get("shape"), told.get("calls"), told.get("optimizer")
    return OperatorsAt(
        place=place_of(told),
        shape=tuple(size for size in shape if isinstance(size, int)) if isinstance(shape, list) else (),
        calls=calls if isinstance(calls, int) else 1,
        forward=numbers[0],
        backward=numbers[1],
        whole=numbers[2],
        more=told,
        optimizer=float(optimizer) if isinstance(optimizer, int | float) else 0.0,
    )
