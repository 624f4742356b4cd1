"""Functions that a step computes operator by operator, though torch has them in one: GELU, a layer's norm, softmax.

By its operators alone that is not known. A few rows of what operators make are kept for a while, and what comes out has
to be what torch's own function makes of what went in, number by number.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.known_functions import (
    ENDS,
    LEAST_ROWS,
    KnownFunction,
    candidates,
    group_norm,
    tells_enough,
)
from perf_diagnostics.measure.one_step.operator_graph import (
    Operation,
    OperatorGraph,
    is_pointwise,
    made_for,
    through_views,
)
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, aten
from perf_diagnostics.records import Json

SIGNAL = "written_out_functions"

#: Fewer numbers take too little time for anybody to mind.
_LEAST_NUMBERS = 1 << 13

#: Rows of so many numbers in all are kept, of so many operators; of long ones fewer, as many as tell a norm.
_SAMPLED_NUMBERS, _MOST_SAMPLED, _MOST_ROWS, _KEPT = 1 << 12, 1 << 17, 16, 48

#: What comparing may take in all, in s of the thread.
_BUDGET_S = 0.5

#: So many operators and views write a function out at most, and so many operators at least.
_MOST_ABOVE, _LEAST_ABOVE = 24, 2

#: What adds up over a dimension on the way.
_SUMS = aten(
    *("mean", "sum", "var", "std", "var_mean", "std_mean", "amax", "max", "logsumexp"),
    *("linalg_vector_norm", "norm", "_softmax"),
)

#: What is given a tensor for its shape only.
_READ_NO_NUMBER = aten(
    *("full_like", "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like"),
    *("new_zeros", "new_ones", "new_full", "new_empty"),
)

_SINGLE = (torch.float32, torch.float64)


class _Sample(NamedTuple):
    """The first rows of what an operation made."""

    shape: torch.Size
    dtype: torch.dtype
    rows: torch.Tensor

    def alike(self, other: _Sample) -> bool:
        """Whether one may be the other, seen in another shape: of as many numbers, and as many in a row."""
        return self.shape.numel() == other.shape.numel() and self.shape[-1] == other.shape[-1]


class _Written:
    """What one line writes out, perhaps in each of many layers."""

    def __init__(self, told: dict[str, Json], function: KnownFunction, sample: _Sample) -> None:
        self.told, self.function = told, function
        self.shape, self.dtype = sample.shape, sample.dtype
        #: By the last operation the others.
        self.chains: dict[Operation, list[Operation]] = {}


class WrittenOut(GraphWatcher):
    """Looks for operators, one after the other, that make what one function of torch makes.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._samples: OrderedDict[Operation, _Sample] = OrderedDict()
        self._found: dict[Any, _Written] = {}
        #: By its last operation the one that was found, as long as it is no part of a larger one.
        self._by_last: dict[Operation, _Written] = {}
        self._on_device = False
        self._left_s = _BUDGET_S

    def opens(self) -> None:
        self._samples.clear()

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        self._on_device = self._on_device or ran.seconds is None
        made = ran.result
        if not isinstance(made, torch.Tensor) or made.dtype not in _SINGLE or made.numel() < _LEAST_NUMBERS:
            return
        if operation.is_view and not self._has_other_rows(operation, made.shape):
            return
        sample = _Sample(made.shape, made.dtype, _rows(made))
        self._samples[operation] = sample
        if len(self._samples) > _KEPT:
            self._samples.popitem(last=False)
        name = _name(operation)
        if name in ENDS and self._left_s > 0 and not operation.is_view:
            began = time.thread_time()
            with torch.no_grad():
                self._ends(
                    operation,
                    name,
                    sample,
                    by_row_or_column=any(_is_of_row_or_column(one, made) for one in ran.given()),
                )
            self._left_s -= time.thread_time() - began

    def _has_other_rows(self, view: Operation, shape: torch.Size) -> bool:
        """Whether a view's rows are others than those of what it views, of which some are kept."""
        base = self._samples.get(through_views(view))
        return base is not None and base.shape[-1] != shape[-1]

    def _ends(self, last: Operation, name: str, sample: _Sample, *, by_row_or_column: bool) -> None:
        above = _above(last)
        names = {_name(one) for one in above if _goes_on(one) and not one.is_view}
        possible = [one for one in candidates(names, name) if by_row_or_column or not one.weights]
        if not possible:
            return
        known = [(one, self._samples.get(one)) for one in above]
        origins = [
            (one, given.rows, _between(last, one)) for one, given in known if given is not None and given.alike(sample)
        ]
        origins = [one for one in origins if len(one[2]) >= _LEAST_ABOVE and self._holds_whole(one[2])]
        if not origins or not tells_enough(sample.rows):
            return
        # Where less of it makes the same, that with most between: what is normed may be centred before.
        longest = sorted(origins, key=lambda one: -len(one[2]))
        for function in possible:
            for origin, rows, chain in longest if function.shifts else origins:
                both = min(len(rows), len(sample.rows))
                if function.makes(rows[:both], sample.rows[:both]):
                    called, shape = self._as_called(function, origin, sample.shape)
                    self._add(last, chain, called, _Sample(shape, sample.dtype, sample.rows))
                    return

    def _as_called(
        self, function: KnownFunction, origin: Operation, shape: torch.Size
    ) -> tuple[KnownFunction, torch.Size]:
        """What is called instead, on which shape; a norm over groups of an image's channels has one of its own."""
        images = self._samples.get(through_views(origin)) if origin.is_view else None
        if images is None or not function.shifts or not function.weights or len(shape) != 3:
            return function, shape
        whole = images.shape
        if len(whole) != 4 or whole[0] != shape[0] or whole[1] % shape[1]:
            return function, shape
        return group_norm(shape[1]), whole

    def _holds_whole(self, chain: Sequence[Operation]) -> bool:
        """Whether each function that was found in a chain lies in it as a whole, as a sigmoid does in SiLU."""
        parts = ((one, self._by_last[one]) for one in chain if one in self._by_last)
        return all(inner in chain for one, part in parts for inner in part.chains[one])

    def _add(self, last: Operation, chain: list[Operation], function: KnownFunction, sample: _Sample) -> None:
        for one in chain:
            part = self._by_last.pop(one, None)
            if part is not None:
                del part.chains[one]
        line, told = self._lines.line()
        written = self._found.setdefault((line, function.call, sample.shape), _Written(told, function, sample))
        written.chains[last] = chain
        self._by_last[last] = written

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line: how the function is called (``call``), in how many ``operators`` it is written out, on which
        ``shape``, how often (``calls``), and of all operators' time the share of these, of which nothing else makes
        use, and what the one function took, tried here (``instead``; None where it was not tried).
        """
        for written in self._found.values():
            if not written.chains:
                continue
            function = written.function
            operations = [one for last, chain in written.chains.items() for one in _alone(last, chain)]
            calls, takes = len(written.chains), sum(one.seconds for one in operations)
            reached = any(one.reached for one in operations)
            each = None
            if not self._on_device:
                each = function.seconds(written.shape, written.dtype, takes=takes / calls, backward=reached)
            yield {
                **written.told,
                "call": function.call,
                "operators": sum(not one.is_view for one in operations) / calls,
                "shape": [int(size) for size in written.shape],
                "calls": calls,
                "instead": None if each is None else each * calls / self._graph.seconds,
                **self._graph.share(operations),
            }


def _alone(last: Operation, chain: Sequence[Operation]) -> list[Operation]:
    """The operations of these that nothing else makes use of."""
    inside = {*chain}
    return [last, *made_for([last], lambda one: one in inside, reads=lambda one: one.operator not in _READ_NO_NUMBER)]


def _is_of_row_or_column(tensor: torch.Tensor, made: torch.Tensor) -> bool:
    """Whether a tensor has one number for each row, or for each column, of what was made: a norm ends with such."""
    return tensor.dim() > 0 and (tensor.shape[-1] == 1 or tensor.shape == made.shape[-1:])


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """The first rows of a tensor's last dimension, copied, shape (rows, numbers); a single row of one dimension."""
    flat = tensor.detach()
    in_order = flat.is_contiguous() or flat.dim() < 2
    # Else the first of them in the same order, as far as they lie in one matrix.
    flat = flat.reshape(-1, flat.shape[-1]) if in_order else flat[(0,) * (flat.dim() - 2)]
    numbers = max(1, flat.shape[-1])
    rows = min(_MOST_ROWS, max(_SAMPLED_NUMBERS // numbers, LEAST_ROWS if LEAST_ROWS * numbers <= _MOST_SAMPLED else 1))
    return flat[:rows].clone()


def _name(operation: Operation) -> str:
    """The operator's, whether it writes in place or not."""
    name = str(getattr(operation.operator, "__name__", ""))
    return name.rstrip("_") or name


def _goes_on(operation: Operation) -> bool:
    """Whether it may be a part of what writes a function out."""
    return operation.operator in _SUMS or is_pointwise(operation.operator)


def _above(last: Operation) -> list[Operation]:
    """What an operation is made of, the nearest first, views included; above what may be no part of it nothing."""
    found: list[Operation] = []
    left, seen = [last], {last}
    while left and len(found) < _MOST_ABOVE:
        for above in left.pop(0).inputs:
            if above not in seen:
                seen.add(above)
                found.append(above)
                left += [above] if above.is_view or _goes_on(above) else []
    return found


def _between(last: Operation, origin: Operation) -> list[Operation]:
    """What lies between an operation and what it is made of, itself included and views left out."""
    found, left, seen = [last], [last], {last, origin}
    while left:
        for above in left.pop().inputs:
            if above not in seen and (above.is_view or _goes_on(above)):
                seen.add(above)
                found += [] if above.is_view else [above]
                left.append(above)
    return found
