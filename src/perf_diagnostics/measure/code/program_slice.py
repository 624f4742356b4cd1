"""What a line of the user's program is to its training: whether the loss depends on it, and it on the model.

The lines that a backward pass depends on are a program slice (Weiser, IEEE TSE 10, 1984), found backwards from the
calls that start one, over data and conditions, through the user's own functions and the fields of objects. Of these the
ones that depend on the model in turn are told from those that only prepare what it is given. Nothing is run, and names
are all that is known of objects: a field is the same of whatever object, a method all of the user's methods so called.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TypeVar

from perf_diagnostics.measure.code.program_statements import (
    Call,
    Function,
    Program,
    Statement,
)

#: Functions by whose results frameworks train.
_GIVE_LOSSES = ("training_step", "compute_loss")

#: Functions through which a model computes.
_OF_MODELS = ("forward", "__call__")

#: Rounds through all functions after which what was found stands: each follows a dependence through one more of them.
_MOST_ROUNDS = 24

#: Statements that are looked at in all before it is given up; 10,000 lines (transformers' trainer and models) need
#: 33,000 of them.
_MOST_LOOKED_AT = 200_000


class TooEntangledError(Exception):
    """A program needs too long to be looked through."""


T = TypeVar("T")


class Role(enum.StrEnum):
    """What a line is to the training."""

    METHOD = "method"  # the loss depends on it, and it on the model
    PREPARATION = "preparation"  # the loss depends on it
    AVERAGE = "average"  # it writes parameters' values, weighed or copied, into others
    UNREAD = "unread"  # no loss depends on it
    TRAINING = "training"  # it holds a backward pass, or calls what does


class ProgramSlice:
    """The roles of a program's lines.

    Args:
        texts: of the user's own files, by their names.

    Raises:
        TooEntangledError: it takes too long.
        RecursionError: expressions lie too deep in each other.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._program = program = Program(texts)
        self._functions = program.functions
        self._demand = _Demand(program)
        self._told = _Dependence(program)
        self._in_file: dict[str, list[Function]] = {}
        for one in self._functions:
            self._in_file.setdefault(one.file, []).append(one)

    def role(self, file: str, line: int) -> Role | None:
        """Of a line; None where that is not known: its callers, or what it calls, tell."""
        if not self._demand.trains:
            return None
        holding = [one for one in self._in_file.get(file, ()) if one.first <= line <= one.last]
        function = min(holding, key=lambda one: one.last - one.first, default=None)
        if function is None:
            return None
        at = [one for one in function.all() if one.first <= line <= one.last]
        shortest = min((one.last - one.first for one in at), default=0)
        roles = {self._role(one, function) for one in at if one.last - one.first == shortest}
        if Role.TRAINING in roles:
            return Role.TRAINING
        return roles.pop() if len(roles) == 1 else None

    def _role(self, one: Statement, function: Function) -> Role | None:
        demand = self._demand
        if id(one) in demand.needed:
            return Role.METHOD if id(one) in self._told.dependent else Role.PREPARATION
        if id(one) in demand.training:
            return Role.TRAINING
        if any(inner.averages for inner in one.all()):
            return Role.AVERAGE
        if one.lists and any(inner.averages for inner in function.all()):
            return Role.AVERAGE
        # What it calls, or holds, tells; of a function that nothing is asked of, or that is called in ways that do not
        # show, its callers do.
        tells = any(id(inner) in demand.training or id(inner) in demand.on_the_way for inner in one.all())
        return None if tells or function not in demand.reached else Role.UNREAD


class _Following:
    """Follows a dependence through all functions until nothing new is found."""

    def __init__(self) -> None:
        self._changed = True
        self._looked_at = 0

    def _add(self, known: set[T], more: Iterable[T]) -> None:
        before = len(known)
        known.update(more)
        self._changed |= len(known) > before

    def _count(self) -> None:
        self._looked_at += 1
        if self._looked_at > _MOST_LOOKED_AT:
            raise TooEntangledError


