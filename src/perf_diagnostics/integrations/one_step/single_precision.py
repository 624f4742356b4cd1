"""How long the operators of a step in float64 would take in float32: tried afterwards, on tensors of the same shapes.

No table tells that. On one core (torch 2.13) float32 was 0.9 (max_pool2d) to 5.6 times (a depthwise convolution) as
fast: products and sums are twice as fast, GELU, which has no kernel for float64, four times, and convolutions and an
LSTM, for which float32 has kernels of oneDNN, two to five times.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch

from perf_diagnostics.integrations.one_step.operator_lines import OperatorLines, backward_node, forward_node
from perf_diagnostics.integrations.one_step.watcher import ON_A_DEVICE, Ran, Watcher
from perf_diagnostics.integrations.shield import FAULTS
from perf_diagnostics.records import Json

SIGNAL = "float64_operators"

#: What trying may take in all, in s of the thread, and of how many bytes and kinds of calls.
_BUDGET_S, _MOST_BYTES, _MOST_KINDS = 0.8, 1 << 28, 4_000

#: Each kind of call runs so often in each type: once to warm up, then the less counts.
_TRIES = 3

#: So many frames above the operator's own an LSTM's is looked for.
_NEAR = 8

_HALVED = {torch.float64: torch.float32, torch.complex128: torch.complex64}

#: An operator with one of these is not run again: it would draw random numbers, or depend on the values.
_NEVER = frozenset(
    getattr(torch.Tag, name)
    for name in ("nondeterministic_seeded", "dynamic_output_shape", "data_dependent_output")
    if hasattr(torch.Tag, name)
)


#: Torch's own operators compute and do nothing else; others may write, count, or meet other processes (c10d), which
#: would then wait for ever.
_OWN = "aten."


class _Like(NamedTuple):
    """A tensor as it can be made again, with other numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def make(self, *, single: bool) -> torch.Tensor:
        """Numbers of 0.5, or zeros, which are places in any tensor."""
        numbers = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        dtype = _HALVED.get(self.dtype, self.dtype) if single else self.dtype
        value = 0.5 if dtype.is_floating_point or dtype.is_complex else 0
        return torch.full((numbers,), value, dtype=dtype).as_strided(self.shape, self.stride)

    @property
    def bytes(self) -> int:
        size = self.dtype.itemsize
        for one, stride in zip(self.shape, self.stride, strict=True):
            size *= one if stride else 1
        return size


class _Layer(NamedTuple):
    """An LSTM, whose float32 kernel is another one than that of its operators: what it takes to make it again."""

    options: tuple[tuple[str, Any], ...]
    shape: tuple[int, ...]


_Kind = tuple[Any, Any, Any] | _Layer


