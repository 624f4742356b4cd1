"""The user's own hooks on the modules of what is trained, as they were told."""

from __future__ import annotations

from dataclasses import dataclass

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.records import CodePlace, Json


@dataclass(frozen=True)
class Hook:
    """One function that is a hook of so many modules; ``returns`` where it may change what they give.

    ``place`` is the line at which the function begins.
    """

    place: CodePlace
    modules: int
    called: tuple[str, ...]
    returns: bool

    def holds(self, place: CodePlace) -> bool:
        """Whether a line lies in the function."""
        return place.file == self.place.file and place.function == self.place.function


def hooks_of(facts: TrialFacts) -> tuple[Hook, ...]:
    """The hooks that were there, those on the most modules first.

    Raises:
        NotMeasured: nobody looked for any.
    """
    told = facts.result.facts.get("user_hooks")
    if not isinstance(told, list):
        raise facts.missing("user_hooks", "nobody looked for hooks on the modules of what is trained")
    found = (_hook(one) for one in told)
    return tuple(one for one in found if one is not None)


def _hook(told: Json) -> Hook | None:
    if not isinstance(told, dict):
        return None
    place, modules, called = place_of(told), told.get("modules"), told.get("called")
    if place is None or not isinstance(modules, int) or modules < 1:
        return None
    times = tuple(str(one) for one in called) if isinstance(called, list) else ()
    return Hook(place, modules, times, told.get("returns") is not False)
