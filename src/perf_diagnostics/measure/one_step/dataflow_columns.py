"""The operators of one step in columns: a few numbers each, so that a hundred thousand of them stay small."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType

import torch

from perf_diagnostics.measure.code.own_code import Kind, OwnCode
from perf_diagnostics.measure.one_step.dataflow_storages import Held

_TORCH = str(Path(torch.__file__).parent)

#: What autograd makes before it begins, such as the gradient of a loss, nobody else could make.
_BEGINS_BACKWARD = torch.autograd.__file__

_MOST_FRAMES = 400

#: What calls one operator of torch's for a whole sequence, of which each step is operators of its own.
_SEQUENCES = frozenset(kind.forward.__code__ for kind in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU))
_IN_A_SEQUENCE = -2

Line = tuple[CodeType, int]


class Stacks:
    """The user's own lines that led to an operator, each way of them once."""

    def __init__(self) -> None:
        self._own = OwnCode()
        self._numbers: dict[tuple[tuple[Line, ...], bool], int] = {}
        #: For each number the lines, the loop's first, and whether the last one calls torch without a library between.
        self.stacks: list[tuple[tuple[Line, ...], bool]] = []

    def here(self) -> tuple[int, int]:
        """The number of the way that led to where this is called, and which instruction of its last line did; -1 where
        none did, and less for one whose call goes through a sequence inside of torch (:data:`_SEQUENCES`).
        """
        frame: FrameType | None = sys._getframe(1)
        lines: list[Line] = []
        direct, instruction, sequence = True, -1, False
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            kind = self._own.kind_of(code.co_filename)
            if kind is Kind.OWN:
                if not lines:
                    instruction = _IN_A_SEQUENCE - frame.f_lasti if sequence else frame.f_lasti
                lines.append((code, frame.f_lineno))
            elif kind is Kind.STARTER:
                break
            elif not lines and kind is Kind.LIBRARY:
                direct &= code.co_filename.startswith(_TORCH) and code.co_filename != _BEGINS_BACKWARD
                sequence |= code in _SEQUENCES
            frame = frame.f_back
        way = tuple(reversed(lines)), direct
        number = self._numbers.get(way)
        if number is None:
            number = self._numbers[way] = len(self.stacks)
            self.stacks.append(way)
        return number, instruction


class DerivedRow:
    """What a pass of ``torch.autograd.grad`` took, in s by whether it lies in backward, for how many operators."""

    __slots__ = ("needed", "operators", "seconds")

    def __init__(self) -> None:
        self.seconds = [0.0, 0.0]
        self.operators = 0
        #: Whether the training may be made of it by ways that no operator shows.
        self.needed = False