class SinglePrecision(Watcher):
    """Notes what runs in float64 on the CPU, and tries it in float32 when the step is over.

    Args:
        lines: names the line that leads to the first of them.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, lines: OperatorLines) -> None:
        self._lines = lines
        self._place: dict[str, Json] | None = None
        #: Seconds in forward and in backward, and calls, by kind of call.
        self._seconds: dict[bool, defaultdict[_Kind, float]] = {False: defaultdict(float), True: defaultdict(float)}
        self._calls: Counter[_Kind] = Counter()
        #: The LSTM of a node of autograd's graph, and what is known of the one that runs.
        self._layers: dict[int, _Layer] = {}
        self._on_device = False

    def see(self, ran: Ran) -> None:
        if ran.seconds is None:
            self._on_device = True
            return
        if not any(one.dtype in _HALVED for one in ran.given()):
            return
        if self._place is None and not ran.in_backward:
            self._place = self._lines.line()[1]
        kind: _Kind | None = self._layer(ran)
        if kind is None:
            kind = (ran.operator, _like(tuple(ran.args)), _like(tuple(sorted(ran.named.items()))))
        if kind in self._calls or len(self._calls) < _MOST_KINDS:
            self._calls[kind] += 1
            self._seconds[ran.in_backward][kind] += ran.seconds

    def _layer(self, ran: Ran) -> _Layer | None:
        """The LSTM that asks for an operator, or in backward asked for the one that it belongs to."""
        if ran.in_backward:
            node = backward_node()
            return None if node is None else self._layers.get(node)
        frame = sys._getframe(1)
        for _ in range(_NEAR):
            if frame.f_back is None:
                return None
            if frame.f_code is torch.nn.LSTM.forward.__code__:
                layer = _layer_of(frame.f_locals)
                self._layers[forward_node()] = layer
                return layer
            frame = frame.f_back
        return None

    @property
    def why_not(self) -> str:
        return ON_A_DEVICE if self._on_device else ""

    @property
    def told(self) -> dict[str, Json]:
        """By ``SIGNAL``, where there are any: seconds of the step's operators in float64, ``forward`` and ``backward``;
        of these what was ``tried_…`` and what that would take in float32, ``single_…``; and the first one's line.
        """
        all_s = {backward: sum(counted.values()) for backward, counted in self._seconds.items()}
        if not sum(all_s.values()):
            return {}
        tried, single = {False: 0.0, True: 0.0}, {False: 0.0, True: 0.0}
        for kind, part in self._parts().items():
            for backward, counted in self._seconds.items():
                tried[backward] += counted[kind]
                single[backward] += counted[kind] * part
        told: dict[str, Json] = {**(self._place or {})}
        for backward, phase in ((False, "forward"), (True, "backward")):
            told[phase] = all_s[backward]
            told[f"tried_{phase}"], told[f"single_{phase}"] = tried[backward], single[backward]
        return {SIGNAL: told}

    def _parts(self) -> dict[_Kind, float]:
        """What each kind of call takes in float32 over what it takes in float64, those of the most time first."""
        both = {kind: sum(counted[kind] for counted in self._seconds.values()) for kind in self._calls}
        parts: dict[_Kind, float] = {}
        began = time.thread_time()
        for kind, seconds in sorted(both.items(), key=lambda one: -one[1]):
            once = seconds if isinstance(kind, _Layer) else seconds / self._calls[kind]
            if time.thread_time() - began + 1.5 * _TRIES * once > _BUDGET_S:
                continue
            try:
                runs = _layer_runs(kind) if isinstance(kind, _Layer) else _runs(kind)
                if runs is not None:
                    with torch.no_grad():
                        parts[kind] = _part(*runs, once)
            except FAULTS:  # what these values do not suit, or has no float32
                continue
        return parts


def _part(double: Callable[[], object], single: Callable[[], object], once_s: float) -> float:
    """What of a call's time is left in float32: of its time in the step, where trying it takes longer by the call."""
    took: dict[bool, list[int]] = {False: [], True: []}
    for _ in range(_TRIES):
        for is_single, run in ((False, double), (True, single)):
            began = time.thread_time_ns()
            run()
            took[is_single].append(time.thread_time_ns() - began)
    took_s, single_s = min(took[False]) * 1e-9, min(took[True]) * 1e-9
    return min(1.5, max(0.05, 1 - (took_s - single_s) / max(1e-9, min(once_s, took_s))))


def _runs(kind: tuple[Any, Any, Any]) -> tuple[Callable[[], object], Callable[[], object]] | None:
    """An operator's call, in float64 and in float32; None where it must not run again."""
    operator, args, named = kind
    if not str(operator).startswith(_OWN):
        return None
    tags = {tag for name in operator.overloads() for tag in getattr(operator, name).tags}
    if tags & _NEVER or 2 * _bytes(args) + 2 * _bytes(named) > _MOST_BYTES:
        return None

    def run(*, single: bool) -> Callable[[], object]:
        given, by_name = _made(args, single=single), dict(_made(named, single=single))

        return lambda: operator(*given, **by_name)

    return run(single=False), run(single=True)


def _layer_runs(layer: _Layer) -> tuple[Callable[[], object], Callable[[], object]]:
    """An LSTM's forward and backward, in float64 and in float32; nobody else's random numbers change."""

    def run(dtype: torch.dtype) -> Callable[[], object]:
        with torch.random.fork_rng(devices=()):
            lstm = torch.nn.LSTM(**dict(layer.options), dtype=dtype)
        given = torch.full(layer.shape, 0.5, dtype=dtype)
        parameters = [*lstm.parameters()]

        def once() -> object:
            with torch.enable_grad():
                return torch.autograd.grad(lstm(given)[0].sum(), parameters)

        return once

    return run(torch.float64), run(torch.float32)


def _layer_of(known: dict[str, Any]) -> _Layer:
    lstm, given, sizes = known["self"], known["input"], known.get("batch_sizes")
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional", "proj_size")
    options = {name: getattr(lstm, name) for name in names}
    shape = tuple(given.shape)
    if sizes is not None:  # packed: the rows of all sequences, one after the other
        most = max(1, int(sizes[0]))
        shape, options["batch_first"] = (max(1, shape[0] // most), most, shape[-1]), False
    return _Layer(tuple(options.items()), shape)


def _like(given: Any) -> Any:
    """Arguments without their tensors, so that equal ones can be told."""
    if isinstance(given, torch.Tensor):
        return _Like(tuple(given.shape), tuple(given.stride()), given.dtype)
    if isinstance(given, list | tuple):
        return tuple(map(_like, given))
    return given


def _made(given: Any, *, single: bool) -> Any:
    if isinstance(given, _Like):
        return given.make(single=single)
    if isinstance(given, tuple):
        return [_made(one, single=single) for one in given]
    return _HALVED.get(given, given) if single and isinstance(given, torch.dtype) else given


def _bytes(given: Any) -> int:
    if isinstance(given, _Like):
        return given.bytes
    return sum(map(_bytes, given)) if isinstance(given, tuple) else 0
