"""Looks, in a few of the first steps, when the last operation was over that an update by hand consists of.

What follows a backward is the update and then what the loop does beside training: callbacks, and where no loader is
read, making the next batch; no mark tells where the one ends. In the steps that are looked at each function of torch
that is called there goes through one of ours, which sees whether it has written into the memory of a parameter.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from perf_diagnostics.integrations.model.parameter_changes import inside_transforms
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.integrations.steps.loop_probe import LoopProbe
from perf_diagnostics.integrations.watching.function_modes import OwnMode, may_be_traced, put_on, take_off
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.model_scan import parameters_of
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.tails import UPDATED, Update

SIGNAL = "update_ends"

#: So many updates are looked at; a warm-up has hardly more.
LOOKED_UPDATES = 4
_LEAST_UPDATES = 2

#: What it takes to call a function through a mode is told by so many calls of one that does nothing, the quickest of
#: some times: 1.0 to 2.4 us by the function's arguments (torch 2.13), where it takes 0.1 to 2 us by itself.
_CALLS, _TIMES = 20, 5

NOTE = (
    "The loop updates its parameters by hand: what follows backward is in optimizer until the "
    "last operation that writes into a parameter, and in other from then on. How long that is was seen in a few of the "
    "first steps, and is taken to be so in all: an estimate."
)

_clock = time.perf_counter_ns


class _LastWrite(OwnMode):
    """Notes when the last function of torch was over that wrote into the memory of one of some tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._storages: set[int] = set()
        #: When that was; 0: there was none.
        self.over_ns = 0
        #: The functions seen until then, and in all, and what it took to look at these, in ns.
        self.by_then = self.in_all = (0, 0)

    def begin(self, tensors: Iterable[torch.Tensor]) -> None:
        """From now on look for writes into these."""
        self._storages = {place for one in _tensors(tensors) if (place := _place(one))}
        self.over_ns, self.by_then, self.in_all = 0, (0, 0), (0, 0)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return func(*args, **(kwargs or {}))  # traced, all of this is nothing but that call
        came_ns = _clock()
        before = _as_they_are(args, kwargs)
        calls, took_ns = self.in_all
        called_ns = _clock()
        made = func(*args, **(kwargs or {}))
        over_ns = _clock()
        calls, took_ns = calls + 1, took_ns + called_ns - came_ns
        if self._have_changed(before):
            self.over_ns, self.by_then = over_ns, (calls, took_ns)
        self.in_all = calls, took_ns + _clock() - over_ns
        return made

    def _have_changed(self, before: list[tuple[torch.Tensor, int, int]]) -> bool:
        """Whether one of these was written into, which lie where parameters do; ``p.data = new`` moves one as well."""
        found = False
        try:
            for one, version, place in before:
                if place in self._storages and (one._version != version or _place(one) != place):
                    found = True
                    self._storages.add(_place(one))
        except FAULTS:
            return found  # it has become of a kind that tells nothing of itself
        return found


def _as_they_are(args: Any, kwargs: Any) -> list[tuple[torch.Tensor, int, int]]:
    """The ordinary tensors that a function is called with, their counts of changes, and where their values lie."""
    try:
        return [(one, one._version, _place(one)) for one in _tensors((*args, *(kwargs or {}).values()))]
    except FAULTS:
        return []  # of one that tells nothing of itself


def _tensors(given: Iterable[Any]) -> Iterator[torch.Tensor]:
    for one in given:
        if type(one) in (torch.Tensor, torch.nn.Parameter):
            yield one
        elif type(one) in (list, tuple):
            yield from (part for part in one if type(part) in (torch.Tensor, torch.nn.Parameter))


def _place(tensor: torch.Tensor) -> int:
    """Where the memory begins that its values lie in; 0 where it has none."""
    return tensor.untyped_storage().data_ptr()


