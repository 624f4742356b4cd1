"""The gradients of parameters that a trace's backward passes write, and those among them that nobody clears.

A gradient that is cleared (set to None, as ``zero_grad()`` does) before a pass is taken as it comes; onto one that is
still there the new one is added. Where in every pass the same number of gradients is added up, and others are taken as
they come, no optimizer's ``zero_grad()`` reaches the former: those of a model beside the one that is trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.trace.events import Bool, Kind
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.nesting import by_thread, callers
from perf_diagnostics.diagnose.trace.nodes import GRADIENT, Nodes
from perf_diagnostics.records import Int64

#: How autograd adds a gradient to the one before (``accumulate_grad.h`` of torch 2.13: ``variable_grad += new_grad``):
#: all that the node does then. What hooks add lies beside the node, or after its own operator.
_ADDS = ("aten::add_", "aten::add")

#: How gradients are zeroed in place (``zero_grad(set_to_none=False)``, ``p.grad.zero_()``): then each is added to.
_ZEROES = ("aten::zero_", "aten::_foreach_zero_", "aten::fill_")


@dataclass(frozen=True, eq=False)
class Leaves:
    """The gradients that are written, in the order of time, each of shape ``(gradients,)``.

    ``end_ns`` is when it was written, ``of_pass`` the pass that it belongs to (-1: none), ``added`` whether it was
    added to the one before.
    """

    nodes: Nodes
    end_ns: Int64
    of_pass: NDArray[np.intp]
    added: Bool

    @classmethod
    def of(cls, nodes: Nodes) -> Leaves:
        trace = nodes.launches.trace
        operators = by_thread(trace.of(Kind.OPERATOR))
        written = trace.named(lambda name: name == ENGINE + GRADIENT)[operators.name]
        node = trace.named(lambda name: name == GRADIENT)[operators.name]
        adds = trace.named(lambda name: name in _ADDS)[operators.name]
        caller = callers(operators)
        inside = np.flatnonzero((caller >= 0) & node[caller])
        count = np.bincount(caller[inside], minlength=len(operators))
        only = inside[adds[inside] & (count[caller[inside]] == 1)]
        added = np.zeros(len(operators), dtype=bool)
        engine = caller[caller[only]]
        added[engine[engine >= 0]] = True
        order = np.argsort(operators.end_ns[written], kind="stable")
        end_ns, start_ns = operators.end_ns[written][order], operators.start_ns[written][order]
        return cls(nodes, end_ns, nodes.passes.containing(start_ns), added[written][order])

    @property
    def a_pass(self) -> int:
        """How many gradients the pass with the most of them writes."""
        return int(np.bincount(self.of_pass[self.of_pass >= 0], minlength=1).max())

    def never_cleared(self, windows: Times) -> int:
        """How many gradients are added up in each pass while others are taken as they come; 0 where that is not so.

        Args:
            windows: the steps, on the host; with several passes in one, each but the first adds to what the first left.
        """
        others, zeroes = self.nodes.others, self.nodes.launches.trace.named(lambda name: name in _ZEROES)
        if (zeroes[others.name] & (windows.containing(others.start_ns) >= 0)).any():
            return 0
        inside = self.of_pass >= 0
        count = np.bincount(self.of_pass[inside], minlength=len(self.nodes.passes))
        added = np.bincount(self.of_pass[inside & self.added], minlength=len(self.nodes.passes))
        of_step = windows.containing(self.nodes.passes.start)
        mine = (count > 0) & (of_step >= 0)
        if not mine.any() or np.bincount(of_step[mine]).max() > 1:
            return 0
        same = np.unique(added[mine])
        return int(same[0]) if same.size == 1 and (added[mine] > 0).all() and (added[mine] < count[mine]).all() else 0

    def leading_to_added(self) -> Times:
        """The part of each pass in which it comes to gradients that are added up: from the one before that is not."""
        start, end = [], []
        for number, (began, _) in enumerate(zip(self.nodes.passes.start, self.nodes.passes.end, strict=True)):
            mine = self.of_pass == number
            before = np.concatenate(([began], self.end_ns[mine][:-1]))
            added = self.added[mine]
            start.append(before[added])
            end.append(self.end_ns[mine][added])
        if not start:
            return Times.none()
        return Times.union(np.concatenate(start).astype(np.int64), np.concatenate(end).astype(np.int64))

    @property
    def added_come_last(self) -> bool:
        """Whether each pass comes to what is trained first, and to nothing of it once gradients are added up."""
        mine = self.of_pass >= 0
        order = np.lexsort((self.end_ns[mine], self.of_pass[mine]))
        added, of_pass = self.added[mine][order], self.of_pass[mine][order]
        same = of_pass[1:] == of_pass[:-1]
        return not (added[:-1] & ~added[1:] & same).any()

    def at_the_ends(self, count: int) -> tuple[Times, Times]:
        """The part of each pass up to its first ``count`` gradients, and that of its last ones: of a model behind the
        one that is trained, or before it.
        """
        until, since = [], []
        passes = self.nodes.passes
        for number, (start, end) in enumerate(zip(passes.start.tolist(), passes.end.tolist(), strict=True)):
            mine = self.end_ns[self.of_pass == number]
            until.append(mine[count - 1] if mine.size >= count else start)
            since.append(mine[-count - 1] if mine.size > count else end)
        return (
            Times.union(passes.start, np.array(until, np.int64)),
            Times.union(np.array(since, np.int64), passes.end),
        )
