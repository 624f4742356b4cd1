"""Calls of a model that begin with all that the call before was given, as one look at a step told them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.facts.looked_through import not_looked_for
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, operators_at
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.records import CodePlace, Json, Phase

#: One step was looked at: in another one it may take so many times as long, or as short.
_SCATTER = 1.5


@dataclass(frozen=True)
class PrefixCalls:
    """``calls`` that one line asks for, each with the arguments of the one before and more.

    They went over so many ``positions`` in all, of which the call before had gone over ``again`` ones; the ``longest``
    had so many, in each of so many ``rows``. ``saved`` is the share of the step that a cache would save, 0…1. Where
    it is a recurrent layer that was called, ``recurrent`` is its kind (``GRU``), the cache its state, and ``phases``
    says where that share lies; else it is empty.
    """

    place: CodePlace | None
    calls: int
    rows: int
    longest: int
    positions: int
    again: int
    saved: Interval
    recurrent: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)


def prefixes_again(facts: TrialFacts) -> tuple[PrefixCalls, ...]:
    """What the look at one step told, what takes longest first.

    Raises:
        NotMeasured: no step was looked through, or its calls were not compared, or, of recurrent layers, forward or
            backward is not timed.
    """
    told = facts.result.facts.get("prefixes_again")
    if not isinstance(told, list):
        raise not_looked_for(facts, "prefixes_again")
    step_s = _undisturbed_s(facts)
    found = [_read(one, step_s, _room(facts)) for one in told if isinstance(one, dict) and not one.get("recurrent")]
    found += [_recurrent(facts, one) for one in operators_at(facts, "prefixes_again") if one.more.get("recurrent")]
    return tuple(sorted(found, key=lambda one: -one.saved.value))


def phase_of(facts: TrialFacts, share: float) -> Phase:
    """Where such calls lie: outside of the phases, unless there is no room there."""
    other = ask(facts.share, Phase.OTHER)
    return Phase.OTHER if other is not None and other.value >= share / 2 else Phase.FORWARD


def _undisturbed_s(facts: TrialFacts) -> float:
    """A step's time, without the part in which others had the cores that its thread was ready to run on: calls were
    timed by the thread's own time.
    """
    ran, delayed = ask(facts.quantity, "loop_cpu_share"), ask(facts.quantity, "loop_run_delay_share")
    without = ran / (ran + delayed) if ran and delayed is not None else 1.0
    return facts.step_time_s.value * without


def _room(facts: TrialFacts) -> float:
    """The most of the step that calls without gradients can have taken."""
    shares = (ask(facts.share, phase) for phase in (Phase.BACKWARD, Phase.OPTIMIZER, Phase.DATA_WAIT))
    return max(0.0, 1.0 - sum(share.value for share in shares if share is not None))


def _read(one: Mapping[str, Json], step_s: float, room: float) -> PrefixCalls:
    value, least, most = (min(room, seconds / step_s) for seconds in _seconds_again(one))
    return _calls(one, Interval(value, min(value, least) / _SCATTER, max(value, most), 1))


def _recurrent(facts: TrialFacts, one: OperatorsAt) -> PrefixCalls:
    """Of a recurrent layer the operators were timed, those of backward included: parts of these phases."""
    seconds, least, most = _seconds_again(one.more)
    parts = {Phase.FORWARD: one.forward, Phase.BACKWARD: one.backward}
    phases = {str(phase): facts.share(phase).value * min(1.0, part) for phase, part in parts.items()}
    value = sum(phases.values())
    ends = (least / seconds, most / seconds) if seconds > 0 else (1.0, 1.0)
    saved = Interval(value, value * min(1.0, ends[0]) / _SCATTER, min(1.0, value * max(1.0, ends[1])), 1)
    return _calls(one.more, saved, str(one.more.get("recurrent")), phases)


def _seconds_again(one: Mapping[str, Json]) -> tuple[float, float, float]:
    """What computing positions again took in one step: probably, at least and at most."""
    value, least, most = (_number(one.get(f"seconds_again{end}")) for end in ("", "_least", "_most"))
    return value, least, most


def _calls(
    one: Mapping[str, Json], saved: Interval, recurrent: str = "", phases: Mapping[str, float] | None = None
) -> PrefixCalls:
    calls, rows, longest = (int(_number(one.get(name))) for name in ("calls", "rows", "longest"))
    return PrefixCalls(
        place=place_of({**one}),
        calls=calls,
        rows=rows,
        longest=longest,
        positions=int(_number(one.get("positions"))),
        again=int(_number(one.get("positions_again"))),
        saved=saved,
        recurrent=recurrent,
        phases=phases or {},
    )


def _number(told: Json) -> float:
    return float(told) if isinstance(told, int | float) and not isinstance(told, bool) and told >= 0 else 0.0
