"""Nodes that a trace's backward passes evaluate again, because the graph was kept (``retain_graph=True``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool, Kind
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.leaves import Leaves
from perf_diagnostics.diagnose.trace.nodes import GRADIENT, Nodes
from perf_diagnostics.records import Int64

#: What torch's optimizers do to gradients or parameters, by how their ranges begin: whatever is derived after that is
#: no sum with what was derived before.
_OPTIMIZER, _STEP = "Optimizer.", "Optimizer.step#"

#: Nor is it after what may change gradients, copy them, or take their norms, outside of autograd's nodes.
_CHANGES = re.compile(r"^aten::((zero|fill|mul|div|neg|sub|clamp)_|clone|norm|linalg_vector_norm|_foreach_\w+)$")


@dataclass(frozen=True, eq=False)
class KeptGraph:
    """What backward passes do that an earlier one has done, where the graph was not derived itself.

    ``earlier`` are evaluations of nodes that a pass of an earlier step had evaluated. Within one step ``times`` are the
    evaluations of nodes after their first; ``passes`` how many of the passes have such, ``of`` how
    many there are; ``added`` says that gradients of parameters are added up in them, so that one pass of the sum of
    losses gives the same. ``across`` are those behind an update that lies between them and the first.
    """

    earlier: Times
    times: Times
    across: Times
    passes: int
    of: int
    added: bool

    @classmethod
    def of_steps(cls, nodes: Nodes, windows: Times) -> KeptGraph:
        """Of the passes that begin in the steps, ``windows``, on the host.

        A node that was derived itself (``create_graph=True``) has to be evaluated again, and no update lies between two
        evaluations that could be one.
        """
        rows = nodes.rows.where(nodes.rows.correlation >= 0)
        of_pass, of_step = nodes.passes.containing(rows.start_ns), windows.containing(rows.start_ns)
        chosen = (of_pass >= 0) & (of_step >= 0)
        rows, of_pass, of_step = rows.where(chosen), of_pass[chosen], of_step[chosen]
        _, first, number = np.unique(
            np.stack([rows.name.astype(np.int64), rows.correlation]), axis=1, return_index=True, return_inverse=True
        )  # the first one by start
        number = number.ravel()
        plain = np.bincount(number, weights=nodes.derived[of_pass], minlength=first.size)[number] == 0
        earlier: Bool = plain & (of_step > of_step[first[number]])
        recorded = nodes.others.correlation[nodes.others.correlation >= 0]
        if earlier.any() and recorded.size:
            # Then those of the first step are, too, that were there before anything was recorded.
            earlier |= plain & (rows.correlation < recorded.min())
        # … and the first one in its own step.
        _, first, number = np.unique(np.stack([number, of_step]), axis=1, return_index=True, return_inverse=True)
        begins = first[number.ravel()]
        again: Bool = plain & (of_pass > of_pass[begins])
        writes = _writing(nodes)
        again &= writes[of_pass] & writes[of_pass[begins]]

        def between(starts: Int64) -> Bool:
            """Which have one of these, ascending, between their node's first evaluation in the step and theirs."""
            found: Bool = np.searchsorted(starts, rows.start_ns) != np.searchsorted(starts, rows.start_ns[begins])
            return found

        across = again & between(_ranges(nodes, _STEP))
        again &= ~between(_changes(nodes))
        leaves, through = Leaves.of(nodes), np.unique(of_pass[again])
        every = np.flatnonzero(windows.containing(nodes.passes.start) >= 0)
        return cls(
            earlier=Times.union(rows.start_ns[earlier], rows.end_ns[earlier]),
            times=Times.union(rows.start_ns[again], rows.end_ns[again]),
            across=Times.union(rows.start_ns[across], rows.end_ns[across]),
            passes=through.size,
            of=every.size,
            added=bool(np.isin(leaves.of_pass[leaves.added], through).any()),
        )


def _writing(nodes: Nodes) -> Bool:
    """Which passes write gradients, shape ``(passes,)``: who asks for them (``torch.autograd.grad``) takes them before
    the last node, of which the engine's range alone is noted.
    """
    trace = nodes.launches.trace
    operators = trace.of(Kind.OPERATOR)
    written = operators.start_ns[trace.named(lambda name: name == GRADIENT)[operators.name]]
    of_pass = nodes.passes.containing(written)
    found: Bool = np.bincount(of_pass[of_pass >= 0], minlength=len(nodes.passes)) > 0
    return found


def _changes(nodes: Nodes) -> Int64:
    """When something was done after which gradients are no sum with those before, ascending."""
    trace, others = nodes.launches.trace, nodes.others
    others = others.where(trace.named(_CHANGES.match)[others.name])
    return np.sort(np.concatenate([_ranges(nodes, _OPTIMIZER), others.start_ns]))


def _ranges(nodes: Nodes, begins_with: str) -> Int64:
    """When the ranges begin whose names begin so, ascending."""
    trace = nodes.launches.trace
    ranges = trace.of(Kind.ANNOTATION)
    ranges = ranges.where(trace.named(lambda name: name.startswith(begins_with))[ranges.name])
    return np.sort(ranges.start_ns)
