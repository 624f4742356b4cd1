"""What the look at one step told of work that forward has Python, NumPy or SciPy do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perf_diagnostics.diagnose.facts.dataflow_facts import phase_of_forward
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.diagnose.facts.looked_through import not_looked_for
from perf_diagnostics.diagnose.facts.operator_facts import operators_timed, outside_of_torch_s
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.records import CodePlace, Json, Phase

#: One step was timed: of another one a share may be so many times as small.
_SCATTER = 1.5

#: What was handed over: numbers that parameters went into, none such, or no tensor's; or it may be either.
Of = Literal["model", "data", "python", "unclear"]

_OF: tuple[Of, ...] = ("model", "data", "python", "unclear")


@dataclass(frozen=True)
class OutsideWork:
    """What is worked on outside of torch once a line has handed it over: a share of the step, so many ``times`` in it.

    It lies below that line, or up to the line ``until`` of the same function, where that is not 0; ``makes`` says that
    a tensor is made of what comes of it, and ``library`` is the package whose ``forward`` reads, if one does.
    """

    place: CodePlace | None
    of: Of
    times: int
    share: Interval
    makes: bool = False
    until: int = 0
    library: str = ""

    def is_at(self, place: CodePlace) -> bool:
        """Whether a line is one at which it is done, or asked for."""
        own = self.place
        if own is None or (place.file, place.function) != (own.file, own.function):
            return False
        return own.line <= place.line <= max(own.line, self.until)


def worked_outside(facts: TrialFacts) -> tuple[OutsideWork, ...]:
    """What takes longest first.

    On the CPU the thread's time in forward divides into operators, such work, and what lies between operators, of which
    the ends of a share count all or nothing. Where operators run on a device it is the look's seconds over those of a
    step.

    Raises:
        NotMeasured: no step was looked through.
    """
    told = facts.result.facts.get("outside_of_torch")
    if not isinstance(told, list):
        raise not_looked_for(facts, "outside_of_torch")
    found = [one for entry in told if isinstance(entry, dict) and (one := _read(facts, entry)) is not None]
    return tuple(sorted(found, key=lambda one: -one.share.value))


def _read(facts: TrialFacts, told: dict[str, Json]) -> OutsideWork | None:
    seconds, times, until, library = (told.get(name) for name in ("seconds_forward", "operators", "until", "library"))
    of = next((name for name in _OF if name == told.get("of")), None)
    if of is None or not isinstance(seconds, int | float) or isinstance(seconds, bool) or seconds < 0:
        return None
    return OutsideWork(
        place_of(told),
        of,
        times if isinstance(times, int) else 1,
        _share(facts, float(seconds)),
        makes=told.get("makes") is True,
        until=until if isinstance(until, int) else 0,
        library=library if isinstance(library, str) else "",
    )


def together(found: tuple[OutsideWork, ...]) -> Interval:
    """The share of the step that all of it takes; the ends of several hang together."""
    high = sum(one.share.value if one.share.high is None else one.share.high for one in found)
    low = sum(one.share.low or 0.0 for one in found)
    return Interval(sum(one.share.value for one in found), low, min(1.0, high), 1)


def _share(facts: TrialFacts, seconds: float) -> Interval:
    if not operators_timed(facts):
        whole_s = float(facts.step_times_s.mean())
        share = min(1.0, seconds / whole_s)
        return Interval(share, share / _SCATTER, min(1.0, share * _SCATTER), 1)
    length = facts.share(phase_of_forward(facts)).value
    inside, around = facts.number("operator_seconds_forward"), facts.number("around_operators_seconds_forward")
    outside = min(around, outside_of_torch_s(facts, Phase.FORWARD))
    low, value, high = (
        length * min(1.0, seconds / (inside + outside + part * (around - outside))) for part in (1.0, 0.5, 0.0)
    )
    return Interval(value, low / _SCATTER, high, 1)
