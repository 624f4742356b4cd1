"""Backward through what earlier steps have computed: their graph is kept, and gone through in each step anew."""

from __future__ import annotations

from typing import ClassVar

import torch

from perf_diagnostics.measure.one_step.operator_lines import OperatorLines, backward_node
from perf_diagnostics.measure.one_step.watcher import Ran, Watcher, stored_bytes, tensors_of
from perf_diagnostics.records import Json

SIGNAL = "earlier_graph"


class EarlierGraph(Watcher):
    """Adds up the backward's operators of which torch has numbered the node before this was made: before the step.

    Args:
        lines: names the line that calls backward.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, lines: OperatorLines) -> None:
        self._lines = lines
        self._begins = int(torch.autograd._get_sequence_nr())  # type: ignore[attr-defined]
        self._line: dict[str, Json] = {}
        self._operators = 0
        self._nodes: set[int] = set()
        self._earlier = {"seconds": 0.0, "bytes": 0.0}
        self._backward = {"seconds": 0.0, "bytes": 0.0}
        self._whole = {"seconds": 0.0, "bytes": 0.0}
        self._on_device = False

    def see(self, ran: Ran) -> None:
        self._on_device = self._on_device or ran.seconds is None
        moved = 0 if ran.seconds is not None else sum(map(stored_bytes, tensors_of(*ran.args, ran.result)))
        self._add(ran, float(moved))

    def passes_over(self, ran: Ran) -> None:
        """It takes its time all the same."""
        self._add(ran, 0.0)

    def _add(self, ran: Ran, moved: float) -> None:
        sums = [self._whole]
        if ran.in_backward:
            sums.append(self._backward)
            node = backward_node()
            if node is not None and 0 <= node < self._begins:
                sums.append(self._earlier)
                self._operators += 1
                self._nodes.add(node)
                if not self._line:
                    _, self._line = self._lines.line()
        for each in sums:
            each["seconds"] += ran.seconds or 0.0
            each["bytes"] += moved

    @property
    def told(self) -> dict[str, Json]:
        """A list of one entry, or of none: the ``calls`` (operators), the ``nodes`` that they belong to, the line that
        calls backward, and of all operators' time (on a device, of the bytes that they move) the share that they take.
        """
        if not self._operators:
            return {SIGNAL: []}
        kind = "bytes" if self._on_device else "seconds"
        earlier, backward, whole = (sums[kind] for sums in (self._earlier, self._backward, self._whole))
        return {
            SIGNAL: [
                {
                    **self._line,
                    "shape": [],
                    "calls": self._operators,
                    "nodes": len(self._nodes),
                    "forward": 0.0,
                    "backward": earlier / backward if backward > 0 else 0.0,
                    "whole": earlier / whole if whole > 0 else 0.0,
                }
            ]
        }
