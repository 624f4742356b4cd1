"""What the dataflow of one step told: what was computed again, is the same in each step, or came to nothing.

A line's seconds become a share of the step by phase: those of all operators of forward are forward's, and so for
backward, so that what lies between operators counts with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.looked_through import not_looked_for
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.records import CodePlace, Json, Phase

#: A single step was timed, operator by operator: its shares may be so many times as large as usual, or as small.
_SCATTER = 1.5

#: What is allocated and called beside operators goes with them: of planted work that took 57, 64 and 19 % (49 % with
#: what may go beside it) of a step by its operators, 74, 71 and 31 to 41 % went when it was left out.
_MORE_THAN_OPERATORS = 1.3


@dataclass(frozen=True)
class Needless:
    """Work of one step that one line asks for, and that need not have been done.

    ``forward`` and ``backward`` are shares of the step, 0…1, and so is what a model took ``outside`` of them that was
    called beside those that are trained; ``more`` may go with it, and is not known to; ``instead`` is what another way
    of the same would take. ``operators`` are those of forward.
    """

    place: CodePlace | None
    operators: int
    forward: float
    backward: float
    more: float = 0.0
    instead: float = 0.0
    outside: float = 0.0

    @property
    def taken(self) -> float:
        """Of the step."""
        return self.forward + self.backward + self.outside

    @property
    def share(self) -> float:
        """Of the step, less what has to be done instead."""
        return max(0.0, self.taken - self.instead)


@dataclass(frozen=True)
class Again(Needless):
    """What had been computed at the line ``first`` already.

    ``inside`` is the innermost line with most of it, where that is another one; ``of_parameters`` says that nothing but
    parameters and constants went into it.
    """

    first: CodePlace | None = None
    inside: CodePlace | None = None
    of_parameters: bool = False


@dataclass(frozen=True)
class DenseParameters(Needless):
    """Parameters of (``rows``, ``inner``) and (``inner``, ``columns``) multiplied before the batch's rows are."""

    rows: int = 0
    inner: int = 0
    columns: int = 0
    batch_rows: int = 0
    uses: int = 0


@dataclass(frozen=True)
class EachStep(Needless):
    """What several steps computed of the same unchanged tensors, as that many ``looks`` have seen.

    Keeping what comes of it takes ``bytes_kept``; ``casts`` says that nothing but types of numbers is changed,
    ``of_python`` that most of it is what Python takes to make the numbers.
    """

    looks: int = 0
    bytes_kept: int = 0
    casts: bool = False
    of_python: bool = False


@dataclass(frozen=True)
class LoopOfCalls(Needless):
    """Small operators that a loop in Python calls: their calls in all ``passes`` of it but one, or but one of each
    ``together`` that need nothing of each other, before others come that need them.

    ``recurs`` says that each pass needs what the one before made, ``layers`` that all have parameters of their own, and
    need nothing of each other.
    """

    passes: int = 0
    together: float = math.inf
    recurs: bool = False
    layers: bool = False


@dataclass(frozen=True)
class KnownAnswer(Needless):
    """What is computed of samples that came before, and would come out the same: the part that need not have been.

    ``rows`` samples were looked at in so many ``calls`` of a model, of which about ``different`` ones; ``again`` is the
    share of the last ones that had come before, known from ``compared`` of them. Keeping what comes of all different
    ones takes ``bytes_kept``. ``whole`` is what all of it takes of the step. ``why_not`` says why nothing is known of
    the samples, where that is so.
    """

    whole: float = 0.0
    rows: int = 0
    different: int = 0
    again: float = 0.0
    compared: int = 0
    calls: int = 0
    bytes_kept: int = 0
    why_not: str = ""


def computed_again(facts: TrialFacts) -> tuple[Again, ...]:
    """What one step computed more than once from the same values, what takes longest first.

    Raises:
        NotMeasured: no step was looked through, or its operators have no times.
    """
    looked = _Looked(facts, "computed_again")
    found = (
        Again(
            *looked.shared(one),
            first=place_of(one.get("first")),
            inside=place_of(one.get("inside")),
            of_parameters=one.get("of_parameters") is True,
        )
        for one in looked.entries
    )
    return _most_first(found)


def constants_made(facts: TrialFacts) -> tuple[Needless, ...]:
    """What one step made of nothing but numbers in the code; raises as :func:`computed_again`."""
    looked = _Looked(facts, "constants_made")
    return _most_first(Needless(*looked.shared(one)) for one in looked.entries)


