"""How long operators of a step would take in another type: tried once the step is over, on tensors of the same shapes.

No table tells that; see :mod:`single_precision` and :mod:`half_precision` for what was seen.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.one_step.operator_lines import backward_node, forward_node
from perf_diagnostics.measure.one_step.watcher import Ran
from perf_diagnostics.records import Json

#: Tensors of how many bytes are made for a call at most, and how many kinds of calls are kept.
_MOST_BYTES, _MOST_KINDS = 1 << 28, 4_000

#: Each kind of call runs so often in each type: once to warm up, then the less counts.
_TRIES = 3

#: So many frames above the operator's own an LSTM's is looked for.
_NEAR = 9

#: An operator with one of these is not run again: it would draw random numbers, or depend on the values.
_NEVER = frozenset(
    getattr(torch.Tag, name)
    for name in ("nondeterministic_seeded", "dynamic_output_shape", "data_dependent_output")
    if hasattr(torch.Tag, name)
)

#: But this one, whose dropout is 0 on the CPU.
_FLASH = "_scaled_dot_product_flash_attention_for_cpu"
_DRAWS_NOTHING = frozenset((_FLASH,))

#: Places of arguments that are float32 whatever type the others have: the logarithms of attention's sums.
_STAYS = {f"{_FLASH}_backward": 5}

#: Torch's own operators compute and do nothing else; others may write, count, or meet other processes (c10d), which
#: would then wait for ever.
_OWN = "aten."

#: By type the one that it is tried in.
Other = Mapping[torch.dtype, torch.dtype]

_Run = Callable[[], object]


class Like(NamedTuple):
    """A tensor as it can be made again, with other numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def make(self, other: Other) -> torch.Tensor:
        """Numbers of 0.5, or zeros, which are places in any tensor; in the ``other`` type, if there is one."""
        numbers = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        dtype = other.get(self.dtype, self.dtype)
        value = 0.5 if dtype.is_floating_point or dtype.is_complex else 0
        return torch.full((numbers,), value, dtype=dtype).as_strided(self.shape, self.stride)

    @property
    def bytes(self) -> int:
        size = self.dtype.itemsize
        for one, stride in zip(self.shape, self.stride, strict=True):
            size *= one if stride else 1
        return size


class Layer(NamedTuple):
    """An LSTM, whose kernel may be another one than that of its operators: what it takes to make it again."""

    options: tuple[tuple[str, Any], ...]
    shape: tuple[int, ...]
    dtype: torch.dtype


#: An operator, and what it is given by place and by name, of tensors only how they lie.
Kind = tuple[Any, Any, Any] | Layer


class Tried(NamedTuple):
    """A call as it was, the same in the other type, and the casts of all that it is given into that."""

    before: _Run
    other: _Run
    casts: _Run


class Left(NamedTuple):
    """What of a call's time the other type takes, and the casts: 1 is as long as it took in the step."""

    other: float
    casts: float


