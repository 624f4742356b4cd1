"""What marks do to the sums of a step that is added up while it goes on (:mod:`.folding`): which time goes where.

It follows the marks as :mod:`.tape` and :mod:`.calls` do, but one after the other: what is not decided yet waits in a
sum of its own.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.measure.steps.calls import AS_WATCHED
from perf_diagnostics.measure.steps.tape import (
    ABANDON,
    AGAIN,
    APART,
    ASKS,
    ASKS_AGAIN,
    BACKWARD,
    BEGINS,
    BEGUN,
    BRIDGES,
    CLEARS,
    CLOSURE,
    DATA_WAIT,
    EVALUATES_AGAIN,
    FORWARD,
    GIVE_BACK,
    KEEPS,
    LEAVE,
    NEXT_BATCH,
    NO_TAIL,
    NO_UPDATE,
    OPTIMIZER,
    OTHER,
    STEPPED,
    TRAINS,
    TRANSFER,
)
from perf_diagnostics.records import ALL_PHASES

PHASES = len(ALL_PHASES)

#: The sums after those of the phases: waits and copies that may be given back; preparation, and what of it is taken
#: back with them; what becomes preparation if a forward follows; what is optimizer, but no update; and of what lies
#: between two phases that up to where gradients were cleared: it is other if it is not named by what follows.
WAITS, COPIES, PREPARE, PREPARE_OPEN, SINCE, ASIDE, HELD = range(PHASES, PHASES + 7)
#: Times of calls on a batch that was trained on: needless for certain; if no backward follows before the loop goes on;
#: if the step has a backward at all; and in evaluation mode.
AGAIN_NS, CANDIDATE_NS, SEMI_NS, EVALUATION_NS = range(HELD + 1, HELD + 5)
#: Counts: of the first three as above, and those of :class:`.calls.Calls`.
AGAIN_COUNT, CANDIDATES, SEMI, FORWARDS, ASKED, BACKWARDS, KEEPING, REPEATED, UPDATES = range(
    EVALUATION_NS + 1, EVALUATION_NS + 10
)
SUMS = UPDATES + 1

#: What a stretch is a part of, below 0; from 0 on it is the number of a backward through a graph that is kept.
_NONE, _IN_AGAIN, _IN_CANDIDATE, _IN_SEMI, _IN_EVALUATION = -1, -2, -3, -4, -5
_ASKING = {ASKS: _NONE, ASKS_AGAIN: _IN_AGAIN, EVALUATES_AGAIN: _IN_EVALUATION}
_SUM_OF = {_IN_AGAIN: AGAIN_NS, _IN_CANDIDATE: CANDIDATE_NS, _IN_SEMI: SEMI_NS, _IN_EVALUATION: EVALUATION_NS}


class State(NamedTuple):
    """What later marks may need of earlier ones."""

    phases: tuple[int, ...] = ()
    phase: int = OTHER
    parts: tuple[int, ...] = ()
    part: int = _NONE
    tail: int = NO_TAIL
    #: Whether a batch has come whose preparation may be under way.
    since: bool = False
    #: As in :func:`.calls.calls_of`: the last forward's backward is over; its graph is kept; its number.
    over: bool = True
    kept: bool = False
    graph: int = 0
    #: The graphs of the backwards that have numbers.
    graphs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Effect:
    """What a sequence of marks does.

    Each sum, and the time of each numbered backward, becomes the sum over places: place 0 is a one, then come the sums
    before these marks, the numbered backwards before them, and the stretches before each mark.
    """

    state: State
    sums: tuple[NDArray[np.intp], ...]
    backwards: tuple[NDArray[np.intp], ...]
    #: Those of the numbered backwards that are the new state's, and of each graph those that are over.
    left: tuple[int, ...]
    finished: tuple[tuple[int, ...], ...]
    #: The phase of each stretch, as far as it is known.
    labels: tuple[int, ...]


class _Marks:
    """Follows one sequence of marks; what is in the sums and in the numbered backwards before it, has places, too."""

    def __init__(self, state: State, *, bridged: bool, recomputes: bool) -> None:
        self.bridged, self.recomputes = bridged, recomputes
        self.phases, self.phase, self.tail = list(state.phases), state.phase, state.tail
        self.parts, self.part = list(state.parts), state.part
        self.since, self.over, self.kept, self.graph = state.since, state.over, state.kept, state.graph
        self.graphs = list(state.graphs)
        # The places of class Effect.
        self.sums: list[list[int]] = [[1 + number] for number in range(SUMS)]
        self.backwards: list[list[int]] = [[1 + SUMS + number] for number in range(len(self.graphs))]
        self.first = 1 + SUMS + len(self.graphs)
        self.stretches = 0

    def move(self, where: int, to: int | None = None) -> None:
        """What is in one sum goes to another one, or nowhere."""
        if to is not None:
            self.sums[to] += self.sums[where]
        self.sums[where] = []

    def count(self, what: int) -> None:
        self.sums[what].append(0)

    def mark(self, code: int) -> None:
        """One mark, and the stretch before it."""
        place = self.first + self.stretches
        self.stretches += 1
        ending, aside = self.phase, self.phase == NO_UPDATE
        if self.part >= 0:
            self.backwards[self.part].append(place)
        elif self.part != _NONE:
            self.sums[_SUM_OF[self.part]].append(place)
        if code in BEGINS:
            index = BEGINS[code]
            if self.tail >= 0:
                ending, aside = self._between(code, index, ending, aside=aside)
            if self.recomputes and index == FORWARD and self.phase == BACKWARD:
                index = BACKWARD
            self.phases.append(self.phase)
            self.phase = index
        elif code == LEAVE:
            self.phase = self.phases.pop() if self.phases else self.phase
            if self.bridged and ending in BRIDGES:
                self.no_tail()
                self.tail = ending
        elif code == APART:
            self.no_tail()
        elif code == ABANDON:
            self.phases, self.phase = [], OTHER
            self.no_tail()
            ending, aside = OTHER, False
        label = OPTIMIZER if ending == NO_UPDATE else ending
        waited = code == LEAVE and label in (DATA_WAIT, TRANSFER)
        self.sums[{DATA_WAIT: WAITS, TRANSFER: COPIES}[label] if waited else label].append(place)
        if aside:
            self.sums[ASIDE].append(place)
        self._prepares(code, label, place)
        self._calls(code if self.bridged else AS_WATCHED[code])

    def _between(self, code: int, index: int, ending: int, *, aside: bool) -> tuple[int, bool]:
        """A phase begins after another one: what is the stretch between them called, and is it no update?"""
        if code == CLEARS and self.phase == OTHER:
            return HELD, False
        followers, label = BRIDGES[self.tail]
        if index in followers:
            ending, aside = label, label == OPTIMIZER
            if aside:
                self.sums[ASIDE] += self.sums[HELD]
            self.move(HELD, label)
        self.no_tail()
        return ending, aside

    def no_tail(self) -> None:
        """What lies between the last phase and the next one is none of either."""
        self.move(HELD, OTHER)
        self.tail = NO_TAIL

    def _prepares(self, code: int, label: int, place: int) -> None:
        """What of it lies between a batch and its forward, and which waits were for batches that are used."""
        if label == DATA_WAIT and code == LEAVE:
            self.move(SINCE)
            self.since = True
        elif self.since and label == OTHER:
            self.sums[SINCE].append(place)
        begun = None if code == CLOSURE else BEGUN.get(code)
        if begun == FORWARD:
            self.move(SINCE, PREPARE_OPEN)
        if begun in (FORWARD, BACKWARD, OTHER) or code in (ABANDON, GIVE_BACK):
            self.move(SINCE)
            self.since = False
        if code in (TRAINS, AGAIN):
            self.move(WAITS, DATA_WAIT)
            self.move(COPIES, TRANSFER)
            self.move(PREPARE_OPEN, PREPARE)
        elif code == GIVE_BACK:
            self.move(WAITS, OTHER)
            self.move(COPIES, OTHER)
            self.move(PREPARE_OPEN)

    def _calls(self, code: int) -> None:
        """What is called, and is it needless?"""
        begun = BEGUN.get(code)
        if code == LEAVE and self.parts:
            self.part = self.parts.pop()
        elif code == ABANDON:
            self.part, self.parts, self.kept = _NONE, [], False
        elif begun is not None:
            self.parts.append(self.part)
            if begun == BACKWARD:
                self._backward(code)
            elif code in (TRAINS, AGAIN):
                self.count(FORWARDS)
                self.over, self.kept = self.over and code == AGAIN, False
                self.part = _IN_CANDIDATE if self.over else _NONE
                if self.over:
                    self.count(CANDIDATES)
            elif code == CLEARS:
                pass  # a part of whatever is called
            elif code in _ASKING:
                self.part = _ASKING[code]
                self.count(ASKED)
                if code == ASKS_AGAIN:
                    self.count(AGAIN_COUNT)
            elif begun != FORWARD:
                self.part = _NONE
        if code in (OPTIMIZER, STEPPED):
            self.count(UPDATES)
        if (begun in (DATA_WAIT, OPTIMIZER) and code != CLEARS) or code in (STEPPED, NEXT_BATCH):
            self.kept = self.kept and (begun == DATA_WAIT or code == NEXT_BATCH)
            self.move(CANDIDATES, SEMI)
            self.move(CANDIDATE_NS, SEMI_NS)
            self._settle_candidates(_IN_SEMI)

    def _backward(self, code: int) -> None:
        """A backward begins: the calls since the loop went on were for it, and what is kept of its graph is its."""
        self.count(BACKWARDS)
        if self.kept:
            self.count(REPEATED)
        else:
            self.graph += 1
        if code == KEEPS:
            self.count(KEEPING)
        self.part = _NONE
        if self.kept or code == KEEPS:
            self.part = len(self.graphs)
            self.graphs.append(self.graph)
            self.backwards.append([])
        self.over, self.kept = True, code == KEEPS
        self.move(CANDIDATES)
        self.move(CANDIDATE_NS)
        self._settle_candidates(_NONE)

    def _settle_candidates(self, part: int) -> None:
        """For the open calls on a batch that was trained on it is known by now what they are."""
        self.parts = [part if inside == _IN_CANDIDATE else inside for inside in self.parts]
        if self.part == _IN_CANDIDATE:
            self.part = part

    def effect(self) -> Effect:
        """What all of the marks do."""
        open_ = {part for part in (*self.parts, self.part) if part >= 0}
        alive = {self.graphs[number] for number in open_} | ({self.graph} if self.kept else set())
        left, finished = [], []
        for graph in dict.fromkeys(self.graphs):
            own = [number for number, of in enumerate(self.graphs) if of == graph]
            over = tuple(number for number in own if number not in open_)
            # The longest of those that are over stands in for all, in the first one's place, while others may come.
            left += [number for number in own if number in open_ or (graph in alive and number in over[:1])]
            finished.append(over)
        new = {number: place for place, number in enumerate(left)}
        graphs = {graph: place for place, graph in enumerate(dict.fromkeys(self.graphs[number] for number in left))}
        state = State(
            tuple(self.phases),
            self.phase,
            tuple(new.get(part, part) for part in self.parts),
            new.get(self.part, self.part),
            self.tail,
            self.since,
            self.over,
            self.kept,
            graphs.get(self.graph, len(graphs)),
            tuple(graphs[self.graphs[number]] for number in left),
        )
        return Effect(
            state,
            tuple(np.array(places, dtype=np.intp) for places in self.sums),
            tuple(np.array(places, dtype=np.intp) for places in self.backwards),
            tuple(left),
            tuple(finished),
            self.labels(),
        )

    def labels(self) -> tuple[int, ...]:
        """The phase of each stretch, as far as it is known."""
        found = [OTHER] * self.stretches
        for number, phase in (*enumerate(range(PHASES)), (WAITS, DATA_WAIT), (COPIES, TRANSFER)):
            for place in self.sums[number]:
                if place >= self.first:
                    found[place - self.first] = phase
        return tuple(found)


@functools.lru_cache(maxsize=32)  # of which each takes some 100 kB
def effect_of(codes: bytes, state: State, *, bridged: bool, recomputes: bool) -> Effect:
    """What these marks do after such a state; bridged and recomputes as :class:`.folding.Folding` takes them."""
    marks = _Marks(state, bridged=bridged, recomputes=recomputes)
    for code in codes:
        marks.mark(code)
    return marks.effect()
