"""What a step computes of its model's results for nobody but who looks on: metrics and statistics beside the loss.

What backward comes to is the loss and all that it is made of. Of what else is made of that, what the training needs is
left out as far as the step shows it: what the loss reads, or may be made of by way of Python; what changes a memory
that it reads, such as the codes of a quantiser, which the next step reads again; and random draws, such as of actions.
A pass of ``torch.autograd.grad`` is needed where its derivatives are: norms of each task's gradients for a log are
told, a penalty that the loss holds is not.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from perf_diagnostics.measure.one_step.dataflow_columns import Columns
from perf_diagnostics.measure.one_step.dataflow_storages import Held


def beside_the_loss(columns: Columns, memories: Sequence[Held]) -> Iterator[int]:
    """The rows of operators that read what a backward came to, and that no backward and nothing it reads depends on.

    Those are left out that only view, that models beside the trained ones asked for, and all that led to a random draw.

    Args:
        columns: the operators of the step, which is over.
        memories: those that were met in it.
    """
    rows = range(len(columns))
    by_pass = (row for row, derived in columns.passes.items() if derived.needed)
    visited = sorted({*columns.trained, *columns.begins_training, *by_pass})
    of_the_loss = _made_of(columns, visited)
    drawn = _made_of(columns, (row for row in rows if of_the_loss[row] and columns.draws[row]))
    needed = _needed(columns, memories, chain(visited, (row for row in rows if drawn[row])))
    return (row for row in rows if of_the_loss[row] and not (needed[row] or columns.views[row] or columns.beside[row]))


def _made_of(columns: Columns, first: Iterable[int]) -> array[int]:
    """For each row whether it is one of these, or reads what is made of them."""
    made = array("b", bytes(len(columns)))
    for row in first:
        made[row] = 1
    for row in range(len(columns)):
        made[row] = made[row] or any(made[read] for read in _read(columns, row))
    return made


def _read(columns: Columns, row: int) -> Iterator[int]:
    return chain(columns.read_by(row), columns.picks.get(row, ()))


def _needed(columns: Columns, memories: Sequence[Held], first: Iterable[int]) -> array[int]:
    """For each row whether one of these is made of it, or may be in this step or the next one."""
    needed = array("b", bytes(len(columns)))
    more = [*first]
    while more:
        for row in more:
            needed[row] = 1
        for row in range(len(columns) - 1, -1, -1):
            if needed[row]:
                for read in _read(columns, row):
                    needed[read] = 1
        more = [row for row in _by_other_ways(columns, memories, needed) if not needed[row]]
    return needed


def _by_other_ways(columns: Columns, memories: Sequence[Held], needed: Sequence[int]) -> Iterator[int]:
    """The rows that what is needed may depend on though no operator read them."""
    rows = [row for row in range(len(columns)) if needed[row]]
    read = {id(held): held for row in rows for held in columns.from_before.get(row, ())}
    # Torch's own checks of what it is given, such as of one_hot's numbers.
    yield from (row for row, by in columns.number_taken.items() if columns.of_one_call(row, by))
    for row, written in columns.into_before.items():
        if any(id(held) in read for held in written):
            yield row
    last_of_numbers = max((row for row in rows if columns.of_numbers[row]), default=-1)
    last_of_arrays = max((row for row in rows if columns.of_numbers[row] or columns.of_arrays[row]), default=-1)
    for taken, last in ((columns.number_taken, last_of_numbers), (columns.all_taken, last_of_arrays)):
        yield from (row for row, at in taken.items() if at <= last)
    # What was read and is gone may have been made anew for the next step: by what is as large, and still there.
    gone = {held.size for held in read.values() if held.weak.expired()}
    yield from (one.writer for one in memories if one.writer >= 0 and one.size in gone and not one.weak.expired())
