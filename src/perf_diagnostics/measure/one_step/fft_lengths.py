"""Fourier transforms of lengths with large prime factors, which take several times as long as those of a bit more.

A fast transform divides its length into its prime factors. A step with transforms of 2,879 numbers, a prime, took
132 ms, and 58 with those of 2,880 = 2⁶·3²·5 (torch 2.13, two cores).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran
from perf_diagnostics.prime_factors import LARGEST_FAST, fast_length, largest_factor
from perf_diagnostics.records import Json

SIGNAL = "fft_lengths"

#: What trying both lengths may take in all, in s of the thread, and how often each is.
_BUDGET_S, _TRIES = 0.3, 3

#: Told is what takes at most this part of the time at the other length.
_AT_MOST = 0.8

_ATEN = torch.ops.aten

_REAL, _COMPLEX, _BACK = _ATEN._fft_r2c, _ATEN._fft_c2c, _ATEN._fft_c2r


class _Site:
    """The transforms of one length that one line asks for."""

    def __init__(self, told: dict[str, Json], length: int, instead: int) -> None:
        self.told, self.length, self.instead = told, length, instead
        #: Each with the part of its time that it would take at the other length.
        self.calls: list[tuple[Operation, float]] = []


class FftLengths(GraphWatcher):
    """Looks for transforms along dimensions of such lengths, and tries each at the next fast one.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._sites: dict[Any, _Site] = {}
        self._tried: dict[Any, float | None] = {}
        self._left_s = _BUDGET_S

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        if ran.operator not in (_REAL, _COMPLEX, _BACK) or ran.seconds is None:
            return
        given, dims = ran.args[0], ran.args[1]
        if len(dims) != 1:
            return
        length = int(ran.args[3]) if ran.operator is _BACK else int(given.shape[dims[0]])
        if largest_factor(length) <= LARGEST_FAST:
            return
        instead = fast_length(length)
        alike = ran.operator, tuple(given.shape), given.dtype, dims[0], length
        if alike not in self._tried:
            self._tried[alike] = self._part(ran, dims[0], length, instead)
        part = self._tried[alike]
        key, told = self._lines.line()
        if part is not None and key is not None:
            site = self._sites.setdefault((key, length), _Site(told, length, instead))
            site.calls.append((operation, part))

    def _part(self, ran: Ran, dim: int, length: int, instead: int) -> float | None:
        """Which part of its time the same takes at the other length, both tried in turn; None without time to try."""
        if self._left_s < 2 * _TRIES * (ran.seconds or 0.0):
            return None
        took: dict[int, list[float]] = {length: [], instead: []}
        for _ in range(_TRIES):
            for one, times in took.items():
                times.append(_took(ran, dim, one))
        self._left_s -= sum(map(sum, took.values()))
        least = min(took[length])
        return min(1.0, min(took[instead]) / least) if least > 0 else None

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line and ``length``: the ``instead`` that was tried, how often (``calls``), and of all operators'
        time the share that it would save, in backward as in forward.
        """
        for site in self._sites.values():
            saved = [(one, 1 - part) for one, part in site.calls if part <= _AT_MOST]
            if saved:
                forward = sum(part * one.forward for one, part in saved)
                backward = sum(part * one.backward for one, part in saved)
                yield {
                    **site.told,
                    "shape": [site.length],
                    "length": site.length,
                    "instead": site.instead,
                    "calls": len(site.calls),
                    **self._graph.share_of(forward, backward),
                }


def _took(ran: Ran, dim: int, length: int) -> float:
    """How long a transform like this one takes at a length, in s of the thread."""
    given, rest = ran.args[0], [*ran.args[2:]]
    shape = [*given.shape]
    shape[dim] = length // 2 + 1 if ran.operator is _BACK else length
    if ran.operator is _BACK:
        rest[1] = length
    numbers = torch.ones(shape, dtype=given.dtype)
    began = time.thread_time()
    ran.operator(numbers, ran.args[1], *rest)
    return time.thread_time() - began
