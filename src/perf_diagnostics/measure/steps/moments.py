"""Which phase of which step a moment lies in, by the marks on a probe's tape."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from perf_diagnostics.measure.steps.calls import asks_again
from perf_diagnostics.measure.steps.tape import END, before_update, labels_of, preparing, times_and_codes
from perf_diagnostics.records import ALL_PHASES

#: Parts of phases that have a meaning of their own: of ``other`` between a batch and its forward, and of ``optimizer``
#: between backward and the update; and of any phase a call of the model that is needless (:mod:`.calls`).
PREPARE, BEFORE_UPDATE, AGAIN = "prepare", "before_update", "again"


def phases_at(
    marks: array[int], times_ns: Sequence[int], *, bridged: bool, recomputes: bool
) -> list[tuple[str, str] | None]:
    """The phase, and the part of it that has a meaning of its own (else empty), at each of these moments.

    None for a moment that lies in no step that has ended on the tape.

    Args:
        marks: of a probe, as :func:`~.tape.read_tape` reads them.
        times_ns: moments of the probe's clock, in any order.
        bridged: as :func:`~.tape.read_tape` takes it.
        recomputes: as :func:`~.tape.read_tape` takes it.
    """
    times, codes = times_and_codes(marks)
    borders = np.flatnonzero(codes >= END)
    # The stretch that a moment lies in is named by the mark that ends it.
    ended_by = np.searchsorted(times, np.asarray(times_ns, dtype=np.int64), side="left")
    found: list[tuple[str, str] | None] = []
    for mark in ended_by.tolist():
        at = int(np.searchsorted(borders, mark))
        if mark >= len(times) or at == 0 or at >= len(borders) or codes[borders[at]] != END:
            found.append(None)
            continue
        first = int(borders[at - 1]) + 1
        step, place = codes[first : int(borders[at]) + 1].tobytes(), mark - first
        label = ALL_PHASES[labels_of(step, bridged=bridged, recomputes=recomputes)[place]]
        if preparing(step, bridged=bridged, recomputes=recomputes)[place]:
            found.append((str(label), PREPARE))
        elif before_update(step, bridged=bridged, recomputes=recomputes)[place]:
            found.append((str(label), BEFORE_UPDATE))
        elif bridged and asks_again(step)[place]:
            found.append((str(label), AGAIN))
        else:
            found.append((str(label), ""))
    return found