class _Through(OwnMode):
    """Calls what is called."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _call_ns(tensor: torch.Tensor) -> int:
    """How much longer a function of torch takes that goes through a mode, in ns."""

    def took_ns() -> int:
        began = _clock()
        for _ in range(_CALLS):
            tensor.requires_grad  # noqa: B018 - a function that does nothing
        return _clock() - began

    alone_ns = min(took_ns() for _ in range(_TIMES))
    with _Through():
        seen_ns = min(took_ns() for _ in range(_TIMES))
    return max(0, seen_ns - alone_ns) // _CALLS


class UpdateEnds:
    """Looks at what follows the backwards of a loop that updates by hand, until it is known how long updates take.

    Args:
        probe: where they are marked; it is told what is known.
        trained: what is trained.
        observations: where it is noted what is an estimate, or that looking failed.
    """

    def __init__(self, probe: LoopProbe, trained: Trained, observations: Observations) -> None:
        self._probe, self._trained, self._observations = probe, trained, observations
        self._mode = _LastWrite()
        #: Updates that are to be looked at yet, and how much longer each function takes then.
        self._left = LOOKED_UPDATES
        self._call_ns: int | None = None
        #: Since when what follows a backward is looked at; 0: none is.
        self._since_ns = 0
        #: Whether the mode may still be on torch's stack, or come back to it.
        self._on = False
        #: After how long updates were over, and the loop went on, as if nobody had looked.
        self._updated: list[int] = []
        self._took: list[int] = []

    @property
    def known(self) -> bool:
        """Whether it is known how long updates take."""
        return UPDATED in self._probe.tails

    def begins(self) -> None:
        """A backward is over, and an update may follow."""
        if not self._left:
            return
        with self._observations.guard(SIGNAL) as attempt:
            if self._probe.warmup:
                self._look()
            else:
                self._left = 0  # from now on nothing is slowed down
        if attempt.failed:
            self.stop()

    def ends(self, *, updated: bool) -> None:
        """The loop goes on to its next batch or forward, and has updated its parameters since then or not."""
        if not self._since_ns:
            if self._on:
                self._give_up()
            return
        with self._observations.guard(SIGNAL) as attempt:
            now, since_ns = _clock(), self._since_ns
            modes, mode = self._give_up(), self._mode
            if not (updated and modes):
                return
            if not mode.over_ns:
                self._left = 0  # it is made of something that is not seen, and nothing is told of the others
                self._probe.tails = {after: tail for after, tail in self._probe.tails.items() if after != UPDATED}
                return
            self._left -= 1
            call_ns = modes * (self._call_ns or 0)
            took_ns = max(1, now - since_ns - mode.in_all[1] - mode.in_all[0] * call_ns)
            updated_ns = mode.over_ns - since_ns - mode.by_then[1] - mode.by_then[0] * call_ns
            self._updated.append(min(max(0, updated_ns), took_ns))
            self._took.append(took_ns)
            if len(self._took) >= _LEAST_UPDATES:  # at once, for with the end of this step the warm-up may be written
                self._probe.tails = {**self._probe.tails, UPDATED: Update.of(self._updated, self._took)}
            if len(self._took) == _LEAST_UPDATES:
                self._observations.note(SIGNAL, NOTE)
        if attempt.failed:
            self.stop()

    def give_up(self) -> None:
        """What follows this backward is not to be looked at any more."""
        if self._since_ns:
            self._give_up()

    def stop(self) -> None:
        """Look no more."""
        self._left = 0
        self.give_up()

    # -- inside

    def _look(self) -> None:
        self.give_up()
        trained = self._trained
        by_hand = [tensor for one in trained.by_hand if (tensor := one()) is not None]
        tensors = [*parameters_of(trained.everything, ()), *by_hand]
        if not tensors or trained.device.type != "cpu" or may_be_traced(trained.everything):
            self._left = 0
            return
        if inside_transforms():
            return
        if self._call_ns is None:
            self._call_ns = _call_ns(tensors[0])
        self._mode.begin(tensors)
        if put_on(self._mode):
            self._on, self._since_ns = True, _clock()

    def _give_up(self) -> int:
        """See no functions any more; gives through how many modes they went, 0 where not all were ours."""
        self._since_ns = 0
        modes = take_off(self._mode)
        self._on = not modes
        return modes
