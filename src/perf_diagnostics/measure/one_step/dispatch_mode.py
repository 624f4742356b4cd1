"""Shows the operators of one step, as torch runs them, to its watchers, and times what lies around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch

from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.looking_mode import LookingMode
from perf_diagnostics.measure.observation import in_words
from perf_diagnostics.measure.one_step import mode_stack
from perf_diagnostics.measure.one_step.operator_lines import in_backward
from perf_diagnostics.measure.one_step.sparse_parts import has_parts, in_parts
from perf_diagnostics.measure.one_step.watcher import Ran, Watcher, has_one_memory, tensors_of
from perf_diagnostics.measure.steps.device_clock import captures
from perf_diagnostics.records import Json

#: After so many operators nothing more is looked at: a step without end, or one that the look would slow down for long.
_MOST_OPERATORS = 100_000

_INNER: Any = torch._C

#: Of the thread: what others do on a crowded processor meanwhile is no time of an operator.
_clock = time.thread_time_ns


class OperatorMode(LookingMode):  # type: ignore[no-untyped-call]
    """Shows each operator that runs while this is open, with what it was given, what it gave, and how long it took.

    Args:
        watchers: who is shown them.
    """

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        super().__init__()
        self.watchers = watchers
        for one in watchers:
            one.shown_by(ref(self))
        #: Whether ``torch.autograd.backward`` is under way; what the engine itself tells comes first.
        self.in_backward = False
        #: Whether the phase of the step that goes on is backward's, where that is known otherwise.
        self.goes_back: Callable[[], bool] = bool
        #: Whether what runs is a model's that is called beside those that are trained.
        self.beside = False
        #: Whether operators are none that anybody is to be shown, and whether some were none since the last one shown.
        self.hides: Callable[[], bool] = bool
        self._hid = False
        #: Whether an update is why they are hidden, and who runs them then.
        self.updates: Callable[[], bool] = bool
        self.runs_update: Callable[..., Any] | None = None
        #: Why a watcher looks no more, by its place among them, and why there is nothing to tell at all.
        self.problems: dict[int, str] = {}
        self.problem = ""
        #: How many operators were.
        self.seen = 0
        #: Whether one of them ran on a device, whose backward has a thread of its own.
        self._on_device = False
        #: The thread's time in forward and in backward that is neither an operator's nor the look's own, in ns, and
        #: since when it is counted.
        self._around = {False: 0, True: 0}
        self._since = 0

    @property
    def is_open(self) -> bool:
        """Whether operators of this thread are shown."""
        return mode_stack.is_on(self)

    def open(self, *, beside: bool = False) -> None:
        """Show the operators of this thread from now on; those of a model ``beside`` only to who wants them."""
        if self.is_open:
            if self.beside and not beside:
                self._lap()
                self.beside = False
                self._shows_again()
                self._tells(lambda one: one.forward_begins())
            return
        self.beside = beside
        self._begin_to_show()
        if not beside:
            self._tells(lambda one: one.forward_begins())
        mode_stack.put_on(self)
        self._since = _clock()

    def _shows_again(self) -> None:
        """Nothing is hidden any more; what was is told of first."""
        if self._hid:
            self._hid = False
            self._begin_to_show()
            self._since = _clock()

    def _tells(self, what: Callable[[Watcher], None]) -> None:
        """Each watcher that still looks, and what it does of it is no time of the script's."""
        for number, watcher in enumerate(self.watchers):
            if number not in self.problems:
                try:
                    what(watcher)
                except FAULTS as fault:
                    self.problems[number] = in_words(fault)
        self._since = _clock()

    def model_called(self, *, begins: bool) -> None:
        """A call of a model that is trained begins, or is over."""
        if self.is_open:
            since = self._since
            self._tells(lambda one: one.model_called(begins=begins))
            self._since = since

    @contextmanager
    def interrupted(self) -> Iterator[float]:
        """What is done meanwhile is the look's own; gives how long the thread ran before, in s, since the operator
        before or the last such interruption.
        """
        before = self._lap() * 1e-9
        try:
            yield before
        finally:
            self._since = _clock()

    def _begin_to_show(self) -> None:
        for number, watcher in enumerate(self.watchers):
            if number not in self.problems:
                watcher.opens()

    def enter_backward(self) -> None:
        """``torch.autograd.backward`` begins, until :meth:`close`."""
        if self.is_open:
            before = self._lap() * 1e-9
            self._tells(lambda one: one.ends_forward(before))
        self.in_backward = True

    def leave_backward(self) -> None:
        """``torch.autograd.backward`` is over; operators may be shown on."""
        if self.is_open:
            self._lap()
        self.in_backward = False

    @property
    def around_s(self) -> float:
        """The thread's time so far that is neither an operator's nor the look's own, in s; up to the last operator."""
        return sum(self._around.values()) * 1e-9

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is done meanwhile is the look's own, and no operators of it are shown."""
        if self.is_open:
            self._lap()
        try:
            with _INNER._DisableTorchDispatch():
                yield
        finally:
            self._since = _clock()

    @property
    def _in_phase_of_backward(self) -> bool:
        return self.in_backward or self.goes_back()

    def _lap(self) -> int:
        """How long the thread ran since it was last asked; it counts where it is no model's beside. In ns."""
        now = _clock()
        ran = 0 if self.beside else max(0, now - self._since)
        self._around[self._in_phase_of_backward] += ran
        self._since = now
        return ran

    def close(self) -> None:
        """Show no more. Modes of the user's that were entered since, and not left yet, stay."""
        if not self.is_open:
            return
        self._lap()
        mode_stack.take_off(self)

    def step_ended(self) -> None:
        """Nothing more is shown, and nothing of ours stays in torch until a collector comes for it."""
        self.close()
        self.hides = self.goes_back = self.updates = bool  # they may know this mode
        self.runs_update = None
        for watcher in self.watchers:
            watcher.step_ended()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if self.hides():
            begins, self._hid = not self._hid, True
            if self.runs_update is not None and self.updates():
                return self.runs_update(func, args, named, begins=begins)
            return func(*args, **named)
        self._shows_again()
        return self.run(func, args, named)

    def goes_on(self) -> None:
        """What ran until now is no time around operators."""
        self._since = _clock()

    def run(self, func: Any, args: Any, named: Any) -> Any:
        """Run an operator, and show it."""
        before = self._lap()
        result = func(*args, **named)
        took = _clock() - self._since
        self.seen += 1
        if self.seen <= _MOST_OPERATORS:
            self._show(getattr(func, "_overloadpacket", func), args, named, result, took, before)
        self._since = _clock()
        return result

    def _show(self, operator: Any, args: Any, named: Any, result: Any, *ran_ns: int) -> None:
        """``ran_ns``: how long the operator took, and what ran before it."""
        try:
            tensors = [*tensors_of(args, *named.values(), result)]
            sparse = any(map(has_parts, tensors))
            whole = all(has_one_memory(one) or (sparse and has_parts(one)) for one in tensors)
            on_cpu = all(one.is_cpu for one in tensors)
            self._on_device = self._on_device or not on_cpu
            if not on_cpu and any(captures(one.device) for one in tensors):
                return
            backward = self.in_backward or in_backward()
            took_s, before_s = (one * 1e-9 for one in ran_ns)
            ran = Ran(
                operator,
                args,
                named,
                result,
                backward,
                took_s if on_cpu else None,
                self.beside,
                before_s,
                phase_is_backward=self._in_phase_of_backward,
            )
            parts = in_parts(ran) if sparse and whole else ran
        except FAULTS as fault:
            self.problem = in_words(fault)
            return
        for number, watcher in enumerate(self.watchers):
            if number in self.problems or (self.beside and not watcher.sees_beside):
                continue
            try:
                if whole and (watcher.sees_parts or not sparse):
                    watcher.see(parts)
                else:
                    watcher.passes_over(ran)
            except FAULTS as fault:
                self.problems[number] = in_words(fault)

    @property
    def why_not(self) -> str:
        """Why there is nothing to tell of what all watchers were shown; empty where there is."""
        if self.seen > _MOST_OPERATORS:
            return f"the step that was looked through has more than {_MOST_OPERATORS:,} operators"
        return self.problem

    def conclude(self) -> tuple[dict[str, Json], dict[str, str]]:
        """Plain values by the names of ``TrialResult.facts``, and why signals are missing, by their names."""
        why = self.why_not
        facts: dict[str, Json] = {}
        gaps: dict[str, str] = {}
        for number, watcher in enumerate(self.watchers):
            try:
                lacking = why or self.problems.get(number, "") or watcher.why_not
                facts |= {} if lacking else watcher.told
            except FAULTS as fault:
                lacking = in_words(fault)
            gaps |= dict.fromkeys(watcher.signals, lacking) if lacking else {}
        if not why and not self._on_device:
            for backward, phase in ((False, "forward"), (True, "backward")):
                facts[f"around_operators_seconds_{phase}"] = self._around[backward] * 1e-9
        return facts, gaps
