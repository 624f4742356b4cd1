"""What a step computes from what never changes, so that each step computes it anew: found by a few looks at steps.

In the first look each operator has a value, which is the same in a later one exactly if the same operators make it of
the same memories, into which nobody has written since. So what has one value in several steps need be computed once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any

import torch

from perf_diagnostics.measure.one_step.dataflow_columns import Columns, Line
from perf_diagnostics.measure.one_step.dataflow_storages import Held, Storages
from perf_diagnostics.measure.one_step.dataflow_told import Site, StackTable, Telling, apart, constants
from perf_diagnostics.records import Json

SIGNAL = "unchanging"

#: Of all operators' time so much has to be left for another look.
_LEAST_PART = 0.03

#: So many steps lie between the first look and the second one, so that these are 31 apart: no small number of batches
#: that take turns divides it. Two more follow at once, for of several batches, shuffled or not, none comes three times
#: in a row, and some at leisure, for what changes rarely.
_AFTER = (30, 0, 0)
_LATER = 2

#: So many numbers of eight bytes of a memory are compared, spread over it.
_COMPARED = 1 << 16

_numpy: Callable[[torch.Tensor], Any] = torch._C.TensorBase.numpy


class Unchanging:
    """The operators of a step's forward of which no input seems to change, fewer with each look at another step.

    Args:
        columns: the operators of the first step looked at.
        stacks: the ways that led to them.
        storages: the memories that they read.
    """

    def __init__(self, columns: Columns, stacks: StackTable, storages: Storages) -> None:
        self._columns, self._stacks = columns, stacks
        self.storages = storages
        self.looks = 1
        self._total = sum(columns.seconds) + sum(columns.backward) + sum(columns.between)
        self._forward = columns.forward_s
        #: What each row took, as far as is known by now, and in each look, by the pace of the first one.
        self._seconds = array("d", map(sum, zip(columns.seconds, columns.between, strict=True)))
        self._in_looks: dict[int, list[float]] = {}
        self._left = array("b", (self._seems_so(row) for row in range(len(columns))))
        #: By row the memories from before the step that it read.
        self._leaves = {
            row: tuple(held for held in leaves if self._stays(held)) for row, leaves in columns.leaves.items()
        }
        self._readers: dict[int, list[int]] = {}
        #: Whether a row's time counts: what is told as made anew, again or for nobody does not.
        self._counts = array("b")
        #: The rows that are told, with their lines.
        self._told: dict[int, Line] = {}
        if self._is_worth(row for row in range(len(columns)) if self._left[row]):
            self._readers = self._read()
            used, elsewhere = columns.used(), set(constants(columns, stacks))
            rows = range(len(columns))
            self._counts = array(
                "b",
                (
                    used[row] and columns.again_of[row] < 0 and row not in elsewhere and self._is_counted(row)
                    for row in rows
                ),
            )
            self._told = self._tellable()
        #: What it needs to know of in later steps.
        self.leaves = [*{id(held): held for row in self._told for held in self._leaves.get(row, ())}.values()]
        self._marks = {id(held): _mark(held) for held in self.leaves} if self.goes_on else {}

    def _seems_so(self, row: int) -> bool:
        return bool(self._columns.fixed[row])

    def _is_counted(self, row: int) -> bool:
        """Whether a row's seconds are told here, and not as something else."""
        return bool(self._columns.fixed[row])

    def _value(self, row: int) -> int:
        return self._columns.value[row]

    def _made_of(self, row: int) -> Iterable[int]:
        """The rows that have to be the same in each step, so that this one is."""
        return self._columns.read_by(row)

    def _stays(self, held: Held) -> bool:
        """Whether what was there before the step has to be the same in the next one."""
        return held.fixed

    def _is_worth(self, rows: Iterable[int]) -> bool:
        return sum(self._seconds[row] for row in rows) >= _LEAST_PART * self._total > 0

    def _read(self) -> dict[int, list[int]]:
        """By row those that read what it wrote, and are no views of it."""
        columns = self._columns
        readers: dict[int, list[int]] = {}
        for row in range(len(columns)):
            for read in () if columns.views[row] else columns.read_by(row):
                readers.setdefault(read, []).append(row)
        return readers

    @property
    def goes_on(self) -> bool:
        """Whether there is so much of it that it is worth another look, and not enough of them yet."""
        counted = (row for row in self._told if self._counts[row])
        return self.looks <= len(_AFTER) + _LATER and self._is_worth(counted)

    @property
    def due_after(self) -> int | None:
        """After how many more steps the next look is due; None: at leisure, or never."""
        return _AFTER[self.looks - 1] if self.looks <= len(_AFTER) and self.goes_on else None

    @property
    def sure(self) -> bool:
        """Whether there were enough looks to tell of it, or there is too little to tell."""
        return self.looks > len(_AFTER) or not self.goes_on

    def lets_go(self) -> None:
        """Of what was read some may be gone by now: then nothing made of it is the same in the next step."""
        self._keep(lambda _: True)

    def saw(self, values: Mapping[int, float], forward: float) -> None:
        """Another step was looked at, in which these values were made, in so many seconds each of all ``forward``."""
        self.looks += 1
        pace = self._forward / forward if forward else 1.0
        columns = self._columns
        changed = self._changed()
        self._keep(lambda row: self._value(row) in values and not self._reads_one_of(changed, row))
        for row in range(len(columns)):
            if self._left[row]:
                taken = self._in_looks.setdefault(row, [columns.seconds[row] + columns.between[row]])
                taken.append(values[self._value(row)] * pace)
                self._seconds[row] = median(taken)

    def look_at_memories(self) -> None:
        """What reads a memory that holds something else by now is not the same in each step.

        What is gone went with the training: the function it ran in has returned.
        """
        changed = self._changed(gone=False) if self._told else set()
        self._keep(lambda row: not self._reads_one_of(changed, row), gone=True)

    def _changed(self, *, gone: bool = True) -> set[int]:
        """The memories that hold something else, and those that are gone where ``gone`` is such a change."""
        left = {id(held): held for row, leaves in self._leaves.items() if self._left[row] for held in leaves}
        now = {at: _mark(held) for at, held in left.items()}
        return {at for at, mark in now.items() if mark != self._marks.get(at) and (gone or mark is not None)}

    def _reads_one_of(self, changed: set[int], row: int) -> bool:
        return any(id(held) in changed for held in self._leaves.get(row, ()))

    def _keep(self, fits: Callable[[int], bool], *, gone: bool = False) -> None:
        """Only what fits is left, reads nothing that is gone (unless that may be), and is made of nothing else."""
        columns, left = self._columns, self._left
        for row in range(len(columns)):
            if left[row]:
                alive = gone or not any(held.weak.expired() for held in self._leaves.get(row, ()))
                left[row] = alive and fits(row) and all(left[read] for read in self._made_of(row))
        self._told = self._tellable() if self._told else {}

    def _tellable(self) -> dict[int, Line]:
        """The rows that whoever wrote the script can do once, each with the line at which what it is for comes out.

        What a library computes inside of one call of it, and mixes with what changes in there, nobody else can keep.
        """
        told: dict[int, Line] = {}
        for row in range(len(self._columns) - 1, -1, -1):
            if not self._left[row]:
                continue
            for reader in self._readers.get(row, ()):
                if reader in told:
                    told[row] = self._line_for(row, reader, told[reader])
                    break
            else:
                line = self._comes_out(row)
                if line is not None:
                    told[row] = line
        return told

    def _line_for(self, row: int, reader: int, line: Line) -> Line:
        """The line that a row is told with which a reader reads that is told with this one."""
        return line

    def _comes_out(self, row: int) -> Line | None:
        """The line to which the row's call gives what it made, if what changes reads it nowhere inside of a library."""
        columns = self._columns
        lines, direct = self._stacks[columns.stack[row]]
        readers = [one for one in self._readers.get(row, ()) if not self._left[one]]
        written_over = any(not self._left[one] for one in columns.rewritten.get(row, ()))
        if columns.spoiled[row] or written_over or not lines:
            return None
        mixed = columns.of_one_call if direct else self._from_one_line
        if any(mixed(row, one) for one in readers) and not self._is_cast_of_a_leaf(row):
            return None
        others = (self._stacks[columns.stack[one]][0] for one in readers)
        return lines[min((apart(lines, other) for other in others), default=len(lines) - 1)]

    def _from_one_line(self, row: int, other: int) -> bool:
        return self._columns.stack[row] == self._columns.stack[other]

    def _is_cast_of_a_leaf(self, row: int) -> bool:
        """Such as autocast's of a frozen weight: whoever has the model can cast it for good."""
        columns = self._columns
        return columns.names[row] == "_to_copy" and bool(self._leaves.get(row)) and not columns.read_by(row)

    @property
    def told(self) -> list[Json]:
        """One entry a function of the user's, as :mod:`dataflow_told` tells them, with the ``bytes`` that keeping what
        comes out takes, whether all of it ``casts``, whether most of it is what Python takes to make numbers
        (``of_python``), how many ``looks`` have seen it, and ``seconds_outside`` of models that were called beside
        those that are trained, which may lie in another phase.
        """
        sites = self._sites(self._told) if self.looks > len(_AFTER) else []
        return Telling(self._total).sites(sites, self._more)

    @property
    def rows(self) -> set[int]:
        """The operators that are told."""
        return {*self._told} if self.looks > len(_AFTER) else set()

    def _sites(self, told: Mapping[int, Line]) -> list[Site]:
        columns, sites = self._columns, dict[Any, Site]()
        for row, line in told.items():
            site = sites.setdefault(line[0], Site())
            more = site.more
            if self._counts[row]:
                site.add(row, self._seconds[row], 0.0, line)
                outside = self._seconds[row] if columns.beside[row] else 0.0
                more["seconds_outside"] = more.get("seconds_outside", 0.0) + outside
                more["between"] = more.get("between", 0.0) + columns.between[row]
                more["casts"] = more.get("casts", True) and columns.names[row] == "_to_copy"
                more["given"] = more.get("given", 0) | max(0, columns.given[row])
            readers = self._readers.get(row, ())
            inside = next((told[one] for one in readers if one in told), line)[0] is line[0]
            kept = not inside or not readers or any(one not in told for one in readers)
            if kept and not columns.spoiled[row]:
                more["bytes"] = more.get("bytes", 0) + columns.bytes[row]
        return [site for site in sites.values() if site.rows]

    def _more(self, site: Site) -> dict[str, Json]:
        return {
            "bytes": site.more.get("bytes", 0),
            "casts": site.more["casts"],
            "of_python": site.more["between"] > site.forward / 2,
            "looks": self.looks,
            "seconds_forward": site.forward - site.more["seconds_outside"],
            "seconds_outside": site.more["seconds_outside"],
        }


def _mark(held: Held) -> int | None:
    """What a memory holds, by numbers spread over it; None: it is gone."""
    storage: Any = torch.UntypedStorage._new_with_weak_ptr(held.weak.cdata)
    if storage is None:
        return None
    size = storage.nbytes()
    dtype, count = (torch.int64, size // 8) if size >= 8 else (torch.uint8, size)
    some = min(_COMPARED, count)
    numbers = torch.empty(0, dtype=dtype).set_(storage, 0, (some,), (count // max(1, some),))
    return hash(_numpy(numbers).tobytes())