class _Demand(_Following):
    """Which statements a backward pass depends on."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program
        self.needed: set[int] = set()
        #: Statements that call what does something that is needed, and whose own result nothing reads.
        self.on_the_way: set[int] = set()
        #: Statements that hold a backward pass, or call what does.
        self.training: set[int] = set()
        #: Functions in which something is needed.
        self.reached: set[Function] = set()
        self.trains = False
        #: Fields, and what functions read from outside of themselves.
        self._everywhere: set[str] = set()
        self._results: set[Function] = set()
        self._entry: dict[Function, set[str]] = {}
        self._exit: dict[Function, set[str]] = {}
        self._acts: set[Function] = set()
        self._train: set[Function] = set()
        self._mutates: dict[Function, set[str]] = _mutated(program.functions)
        self._function = program.functions[0] if program.functions else Function("", "", 0, 0)
        for one in program.functions:
            if one.name in _GIVE_LOSSES:
                self._results.add(one)
                self.trains = True
        for _ in range(_MOST_ROUNDS):
            if not self._changed:
                break
            self._changed = False
            for function in program.functions:
                self._function = function
                live = self._body(function.body, set(self._exit.get(function, ())))
                self._add(self._entry.setdefault(function, set()), live & set(function.parameters))
            if self.trains:
                self._add(self._results, {one for one in program.functions if one.name in _OF_MODELS})

    def _body(self, body: Iterable[Statement], live: set[str]) -> set[str]:
        for one in reversed([*body]):
            live = self._statement(one, live)
        return live

    def _asks(self, live: set[str], keys: Iterable[str]) -> None:
        for key in keys:
            if key.startswith((".", "::")):
                self._add(self._everywhere, [key])
            else:
                live.add(key)

    def _is_asked(self, key: str, live: set[str]) -> bool:
        if key in live or key in self._everywhere:
            return True
        shared = self._function.is_module or key in self._function.captured
        return shared and f"::{key}" in self._everywhere

    def _statement(self, one: Statement, live: set[str]) -> set[str]:
        if one.bodies:
            return self._compound(one, live)
        return self._simple(one, live, inside=False)

    def _compound(self, one: Statement, live: set[str]) -> set[str]:
        before = len(self.needed) + len(self.on_the_way)
        if one.loops:
            live = set(live)
            while True:
                inner = set(live)
                for body in one.bodies:
                    inner |= self._body(body, set(live))
                inner = self._simple(one, inner, inside=self._holds_needed(one))
                if inner <= live:
                    break
                live |= inner
        else:
            ways = [self._body(body, set(live)) for body in one.bodies]
            live = set(live).union(*ways) if len(ways) != 1 else ways[0]
            live = self._simple(one, live, inside=self._holds_needed(one))
        self._changed |= len(self.needed) + len(self.on_the_way) > before
        return live

    def _holds_needed(self, one: Statement) -> bool:
        return any(id(inner) in self.needed for body in one.bodies for each in body for inner in each.all())

    def _simple(self, one: Statement, live: set[str], *, inside: bool) -> set[str]:
        self._count()
        asked = inside or any(self._is_asked(key, live) for keys in (one.sets, *one.writes) for key in keys)
        asked |= one.returns and self._function in self._results
        live = live - one.sets
        if one.trains is not None:
            self.trains = True
            self._asks(live, one.trains)
        mutates = [self._calls(call, live, asked=asked) for call in one.calls]
        called = {function for call in one.calls for function in call.functions}
        if one.trains is not None or called & self._train:
            self.training.add(id(one))
            self._add(self._train, [self._function])
        on_the_way = id(one) in self.training or bool(called & self._acts) or any(mutates)
        if asked:
            self._asks(live, one.reads)
            self.needed.add(id(one))
        elif on_the_way:
            self.on_the_way.add(id(one))
        if asked or on_the_way:
            self._add(self.reached, [self._function])
            if called & self._acts or self._writes_outside(one):
                self._add(self._acts, [self._function])
        return live

    def _writes_outside(self, one: Statement) -> bool:
        """Whether it writes something that is asked for outside of its function."""
        shared = {key for key in one.sets if self._function.is_module or key in self._function.captured}
        keys = {*one.sets, *(f"::{key}" for key in shared)}.union(*one.writes)
        return bool(keys & self._everywhere)

    def _calls(self, call: Call, live: set[str], *, asked: bool) -> bool:
        """What a call asks for, by its result and by what is done in it; gives whether it writes into what is asked."""
        mutates = self._mutated_by(call, live)
        for function in call.functions:
            if asked:
                self._add(self._results, [function])
            if asked or mutates or function in self._acts or function in self._train:
                for parameter in self._entry.get(function, ()):
                    given = call.given_to(function, parameter)
                    self._asks(live, given.reads)
                    self._add(self._results, given.made_by)
        return mutates

    def _mutated_by(self, call: Call, live: set[str]) -> bool:
        """Whether a call writes into something that is asked for, by an argument."""
        found = False
        for function in call.functions:
            for parameter in self._mutates.get(function, ()):
                if any(self._is_asked(key, live) for key in call.given_to(function, parameter).reads):
                    self._add(self._exit.setdefault(function, set()), [parameter])
                    found = True
        return found


def _mutated(functions: Iterable[Function]) -> dict[Function, set[str]]:
    """The parameters that functions write into, by themselves or through others."""
    found: dict[Function, set[str]] = {}
    changed = True
    while changed:
        changed = False
        for function in functions:
            own = found.setdefault(function, set())
            before = len(own)
            names = set(function.parameters)
            for one in function.all():
                for keys in one.writes:
                    own |= names & keys
                for call in one.calls:
                    for called in call.functions:
                        for parameter in found.get(called, ()):
                            own |= names & call.given_to(called, parameter).reads
            changed |= len(own) > before
    return found


class _Dependence(_Following):
    """Which statements depend on a model: on what lists its tensors, or is made by a class that is one."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.dependent: set[int] = set()
        self._everywhere: set[str] = set()
        self._results: set[Function] = set()
        self._given: dict[Function, set[str]] = {}
        self._function = program.functions[0] if program.functions else Function("", "", 0, 0)
        for one in program.functions:
            self._everywhere |= {key for key in one.models if key.startswith((".", "::"))}
            self._everywhere |= {f"::{key}" for key in one.models if one.is_module or key in one.captured}
        for _ in range(_MOST_ROUNDS):
            if not self._changed:
                break
            self._changed = False
            for function in program.functions:
                self._function = function
                self._body(function.body, set(self._given.get(function, ())))

    def _body(self, body: Iterable[Statement], tainted: set[str]) -> set[str]:
        for one in body:
            tainted = self._statement(one, tainted)
        return tainted

    def _statement(self, one: Statement, tainted: set[str]) -> set[str]:
        tainted = self._simple(one, set(tainted))
        if not one.bodies:
            return tainted
        while True:
            after = set(tainted)
            for body in one.bodies:
                after |= self._body(body, set(tainted))
            after = after | (self._simple(one, set(after)) if one.loops else set())
            if not one.loops or after <= tainted:
                return after
            tainted = tainted | after

    def _depends(self, keys: Iterable[str], tainted: set[str]) -> bool:
        return any(
            key in tainted
            or key in self._everywhere
            or (self._function.is_module and f"::{key}" in self._everywhere)
            or key in self._function.models
            for key in keys
        )

    def _is_given(self, call: Call, function: Function, parameter: str, tainted: set[str]) -> bool:
        given = call.given_to(function, parameter)
        return self._depends(given.reads, tainted) or any(one in self._results for one in given.made_by)

    def _simple(self, one: Statement, tainted: set[str]) -> set[str]:
        self._count()
        if one.wraps:
            return tainted
        depends = self._depends(one.reads, tainted) or any(
            function in self._results for call in one.calls for function in call.functions
        )
        if depends and id(one) not in self.dependent:
            self.dependent.add(id(one))
            self._changed = True
        for call in one.calls:
            for function in call.functions:
                given = [name for name in function.parameters if self._is_given(call, function, name, tainted)]
                self._add(self._given.setdefault(function, set()), given)
        if one.returns and depends and self._function not in self._results:
            self._add(self._results, [self._function])
        if depends or one.makes_model:
            gained = one.sets if depends else one.models
            tainted = (tainted - one.sets) | gained
            for keys in one.writes:
                tainted |= {key for key in keys if not key.startswith((".", "::"))}
                self._add(self._everywhere, {key for key in keys if key.startswith((".", "::"))})
            shared = {f"::{key}" for key in gained if self._function.is_module or key in self._function.captured}
            self._add(self._everywhere, shared | {key for key in gained if key.startswith("::")})
        else:
            tainted -= one.sets
        return tainted
