"""Which phase of which step a moment lies in, by the marks on a probe's tape."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from perf_diagnostics.measure.steps.calls import asks_again
from perf_diagnostics.measure.steps.reading import Folded, TapeSteps
from perf_diagnostics.measure.steps.tape import (
    before_update,
    labels_of,
    preparing,
    remembered,
)
from perf_diagnostics.records import ALL_PHASES

#: Parts of phases that have a meaning of their own: of ``other`` between a batch and its forward, and of ``optimizer``
#: between backward and the update; and of any phase a call of the model that is needless (:mod:`.calls`).
PREPARE, BEFORE_UPDATE, AGAIN = "prepare", "before_update", "again"
_NAMES = tuple(str(phase) for phase in ALL_PHASES)


#: A phase, and the part of it that has a meaning of its own (else empty).
Place: TypeAlias = tuple[str, str]


def phases_at(
    marks: array[int], times_ns: Sequence[int], *, bridged: bool, recomputes: bool, folds: Sequence[Folded] = ()
) -> list[Place | None]:
    """The phase, and the part of it that has a meaning of its own (else empty), at each of these moments.

    None for a moment that lies in no step that has ended on the tape, or among marks that were folded and did not all
    lie in one phase.

    Args:
        marks: of a probe, as :func:`~.reading.read_tape` reads them.
        times_ns: moments of the probe's clock, in any order.
        bridged: as :func:`~.reading.read_tape` takes it.
        recomputes: as :func:`~.reading.read_tape` takes it.
        folds: as :func:`~.reading.read_tape` takes them.
    """
    tape = TapeSteps.of(marks, folds)
    # The stretch that a moment lies in is named by the mark that ends it.
    ended_by = np.searchsorted(tape.times, np.asarray(times_ns, dtype=np.int64), side="left")
    steps = np.searchsorted(tape.ends, ended_by)
    places: dict[int, Sequence[Place | None]] = {}
    found: list[Place | None] = []
    for mark, step in zip(ended_by.tolist(), steps.tolist(), strict=True):
        if step >= tape.ends.size or mark <= tape.begins[step]:
            found.append(None)
            continue
        if step not in places:
            if step in tape.folded:
                places[step] = _folded_places(tape, step, bridged=bridged, recomputes=recomputes)
            else:
                own = tape.codes[tape.begins[step] + 1 : tape.ends[step] + 1].tobytes()
                places[step] = _places(own, bridged=bridged, recomputes=recomputes)
        found.append(places[step][mark - tape.begins[step] - 1])
    return found


@remembered
def _places(step: bytes, *, bridged: bool, recomputes: bool) -> list[Place | None]:
    """Where the stretch before each mark of one step lies."""
    parts = (
        (asks_again(step, marked=not bridged), AGAIN),
        (before_update(step, bridged=bridged, recomputes=recomputes), BEFORE_UPDATE),
        (preparing(step, bridged=bridged, recomputes=recomputes), PREPARE),
    )
    labels = labels_of(step, bridged=bridged, recomputes=recomputes)
    found: list[Place | None] = [(_NAMES[label], "") for label in labels]
    for inside, part in parts:  # the last one that holds tells
        for number in np.flatnonzero(inside).tolist():
            found[number] = (_NAMES[labels[number]], part)
    return found


def _folded_places(tape: TapeSteps, step: int, *, bridged: bool, recomputes: bool) -> list[Place | None]:
    """The same of a step of which marks were folded; after these only the phases are told."""
    at, sums = tape.folded[step]
    first = tape.codes[tape.begins[step] + 1 : at].tobytes()
    rest = tape.codes[at + 1 : tape.ends[step] + 1].tobytes()
    only = sums.only_phase
    return [
        *_places(first, bridged=bridged, recomputes=recomputes),
        None if only is None else (_NAMES[only], ""),
        *((_NAMES[label], "") for label in sums.labels(rest)),
    ]
