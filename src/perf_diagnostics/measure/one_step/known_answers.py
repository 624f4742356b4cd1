"""What a step computes of a sample that would come out the same whenever the sample comes, so that it could be kept.

Those are the operators that read nothing but what a model is called with and what never changes: a frozen teacher, or
the frozen part before the layers that are trained. That they do the same in each step is seen by the looks of
:mod:`.unchanging`; whether the samples come again, by :mod:`.samples_again`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from perf_diagnostics.measure.one_step.dataflow_columns import Columns, Line
from perf_diagnostics.measure.one_step.dataflow_storages import Held, Storages
from perf_diagnostics.measure.one_step.dataflow_told import Site, StackTable, Telling, apart
from perf_diagnostics.measure.one_step.samples_again import SamplesAgain
from perf_diagnostics.measure.one_step.unchanging import Unchanging
from perf_diagnostics.records import Json

SIGNAL = "known_answers"

#: So many later looks are taken at most, those included at which models were called with other shapes.
_MOST_TRIES = 8

#: Picking 64 rows of 24 bytes, 2 KB and 200 KB out of a matrix took 7, 54 and 2,050 us (torch 2.13, one core).
_A_READ_S, _BYTES_A_SECOND = 1e-5, 2e9

Shapes = Mapping[int, Sequence[tuple[int, ...]]]


class KnownAnswers(Unchanging):
    """The operators of which no input seems to change but what models are called with.

    Args:
        columns: as for :class:`Unchanging`.
        stacks: as for it.
        storages: as for it.
        shapes: of the tensors with which each model was called, by its number.
    """

    def __init__(self, columns: Columns, stacks: StackTable, storages: Storages, shapes: Shapes) -> None:
        self._shapes = shapes
        self._tries = 0
        super().__init__(columns, stacks, storages)

    def _seems_so(self, row: int) -> bool:
        return self._columns.given[row] >= 0

    def _is_counted(self, row: int) -> bool:
        return self._columns.given[row] > 0

    def _value(self, row: int) -> int:
        return self._columns.named[row]

    def _made_of(self, row: int) -> Iterable[int]:
        handed = self._columns.handed.get(row, frozenset())
        return (read for read in super()._made_of(row) if read not in handed)

    def _stays(self, held: Held) -> bool:
        return held.given == 0

    def _line_for(self, row: int, reader: int, line: Line) -> Line:
        """That of its own call of a model, whatever is done with its answers elsewhere, such as in the loss."""
        lines, _ = self._stacks[self._columns.stack[row]]
        if line in lines or not lines:
            return line
        return lines[apart(lines, self._stacks[self._columns.stack[reader]][0])]

    @property
    def goes_on(self) -> bool:
        """As :class:`Unchanging` has it, and shapes have not kept it from being seen for too long."""
        return super().goes_on and self._tries < _MOST_TRIES

    @property
    def calls(self) -> int:
        """The models that it is about, one bit a number."""
        found = 0
        for row in self._told:
            found |= max(0, self._columns.given[row])
        return found

    def saw_with(self, shapes: Shapes, values: Mapping[int, float], forward: float) -> None:
        """As :meth:`saw`; another look at a step whose models were called with other shapes says nothing."""
        self._tries += 1
        if shapes == self._shapes:
            self.saw(values, forward)

    def told_of(self, samples: SamplesAgain, elsewhere: set[int]) -> list[Json]:
        """One entry a function of the user's, as :attr:`Unchanging.told` has them, with what is known of the samples.

        ``bytes`` are those of a step's answers, ``rows_a_step`` its samples; ``rows``, ``different``, ``again`` and
        ``compared`` are :class:`Samples`', ``calls`` those in which they came. ``seconds_instead`` is what reading kept
        answers takes. Where the samples could not be compared, ``why_not`` says so in their stead.

        Args:
            samples: the calls' samples.
            elsewhere: operators that are told as something else.
        """
        told = {row: line for row, line in self._told.items() if row not in elsewhere}
        return Telling(self._total).sites(
            self._sites(told), lambda site: {**self._more(site), **self._known_of(site, samples)}
        )

    def _known_of(self, site: Site, samples: SamplesAgain) -> dict[str, Json]:
        given = int(site.more["given"])
        seen = samples.told(given)
        why_not = next((one.why_not for one in seen if one.why_not), "" if seen else "its calls were not seen again")
        if why_not:
            return {"why_not": why_not}
        # Of several calls that one counts of which fewest come again.
        least = min(seen, key=lambda one: one.told.again)
        rows = sum(shapes[0][0] for number, shapes in self._shapes.items() if given >> number & 1 and shapes[0])
        kept = int(site.more.get("bytes", 0))
        return {
            "rows_a_step": rows,
            "calls": least.calls,
            **asdict(least.told),
            "seconds_instead": _A_READ_S + kept / _BYTES_A_SECOND,
        }
