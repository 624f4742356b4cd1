"""Where numbers leave a step's forward for Python, NumPy or SciPy, and no operator runs for long meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any, ClassVar, NamedTuple
from weakref import ReferenceType

import torch

from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.observation import in_words
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, Shows, Watcher, has_one_memory, memory
from perf_diagnostics.records import Json

SIGNAL = "outside_of_torch"
SECONDS = "outside_seconds_forward"

#: Less of the thread's time between two operators, in s, is what Python takes to call the next one.
_LEAST_S = 200e-6

_MOST_TOLD = 8

#: What gives a number to Python, and what makes a tensor of Python's numbers and arrays.
_NUMBER, _MADE = torch.ops.aten._local_scalar_dense, torch.ops.aten.lift_fresh

#: What is worked on, the least sure one last.
_OF = ("data", "python", "unclear", "model")


class _Read(NamedTuple):
    """A tensor's numbers were read: the line as a key and as facts tell it, what they depend on, whether it is one."""

    key: Any
    told: dict[str, Json]
    of: str
    is_number: bool


class _Gap(NamedTuple):
    """The thread ran for so long, in s, and no operator."""

    key: Any
    told: dict[str, Json]
    of: str
    seconds: float
    makes: bool
    until: int


class _Site:
    """What is worked on outside of torch after it was handed over at one line."""

    def __init__(self, told: dict[str, Json]) -> None:
        self.told = told
        self.seconds, self.times, self.of, self.makes, self.until = 0.0, 0, "", False, 0

    def add(self, gap: _Gap) -> None:
        self.seconds += gap.seconds
        self.times += 1
        self.of = max(self.of, gap.of, key=lambda of: _OF.index(of) if of else -1)
        self.makes |= gap.makes
        self.until = max(self.until, gap.until)


