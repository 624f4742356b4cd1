"""Dropout's masks, number by number drawn at random on the CPU, and what drawing as many from whole words takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.host.random_masks import drawn_from_bits
from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, aten
from perf_diagnostics.records import Json

SIGNAL = "drawn_masks"

_DRAWS = aten("bernoulli_")

#: So many tries of drawing a mask in the other way, the quickest of which counts, of so many numbers at most in all.
_TRIES, _MOST_NUMBERS = 5, 1 << 22


class _Site:
    """The masks of one line."""

    def __init__(self, told: dict[str, Json], p: float) -> None:
        self.told, self.p = told, p
        self.masks: list[Operation] = []


class DrawnMasks(GraphWatcher):
    """Looks for masks that are drawn on the CPU, and tries after the step what others of their sizes take.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._found: dict[Any, _Site] = {}

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        # Of a tensor of probabilities each number has its own.
        p = ran.args[1] if ran.operator in _DRAWS and len(ran.args) > 1 else None
        if ran.seconds is None or not isinstance(p, float):
            return
        key, told = self._lines.line()
        self._found.setdefault(key, _Site(told, p)).masks.append(operation)

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line its masks (``calls``), their ``numbers``, of all operators' time the share that is for drawing
        them, and how much of that drawing them from words takes (``left``), None where that was not tried.
        """
        tried = _Tried()
        for site in self._found.values():
            took = sum(one.forward for one in site.masks)
            instead = [tried.seconds(one.numel, site.p) for one in site.masks]
            known = [one for one in instead if one is not None]
            left = sum(known) / took if len(known) == len(instead) and took > 0 else None
            yield {
                **site.told,
                "calls": len(site.masks),
                "numbers": sum(one.numel for one in site.masks),
                "left": left,
                **self._graph.share(site.masks),
            }


class _Tried:
    """What drawing masks from words takes, by how many numbers they have; each is tried once."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._left = _MOST_NUMBERS
        self._words = torch.Generator()  # torch's own is the script's

    def seconds(self, numbers: int, p: float) -> float | None:
        """None where too many numbers were tried before."""
        if numbers not in self._seconds:
            if numbers > self._left:
                return None
            self._left -= numbers
            # Its pages are got by the first try, as a training's are by its first steps.
            mask = torch.empty(numbers)
            self._seconds[numbers] = min(self._once(mask, p) for _ in range(_TRIES))
        return self._seconds[numbers]

    def _once(self, mask: torch.Tensor, p: float) -> float:
        began = time.perf_counter()
        drawn_from_bits(mask, p, self._words)
        return time.perf_counter() - began
