"""Whether a recurrent layer reads a sequence from its beginning again, each time with a few more positions.

So does a forecast that feeds its own predictions back in: it appends them to the history, and the state that the layer
had come to is dropped. A layer that runs one way computes the same for the earlier positions as long as its weights and
the state that it begins with stay the same, so that the calls' arguments tell it all. Unlike the calls that
:mod:`prefixes_again` times these stay in sight of the other watchers, for gradients go through them: their time is that
of their operators, in forward and in backward, with what autograd's engine does before each.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from threading import get_ident
from typing import Any, ClassVar

import numpy as np
import torch

from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.module_calls import TimedCalls, own_call, stands_in
from perf_diagnostics.measure.observation import in_words
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines, backward_node, forward_node
from perf_diagnostics.measure.one_step.prefixes_again import (
    LEAST_CALLS,
    SIGNAL,
    Grown,
    grown_from,
    sampled,
    shape_of,
)
from perf_diagnostics.measure.one_step.samples_again import arguments_of
from perf_diagnostics.measure.one_step.watcher import Ran, Watcher
from perf_diagnostics.records import Json

_LAYERS = (torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM)

#: What a call takes however few positions it has is known where the longest one has so many times the shortest one's.
_FAR = 2.0

#: A layer in one kernel takes for its first position at most so many positions' time more than for another one, and so
#: much for each of the call's operators: LSTM of 16 to 1,024 features took 0.33 ms and 9 positions' time, backward
#: included, in 13 operators (torch 2.13, one core).
_KERNEL_POSITIONS, _KERNEL_OPERATOR_S = 10, 4e-5


@dataclass
class _Call:
    """A call that goes on from the one before, and its operators: how many in forward, and the thread's seconds in them
    and before each.
    """

    grown: Grown
    operators: int = 0
    forward: float = 0.0
    backward: float = 0.0

    @property
    def seconds(self) -> float:
        return self.forward + self.backward


class _Line:
    """The calls of one layer at one line that go on from the one before."""

    def __init__(self, told: dict[str, Json]) -> None:
        self.told = told
        self.calls: list[_Call] = []

    def entry(self, forward_s: float, backward_s: float) -> dict[str, Json] | None:
        """What is told, where forward and backward took the thread so long; None where nothing is sure."""
        calls = self.calls
        seconds = sum(one.seconds for one in calls)
        if len(calls) < LEAST_CALLS or seconds <= 0:
            return None
        fixed, shortest = _fixed_s(calls), min(one.seconds for one in calls)
        a_position = _operators_a_position(calls)
        least = value = most = 0.0
        for one in calls:
            part = one.grown.again / one.grown.positions
            most += one.seconds * part
            value += (one.seconds - fixed) * part
            least += one.seconds - min(shortest, _most_kept(one, a_position))
        least, part = min(least, value), value / seconds
        forward, backward = (part * sum(times) for times in zip(*((c.forward, c.backward) for c in calls), strict=True))
        return {
            **self.told,
            "calls": len(calls),
            "rows": max(one.grown.rows for one in calls),
            "longest": max(one.grown.positions for one in calls),
            "positions": sum(one.grown.rows * one.grown.positions for one in calls),
            "positions_again": sum(one.grown.rows * one.grown.again for one in calls),
            "seconds": seconds,
            "seconds_again": value,
            "seconds_again_least": least,
            "seconds_again_most": most,
            "forward": forward / forward_s if forward_s else 0.0,
            "backward": backward / backward_s if backward_s else 0.0,
            "whole": (forward + backward) / (forward_s + backward_s),
        }


class RecurrentAgain(Watcher):
    """Sees the calls of a step's recurrent layers, and the operators of those that go on from the call before."""

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self) -> None:
        self._user = OperatorLines()
        self._lines: dict[Any, _Line] = {}
        #: What each layer was called with last, in numbers of our own, and how often its weights had been written.
        self._last: dict[int, tuple[list[int], list[Any]]] = {}
        self._lengths: dict[int, int] = {}
        self._seconds = {False: 0.0, True: 0.0}
        self._call: _Call | None = None
        #: Calls by autograd's nodes: the number before the first one of each, the last one's, and the call.
        self._before: list[int] = []
        self._nodes: list[tuple[int, _Call]] = []
        self._why_not = ""
        #: How much of the thread's time around operators was counted, of that which the mode tells.
        self._counted = 0.0
        self._mode: Callable[[], OperatorMode | None] = lambda: None

    def stand_in(self, models: Iterable[torch.nn.Module], mode: OperatorMode) -> ExitStack:
        """See the calls of these models' recurrent layers while the mode shows their operators, until this is closed.

        Of layers that run both ways nothing can be carried on, and nothing is seen.
        """
        undo = ExitStack()
        self._mode = weakref.ref(mode)  # which keeps its watchers
        for layer in {part: None for model in models for part in model.modules()}:
            # A class of the user's own may do more than that in forward.
            plain = isinstance(layer, _LAYERS) and any(type(layer).forward is one.forward for one in _LAYERS)
            if isinstance(layer, torch.nn.RNNBase) and plain and not layer.bidirectional:
                undo.callback(self._stand_in_for(layer, mode))
        return undo

    def _stand_in_for(self, layer: torch.nn.RNNBase, mode: OperatorMode) -> TimedCalls:
        before, thread, compiling = stands_in(layer), get_ident(), torch.compiler.is_dynamo_compiling

        def looked(*args: Any, **kwargs: Any) -> Any:
            call = own_call(layer) if before is None else before
            if compiling() or get_ident() != thread or not mode.is_open or mode.beside or mode.in_backward:
                return call(*args, **kwargs)
            with mode.apart():
                self._begins(layer, args, kwargs)
            try:
                return call(*args, **kwargs)
            finally:
                self._ends()

        return TimedCalls(layer, looked)

    def _begins(self, layer: torch.nn.RNNBase, args: Any, named: Any) -> None:
        """A call begins; raises nothing."""
        try:
            self._seconds[False] += self._between()
            grown = self._grown(layer, args, named)
            key, told = self._user.line()
            if grown is None or key is None:
                return
            line = self._lines.setdefault((id(layer), key), _Line({**told, "recurrent": layer.mode.split("_")[0]}))
            self._call = _Call(grown)
            line.calls.append(self._call)
            self._before.append(forward_node())
        except FAULTS as fault:
            self._why_not = in_words(fault)

    def _ends(self) -> None:
        if self._call is not None:
            self._nodes.append((forward_node(), self._call))
            self._call = None

    def _grown(self, layer: torch.nn.RNNBase, args: Any, named: Any) -> Grown | None:
        """How the sequence goes on from that of the layer's last call; None where it does not."""
        sequence, given = args[0] if args else named.get("input"), arguments_of(args, named)
        before = self._last.pop(id(layer), None)
        if not isinstance(sequence, torch.Tensor):  # it is packed
            return None
        shape = shape_of(sequence)
        time = 1 if layer.batch_first and len(shape) > 2 else 0
        length, self._lengths[id(layer)] = self._lengths.get(id(layer), 0), shape[time]
        if any(not one.is_cpu for one in given):
            if 0 < length < shape[time]:
                self._why_not = "recurrent layers were called with what lies on a device, which is not compared"
            return None
        written = [one._version for one in layer.parameters()]
        self._last[id(layer)] = written, [sampled(one) for one in given]
        grown = None if before is None or before[0] != written else grown_from(before[1], self._last[id(layer)][1])
        if grown is None or grown.dim != time:
            return None
        return grown._replace(rows=shape[1 - time] if len(shape) > 2 else 1)

    def _between(self) -> float:
        """The time around operators since this was asked last, in s."""
        mode = self._mode()
        before, self._counted = self._counted, self._counted if mode is None else mode.around_s
        return self._counted - before

    def see(self, ran: Ran) -> None:
        # A layer has its operators one after the other, and what the engine does before one is for that one.
        seconds = (ran.seconds or 0.0) + self._between()
        self._seconds[ran.times_backward] += seconds
        if ran.in_backward:
            call = self._asked_for() if self._nodes else None
            if call is not None and ran.times_backward:
                call.backward += seconds
            elif call is not None:
                call.forward += seconds
        elif self._call is not None:
            self._call.operators += 1
            self._call.forward += seconds

    def _asked_for(self) -> _Call | None:
        """The call of whose forward autograd's node is that asks for the operator under way."""
        node = backward_node()
        at = -1 if node is None else bisect_right(self._before, node - 1) - 1
        if node is None or at < 0:
            return None
        last, call = self._nodes[at]
        return call if node <= last else None

    @property
    def why_not(self) -> str:
        return self._why_not

    @property
    def told(self) -> dict[str, Json]:
        """As :attr:`PrefixesAgain.told`; ``recurrent`` says of which kind the layer is, ``RNN``, ``GRU`` or ``LSTM``,
        and ``forward``, ``backward`` and ``whole`` what carrying its state on would save, as parts of the thread's
        time in the step's forward and backward.
        """
        found = (one.entry(self._seconds[False], self._seconds[True]) for one in self._lines.values())
        return {SIGNAL: [one for one in found if one is not None]}


def _fixed_s(calls: list[_Call]) -> float:
    """What a call takes however few positions it has, by a line through all (least squares); 0 where they are alike."""
    positions, seconds = [one.grown.positions for one in calls], [one.seconds for one in calls]
    if max(positions) < _FAR * min(positions):
        return 0.0
    slope, _ = np.polyfit(positions, seconds, 1)
    return float(np.clip(np.mean(seconds) - slope * np.mean(positions), 0.0, min(seconds)))


def _operators_a_position(calls: list[_Call]) -> float:
    """How many operators a call has more for each position; of layers in one kernel none."""
    ends = [f([(one.grown.positions, one.operators) for one in calls]) for f in (min, max)]
    (short, few), (long, many) = ends
    return max(0.0, (many - few) / (long - short)) if long > short else 0.0


def _most_kept(call: _Call, operators_a_position: float) -> float:
    """What is left at most, in s, of a call that is given the new positions alone."""
    again, positions = call.grown.again, call.grown.positions
    if operators_a_position:  # each may take as long as one of the whole sequence
        return call.seconds * max(0.0, 1 - again * operators_a_position / max(1, call.operators))
    return call.seconds * (positions - again + _KERNEL_POSITIONS) / positions + call.operators * _KERNEL_OPERATOR_S
