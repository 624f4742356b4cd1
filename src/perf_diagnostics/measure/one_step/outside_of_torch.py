"""Where numbers leave a step's forward for Python, NumPy or SciPy, and no operator runs for long meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterable
from threading import get_ident
from typing import Any, ClassVar, NamedTuple

import torch

from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, Watcher, memory
from perf_diagnostics.records import Json

SIGNAL = "outside_of_torch"
SECONDS = "outside_seconds_forward"

#: Less of the thread's time between two operators, in s, is what Python takes to call the next one.
_LEAST_S = 200e-6

_MOST_TOLD = 4

#: What gives a number to Python, what makes a tensor of Python's numbers and arrays, and what ``numpy()`` begins with.
_NUMBER, _MADE, _DETACHED = torch.ops.aten._local_scalar_dense, torch.ops.aten.lift_fresh, torch.ops.aten.detach

_clock = time.thread_time


class _Read(NamedTuple):
    """The line at which a tensor was read, as a key and as facts tell it, and what it depends on."""

    key: Any
    told: dict[str, Json]
    of: str


class _Site:
    """What is worked on outside of torch after it was handed over at one line."""

    def __init__(self, told: dict[str, Json]) -> None:
        self.told = told
        self.seconds, self.times, self.of = 0.0, 0, ""


class OutsideOfTorch(Watcher):
    """Adds up the thread's time between operators of forward, where a tensor was read before or made of numbers after.

    It is told for the line that read, or else for that which made the tensor, with what was handed over: ``model``,
    numbers that parameters went into; ``data``, none of that kind; ``python``, no tensor's.

    Args:
        parameters: where the memories of parameters begin.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL, SECONDS)
    sees_beside: ClassVar[bool] = True
    sees_parts: ClassVar[bool] = True

    def __init__(self, parameters: Iterable[int], lines: OperatorLines) -> None:
        self._lines = lines
        #: Memories that parameters went into, and those of which it is known what did.
        self._of_model = {one for one in parameters if one}
        self._known: set[int] = set()
        self._sites: dict[Any, _Site] = {}
        self._opened = False
        self._thread = 0
        #: Where a tensor was read first after the last operator, and last.
        self._first: _Read | None = None
        self._last: _Read | None = None
        #: What all arrays that were read until now depend on.
        self._given_out = ""
        #: What looking for the line took since the last operator, in s of the thread.
        self._looked_s = 0.0

    def also_of_models(self, memories: Iterable[int]) -> None:
        """Those of parameters that nobody trains."""
        self._of_model |= {one for one in memories if one}

    def opens(self) -> None:
        self._pauses()
        self._thread = get_ident()

    def _pauses(self) -> None:
        """What lies between the last operator and the next one is not known to be forward's."""
        self._opened, self._first, self._last, self._looked_s = False, None, None, 0.0

    def read(self, tensor: torch.Tensor) -> None:
        """A tensor's numbers are read by other means than an operator."""
        if get_ident() == self._thread:
            of = self._depends(tensor)
            self._leaves(of)
            self._given_out = "model" if "model" in (self._given_out, of) else of

    def _leaves(self, of: str) -> None:
        began = _clock()
        self._last = _Read(*self._lines.line(), of)
        if self._first is None:
            self._first = self._last
        elif of == "model":
            self._first = self._first._replace(of=of)
        self._looked_s += _clock() - began

    def _depends(self, tensor: torch.Tensor) -> str:
        at = memory(tensor)
        # What was made of numbers that had been read may depend on all that was.
        made_of_read = self._given_out == "model" and at not in self._known
        return "model" if at in self._of_model or tensor.requires_grad or made_of_read else "data"

    def see(self, ran: Ran) -> None:
        if ran.in_backward:
            self._pauses()
            return
        if ran.operator is _DETACHED and self._last is not None:
            # Belongs to the last read; what lies before it is the work of those before.
            if self._opened and self._first is not self._last:
                self._works(ran.before - self._looked_s, made=False)
            self._first, self._looked_s = self._last, 0.0
            return
        if self._opened:
            self._works(ran.before - self._looked_s, made=ran.operator is _MADE)
        self._pauses()
        self._opened = not ran.beside
        given, made = ([memory(one) for one in some] for some in ([*ran.given()], [*ran.made()]))
        of_model = not self._of_model.isdisjoint(given)
        if ran.operator is _NUMBER:
            self._leaves("model" if of_model else "data")
            return
        if of_model:
            self._of_model.update(made)
        elif not self._of_model.isdisjoint(made):
            self._of_model.difference_update({*made} - {*given})
        self._known.update(given, made)

    def passes_over(self, ran: Ran) -> None:
        """What lies around it is not looked at."""
        self._pauses()

    def ends_forward(self, before: float) -> None:
        if self._opened:
            self._works(before - self._looked_s, made=False)
        self._pauses()

    def _works(self, seconds: float, *, made: bool) -> None:
        """So long the thread ran between the last operator and this one."""
        if seconds < _LEAST_S or not (made or self._first is not None):
            return
        key, told, of = self._first or _Read(*self._lines.line(), self._given_out or "python")
        site = self._sites.setdefault(key, _Site(told))
        site.seconds += seconds
        site.times += 1
        site.of = "model" if "model" in (site.of, of) else of

    @property
    def told(self) -> dict[str, Json]:
        """For each line ``seconds_forward``, ``operators``, how many times it was, and ``of``, what was handed over;
        by ``SECONDS`` what all of it takes.
        """
        most = sorted(self._sites.values(), key=lambda site: -site.seconds)
        entries: list[Json] = [
            {**site.told, "operators": site.times, "seconds_forward": site.seconds, "of": site.of}
            for site in most[:_MOST_TOLD]
        ]
        return {SIGNAL: entries, SECONDS: sum(site.seconds for site in most)}
