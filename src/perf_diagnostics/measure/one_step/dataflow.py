"""Follows the data through the operators of one step: what each is made of, what was computed before, who reads it.

Each memory has a value, a number that two memories share exactly if the same operators made them of the same values
(value numbering, as compilers do it); an origin, which says what went into it; and an operator that wrote it last.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, NamedTuple

import torch

from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.observation import in_words
from perf_diagnostics.measure.one_step import unchanging
from perf_diagnostics.measure.one_step.dataflow_columns import Columns, DerivedRow, Stacks
from perf_diagnostics.measure.one_step.dataflow_storages import Held, Origin, Storages, bytes_of
from perf_diagnostics.measure.one_step.dataflow_told import SIGNALS, told_of
from perf_diagnostics.measure.one_step.dense_products import DenseProducts
from perf_diagnostics.measure.one_step.engine_passes import EnginePass
from perf_diagnostics.measure.one_step.fixed_work import FEW_NUMBERS
from perf_diagnostics.measure.one_step.known_answers import KnownAnswers
from perf_diagnostics.measure.one_step.operator_lines import backward_node, forward_node
from perf_diagnostics.measure.one_step.operator_subscripts import subscript
from perf_diagnostics.measure.one_step.operator_traits import Traits, traits_of
from perf_diagnostics.measure.one_step.outside_of_torch import OutsideOfTorch
from perf_diagnostics.measure.one_step.size_reads import only_decides
from perf_diagnostics.measure.one_step.unchanging import Unchanging
from perf_diagnostics.measure.one_step.unseen_reads import UnseenReads
from perf_diagnostics.measure.one_step.watcher import (
    ON_A_DEVICE,
    Ran,
    Watcher,
    aten,
    has_one_memory,
    stored_bytes,
    stored_numbers,
)
from perf_diagnostics.records import Json

#: What gives a tensor's number to Python, and what takes a part of a tensor by such numbers.
_NUMBER, _ONE, _PARTS = torch.ops.aten._local_scalar_dense, torch.ops.aten.select, aten("select", "slice")

#: What makes a tensor of Python's numbers, lists and arrays, as ``table[i, j] = 0.5`` does. Of so many bytes at most it
#: is known by what lies in it.
_LIFT, _MOST_LIFTED = torch.ops.aten.lift_fresh, 1 << 18

#: What copies a part of what it is given: where that is no more than one of so many of its numbers, a small one.
_PICKS, _PART = aten("index", "index_select", "gather", "take", "masked_select"), 4

#: A number that Python makes takes so long at most, in s: a call of a few lines for each.
_A_NUMBER_S = 3e-6

#: What autograd makes of the tensor that a backward begins with.
_ONES = torch.ops.aten.ones_like

#: Numbers that stand in many programs, so that one of a tensor's that is the same says nothing.
_USUAL = frozenset((-1, 0, 0.5, 1, 2))

#: Where sizes are asked for on behalf of who calls: in torch, and by who looks on.
_NO_READERS = (str(Path(torch.__file__).parent) + os.sep, str(Path(__file__).parents[2]) + os.sep)

#: In backward what has gone is looked for once in so many operators.
_SWEEP_EVERY = 64

#: … or in so many of what was made in the step and is still there, where that is more: a part of it.
_SWEEP_PART = 16

_Met = tuple[Held, torch.Tensor]


class _Pass(NamedTuple):
    """A call of ``torch.autograd.grad``: the way that led to it, the rows that made what it was asked of, the
    parameters that it derives for, and what it took.
    """

    called: tuple[int, int]
    reads: set[int]
    leaves: list[weakref.ref[torch.nn.Parameter]]
    derived: DerivedRow


class _Call(NamedTuple):
    """An operator with what it was called with."""

    traits: Traits
    ran: Ran

    def written(self) -> Iterator[torch.Tensor]:
        """Those of its arguments that it writes."""
        return self.traits.writes(self.ran.args, self.ran.named)

    def numbers(self) -> Iterator[int | float]:
        """Those of Python's among its arguments."""
        for one in (*self.ran.args, *self.ran.named.values()):
            for part in one if isinstance(one, list | tuple) else (one,):
                if isinstance(part, int | float) and not isinstance(part, bool):
                    yield part


