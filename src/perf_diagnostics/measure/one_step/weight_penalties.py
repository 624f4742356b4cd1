"""Where a step has autograd work out the gradient of a penalty on the weights themselves, which is known beforehand.

The gradient of ``c * sum(p.pow(2).sum() for p in model.parameters())`` is ``2 * c * p``. Autograd writes the squares,
and for each weight three more numbers in backward; ``weight_decay`` of an optimizer adds it to the gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph, through_views
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, aten, memory, tensors_of
from perf_diagnostics.records import Json

SIGNAL = "weight_penalties"

#: What a penalty is of: of the weights, or of how far they are from something that is not trained.
SQUARES, DISTANCES, ABSOLUTE, NORMS = "squares", "distances", "absolute", "norms"

_WEIGHTS, _DIFFERENCES, _SUM_OF_NORMS, _OTHER = "weights", "differences", "sum of norms", "other"

_POWERS, _ABS, _PRODUCTS, _DIFFERENCE = aten("pow", "square"), aten("abs"), aten("mul", "mul_"), aten("sub", "rsub")
_SUMS, _NORM, _DOTS, _MSE = aten("sum", "mean"), aten("linalg_vector_norm", "norm"), aten("dot"), aten("mse_loss")
_COPIES, _ZEROS = aten("_to_copy", "clone", "cat", "stack"), aten("zeros", "zeros_like", "new_zeros")

_DIVISIONS = aten("div", "div_")

#: torch's number for a reduction to the mean.
_MEAN = 1

#: With what a number stays the same number of others, but for constants.
_LINEAR = _COPIES | _SUMS | _PRODUCTS | _DIVISIONS | aten("add", "add_", "sub", "sub_", "rsub", "neg")

#: A penalty is added to the loss, or to the losses of a batch's rows: to no more numbers than so many.
_FEW = 1 << 12


#: Where a tensor lies: its memory, and how far into it.
_At = tuple[int, int]


class _Numbers(NamedTuple):
    """A tensor that is made of weights number by number: of what kind it is, of which, and by which operations."""

    kind: str
    #: By where the weights lie how many they are.
    weights: dict[_At, int]
    operations: tuple[Operation, ...] = ()
    averaged: bool = False


class _Site:
    """What one line adds up."""

    def __init__(self, told: dict[str, Json]) -> None:
        self.told = told
        self.weights: dict[_At, int] = {}
        self.operations: list[Operation] = []
        self.sums: list[Operation] = []
        self.averaged = False


class WeightPenalties(GraphWatcher):
    """Looks for sums of all squares or absolute values of a parameter, which go into nothing but the loss.

    Args:
        graph: is shown each operator before.
        trained: the parameters that are trained.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, trained: Iterable[torch.Tensor], lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._sizes = {_at(one): one.numel() for one in trained}
        self._found: dict[Any, _Site] = {}
        self._numbers: dict[Operation, _Numbers] = {}
        #: By an operation of few numbers what it makes of the sums of each line.
        self._sums: dict[Operation, dict[_Site, str]] = {}

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        result = ran.result
        if operation.is_view or not isinstance(result, torch.Tensor) or not torch.is_grad_enabled():
            return
        given = [one for one in ran.given() if one.requires_grad]
        sums: dict[_Site, str] = {}
        for one in operation.inputs:
            for site, kind in self._sums.get(through_views(one), {}).items():
                sums[site] = _together(kind, sums.get(site, kind))
        if sums:
            self._goes_on(operation, ran, given, sums)
        elif given and (numbers := self._made_of(ran, given, result)) is not None:
            numbers = numbers._replace(operations=(*numbers.operations, operation))
            if result.numel() > 1 or numbers.kind in (_WEIGHTS, _DIFFERENCES):
                self._numbers[operation] = numbers
            else:
                self._adds_up(operation, numbers)

    def _of(self, tensor: torch.Tensor) -> _Numbers | None:
        """What is known of an operand: a parameter as it is, or what was made of some."""
        at, maker = _at(tensor), self._graph.maker(tensor)
        if self._sizes.get(at) == tensor.numel():
            return _Numbers(_WEIGHTS, {at: tensor.numel()})
        made = None if maker is None else through_views(maker)
        return self._numbers.get(made) if made is not None and tensor.numel() == made.numel else None

    def _made_of(self, ran: Ran, given: Sequence[torch.Tensor], result: torch.Tensor) -> _Numbers | None:
        """What an operator makes of weights; None: of others as well, or something else."""
        each = [self._of(one) for one in given]
        known = [one for one in each if one is not None]
        if not known or len(known) < len(each):
            return None
        operator, first, numel = ran.operator, known[0], given[0].numel()
        if operator in _COPIES:
            if any(one.kind != _WEIGHTS for one in known):
                return first if len(known) == 1 else None
            weights = {at: size for one in known for at, size in one.weights.items()}
            return _Numbers(_WEIGHTS, weights, tuple(made for one in known for made in one.operations))
        if not _is_same(given) or (result.numel() not in (1, numel) and operator not in _SUMS):
            return None
        kind = _kind(ran, first.kind, twice=len(given) == 2)
        if operator in _MSE and kind == DISTANCES and self._is_zeros([*tensors_of(*ran.args)]):
            kind = SQUARES
        if kind is None or (operator in _NORM and result.numel() > 1):
            return None
        averaged = operator.__name__ == "mean" or (operator in _MSE and ran.args[2:] in ((), (_MEAN,)))
        return first._replace(kind=kind, averaged=first.averaged or averaged)

    def _is_zeros(self, given: Sequence[torch.Tensor]) -> bool:
        makers = [self._graph.maker(one) for one in given if not one.requires_grad]
        return all(one is not None and through_views(one).operator in _ZEROS for one in makers)

    def _adds_up(self, operation: Operation, numbers: _Numbers) -> None:
        key, told = self._lines.line()
        if key is None:
            return
        site = self._found.setdefault(key, _Site(told))
        site.weights |= numbers.weights
        site.operations += numbers.operations
        site.sums.append(operation)
        site.averaged |= numbers.averaged
        self._sums[operation] = {site: numbers.kind}

    def _goes_on(self, operation: Operation, ran: Ran, given: Sequence[torch.Tensor], sums: dict[_Site, str]) -> None:
        of_sums = [one for one in given if (made := self._graph.maker(one)) and through_views(made) in self._sums]
        self._sums[operation] = {site: _onward(kind, ran, given) for site, kind in sums.items()}
        if len(sums) == 1 and len(of_sums) == len(given):  # nothing but the penalty
            next(iter(sums)).operations.append(operation)

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line of which the sums go into the loss as they are, times a constant: of what ``kind`` they are
        (``squares``, ``distances``, ``absolute`` or ``norms``), of how many ``weights`` in so many ``tensors``, whether
        they are ``averaged``, how often (``calls``), and of all operators' time the share that is for them. What
        adding their gradients to the others' takes is not in it: that stays.
        """
        ends: dict[_Site, set[str]] = {}
        for operation, sums in self._sums.items():
            if not any(through_views(one) in self._sums for one in _below(operation)):
                for site, kind in sums.items():
                    ends.setdefault(site, set()).add(NORMS if kind == _SUM_OF_NORMS else kind)
        for site in self._found.values():
            kinds = ends.get(site, set())
            if len(kinds) != 1 or _OTHER in kinds or not any(one.reached for one in site.operations):
                continue
            if any(one.numel > _FEW for made in site.sums for one in _below(made)):
                continue
            yield {
                **site.told,
                "kind": kinds.pop(),
                "weights": sum(site.weights.values()),
                "tensors": len(site.weights),
                "averaged": site.averaged,
                "calls": len(site.sums),
                **self._graph.share(site.operations),
            }


def _kind(ran: Ran, kind: str, *, twice: bool) -> str | None:
    """What becomes of numbers of a kind, which are given once or ``twice``; None: nothing that is told."""
    operator, args = ran.operator, ran.args
    squared = {_WEIGHTS: SQUARES, _DIFFERENCES: DISTANCES}.get(kind)
    if operator in _POWERS:
        return squared if len(args) < 2 or args[1] == 2 else None
    if twice:
        return squared if operator in _PRODUCTS | _DOTS else None
    if operator in _PRODUCTS or operator in _DIVISIONS:
        # What each number is multiplied with makes another penalty of it, but for one that no option gives anyhow.
        single = all(one.numel() == 1 for one in tensors_of(*args) if not one.requires_grad)
        return kind if single or kind == DISTANCES else None
    if operator in _DIFFERENCE:
        return _DIFFERENCES if kind == _WEIGHTS and len([*tensors_of(*args)]) == 2 else None
    if operator in _MSE:
        return DISTANCES if kind == _WEIGHTS else None
    if operator in _ABS:
        return ABSOLUTE if kind == _WEIGHTS else None
    if operator in _NORM:
        power = args[1] if len(args) > 1 else 2
        norms = ABSOLUTE if power == 1 else NORMS if power in (2, None) else None
        return norms if kind == _WEIGHTS else None
    if operator in _SUMS:
        return kind if squared is None else None
    return None


def _onward(kind: str, ran: Ran, given: Sequence[torch.Tensor]) -> str:
    """What becomes of a sum of a kind by one more operator."""
    operator, args = ran.operator, ran.args
    if (operator in _PRODUCTS and len(given) > 1) or operator in _POWERS or operator in _DOTS:
        squared = _is_same(given) and (operator not in _POWERS or len(args) < 2 or args[1] == 2)
        return SQUARES if squared and kind == NORMS else _OTHER
    if operator in _NORM:
        return NORMS if kind == NORMS and (len(args) < 2 or args[1] in (2, None)) else _OTHER
    if operator.__name__ == "sqrt":
        return NORMS if kind == SQUARES else _OTHER
    if operator in _DIVISIONS and any(one is given[0] for one in args[1:]):
        return _OTHER  # divided by it
    if operator not in _LINEAR:
        return _OTHER
    adds = operator not in _COPIES | _PRODUCTS | _DIVISIONS
    return _SUM_OF_NORMS if kind == NORMS and adds and len(given) + (operator in _SUMS) > 1 else kind


def _together(kind: str, other: str) -> str:
    if kind == other:
        return kind
    return _SUM_OF_NORMS if {kind, other} == {NORMS, _SUM_OF_NORMS} else _OTHER


def _at(tensor: torch.Tensor) -> _At:
    # Not its data_ptr(): to who follows the data that is a read of the script's.
    return memory(tensor), int(tensor.storage_offset())


def _is_same(given: Sequence[torch.Tensor]) -> bool:
    """Whether all of these are one and the same."""
    return len({(_at(one), one.numel()) for one in given}) == 1


def _below(operation: Operation) -> Iterator[Operation]:
    """All that is made of what an operation makes."""
    seen, left = {operation}, [operation]
    while left:
        for one in left.pop().readers:
            if one not in seen:
                seen.add(one)
                left.append(one)
                yield one
