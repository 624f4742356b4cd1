"""What the loop's own process does in its waits for data, as it was timed there: drawing, collating, taking over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perf_diagnostics.diagnose.code.code_words import function, place
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Remedy
from perf_diagnostics.diagnose.rule import evidence
from perf_diagnostics.diagnose.statistics.intervals import ratio_interval
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import CodePlace

#: A part of the wait of less than this is left unsaid.
WORTH_SAYING = 0.1

#: From this part of the wait on it is most of it.
_MOST_OF_IT = 0.5

#: Batches from which on their parts are told: as many as make three rows of sums.
_LEAST_ROWS = 3

#: Columns of the rows of older records, which have no time of taking over.
_COLUMNS = 4

_IN_THE_LOOP = "Workers do not help: indices are drawn in the loop's own process."


@dataclass(frozen=True)
class LoaderParts:
    """Parts of the wait for a batch that is not the first of its pass, in 0…1.

    ``draws`` is how long the loader's sampler takes to say which samples the batch has, and ``collates`` how long the
    samples are put together, None where workers do it. ``takes_over`` is how long it takes to read and rebuild what
    their queue has, without the wait for it; None without workers, or where it was not timed. ``sampler`` is the class
    that draws, empty where it is not known; ``place`` its ``__iter__``, if that is the user's own code.
    """

    draws: Interval
    collates: Interval | None
    sampler: str = ""
    place: CodePlace | None = None
    takes_over: Interval | None = None

    @property
    def draws_most(self) -> bool:
        """Whether that is surely most of the wait."""
        return self.draws.surely_at_least(_MOST_OF_IT)

    @property
    def takes_over_most(self) -> bool:
        """Whether taking over what workers made is surely most of the wait."""
        return self.takes_over is not None and self.takes_over.surely_at_least(_MOST_OF_IT)

    @property
    def worth_saying(self) -> bool:
        """Whether drawing surely takes a part of the wait that is worth a word."""
        return self.draws.surely_at_least(WORTH_SAYING)

    @property
    def who(self) -> str:
        """``PKSampler.__iter__ (train.py:24)``, or the name of a library's class."""
        if self.place is not None:
            return f"{function(self.place)} ({place(self.place)})"
        return self.sampler or "the loader's sampler"

    @property
    def says(self) -> str:
        """As a sentence behind what the wait takes."""
        return f"{percent(self.draws.value)} of that is drawing which samples a batch has, in {self.who}."

    @property
    def remedy(self) -> Remedy:
        """How to draw in less time."""
        if self.place is None:
            return Remedy(
                f"Draw a whole batch of indices at once: a batch sampler that cuts one shuffled order of the pass into "
                f"lists, in place of {self.who}, which is asked for one after another. {_IN_THE_LOOP}"
            )
        return Remedy(
            f"Make {self.who} cheaper: what does not change from batch to batch (which samples a class has, their "
            "lengths, an order) is worked out once, in __init__ or when a pass begins, and not looked for anew with "
            f"each batch. {_IN_THE_LOOP}"
        )

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The parts that are known, of the wait."""
        parts = (
            ("drawing indices within the wait", self.draws),
            ("collating samples within the wait", self.collates),
            ("taking over batches within the wait", self.takes_over),
        )
        return tuple(evidence(name, part, "%") for name, part in parts if part is not None)


def loader_parts(facts: TrialFacts) -> LoaderParts | None:
    """What was timed in the waits; None where it was not, or too few batches were."""
    told: Any = facts.result.facts.get("loader_parts")
    rows: Any = told.get("rows") if isinstance(told, Mapping) else None
    if not rows or len(rows) < _LEAST_ROWS:
        return None
    sums = np.asarray(rows, dtype=np.float64)
    if sums.ndim != 2 or sums.shape[1] < _COLUMNS or not float(sums[:, 1].sum()) > 0:
        return None
    batches, waited = round(float(sums[:, 0].sum())), sums[:, 1]

    def part(column: int) -> Interval:
        found = ratio_interval(sums[:, column], waited).within(0.0, 1.0)
        return Interval(found.value, found.low, found.high, batches)

    sampler: Any = told.get("sampler") or {}
    own: Any = sampler.get("place")
    # Nothing is taken over in no time: then it was not timed.
    workers, timed = bool(facts.result.facts.get("num_workers")), sums.shape[1] > _COLUMNS and sums[:, -1].any()
    return LoaderParts(
        draws=part(2),
        collates=None if workers else part(3),
        sampler=str(sampler.get("name", "")),
        place=None if own is None else CodePlace(**own),
        takes_over=part(_COLUMNS) if workers and timed else None,
    )


def draws_first(facts: TrialFacts) -> LoaderParts | None:
    """The same, where drawing is most of the wait for the first batches of passes; None where it is not, or unknown."""
    found, told = loader_parts(facts), facts.result.facts.get("loader_parts")
    first: Any = told.get("first") if isinstance(told, Mapping) else None
    if found is None or not first or not first[1] > 0 or first[2] < _MOST_OF_IT * first[1]:
        return None
    return found


def batches_ahead(facts: TrialFacts) -> float | None:
    """How many later batches had come when one came that was waited for, each wait counted by its length.

    Where one worker of several is slow, the others have done all that they may do ahead of it; where all take as long
    and began together, each has made one batch at most. None where nothing was timed, and in older records.
    """
    told: Any = facts.result.facts.get("loader_parts")
    sums: Any = told.get("ahead") if isinstance(told, Mapping) else None
    return float(sums[1] / sums[0]) if sums and sums[0] > 0 else None
