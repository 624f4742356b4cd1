"""Whose the time outside of the phases is, where no kind of work is told: a framework's own, or a user's function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from perf_diagnostics.diagnose.code.code_ways import OURS, Loop, Way, seconds_of
from perf_diagnostics.diagnose.code.phase_looks import PhaseLooks
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.diagnose.finding import Remedy
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import CodePath, CodePlace, Phase

#: Somebody is named who has at least this part of the phase's looks.
LEAST_PART = 0.5

#: Functions that these run in are the training.
_TRAINING = (Phase.BACKWARD, Phase.OPTIMIZER)


@dataclass(frozen=True)
class Framework:
    """The part of a phase in which no line of the user's runs below the one that starts a framework's loop."""

    package: str
    part: Interval

    @property
    def says(self) -> str:
        """In a clause that follows what the time is."""
        return f"{percent(self.part.value)} of that is work of {self.package} itself: its loop and its hooks"

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (
            Remedy(
                f"It is what {self.package} does in every step, whatever the step trains: fewer callbacks, hooks and "
                "loggers make it less, larger steps make it rarer, and a loop of your own does without."
            ),
        )


@dataclass(frozen=True)
class OwnFunction:
    """The user's function, called from the training's loop, that has the largest part of a phase, and its main line.

    It is none that the training itself runs in (``train()`` with the backward in it), but what that calls, or, of what
    is done in its own lines, that one.
    """

    name: str
    part: Interval
    line: CodePlace

    @property
    def says(self) -> str:
        """In a clause that follows what the time is."""
        return f"{percent(self.part.value)} of that is in {self.name} ({self.line.file}:{self.line.line})"

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (
            Remedy(
                f"Look at {self.name}: if it works one by one, do it for many at once; what no step waits for may run "
                "in another process or thread meanwhile. If the training needs it as it is, this is its price."
            ),
        )


def whose_work(
    facts: TrialFacts, phase: str, leaves_out: Callable[[CodePath], bool] = lambda _path: False
) -> Framework | OwnFunction | None:
    """Who has at least half of a phase's looks; None where nobody looked often enough, or nobody has.

    Args:
        facts: of the trial.
        phase: by its name.
        leaves_out: looks of which it is known what they are; at least half of the others' time is asked for.
    """
    looks = PhaseLooks.of(facts, phase)
    if looks is None:
        return None
    left_s = looks.seconds(path for path in looks.paths if not leaves_out(path))
    loop = Loop.of(looks.code)
    packages: defaultdict[str, list[Way]] = defaultdict(list)
    functions: defaultdict[tuple[str, str], list[tuple[Way, CodePlace]]] = defaultdict(list)
    training = {
        (line.file, line.function)
        for path in looks.code.paths
        if path.phase in _TRAINING
        for line in Way.of(path, looks.code).lines
    }
    for path in looks.paths:
        way = Way.of(path, looks.code)
        if not way.lines or way.calls == OURS or leaves_out(path):
            continue
        if way.calls and way.lines[-1] in loop.common:
            packages[way.calls[0].split(".")[0]].append(way)
        elif len(way.lines) > loop.depth:
            inner = way.lines[loop.depth :]
            called = next((line for line in inner if (line.file, line.function) not in training), inner[-1])
            functions[called.file, called.function].append((way, called))
    package, own = max(packages.items(), key=lambda item: seconds_of(item[1]), default=("", []))
    ways = max(functions.values(), key=lambda found: seconds_of(way for way, _ in found), default=[])
    own_s, function_s = seconds_of(own), seconds_of(way for way, _ in ways)
    if own and own_s >= LEAST_PART * left_s:
        return Framework(package, looks.proportion(own_s))
    return _function(ways, looks.proportion(function_s)) if ways and function_s >= LEAST_PART * left_s else None


def _function(ways: list[tuple[Way, CodePlace]], part: Interval) -> OwnFunction:
    by_line: defaultdict[CodePlace, float] = defaultdict(float)
    for way, line in ways:
        by_line[line] += way.seconds
    line = max(by_line, key=lambda place: by_line[place])
    return OwnFunction(line.function.replace("<locals>.", ""), part, line)
