"""A watcher that looks for a pattern in how a step's operators hang together, and tells the lines that cost most."""

from __future__ import annotations

from collections.abc import Iterator

from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, Watcher
from perf_diagnostics.records import Json

_MOST_TOLD = 4


class GraphWatcher(Watcher):
    """Is shown the operators of forward that the graph keeps; its first signal is the list of what it finds.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        self._graph, self._lines = graph, lines

    def see(self, ran: Ran) -> None:
        if self._graph.last is not None:
            self.see_operation(self._graph.last, ran)

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        """An operator of forward has run, and this is what the graph keeps of it."""
        raise NotImplementedError

    def entries(self) -> Iterator[dict[str, Json]]:
        """One for each line, with the share of all operators' time as :meth:`OperatorGraph.share` tells it."""
        raise NotImplementedError

    @property
    def why_not(self) -> str:
        """As the graph's."""
        return self._graph.why_not

    @property
    def told(self) -> dict[str, Json]:
        """The entries with the largest share, the largest first."""
        most = sorted(self.entries(), key=lambda one: -float(str(one["whole"])))
        return {self.signals[0]: [*most[:_MOST_TOLD]]}