def computed_each_step(facts: TrialFacts) -> tuple[EachStep, ...]:
    """What several steps computed of what did not change between them; raises as :func:`computed_again`.

    Raises:
        NotMeasured: besides, the training ended before enough steps were looked at.
    """
    looked = _Looked(facts, "unchanging")
    found = (
        EachStep(
            *looked.shared(one),
            outside=looked.outside(one.get("seconds_outside")),
            looks=_whole(one.get("looks")),
            bytes_kept=_whole(one.get("bytes")),
            casts=one.get("casts") is True,
            of_python=one.get("of_python") is True,
        )
        for one in looked.entries
    )
    return _most_first(found)


def known_answers(facts: TrialFacts) -> tuple[KnownAnswer, ...]:
    """What was computed of samples by what never changes, whether they came again or not; raises as
    :func:`computed_each_step`.
    """
    looked = _Looked(facts, "known_answers")
    return tuple(sorted((_known_answer(looked, one) for one in looked.entries), key=lambda one: -one.whole))


def _known_answer(looked: _Looked, one: dict[str, Json]) -> KnownAnswer:
    place, operators, forward, backward = looked.shared(one)
    outside = looked.outside_of_phases(one.get("seconds_outside"))
    rows, different = _whole(one.get("rows")), _whole(one.get("different"))
    # What came once had to be computed; in a longer training all but what the last samples have of new ones goes.
    saved = 1 - different / rows if rows else 0.0
    again = min(1.0, _number(one.get("again")) or 0.0)
    whole = forward + backward + outside
    why_not, a_step = one.get("why_not"), _whole(one.get("rows_a_step"))
    return KnownAnswer(
        place,
        operators,
        saved * forward,
        saved * backward,
        more=max(0.0, again - saved) * whole,
        instead=saved * looked.of_both(one.get("seconds_instead")),
        outside=saved * outside,
        whole=whole,
        rows=rows,
        different=different,
        again=again,
        compared=_whole(one.get("compared")),
        calls=_whole(one.get("calls")),
        bytes_kept=_whole(one.get("bytes")) * different // a_step if a_step else 0,
        why_not=why_not if isinstance(why_not, str) else "",
    )


def never_used(facts: TrialFacts) -> tuple[Needless, ...]:
    """What one step computed and nothing made use of; raises as :func:`computed_again`."""
    looked = _Looked(facts, "never_used")
    return _most_first(Needless(*looked.shared(one)) for one in looked.entries)


def beside_the_loss(facts: TrialFacts) -> tuple[Needless, ...]:
    """What one step made of what its loss is made of, for nothing that trains; raises as :func:`computed_again`."""
    looked = _Looked(facts, "beside_the_loss")
    return _most_first(Needless(*looked.shared(one)) for one in looked.entries)


def loops_of_calls(facts: TrialFacts) -> tuple[LoopOfCalls, ...]:
    """The loops over small operators of one step's forward and loss; raises as :func:`computed_again`."""
    looked = _Looked(facts, "repeated_calls")
    return _most_first(
        LoopOfCalls(
            *looked.shared(one),
            more=looked.of_both(one.get("seconds_more")),
            passes=_whole(one.get("passes")),
            together=float(told) if isinstance(told := one.get("together"), int | float) else math.inf,
            recurs=one.get("recurs") is True,
            layers=one.get("layers") is True,
        )
        for one in looked.entries
    )


def dense_products(facts: TrialFacts) -> tuple[DenseParameters, ...]:
    """Products of parameters for which another order takes less; raises as :func:`computed_again`."""
    looked = _Looked(facts, "dense_products")
    found = (
        DenseParameters(
            *looked.shared(one),
            instead=looked.of_both(one.get("seconds_instead")),
            rows=_whole(one.get("rows")),
            inner=_whole(one.get("inner")),
            columns=_whole(one.get("columns")),
            batch_rows=_whole(one.get("batch_rows")),
            uses=_whole(one.get("uses")),
        )
        for one in looked.entries
    )
    return _most_first(found)


def share_of_step(found: Sequence[Needless]) -> Interval:
    """The share of the step that all of it takes, as one look at one step knows it."""
    value = sum(one.share for one in found)
    most = sum(one.taken for one in found)
    return Interval(value, value / _SCATTER, min(1.0, most * _SCATTER), 1)