class TriedAgain:
    """Calls of a step by their kind, each of which is tried in another type when it is over.

    Args:
        other: by type the one to try.
        budget_s: what trying may take in all, in s of the thread.
    """

    def __init__(self, other: Other, budget_s: float) -> None:
        self._other = other
        self._budget_s = budget_s
        #: Seconds in forward and in backward, and calls, by kind of call.
        self._seconds: dict[bool, defaultdict[Kind, float]] = {False: defaultdict(float), True: defaultdict(float)}
        self._calls: Counter[Kind] = Counter()
        #: Seconds of a call with numbers of 0.5, by kind.
        self._again: dict[Kind, float | None] = {}
        #: The LSTM of a node of autograd's graph, and what is known of the one that runs.
        self._layers: dict[int, Layer] = {}

    def kind_of(self, ran: Ran) -> Kind:
        """What calls that are tried as one have in common."""
        layer = self._layer(ran)
        if layer is not None:
            return layer
        return ran.operator, _like(tuple(ran.args)), _like(tuple(sorted(ran.named.items())))

    def again_s(self, kind: Kind) -> float | None:
        """What one such call takes with numbers of 0.5 (of an LSTM's layer forward and backward), in s of the thread;
        None where it must not or cannot run again, and where trying others has taken the budget.
        """
        if kind not in self._again:
            self._again[kind] = None
            began = time.thread_time()
            if self._budget_s > 0:
                with contextlib.suppress(*FAULTS):  # what these values do not suit
                    tried = self._layer_tried(kind) if isinstance(kind, Layer) else self._tried(kind)
                    if tried is not None:
                        with torch.no_grad():
                            self._again[kind] = _quickest_s(tried.before, began + self._budget_s)
            self._budget_s -= time.thread_time() - began
        return self._again[kind]

    def add(self, ran: Ran) -> None:
        """A call on the CPU."""
        kind = self.kind_of(ran)
        if kind in self._calls or len(self._calls) < _MOST_KINDS:
            self._calls[kind] += 1
            self._seconds[ran.times_backward][kind] += ran.seconds or 0.0

    def told(self, name: str) -> dict[str, Json]:
        """Seconds of all calls in ``forward`` and ``backward``, of those that were ``tried_…``, of what these would
        take in the other type (``name_…``), and of all casts to it (``casts_…``).
        """
        told: dict[str, Json] = {}
        parts = self._parts()
        for backward, phase in ((False, "forward"), (True, "backward")):
            counted = self._seconds[backward]
            told[phase] = sum(counted.values())
            told[f"tried_{phase}"] = sum(counted[kind] for kind in parts)
            told[f"{name}_{phase}"] = sum(counted[kind] * left.other for kind, left in parts.items())
            told[f"casts_{phase}"] = sum(counted[kind] * left.casts for kind, left in parts.items())
        return told

    def _layer(self, ran: Ran) -> Layer | None:
        """The LSTM that asks for an operator, or in backward asked for the one that it belongs to."""
        if ran.in_backward:
            node = backward_node()
            return None if node is None else self._layers.get(node)
        frame = sys._getframe(1)
        for _ in range(_NEAR):
            if frame.f_back is None:
                return None
            if frame.f_code is torch.nn.LSTM.forward.__code__:
                layer = layer_of(frame.f_locals)
                self._layers[forward_node()] = layer
                return layer
            frame = frame.f_back
        return None

    def _parts(self) -> dict[Kind, Left]:
        """What each kind of call takes in the other type over what it took, those of the most time first."""
        both = {kind: sum(counted[kind] for counted in self._seconds.values()) for kind in self._calls}
        parts: dict[Kind, Left] = {}
        began = time.thread_time()
        for kind, seconds in sorted(both.items(), key=lambda one: -one[1]):
            once = seconds if isinstance(kind, Layer) else seconds / self._calls[kind]
            if time.thread_time() - began + 1.5 * _TRIES * once > self._budget_s:
                continue
            try:
                tried = self._layer_tried(kind) if isinstance(kind, Layer) else self._tried(kind)
                if tried is not None:
                    with torch.no_grad():
                        parts[kind] = left_of(tried, once)
            except FAULTS:  # what these values do not suit, or is not there in the other type
                continue
        return parts

    def _tried(self, kind: tuple[Any, Any, Any]) -> Tried | None:
        """An operator's call, in both types; None where it must not run again."""
        operator, args, named = kind
        name = str(operator)
        if not name.startswith(_OWN):
            return None
        name = name.removeprefix(_OWN)
        tags = {tag for overload in operator.overloads() for tag in getattr(operator, overload).tags}
        if (tags & _NEVER and name not in _DRAWS_NOTHING) or 2 * _bytes(args) + 2 * _bytes(named) > _MOST_BYTES:
            return None

        def run(other: Other) -> _Run:
            given, by_name = _made(args, other), dict(_made(named, other))
            stays = _STAYS.get(name)
            if stays is not None and getattr(args[stays], "dtype", None) is torch.float32:
                given[stays] = _made(args[stays], {})
            return lambda: operator(*given, **by_name)

        given = [one for one in _likes((args, named)) if one.dtype in self._other]
        return Tried(run({}), run(self._other), _casts([one.make({}) for one in given], self._other))

    def _layer_tried(self, layer: Layer) -> Tried:
        """An LSTM's forward and backward, in both types; nobody else's random numbers change."""

        def run(dtype: torch.dtype) -> tuple[_Run, list[torch.Tensor]]:
            with torch.random.fork_rng(devices=()):
                lstm = torch.nn.LSTM(**dict(layer.options), dtype=dtype)
            given = torch.full(layer.shape, 0.5, dtype=dtype)
            parameters = [*lstm.parameters()]

            def once() -> object:
                with torch.enable_grad():
                    return torch.autograd.grad(lstm(given)[0].sum(), parameters)

            return once, [given, *(one.detach() for one in parameters)]

        before, tensors = run(layer.dtype)
        return Tried(before, run(self._other.get(layer.dtype, layer.dtype))[0], _casts(tensors, self._other))