class Columns:
    """One row an operator of forward, in its order; backward's seconds are those of the rows that asked for them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.seconds = array("d")
        self.backward = array("d")
        #: The way that led to it, and the instruction of its last line.
        self.stack, self.instruction = array("i"), array("i")
        self.origin = array("b")
        #: Whether autograd made a node of the operator's.
        self.with_node = array("b")
        self.draws = array("b")
        #: Whether it gave a view of what it was given, and computed nothing.
        self.views = array("b")
        #: Whether something that changes was written into what it made, such as sums into zeros.
        self.filled = array("b")
        #: Whether something outside of the step's operators sees what it does.
        self.root = array("b")
        #: The first row that gave the same, or -1.
        self.again_of = array("i")
        #: The value that it gave.
        self.value = array("q")
        #: Whether it gives the same in each step in which nobody writes into what it reads, and has no other effect.
        self.fixed = array("b")
        #: Of which calls' arguments it is made, and of nothing that changes otherwise, as ``Held.given`` tells it, and
        #: its value with places in their stead.
        self.given, self.named = array("q"), array("q")
        #: Whether what it gave is written over by what is not fixed.
        self.spoiled = array("b")
        #: Whether a model asked for it beside those that are trained: it may lie in another phase.
        self.beside = array("b")
        #: How many different numbers it was given and gave.
        self.numbers = array("q")
        #: Of the same rows as ``leaves``: the bytes that it wrote or made.
        self.bytes = array("q")
        #: For rows that are fixed, or made of calls' arguments: the memories from before the step that they read.
        self.leaves: dict[int, tuple[Held, ...]] = {}
        #: And the rows that made what they read of calls' arguments.
        self.handed: dict[int, frozenset[int]] = {}
        #: By row those that took the part it reads of a memory, and by the row of such a one those of the numbers that
        #: said which part.
        self.picks: dict[int, frozenset[int]] = {}
        #: By row those that wrote over what it gave.
        self.rewritten: dict[int, list[int]] = {}
        #: By row the memories from before the step that it read, and those that it wrote into.
        self.from_before: dict[int, tuple[Held, ...]] = {}
        self.into_before: dict[int, tuple[Held, ...]] = {}
        #: By row how many rows there were when Python last read what it gave: a number of it, and all of it.
        self.number_taken: dict[int, int] = {}
        self.all_taken: dict[int, int] = {}
        #: Whether its numbers are so few that its call is all that it takes, and whether it picks a small part of what
        #: it was given: the gradient of that is as large as the whole.
        self.tiny, self.picks_part = array("b"), array("b")
        #: Of a tensor made of Python's numbers, how long Python may have taken to make them, in s.
        self.between = array("d")
        #: Whether it read what Python may have made of numbers that it had read, and whether of whole tensors.
        self.of_numbers, self.of_arrays = array("b"), array("b")
        #: The rows that made what a backward begins with.
        self.backward_begins: set[int] = set()
        #: Those of them, and all others, that a backward came to which adds gradients up: the training needs them.
        self.begins_training: set[int] = set()
        self.trained: set[int] = set()
        #: By row the passes of ``torch.autograd.grad``, each of which stands as one row for what it made.
        self.passes: dict[int, DerivedRow] = {}
        #: The row under way when backward first came to it, or -1.
        self.freed_at = array("i")
        self._reads = array("i")
        self._reads_from = array("i", [0])

    def __len__(self) -> int:
        return len(self.names)

    def add(self, name: str, seconds: float, called: tuple[int, int], origin: int, reads: Iterable[int]) -> int:
        """A row for an operator that read what these rows wrote; ``called``: as :meth:`Stacks.here` tells it."""
        self.names.append(sys.intern(name))
        self.seconds.append(seconds)
        self.stack.append(called[0])
        self.instruction.append(called[1])
        self.origin.append(origin)
        self.backward.append(0.0)
        for column in (self.with_node, self.draws, self.views, self.filled, self.root):
            column.append(0)
        for column in (self.fixed, self.spoiled, self.beside, self.of_numbers, self.of_arrays):
            column.append(0)
        for column in (self.tiny, self.picks_part):
            column.append(0)
        self.between.append(0.0)
        self.given.append(-1)
        for column in (self.value, self.named):
            column.append(0)
        self.bytes.append(0)
        self.numbers.append(0)
        for column in (self.again_of, self.freed_at):
            column.append(-1)
        self._reads.extend(reads)
        self._reads_from.append(len(self._reads))
        return len(self.names) - 1

    def takes_on_parts(self, row: int) -> None:
        """What took the part that a row writes into, on the same line and right before it, is for it alone."""
        at = row - 1
        while at >= 0 and self.views[at] and self.stack[at] == self.stack[row]:
            self.seconds[row] += self.seconds[at]
            self.seconds[at] = 0.0
            at -= 1

    @property
    def forward_s(self) -> float:
        """What the models' operators took, in s: of all, where none is a model's."""
        own = sum(seconds for seconds, beside in zip(self.seconds, self.beside, strict=True) if not beside)
        return own or sum(self.seconds)

    def read_by(self, row: int) -> array[int]:
        """The rows that wrote what a row read."""
        return self._reads[self._reads_from[row] : self._reads_from[row + 1]]

    def of_one_call(self, row: int, other: int) -> bool:
        """Whether one call in the user's own code asked for both: who wrote it has nothing of what lies between."""
        same = self.stack[row] == self.stack[other] and self.instruction[row] == self.instruction[other]
        return same and self.instruction[row] != -1

    def used(self) -> array[int]:
        """For each row whether what it gave reached anything: a root, or a row that is used itself."""
        used = array("b", self.root)
        for row in range(len(self) - 1, -1, -1):
            if used[row]:
                for read in chain(self.read_by(row), self.picks.get(row, ())):
                    used[read] = 1
        return used