def removable(facts: TrialFacts, found: Sequence[Needless]) -> Interval:
    """The share of the step that goes when it is not done: forward's part, and at most what may go beside it."""
    share = share_of_step(found)
    outside = sum(one.outside for one in found)
    whole = outside + sum(facts.share(phase).value for phase in (phase_of_forward(facts), Phase.BACKWARD))
    forward = max(0.0, outside + sum(one.forward - one.instead for one in found))
    most = _MORE_THAN_OPERATORS * sum(one.taken + one.more for one in found)
    return Interval(share.value, min(share.value, forward), max(share.value, min(whole, most)), 1)


def phase_of_forward(facts: TrialFacts) -> Phase:
    """Where the time of forward's operators lies: a loop that calls no model has none of that name."""
    return Phase.OTHER if facts.result.facts.get("operators_of_the_whole_step") is True else Phase.FORWARD


def by_phase(facts: TrialFacts, found: Sequence[Needless]) -> dict[str, float]:
    """The shares of the step that it takes of forward and of backward."""
    return {
        str(phase_of_forward(facts)): sum(one.forward for one in found),
        str(Phase.BACKWARD): sum(one.backward for one in found),
    }


N = TypeVar("N", bound=Needless)


class _Looked:
    """The entries of one list, and what a second of an operator is of a step."""

    def __init__(self, facts: TrialFacts, name: str) -> None:
        self._facts = facts
        told = facts.result.facts.get(name)
        if not isinstance(told, list):
            raise not_looked_for(facts, name)
        self._of_a_second: dict[Phase, float] = {}
        self._most = dict.fromkeys((Phase.FORWARD, Phase.BACKWARD), 1.0)
        shares = {Phase.FORWARD: facts.share(phase_of_forward(facts)), Phase.BACKWARD: facts.share(Phase.BACKWARD)}
        # What is worked on outside of torch is no operator's time either; what makes a tensor of numbers is in both.
        names = ("python_seconds_forward", "outside_seconds_forward")
        python = max(_number(facts.result.facts.get(name)) or 0.0 for name in names)
        for phase, share in shares.items():
            seconds = facts.number(f"operator_seconds_{phase}") + (python if phase is Phase.FORWARD else 0.0)
            self._of_a_second[phase] = share.value / seconds if seconds > 0 else 0.0
        seconds = python + sum(facts.number(f"operator_seconds_{phase}") for phase in shares)
        if not seconds > 0:
            raise NotMeasured(name, "the operators of the step that was looked through have no times")
        self._of_any = sum(share.value for share in shares.values()) / seconds
        if phase_of_forward(facts) is not Phase.FORWARD:
            # Gradients that the loop asks for itself lie in other as well.
            self._of_a_second = dict.fromkeys(shares, self._of_any)
        else:
            self._most = {phase: share.value for phase, share in shares.items()}
        entries = (one for one in told if isinstance(one, dict))
        self.entries = [one for one in entries if _number(one.get("seconds_forward")) is not None]

    def shared(self, one: dict[str, Json]) -> tuple[CodePlace | None, int, float, float]:
        return (
            place_of(one),
            _whole(one.get("operators")),
            self.seconds(one.get("seconds_forward"), Phase.FORWARD),
            self.seconds(one.get("seconds_backward"), Phase.BACKWARD),
        )

    def seconds(self, told: Json, phase: Phase) -> float:
        """As a share of the step; what other looks timed may have taken longer than all of the first one's phase."""
        return min(self._most[phase], (_number(told) or 0.0) * self._of_a_second[phase])

    def outside(self, told: Json) -> float:
        """What lies in other or in forward, whose operators it is not among: backward tells what a second is."""
        room = 1.0 - sum(self._facts.share(phase).value for phase in (Phase.BACKWARD, Phase.OPTIMIZER))
        return min(max(0.0, room), (_number(told) or 0.0) * self._of_a_second[Phase.BACKWARD])

    def outside_of_phases(self, told: Json) -> float:
        """As :meth:`outside`; no more than lies in other, where it seems to lie there."""
        share = self.outside(told)
        other = ask(self._facts.share, Phase.OTHER)
        return share if other is None or other.value < share / 2 else min(share, other.value)

    def of_both(self, told: Json) -> float:
        return (_number(told) or 0.0) * self._of_any


def _most_first(found: Iterable[N]) -> tuple[N, ...]:
    return tuple(sorted(found, key=lambda one: -one.share))


def _number(told: Json) -> float | None:
    return float(told) if isinstance(told, int | float) and not isinstance(told, bool) and told >= 0 else None


def _whole(told: Json) -> int:
    return told if isinstance(told, int) and not isinstance(told, bool) else 0
