"""What torch.compile has compiled, how often and why once more, as it was told."""

from __future__ import annotations

from dataclasses import dataclass

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.records import CodePlace, Json

#: Where torch's own code lies, and its compiler's, as a record names them.
_TORCH, _COMPILER = "torch/", "torch/_dynamo/"


@dataclass(frozen=True)
class Guard:
    """What a graph takes for granted, and how often it did not hold; ``place`` is the line that relies on it."""

    text: str
    times: int
    place: CodePlace | None


@dataclass(frozen=True)
class Break:
    """A line at which a graph ends and Python goes on, and torch's reason, empty where it gave none."""

    place: CodePlace
    why: str


@dataclass(frozen=True)
class Compiled:
    """A function that was compiled: into how many graphs for different circumstances, and in how many seconds in all.

    ``place`` is the line at which it begins. ``gave_up`` where torch's limit was met: what none of the graphs fits runs
    uncompiled. ``guards`` are those that failed most often, ``breaks`` the places at which each graph is cut.
    """

    place: CodePlace
    graphs: int
    seconds: float
    gave_up: bool
    guards: tuple[Guard, ...]
    breaks: tuple[Break, ...]

    @property
    def wraps_torch(self) -> bool:
        """Whether it is what torch's compiler wraps around modules and functions of torch itself, all of them alike."""
        return self.place.file.startswith(_COMPILER)

    @property
    def of_torch(self) -> bool:
        """Whether it is torch's own code, whose breaks are torch's as well."""
        return self.place.file.startswith(_TORCH)


def compiled_functions(facts: TrialFacts) -> tuple[Compiled, ...]:
    """The functions that were compiled while the training was watched: what torch gave up on first, then the dearest.

    Raises:
        NotMeasured: nobody looked for any.
    """
    told = facts.result.facts.get("compilations")
    if not isinstance(told, list):
        raise facts.missing("compilations", "what torch.compile notes of its compilations was not recorded")
    found = (_compiled(one) for one in told)
    return tuple(one for one in found if one is not None)


def _compiled(told: Json) -> Compiled | None:
    place = place_of(told)
    if place is None or not isinstance(told, dict):
        return None
    graphs, seconds = told.get("graphs"), told.get("seconds")
    if not isinstance(graphs, int) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        return None
    # Guards of several modules that the same wrapper stands for say nothing of one of them.
    guards = () if place.file.startswith(_COMPILER) else (_guard(one) for one in _list(told.get("guards")))
    breaks = (_break(one) for one in _list(told.get("breaks")))
    return Compiled(
        place=place,
        graphs=max(0, graphs),
        seconds=float(seconds),
        gave_up=told.get("gave_up") is True,
        guards=tuple(one for one in guards if one is not None),
        breaks=tuple(one for one in breaks if one is not None),
    )


def _guard(told: Json) -> Guard | None:
    if not isinstance(told, dict):
        return None
    text, times = told.get("guard"), told.get("times")
    known = isinstance(text, str) and text and isinstance(times, int) and times > 0
    return Guard(str(text), int(str(times)), place_of(told)) if known else None


def _break(told: Json) -> Break | None:
    place = place_of(told)
    return None if place is None or not isinstance(told, dict) else Break(place, str(told.get("why") or ""))


def _list(told: Json) -> list[Json]:
    return told if isinstance(told, list) else []
