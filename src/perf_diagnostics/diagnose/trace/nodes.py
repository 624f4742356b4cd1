"""Autograd's nodes in a trace: the backward passes that they make up, and the forward that each of these goes back to.

Autograd counts the nodes that a thread makes. An operator of a forward is noted with the number of the next one, and a
node, when it is evaluated, with its own, so that no range has to say what a forward is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool, Events, Kind, Rows
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import outermost
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.diagnose.trace.nesting import by_thread, callers
from perf_diagnostics.records import Int64

#: What all that a backward pass calls lies in. Traces of a torch that did not name it (before 1.10) tell of no passes:
#: what adds gradients up between two nodes looks like another forward there.
_ENGINE = "autograd::engine"

#: How autograd notes that it writes the gradient of one parameter.
GRADIENT = "torch::autograd::AccumulateGrad"

#: How nodes are named as operators: "AddmmBackward0", "CheckpointFunctionBackward", "torch::autograd::CopySlices". Some
#: call others (CopySlices), without a range of the engine's.
_NODE = re.compile(r"^autograd::engine|^torch::autograd::|Backward\d*$")

#: How autograd adds up what comes of several that read one tensor.
_ADDS = ("aten::add", "aten::add_")

#: Operators of layers: those that run before a forward, with gradients on, are its first ones, which nobody trains.
_LAYERS = frozenset(
    f"aten::{name}"
    for name in (
        *("linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "embedding", "layer_norm", "batch_norm"),
        *("group_norm", "scaled_dot_product_attention", "lstm", "gru", "matmul", "addmm", "bmm"),
    )
)

#: From this part of a pass' operators on of which gradients are kept, it is derived itself (``create_graph=True``);
#: where activations are computed again, the nodes' own operators have none (judgement).
_DERIVED = 0.9


@dataclass(frozen=True, eq=False)
class Nodes:
    """Autograd's nodes of a trace, and what a thread that trains calls outside of them.

    ``rows`` are the engine's ranges, in each of which a node is evaluated, by start; ``others`` the outermost operators
    of the threads that train which are no nodes and lie in none, by thread and start; ``passes`` from the beginning of
    each backward pass to its end, on the host.
    """

    launches: Launches
    rows: Events
    others: Events
    passes: Times

    @staticmethod
    def of(launches: Launches) -> Nodes | None:
        """None where nobody noted any."""
        trace = launches.trace
        operators = trace.of(Kind.OPERATOR)
        names = trace.named(lambda name: name.startswith(_ENGINE))
        if not names.size or not names[operators.name].any():
            return None
        rows = operators.where(names[operators.name])
        going_on = Times.union(rows.start_ns, rows.end_ns)
        others = operators.where(~names[operators.name] & launches.on_training_threads(operators))
        others, _ = outermost(launches, trace.with_inputs(others.where(going_on.containing(others.start_ns) < 0)))
        return Nodes(launches, rows, others, _passes(going_on, others))

    @cached_property
    def forwards(self) -> Times:
        """When the operators ran that made the nodes, with the loss, and with what else the thread did meanwhile.

        Between two passes that is from the first one of them to the last, and up to a pass that goes back to any; with
        layers before them that nobody trains, and that make no nodes (a frozen body).
        """
        others = self.others.where(self.others.correlation >= 0)
        if not len(others):
            return Times.none()
        # Each thread counts for itself; the one that calls most is the one that trains.
        tracks, counts = np.unique(others.track, return_counts=True)
        others = others.where(others.track == tracks[counts.argmax()])
        numbered = self.rows.where(self.rows.correlation >= 0)
        # A node was made by the last of the operators that waited for its number.
        number = np.maximum.accumulate(others.correlation)
        maker = np.searchsorted(number, numbered.correlation, side="right") - 1
        seen = maker >= 0  # else it was made before the recording began
        maker, of_pass = maker[seen], self.passes.containing(numbered.start_ns[seen])
        before = np.searchsorted(self.passes.start, others.start_ns[maker])
        layers = others.start_ns[self.launches.trace.named(_LAYERS.__contains__)[others.name]]
        layers = np.append(layers, others.end_ns.max())  # ascending, as all that one thread begins
        start, end = [], []
        for place in np.unique(before).tolist():
            mine = maker[before == place]
            own = place < len(self.passes) and bool((of_pass[before == place] == place).any())
            after = self.passes.end[place - 1] if place else np.int64(0)
            start.append(min(others.start_ns[mine].min(), layers[np.searchsorted(layers[:-1], after)]))
            end.append(self.passes.start[place] if own else others.end_ns[mine].max())
        return Times.union(np.array(start, np.int64), np.array(end, np.int64))

    @cached_property
    def _called(self) -> tuple[Events, Rows, Rows]:
        """All operators by thread and start, the row of who called each (or -1), and the rows of those that nodes call
        within a pass.
        """
        trace = self.launches.trace
        operators = by_thread(trace.of(Kind.OPERATOR))
        node = trace.named(_NODE.search)[operators.name]
        caller = callers(operators)
        called = np.flatnonzero((caller >= 0) & node[caller] & ~node)
        return operators, caller, called[self.passes.containing(operators.start_ns[called]) >= 0]

    def made_by(self, calls: Events, chosen: Rows) -> Events:
        """The engine's rows of the nodes that some calls made.

        A call's nodes have the numbers from its own on, up to that of the next call. One that makes none, for nothing
        that it is given needs a gradient, has the number of the next one that does.

        Args:
            calls: of :attr:`others`, in their order.
            chosen: rows of these.
        """
        chosen = chosen[calls.correlation[chosen] >= 0]
        numbered = np.flatnonzero(calls.correlation >= 0)
        last = calls.correlation.max(initial=-1) + 1
        until = np.append(calls.correlation[numbered], last)[np.searchsorted(numbered, chosen, side="right")]
        made = Times.union(calls.correlation[chosen], until)
        # The end of a set of time is in it; that of numbers is not.
        return self.rows.where(
            (made.containing(self.rows.correlation) >= 0) & ~np.isin(self.rows.correlation, made.end)
        )

    @cached_property
    def summing(self) -> Int64:
        """When those of the engine's ranges begin in which the gradients of a tensor are added up that several read."""
        trace, (operators, caller, _) = self.launches.trace, self._called
        adds = np.flatnonzero(trace.named(_ADDS.__contains__)[operators.name] & (caller >= 0))
        engine = trace.named(lambda name: name.startswith(_ENGINE))[operators.name]
        found: Int64 = operators.start_ns[caller[adds][engine[caller[adds]]]]
        return found

    @cached_property
    def derived(self) -> Bool:
        """Which passes are derived themselves (``create_graph=True``), shape ``(passes,)``."""
        operators, _, called = self._called
        of_pass = self.passes.containing(operators.start_ns[called])
        kept = operators.correlation[called] >= 0
        whole = np.bincount(of_pass, minlength=len(self.passes))
        found: Bool = (whole > 0) & (np.bincount(of_pass[kept], minlength=len(self.passes)) >= _DERIVED * whole)
        return found

    @cached_property
    def nested(self) -> bool:
        """Whether nodes call the engine again (checkpoints with ``use_reentrant``)."""
        outer, _ = outermost(self.launches, self.rows)
        return len(outer) < len(self.rows)

    @cached_property
    def again(self) -> Times:
        """When operators ran inside of nodes that gradients were kept of, as those do that are computed a second time
        (activation checkpointing); of passes that are derived themselves nothing.
        """
        operators, caller, called = self._called
        inner, caller = operators.where(called), caller[called]
        of_pass = self.passes.containing(inner.start_ns)
        chosen = (inner.correlation >= 0) & ~self.derived[of_pass]
        # The pauses from one to the next of a node are Python's, which goes through the same layers again.
        until = inner.end_ns.copy()
        follows = chosen[:-1] & chosen[1:] & (caller[:-1] == caller[1:])
        until[:-1][follows] = inner.start_ns[1:][follows]
        return Times.union(inner.start_ns[chosen], until[chosen])


def _passes(going_on: Times, others: Events) -> Times:
    """When autograd's engine went on, without pauses in which a thread that trains began an operator outside of it.

    Whoever calls ``backward()`` waits for it: what begins meanwhile is a part of the engine's operators (hooks,
    activations that are computed again), and what does not is the next batch's forward.
    """
    # A new pass begins where one of them lies between a piece and the piece before it.
    before = np.searchsorted(np.sort(others.start_ns), going_on.start)
    begins = np.concatenate(([True], np.diff(before) > 0))
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(going_on)) - 1
    return Times(going_on.start[first], going_on.end[last])