class OutsideOfTorch(Watcher):
    """Adds up the thread's time between operators of forward after a tensor was read, or before one is made of numbers.

    Of the time between two operators it is that after the read. It is told for the line that read, or else for that
    which made the tensor, with what was handed over: ``model``, numbers that parameters went into; ``data``, none of
    that kind; ``python``, no tensor's; ``unclear`` where the model's numbers had been handed out before, so that they
    may be what is worked on.

    What lies between two calls of models is not forward's, and not told.

    Args:
        parameters: where the memories of parameters begin.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL, SECONDS)
    sees_beside: ClassVar[bool] = True
    sees_parts: ClassVar[bool] = True

    def __init__(self, parameters: Iterable[int], lines: OperatorLines) -> None:
        self._lines = lines
        #: Memories of what the training keeps in its models, and of what that went into.
        self._kept = {one for one in parameters if one}
        self._of_model: set[int] = set()
        self._sites: dict[Any, _Site] = {}
        #: Those of which it is not known yet whether another call of a model follows.
        self._pending: list[_Gap] = []
        self._depth = 0
        self._mode: ReferenceType[Shows] | None = None
        self._thread = 0
        #: Whether what goes on is forward, and what was read last, if no operator ran since.
        self._counts = False
        self._read: _Read | None = None
        #: How many methods that read are under way, one inside of the other.
        self._reading = 0
        #: What the arrays and lists depend on that were handed out until now, and whether a number of the model's was.
        self._given_out = ""
        self._number_of_model = False
        self._why_not = ""
        #: Whether the loader or an optimizer is at work.
        self.elsewhere: Callable[[], bool] = bool

    def also_kept(self, memories: Iterable[int]) -> None:
        """Those of models' buffers, and of parameters that nobody trains."""
        self._kept |= {one for one in memories if one}

    def shown_by(self, mode: ReferenceType[Shows]) -> None:
        self._mode = mode

    def opens(self) -> None:
        self._pauses()
        self._thread = get_ident()

    def forward_begins(self) -> None:
        self._read, self._counts = None, True
        self._thread = get_ident()

    def model_called(self, *, begins: bool) -> None:
        if begins:
            if not self._depth:
                self._pending.clear()
            self._depth += 1
        else:
            self._depth = max(0, self._depth - 1)
            if not self._depth:
                self._books()

    def _pauses(self) -> None:
        """What lies between the last operator and the next one is not known to be forward's."""
        self._read, self._counts = None, False

    def read(self, tensor: torch.Tensor) -> Callable[[], None] | None:
        """A tensor's numbers are read by other means than an operator; gives what is to be called when that is over."""
        if get_ident() != self._thread:
            return None
        mode = None if self._mode is None else self._mode()
        if mode is None or not mode.is_open or self._why_not:
            return None
        self._reading += 1
        if self._reading == 1:
            try:
                self._is_read(mode, tensor)
            except FAULTS as fault:
                self._why_not = in_words(fault)
        return self._read_over

    def _read_over(self) -> None:
        self._reading = max(0, self._reading - 1)

    def _is_read(self, mode: Shows, tensor: torch.Tensor) -> None:
        with mode.interrupted() as before:
            if self.elsewhere() or not has_one_memory(tensor):
                self._pauses()
                return
            self._passed(before, made=False)
            of = "model" if tensor.requires_grad or memory(tensor) in (self._of_model | self._kept) else "data"
            self._read = _Read(*self._lines.line(), of, is_number=False)
            self._given_out = "model" if "model" in (self._given_out, of) else of

    def see(self, ran: Ran) -> None:
        if self._reading or self._why_not:
            return
        if ran.in_backward or self.elsewhere():
            self._pauses()
            return
        self._passed(ran.before, made=ran.operator is _MADE)
        self._read, self._counts = None, not ran.beside
        given, made = ({memory(one) for one in some} for some in ([*ran.given()], [*ran.made()]))
        of_model = not (self._of_model.isdisjoint(given) and self._kept.isdisjoint(given))
        if ran.operator is _MADE:
            of_model = of_model or self._given_out == "model" or self._number_of_model
        if ran.operator is _NUMBER:
            self._number_of_model = self._number_of_model or of_model
            self._read = _Read(*self._lines.line(), "model" if of_model else "data", is_number=True)
        elif of_model:
            self._of_model |= made or given  # what gives nothing writes into what it is given
        else:
            self._of_model -= made - given

    def passes_over(self, ran: Ran) -> None:
        """What lies around it is not looked at, and what it made may be the model's."""
        self._pauses()
        self._of_model.update(memory(one) for one in ran.made() if has_one_memory(one))

    def ends_forward(self, before: float) -> None:
        if not self._reading and not self._why_not:
            self._passed(before, made=False)
        self._pauses()
        self._books()

    def _passed(self, seconds: float, *, made: bool) -> None:
        """So long the thread ran since the last operator, or the last read."""
        read = self._read
        if not self._counts or seconds < _LEAST_S or not (made or read is not None):
            return
        here, told = self._lines.line()
        if read is None or (read.is_number and made):
            of_model = self._given_out == "model" or (read is not None and read.of == "model")
            self._pending.append(_Gap(here, told, "unclear" if of_model else "python", seconds, made, 0))
            return
        of = "unclear" if read.of == "data" and self._given_out == "model" else read.of
        code, line = here or (None, 0)
        until = line if read.key is not None and code is read.key[0] else 0
        self._pending.append(_Gap(read.key, read.told, of, seconds, made, until))

    def _books(self) -> None:
        for gap in self._pending:
            self._sites.setdefault(gap.key, _Site(gap.told)).add(gap)
        self._pending.clear()

    @property
    def why_not(self) -> str:
        return self._why_not

    @property
    def told(self) -> dict[str, Json]:
        """For each line ``seconds_forward``, ``operators``, how many times it was, ``of``, what was handed over,
        whether a tensor was made of what came of it (``makes``), and the line of the same function ``until`` which it
        was; by ``SECONDS`` what all of it takes.
        """
        self._books()
        most = sorted(self._sites.values(), key=lambda site: -site.seconds)
        entries: list[Json] = [
            {
                **site.told,
                "operators": site.times,
                "seconds_forward": site.seconds,
                "of": site.of,
                "makes": site.makes,
                "until": site.until,
            }
            for site in most[:_MOST_TOLD]
        ]
        return {SIGNAL: entries, SECONDS: sum(site.seconds for site in most)}
