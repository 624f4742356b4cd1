"""A watcher that tries, once the step is over, whether what it found is done more quickly otherwise; on the CPU."""

from __future__ import annotations

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.in_turn import InTurn
from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import ON_A_DEVICE, Ran
from perf_diagnostics.records import Json


class TryingWatcher(GraphWatcher):
    """Its first signal is the list of what it finds, the second the share of the time that could not be tried.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
        budget_s: what trying may take in all, in s of the thread.
    """

    def __init__(self, graph: OperatorGraph, lines: OperatorLines, budget_s: float) -> None:
        super().__init__(graph, lines)
        self.in_turn = InTurn(budget_s)
        self._untried_s = 0.0
        self._on_device = False

    def is_on_cpu(self, ran: Ran) -> bool:
        """Whether an operator's time is known; of one that ran on a device nothing is tried, as is told then."""
        self._on_device |= ran.seconds is None
        return ran.seconds is not None

    def was_not_tried(self, *operations: Operation) -> None:
        """Entries leave these out, for they could not be tried."""
        self._untried_s += sum(one.seconds for one in operations)

    @property
    def why_not(self) -> str:
        return ON_A_DEVICE if self._on_device else super().why_not

    @property
    def told(self) -> dict[str, Json]:
        """The entries, and of all operators' time the share of what could not be tried."""
        lines, whole = super().told, self._graph.seconds
        return {**lines, self.signals[1]: self._untried_s / whole if whole else 0.0}
