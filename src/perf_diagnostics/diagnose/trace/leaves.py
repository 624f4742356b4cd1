"""The gradients of parameters that a trace's backward passes write, and those among them that nobody clears.

A gradient that is cleared (set to None, as ``zero_grad()`` does) before a pass is taken as it comes; onto one that is
still there the new one is added. Where in every pass the same number of gradients is added up, and others are taken as
they come, no optimizer's ``zero_grad()`` reaches the former: those of a model beside the one that is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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
    """The gradients that backward passes write, by pass and time, each of shape ``(gradients,)``.

    ``end_ns`` is when it was written, ``of_pass`` the number of the pass, ``added`` whether it was added to the one
    before.
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
        end_ns, of_pass = operators.end_ns[written], nodes.passes.containing(operators.start_ns[written])
        order = np.lexsort((end_ns, of_pass))
        order = order[of_pass[order] >= 0]
        return cls(nodes, end_ns[order], of_pass[order], added[written][order])

    @property
    def a_pass(self) -> int:
        """How many gradients the pass with the most of them writes."""
        return int(self._count.max(initial=0))

    @cached_property
    def _count(self) -> NDArray[np.intp]:
        """How many each pass writes, shape ``(passes,)``."""
        return np.bincount(self.of_pass, minlength=len(self.nodes.passes))

    def never_cleared(self, windows: Times) -> int:
        """How many gradients are added up in each pass while others are taken as they come; 0 where that is not so.

        Args:
            windows: the steps, on the host; with several passes in one, each but the first adds to what the first left.
        """
        others, zeroes = self.nodes.others, self.nodes.launches.trace.named(lambda name: name in _ZEROES)
        if (zeroes[others.name] & (windows.containing(others.start_ns) >= 0)).any():
            return 0
        count, added = self._count, np.bincount(self.of_pass[self.added], minlength=len(self.nodes.passes))
        of_step = windows.containing(self.nodes.passes.start)
        mine = (count > 0) & (of_step >= 0)
        if not mine.any() or np.bincount(of_step[mine]).max() > 1:
            return 0
        same = np.unique(added[mine])
        return int(same[0]) if same.size == 1 and (added[mine] > 0).all() and (added[mine] < count[mine]).all() else 0

    def leading_to_added(self) -> Times:
        """The part of each pass in which it comes to gradients that are added up: from the one before that is not."""
        before, first = np.roll(self.end_ns, 1), np.diff(self.of_pass, prepend=-1) > 0
        before[first] = self.nodes.passes.start[self.of_pass[first]]
        return Times.union(before[self.added], self.end_ns[self.added])

    @property
    def added_come_last(self) -> bool:
        """Whether each pass comes to what is trained first, and to nothing of it once gradients are added up."""
        same = self.of_pass[1:] == self.of_pass[:-1]
        return not (self.added[:-1] & ~self.added[1:] & same).any()

    def at_the_ends(self, count: int) -> tuple[Times, Times]:
        """The part of each pass up to its first ``count`` gradients, and that of its last ones: of a model behind the
        one that is trained, or before it.
        """
        passes, last = self.nodes.passes, np.cumsum(self._count)
        first = last - self._count
        until, since = passes.start.copy(), passes.end.copy()
        enough, more = self._count >= count, self._count > count
        until[enough] = self.end_ns[first[enough] + count - 1]
        since[more] = self.end_ns[last[more] - count - 1]
        return Times.union(passes.start, until), Times.union(since, passes.end)