def _quickest_s(run: _Run, until_s: float) -> float:
    """Seconds of the thread that the quickest of some tries takes: of the first where it outlasts that time."""
    took: list[float] = []
    while not took or (len(took) < _TRIES and time.thread_time() < until_s):
        began = time.thread_time_ns()
        run()
        took.append((time.thread_time_ns() - began) * 1e-9)
    return min(took)


def left_of(tried: Tried, once_s: float) -> Left:
    """What is left of a call's time: of that in the step, where trying it takes longer by the call."""
    took: defaultdict[int, list[int]] = defaultdict(list)
    for _ in range(_TRIES):
        for place, run in enumerate(tried):
            began = time.thread_time_ns()
            run()
            took[place].append(time.thread_time_ns() - began)
    before_s, other_s, casts_s = (min(took[place]) * 1e-9 for place in range(len(tried)))
    whole_s = max(1e-9, min(once_s, before_s))
    return Left(min(1.5, max(0.05, 1 - (before_s - other_s) / whole_s)), min(1.5, casts_s / whole_s))


def layer_of(known: Mapping[str, Any]) -> Layer:
    """By what the frame of an LSTM's forward knows."""
    lstm, given, sizes = known["self"], known["input"], known.get("batch_sizes")
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional", "proj_size")
    options = {name: getattr(lstm, name) for name in names}
    shape = tuple(given.shape)
    if sizes is not None:  # packed: the rows of all sequences, one after the other
        most = max(1, int(sizes[0]))
        shape, options["batch_first"] = (max(1, shape[0] // most), most, shape[-1]), False
    return Layer(tuple(options.items()), shape, given.dtype)


def _casts(tensors: list[torch.Tensor], other: Other) -> _Run:
    return lambda: [one.to(other.get(one.dtype, one.dtype)) for one in tensors]


def _like(given: Any) -> Any:
    """Arguments without their tensors, so that equal ones can be told."""
    if isinstance(given, torch.Tensor):
        return Like(tuple(given.shape), tuple(given.stride()), given.dtype)
    if isinstance(given, list | tuple):
        return tuple(map(_like, given))
    return given


def _likes(given: Any) -> Iterator[Like]:
    """The tensors among arguments without them."""
    if isinstance(given, Like):
        yield given
    elif isinstance(given, tuple):
        for one in given:
            yield from _likes(one)


def _made(given: Any, other: Other) -> Any:
    if isinstance(given, Like):
        return given.make(other)
    if isinstance(given, tuple):
        return [_made(one, other) for one in given]
    return other.get(given, given) if isinstance(given, torch.dtype) else given


def _bytes(given: Any) -> int:
    return sum(one.bytes for one in _likes(given))