class StepDataflow(Watcher):
    """Keeps for each operator of forward what it read, and what came of it.

    Args:
        storages: knows the memories of parameters, and those of an earlier step that was followed.
        outside: is told what is read by other means than an operator, and so are ``others``.
    """

    signals: ClassVar[tuple[str, ...]] = (*SIGNALS, unchanging.SIGNAL)
    sees_beside: ClassVar[bool] = True
    sees_parts: ClassVar[bool] = True

    def __init__(
        self, storages: Storages, outside: OutsideOfTorch | None = None, others: Sequence[Watcher] = ()
    ) -> None:
        self._outside, self._others = outside, others
        self._columns, self._stacks = Columns(), Stacks()
        self.storages = self._storages = storages
        self._products = DenseProducts()
        #: The first row of each value that an operator gave.
        self._first: dict[int, int] = {}
        self._rows_of_nodes: dict[int, int] = {}
        self._last_node = -1
        #: Numbers that tensors gave to Python: what is made of them may be different in the next step. And those of
        #: tensors that are not the same in each step.
        self._given_out: set[Any] = set()
        self._changing_numbers: set[Any] = set()
        #: By operator and number the row that was called with it first, and by number the one that first gave it.
        self._called_with: dict[tuple[str, int | float], int] = {}
        self._given_at: dict[int | float, int] = {}
        self._in_backward = self._sweep_at = 0
        #: Numbers of tensors that stand as an index, by their rows, of which no part was taken yet, and where that is.
        self._indices: dict[int, Any] = {}
        self._index_at: Any = None
        #: What was there before the step, and had parts of it taken.
        self._picked_before: list[Held] = []
        #: Of the tensors that each model was called with, by its number.
        self.shapes: dict[int, list[tuple[int, ...]]] = {}
        self._passes: list[_Pass] = []
        self._under_way: _Pass | None = None
        #: What the ones that a backward begins with were last made for.
        self._just_begun: set[int] = set()
        self._why_not = ""
        self._unseen = UnseenReads(self.read, self.measured)

    def opens(self) -> None:
        if not self._why_not:
            self._unseen.begin()
            self._outlives()

    def step_ended(self) -> None:
        self._unseen.end()
        try:
            for one in self._passes:
                self._looks_at_update(one)
        except FAULTS as fault:
            self._why_not = in_words(fault)

    def _gives_up(self) -> None:
        """Something runs on a device: there is nothing to weigh, and reading numbers would wait for it."""
        self._why_not = ON_A_DEVICE
        if self._outside is None:
            self._unseen.end()

    def _outlives(self) -> None:
        """What lives here may be read where nothing is shown: what wrote it is used."""
        self._indices_are_read()
        for held in chain(self._storages.opens(), self._picked_before):
            self._is_used(held)
        self._picked_before = []

    def _is_used(self, held: Held) -> None:
        """What wrote it is, and what said which part of it is read."""
        for row in (held.writer, held.picked):
            if row >= 0:
                self._columns.root[row] = 1

    def called(self, number: int, given: Sequence[torch.Tensor]) -> None:
        """The model of this number is called with these: what is made of them alone could be kept, sample by sample.

        What comes of the arguments of earlier calls by what never changes stays what it is; what else made them does
        not matter, for whether the same is handed over again is seen by itself.
        """
        if not all(tensor.is_cpu for tensor in given):
            self._gives_up()
        if self._why_not:
            return
        shapes = self.shapes.setdefault(number, [])
        for place, tensor in enumerate(given):
            shapes.append(tuple(tensor.shape))
            if tensor.layout is not torch.strided or tensor.requires_grad:
                continue
            held = self._storages.of(tensor)
            if held.writer < 0 or held.given <= 0:
                held.base = int(tensor.storage_offset())
                held.is_given(1 << number, hash(("given", number, place)), handed=True)

    def read(self, tensor: torch.Tensor) -> Callable[[], None] | None:
        """A tensor's numbers are read by other means than an operator; raises nothing.

        Returns:
            What is to be called when they have been.
        """
        try:
            for one in self._others:
                one.is_read(tensor)
            held = None if self._why_not else self._reads(tensor)
            if held is not None and held.writer >= 0:
                self._columns.all_taken[held.writer] = len(self._columns)
        except FAULTS as fault:
            self._why_not = in_words(fault)
        return None if self._outside is None else self._outside.read(tensor)

    def measured(self, tensor: torch.Tensor, asked: FrameType) -> None:
        """Its size is asked for: where numbers decided it, they are read unless the size only decides what runs."""
        try:
            held = self._known(tensor)
            if held is None or not held.sized or asked.f_code.co_filename.startswith(_NO_READERS):
                return
            if not only_decides(asked.f_code, asked.f_lasti):
                self._is_used(held)
        except FAULTS as fault:
            self._why_not = in_words(fault)

    def passes_over(self, ran: Ran) -> None:
        """What it reads is used, and what lies there from now on is not known; its time is the step's."""
        if self._why_not:
            return
        tensors = [*ran.given(), *ran.made()]
        read = {held.writer for one in tensors if (held := self._known(one)) is not None and held.writer >= 0}
        self._changed(tensors)
        if ran.seconds is not None and not ran.in_backward:
            row = self._columns.add(str(ran.operator), ran.seconds, self._stacks.here(), Origin.UNKNOWN, read)
            self._columns.root[row], self._columns.beside[row] = 1, ran.beside

    def _changed(self, tensors: Iterable[torch.Tensor]) -> None:
        """They are read, and what lies in them from now on is not known."""
        for tensor in tensors:
            held = self._reads(tensor)
            if held is not None:
                self._storages.written(held, tensor, self._storages.new_value(), Origin.UNKNOWN, held.writer)

    def _reads(self, tensor: torch.Tensor) -> Held | None:
        """Somebody reads it who is no operator of forward: what wrote it is used."""
        held = self._known(tensor)
        if held is not None:
            self._is_used(held)
        return held

    def _known(self, tensor: torch.Tensor) -> Held | None:
        """What is known of its memory, if its numbers lie in one."""
        return self._storages.known(tensor) if has_one_memory(tensor) else None

    def see(self, ran: Ran) -> None:
        if self._why_not:
            return
        if ran.seconds is None:
            self._gives_up()
            return
        call = _Call(traits_of(ran.operator), ran)
        if ran.operator is _ONES:
            self._notes_loss(call)
        if ran.in_backward:
            self._see_backward(call, ran.seconds)
        else:
            self._see_forward(call, ran.seconds)

    def _notes_loss(self, call: _Call) -> None:
        """Whether a backward begins with it: what passes gradients on as they are has no operator in backward."""
        for tensor in call.ran.given():
            held = self._known(tensor) if tensor.requires_grad else None
            if held is not None and held.writer >= 0:
                self._columns.backward_begins.add(held.writer)
                self._just_begun |= {held.writer} - self._columns.begins_training
                self._columns.begins_training.add(held.writer)

    def _see_backward(self, call: _Call, seconds: float) -> None:
        """It is used, and so is all that it reads; what it makes is not followed."""
        columns, under_way = self._columns, self._under_way
        self._just_begun.clear()
        if under_way is not None:
            under_way.derived.seconds[call.ran.times_backward] += seconds
            under_way.derived.operators += 1
        for tensor in call.ran.given():
            self._reads(tensor)
        self._changed(call.written())
        node = backward_node()
        row = None if node is None else self._rows_of_nodes.get(node)
        if row is not None:
            columns.backward[row] += seconds
            columns.root[row] = 1
            if under_way is None:
                columns.trained.add(row)
            # A backward of which a graph is made (create_graph) keeps the one that it goes through.
            if columns.freed_at[row] < 0 and not torch.is_grad_enabled():
                columns.freed_at[row] = len(columns)
        if self._in_backward >= self._sweep_at:
            # Seldom enough that a step of very many operators is not looked through for longer than it takes.
            left = self._storages.sweep(now=True)
            self._sweep_at = self._in_backward + max(_SWEEP_EVERY, left // _SWEEP_PART)
        self._in_backward += 1

    def pass_begins(self, asked: EnginePass) -> None:
        try:
            if not self._why_not:
                self._begins_pass(asked)
        except FAULTS as fault:
            self._why_not = in_words(fault)

    def _begins_pass(self, asked: EnginePass) -> None:
        """What it is asked of is no loss that is trained by, whatever ones were made for it."""
        given = [one for one in (*asked.outputs, *asked.weights) if one is not None]
        try:
            known = [self._known(one) for one in given]
        except NotImplementedError:  # torch.func wraps its tensors: then it counts as training
            return
        reads = {held.writer for held in known if held is not None and held.writer >= 0}
        self._columns.begins_training -= self._just_begun & reads
        self._just_begun.clear()
        leaves = [weakref.ref(one) for one in asked.inputs if one.is_leaf and isinstance(one, torch.nn.Parameter)]
        self._under_way = _Pass(self._stacks.here(), reads, leaves, DerivedRow())

    def pass_ended(self, made: Sequence[torch.Tensor | None]) -> None:
        """It stands as an operator that read what it was asked of, and made the derivatives."""
        try:
            one, self._under_way = self._under_way, None
            if one is not None and not self._why_not:
                self._ends_pass(one, made)
        except FAULTS as fault:
            self._why_not = in_words(fault)

    def _ends_pass(self, one: _Pass, made: Sequence[torch.Tensor | None]) -> None:
        columns, storages = self._columns, self._storages
        row = columns.add("autograd.grad", 0.0, one.called, Origin.UNKNOWN, one.reads)
        columns.passes[row] = one.derived
        columns.value[row] = storages.new_value()
        for tensor in made:
            if tensor is None:
                continue
            if not has_one_memory(tensor) or storages.known(tensor) is not None:
                one.derived.needed, columns.root[row] = True, 1  # where its numbers lie is not known
            else:
                storages.made(tensor, storages.new_value(), Origin.UNKNOWN, row, fixed=False)
        self._passes.append(one)

    def no_passes(self, why: str) -> None:
        """Then all that the engine does counts as training."""

    def _looks_at_update(self, one: _Pass) -> None:
        """A pass is needed for parameters of which no backward has left a gradient: it may update them. So is what made
        a parameter's gradient.
        """
        for leaf in (weak() for weak in one.leaves):
            if leaf is None:
                continue
            if leaf.grad is None:
                one.derived.needed = True
                return
            held = self._known(leaf.grad)
            if held is not None and held.writer >= 0:
                self._columns.trained.add(held.writer)

    def _see_forward(self, call: _Call, seconds: float) -> None:
        columns, storages, traits, ran = self._columns, self._storages, call.traits, call.ran
        self._in_backward = self._sweep_at = 0
        results = [*ran.made()]
        draws = not traits.known or traits.draws_with(ran.args, ran.named)
        lifted = None if ran.operator is not _LIFT else self._lifted(results)
        given_it = [] if lifted is not None else [*ran.given()]
        met_before = all(storages.known(one) is not None for one in given_it)
        reads = [(storages.of(one), one) for one in given_it]
        met = {id(one): held for held, one in reads}
        value = self._value(call, met, draws=draws) if lifted is None else lifted
        origin = self._origin(call, reads)
        read_rows = () if traits.shape_only else {held.writer for held, _ in reads if held.writer >= 0}
        row = columns.add(traits.name, seconds, self._stacks.here(), origin, read_rows)
        columns.draws[row], columns.beside[row] = draws, ran.beside
        picks = frozenset(held.picked for held, _ in reads if held.picked >= 0)
        if picks and not traits.shape_only:
            columns.picks[row] = picks
        repeats = lifted is not None or (not draws and self._repeats(call, met))
        fixed = repeats and all(held.fixed for held, _ in reads)
        given, named = self._given(call, reads, met, value) if repeats else (-1, value)
        columns.root[row] = not results or not traits.known
        self._notes_python(row, call, reads, lifted=lifted is not None, met_before=met_before)
        self._picks(row, call, reads)
        if next(call.written(), None) is not None:
            columns.takes_on_parts(row)
        made = self._rewritten(row, call, value, origin, met, fixed=fixed, given=given)
        for number, tensor in enumerate(results):
            if storages.known(tensor) is None:  # else it is a view of what the operator was given
                made.append((storages.made(tensor, hash((value, number)), origin, row, fixed=fixed), tensor))
        self._sizes(call, reads, made)
        for number, (held, _) in enumerate(made):
            held.is_given(given, hash((named, number)) if given > 0 else held.value)
        columns.views[row] = not made
        given_numbers, made_numbers = (sum(map(stored_numbers, some)) for some in (given_it, results))
        columns.numbers[row] = given_numbers + made_numbers
        columns.tiny[row] = not made or columns.numbers[row] <= FEW_NUMBERS
        columns.picks_part[row] = ran.operator in _PICKS and made_numbers * _PART <= given_numbers
        if given >= 0 and made:
            columns.fixed[row], columns.value[row] = fixed, value
            columns.given[row], columns.named[row] = given, named
            self._remembers(row, reads, made)
        if made and not draws and lifted is None:
            first = self._first.setdefault(value, row)
            columns.again_of[row] = -1 if first == row else first
        if isinstance(ran.result, int | float):
            self._given_out.add(ran.result)
            self._given_at.setdefault(ran.result, row)
            if not fixed and not isinstance(ran.result, bool):  # True is 1
                self._changing_numbers.add(ran.result)
        self._notes_node(row)
        self._products.see(row, "" if ran.in_parts else traits.name, ran.args, reads, made)
        storages.sweep()

    def _notes_python(self, row: int, call: _Call, reads: Sequence[_Met], *, lifted: bool, met_before: bool) -> None:
        """What Python gets of its numbers, what it may have made of others, and what it read from before the step."""
        columns = self._columns
        if call.ran.operator is _NUMBER:
            columns.number_taken.update({held.writer: row for held, _ in reads if held.writer >= 0})
        numbers = {*call.numbers()} - _USUAL
        if lifted:
            columns.between[row] = min(call.ran.before, _A_NUMBER_S * sum(one.numel() for one in call.ran.made()))
        columns.of_numbers[row] = lifted or self._may_be_given(row, call, numbers)
        columns.of_arrays[row] = not met_before or call.traits.gives_unknown
        before = tuple(held for held, _ in reads if held.writer < 0)
        if before:
            columns.from_before[row] = before

    def _may_be_given(self, row: int, call: _Call, numbers: Iterable[int | float]) -> bool:
        """Whether one of the numbers that an operator is called with may be one that a tensor gave: not one with which
        it was called before that, such as a width that a count of right answers happens to be.
        """
        may = False
        for number in numbers:
            first = self._called_with.setdefault((call.traits.name, number), row)
            may |= self._given_at.get(number, row) < first
        return may

    def _notes_node(self, row: int) -> None:
        """Whether autograd has made a node of the operator's."""
        node = forward_node()
        if node != self._last_node:
            self._last_node = node
            self._rows_of_nodes[node] = row
            self._columns.with_node[row] = 1

    def _value(self, call: _Call, met: Mapping[int, Held], *, draws: bool) -> int:
        """What an operator's result is known again by; of one that draws nothing is the same."""
        if draws:
            return self._storages.new_value()
        ran = call.ran
        deciding = self._token(call.traits.deciding(ran.args), met), self._token(sorted(ran.named.items()), met)
        return hash((ran.operator, deciding))

    def _lifted(self, made: Sequence[torch.Tensor]) -> int | None:
        """The value of what was made of Python's numbers; None where that is not known, or not new."""
        alone = len(made) == 1 and not made[0].requires_grad
        if not alone or self._storages.known(made[0]) is not None or stored_bytes(made[0]) > _MOST_LIFTED:
            return None
        return hash((_LIFT, made[0].dtype, tuple(made[0].shape), bytes_of(made[0])))

    def _picks(self, row: int, call: _Call, reads: Sequence[_Met]) -> None:
        """A tensor as an index has its number read by torch, which takes that part at once: no one else has it."""
        ran = call.ran
        if ran.operator is _NUMBER:
            place = subscript()
            if self._indices and (place is None or place != self._index_at):
                self._indices_are_read()
            if place is not None:
                self._columns.root[row] = 0
                self._indices[row], self._index_at = ran.result, place
        elif self._indices:
            if ran.operator in _PARTS and subscript() == self._index_at:
                numbers = set(call.numbers())
                by = {one for one, number in self._indices.items() if number in numbers}
                held, _ = reads[0]
                self._columns.picks[row] = frozenset({*by, *self._columns.picks.get(row, ())})
                held.picked, held.sized = row, held.sized or ran.operator is not _ONE
                self._unseen.begin_sizes()
                if held.writer < 0:
                    self._picked_before.append(held)  # how long the part lives is not known
                for one in by:
                    del self._indices[one]
            self._indices_are_read()

    def _sizes(self, call: _Call, reads: Sequence[_Met], made: Sequence[_Met]) -> None:
        """Whether sizes of what it made may depend on numbers: its own, or handed on from what it read."""
        sizes = call.traits.sizes_with(call.ran.args)
        if sizes:
            self._unseen.begin_sizes()
        if sizes or any(held.sized for held, _ in reads):
            for held, tensor in made:
                held.sized |= tensor.dim() > 0

    def _indices_are_read(self) -> None:
        """Numbers of tensors that stood as an index, but of no tensor."""
        for row in self._indices:
            self._columns.root[row] = 1
        self._indices.clear()

    def _repeats(self, call: _Call, met: Mapping[int, Held]) -> bool:
        """Whether it does no more than give the same for the same, in each step."""
        if call.traits.gives_unknown:
            return False
        if any(met[id(one)].writer < 0 for one in call.written() if id(one) in met):  # what it writes outlives the step
            return False
        return not (self._changing_numbers and any(one in self._changing_numbers for one in call.numbers()))

    def _given(self, call: _Call, reads: Sequence[_Met], met: Mapping[int, Held], value: int) -> tuple[int, int]:
        """Of which calls' arguments it is made, as ``Held.given`` tells it, and its value by their places."""
        given = 0
        for held, _ in reads:
            if held.given < 0:
                return -1, value
            given |= held.given
        if not given:
            return 0, value
        ran, traits = call.ran, call.traits
        decides = traits.deciding(ran.args), sorted(ran.named.items())
        return given, hash((ran.operator, *(self._token(one, met, by_place=True) for one in decides)))

    def _remembers(self, row: int, reads: Sequence[_Met], made: Sequence[_Met]) -> None:
        """What it read from before the step, and how much it made."""
        columns = self._columns
        columns.bytes[row] = sum(tensor.untyped_storage().nbytes() for _, tensor in made)
        leaves = tuple(held for held, _ in reads if held.writer < 0)
        if leaves:
            columns.leaves[row] = leaves
        handed = frozenset(held.writer for held, _ in reads if held.handed)
        if handed:
            columns.handed[row] = handed

    def _rewritten(
        self, row: int, call: _Call, value: int, origin: int, met: Mapping[int, Held], *, fixed: bool, given: int
    ) -> list[_Met]:
        """What it wrote into, which is noted."""
        made: list[_Met] = []
        for number, tensor in enumerate(call.written()):
            held = met.get(id(tensor))
            if held is not None:
                if held.writer < 0:
                    self._columns.root[row] = 1  # what was there before the step outlives it
                    self._columns.into_before[row] = (*self._columns.into_before.get(row, ()), held)
                elif held.origin == Origin.CONSTANT and origin != Origin.CONSTANT:
                    self._columns.filled[held.maker] = self._columns.filled[held.writer] = 1
                if ((held.fixed and not fixed) or (held.given >= 0 and given < 0)) and held.writer >= 0:
                    self._columns.spoiled[held.maker] = self._columns.spoiled[held.writer] = 1
                if held.writer >= 0:
                    self._columns.rewritten.setdefault(held.writer, []).append(row)
                self._storages.written(held, tensor, hash((value, "written", number)), origin, row, fixed=fixed)
                made.append((held, tensor))
        return made

    def _origin(self, call: _Call, reads: Sequence[_Met]) -> int:
        traits = call.traits
        origin = 0 if traits.known and not traits.gives_unknown else int(Origin.UNKNOWN)
        if traits.draws_with(call.ran.args, call.ran.named):
            origin |= Origin.RANDOM
        if any(one in self._given_out for one in call.numbers()):
            origin |= Origin.UNKNOWN
        if not traits.shape_only:
            for held, _ in reads:
                origin |= held.origin
        return origin or int(Origin.CONSTANT)

    def _token(self, one: Any, met: Mapping[int, Held], *, by_place: bool = False) -> Any:
        """What tells an argument from others, with the value of a tensor's memory instead of where it lies."""
        if isinstance(one, torch.Tensor):
            held = met[id(one)]
            turned = one.is_neg(), one.is_complex() and one.is_conj()
            value, before = (held.named, held.base) if by_place else (held.value, 0)
            return value, one.storage_offset() - before, tuple(one.shape), one.stride(), one.dtype, turned
        if isinstance(one, list | tuple):
            return tuple([self._token(part, met, by_place=by_place) for part in one])
        # Python hashes -1 like -2, and 1 like 1.0 and True.
        return (type(one).__name__, repr(one)) if isinstance(one, int | float | complex) else one

    @property
    def why_not(self) -> str:
        return self._why_not

    @property
    def told(self) -> dict[str, Json]:
        """The lists of :mod:`dataflow_told` by their names."""
        self._ends()
        return told_of(self._columns, self._stacks.stacks, self._products.found, self._storages.all)

    def _ends(self) -> None:
        self._unseen.end()
        self._outlives()

    def unchanging(self) -> Unchanging:
        """What may be computed in each step of what never changes; asked once, after :attr:`told`."""
        return Unchanging(self._columns, self._stacks.stacks, self._storages)

    def answers(self) -> KnownAnswers:
        """What may be the same for a sample whenever it comes; asked as :meth:`unchanging`."""
        return KnownAnswers(self._columns, self._stacks.stacks, self._storages, self.shapes)

    @property
    def fixed_values(self) -> dict[int, float]:
        """The values that depend on nothing but memories from before the step, and how long making them took, in s."""
        self._ends()
        columns = self._columns
        rows = range(len(columns))
        return {columns.value[row]: columns.seconds[row] + columns.between[row] for row in rows if columns.fixed[row]}

    @property
    def named_values(self) -> dict[int, float]:
        """As :attr:`fixed_values`, those that depend on calls' arguments beside that, by the places of these."""
        self._ends()
        columns = self._columns
        rows = range(len(columns))
        seconds, between = columns.seconds, columns.between
        return {columns.named[row]: seconds[row] + between[row] for row in rows if columns.given[row] >= 0}

    @property
    def forward_s(self) -> float:
        """What all operators of forward took, in s."""
        return self._columns.forward_s
