"""Products of matrices that are multiplied in an order that takes many times the operations of another one.

``(Q @ K.T) @ V`` without a softmax between is ``Q @ (K.T @ V)``, but for rounding: the first takes n·n·d operations for
n rows of d numbers, the second n·d·d. So it is with any chain of products between which numbers are only scaled,
turned, cast, or summed over what the factors share, and of which nobody reads the intermediate results. A sum of such
chains is one of their products with what it is multiplied with: ``(b * A + c * A @ A) @ X`` with ``A = X @ X.T``, as in
Newton and Schulz's iteration, takes far less by ``X.T @ X`` where X has many rows and few columns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from perf_diagnostics.measure.one_step.contractions import (
    Factor,
    Index,
    Unlike,
    cheapest,
    laid_out,
    match,
    parts_of,
    seen_in,
)
from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph, readers, through_views
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, aten, memory, tensors_of
from perf_diagnostics.records import Json

SIGNAL = "dearer_orders"

#: Another order is worth telling if it takes at most this part of the operations.
_AT_MOST = 0.5

#: Smaller products run at a lower speed than larger ones: as ``dataflow_told`` has it.
_SLOWER = 2.0

#: Leaving single products out is told, and not an order of the whole chain, where it saves so much of what that does.
_MOST_OF_IT = 0.8

#: Orders of more factors, and sums of more products, are not tried; products of a smaller part of all operators' time
#: are left alone.
_MOST_FACTORS, _MOST_TERMS, _MOST_SUMS, _LEAST_PART = 7, 8, 3, 0.005

_ATEN = torch.ops.aten

#: Which indices the operands of a product have, where these stand among its arguments, and which its result has.
_PRODUCTS = {
    _ATEN.mm: ((0, "ik"), (1, "kj"), "ij"),
    _ATEN.mv: ((0, "ik"), (1, "k"), "i"),
    _ATEN.bmm: ((0, "bik"), (1, "bkj"), "bij"),
    _ATEN.addmm: ((1, "ik"), (2, "kj"), "ij"),
    _ATEN.baddbmm: ((1, "bik"), (2, "bkj"), "bij"),
}

_SCALES = aten("mul", "mul_", "div", "div_", "neg", "neg_")

_COPIES, _SUMS, _ADDS = aten("_to_copy", "clone"), aten("sum", "mean"), aten("add", "sub")


class _Operand(NamedTuple):
    """What an operator was given: its dimensions as (size, stride), and what made it."""

    dims: tuple[tuple[int, int], ...]
    labels: Sequence[Any]
    source: _Made | None
    trained: bool
    of_parameters: bool
    #: The same of two that are one tensor, or views of as much of it.
    what: Hashable

    @property
    def shape(self) -> list[Json]:
        return [size for size, _ in self.dims]


class _Made:
    """A product of operands by their labels, as in Einstein's summation; a scaled or summed tensor is one, too.

    Where it adds several tensors, or one to a product, these are its ``more`` terms.
    """

    def __init__(
        self,
        operation: Operation,
        operands: Sequence[_Operand],
        labels: Sequence[Any],
        more: Sequence[Sequence[_Operand]] = (),
    ) -> None:
        self.operation, self.labels = operation, labels
        self.terms = (operands, *more)
        self.operands = [one for term in self.terms for one in term]
        #: Of how many products it is the sum where all is multiplied out, and how many steps that takes, both at most.
        sources = [[one.source for one in term if one.source is not None] for term in self.terms]
        self.products: int = sum(math.prod(one.products for one in term) for term in sources)
        self.sums_above: int = max((one.sums_above for term in sources for one in term), default=0) + (
            len(self.terms) > 1
        )
        self.is_product = operation.operator in _PRODUCTS
        self.adds_up = operation.operator in _SUMS
        self.laid: tuple[tuple[int, int], ...] = ()
        self.offset = 0
        self.onward: list[_Made] = []
        self.line: tuple[Any, dict[str, Json]] = (None, {})
        self.of_parameters = all(one.of_parameters for one in operands)

    @property
    def flops(self) -> int:
        """Of a product in forward and backward."""
        factors = self.terms[0]
        sizes = {label: size for one in factors for label, (size, _) in zip(one.labels, one.dims, strict=True)}
        return 2 * math.prod(sizes.values()) * (1 + sum(one.trained for one in factors))

    def sources(self, expands: Container[_Made]) -> Iterator[_Made]:
        """The products that went into it, through what is made of them, where that and they need not be there."""
        for one in self.operands:
            source = one.source
            if source is not None and source in expands:
                yield from (source,) if source.is_product else source.sources(expands)


class _Order(NamedTuple):
    """Products that hang together, and what they take in their own and in the best order."""

    products: list[_Made]
    between: list[_Made]
    dearest: _Made
    last: _Made
    flops: int
    instead: int

    @property
    def saved(self) -> int:
        return self.flops - self.instead


class ProductOrders(GraphWatcher):
    """Looks for chains of matrix products that would take far less in another order.

    Args:
        graph: is shown each operator before.
        parameters: where the memories of parameters begin: what is made of these alone ``dense_products`` tells.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, parameters: Iterable[int], lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._parameters = frozenset(parameters)
        self._made: list[_Made] = []
        self._in_memory: dict[int, _Made] = {}
        self._made_of: dict[_Made, list[_Made]] = {}

    def opens(self) -> None:
        self._in_memory.clear()

    def see(self, ran: Ran) -> None:
        if self._graph.last is None:
            for tensor in tensors_of(ran.result):
                self._in_memory.pop(memory(tensor), None)
        super().see(ran)

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        if operation.is_view:
            return
        result = ran.result
        made = self._of(operation, ran) if isinstance(result, torch.Tensor) and result.numel() else None
        for tensor in tensors_of(result):
            self._in_memory.pop(memory(tensor), None)
        if made is None or not isinstance(result, torch.Tensor):
            return
        made.laid, made.offset = _dims(result), int(result.storage_offset())
        for source in {id(one.source): one.source for one in made.operands}.values():
            if source is not None:
                source.onward.append(made)
        self._made.append(made)
        self._in_memory[memory(result)] = made

    def _of(self, operation: Operation, ran: Ran) -> _Made | None:
        operator, args = ran.operator, ran.args
        if operator in _PRODUCTS:
            *places, labels = _PRODUCTS[operator]
            added: list[list[_Operand]] = []
            if places[0][0] and ran.named.get("beta", 1) != 0 and args[0].dim() != 1:
                if args[0].shape != ran.result.shape:
                    return None
                added = [[self._operand(args[0], labels)]]
            made = _Made(operation, [self._operand(args[at], letters) for at, letters in places], labels, added)
            made.line = self._lines.line()
            return made
        if not args or not isinstance(args[0], torch.Tensor):
            return None
        if operator in _SUMS:
            return self._sum(operation, args)
        if operator in _ADDS:
            return self._added(operation, ran)
        if operator in _COPIES or operator in _SCALES:
            return self._scaled(operation, ran)
        return None

    def _operand(self, tensor: torch.Tensor, labels: Sequence[Any]) -> _Operand:
        dims, at = _dims(tensor), memory(tensor)
        source = self._in_memory.get(at)
        if source is not None:
            numbers = math.prod(size for size, stride in dims if stride or size == 1)
            if numbers != math.prod(size for size, _ in source.laid) or tensor.storage_offset() != source.offset:
                source = None  # a part of it: it has to be there
        trained = torch.is_grad_enabled() and tensor.requires_grad
        maker = self._graph.maker(tensor)
        lies = sorted((stride, size) for size, stride in dims if size > 1)
        what = at if maker is None else through_views(maker), tensor.storage_offset(), *lies
        of_parameters = at in self._parameters if source is None else source.of_parameters
        return _Operand(dims, labels, source, trained, of_parameters, what)

    def _sum(self, operation: Operation, args: Sequence[Any]) -> _Made | None:
        given = args[0]
        named = next((one for one in args[1:] if isinstance(one, list | tuple)), ()) or range(given.dim())
        over = {at % given.dim() for at in named} if given.dim() else set()
        labels = range(given.dim())
        operand = self._operand(given, labels)
        keeps = len(args) > 2 and args[2] is True
        kept = [None if at in over else at for at in labels if keeps or at not in over]
        return None if operand.source is None else _Made(operation, [operand], kept)

    def _added(self, operation: Operation, ran: Ran) -> _Made | None:
        """Tensors of the same shape that are added, all of which come of products."""
        labels = range(ran.result.dim())
        given = [one for one in ran.args[:2] if isinstance(one, torch.Tensor) and one.shape == ran.result.shape]
        terms = [[self._operand(one, labels)] for one in given]
        if len(terms) < 2 or any(one.source is None for (one,) in terms):
            return None
        made = _Made(operation, terms[0], labels, terms[1:])
        # What is added up pass by pass begins anew.
        return made if made.products <= _MOST_TERMS and made.sums_above <= _MOST_SUMS else None

    def _scaled(self, operation: Operation, ran: Ran) -> _Made | None:
        """A tensor that comes of products, times one that varies along some of its dimensions."""
        shape, tensors = ran.result.shape, [*ran.given()]
        numerators = tensors[:1] if ran.operator.__name__.startswith("div") else tensors
        labels = range(len(shape))
        for at, given in enumerate(numerators):
            operand = self._operand(given, labels) if given.shape == shape else None
            if operand is not None and operand.source is not None:
                others = [one for number, one in enumerate(tensors) if number != at]
                scales = [self._operand(one, labels[len(shape) - one.dim() :]) for one in others]
                if any(one.source is operand.source for one in scales):
                    return None  # squared
                return _Made(operation, [operand, *(one._replace(source=None) for one in scales)], labels)
        return None

    def _orders(self) -> Iterator[_Order]:
        told: set[_Made] = set()
        for shared in (True, False):  # at first also what several products read
            expands = self._expandable(shared=shared)
            self._made_of = _made_of(expands)
            for products in _hang_together(self._made, expands):
                for order in self._best(products, expands) if told.isdisjoint(products) else ():
                    told.update(order.products)
                    yield order

    def _best(self, products: list[_Made], expands: set[_Made]) -> list[_Order]:
        """The whole chain in another order, or, where most is won by leaving one product out, these ones: what comes
        before them, such as projections, takes the same in both orders.
        """
        found: list[_Order] = []
        for one in sorted((each for each in products if each in expands), key=lambda each: -each.flops):
            alone = {one, *self._made_of.get(one, ())}
            for group in _hang_together(products, alone):
                order = self._order(group, alone)
                if order is not None and all(set(group).isdisjoint(other.products) for other in found):
                    found.append(order)
        whole = self._order(products, expands)
        if whole is None or sum(one.saved for one in found) >= _MOST_OF_IT * whole.saved:
            return found
        return [whole]

    def _expandable(self, *, shared: bool) -> set[_Made]:
        """What need not be there: products, and what is made of them, that only other products read in the end."""
        found: set[_Made] = set()
        everything = {*self._made}
        for one in reversed(self._made):
            inside = {onward.operation for onward in one.onward}
            if not one.onward or one.of_parameters or not all(each in inside for each in readers(one.operation)):
                continue
            if any(each.source is None for term in one.terms[1:] for each in term):
                continue  # a state that something is added to: what lies before it is not expanded
            if one.adds_up and not _sums_up(one, everything):
                continue
            # Sums that are read by others are had of the factors.
            through = [each for each in one.onward if not each.adds_up or each in found]
            if through and all(each.is_product or each in found for each in through):
                found.add(one)
        return found if shared else {one for one in found if len(_products_of(one, found)) == 1}

    def _order(self, products: list[_Made], expands: set[_Made]) -> _Order | None:
        made_of = {one: None for product in products for one in self._made_of.get(product, ()) if one in expands}
        between = [*made_of]
        sums = {each for one in (*products, *between) if one in expands for each in one.onward if each.adds_up}
        tails = [one for one in sums if one not in expands]
        seconds = sum(one.operation.seconds for one in products)
        if seconds < _LEAST_PART * self._graph.seconds:
            return None
        try:
            roots = [one for one in products if one not in expands]
            instead = _cost((*roots, *tails), expands)
        except (Unlike, RecursionError):  # a chain without end
            return None
        flops = sum(one.flops for one in products)
        if instead > _AT_MOST * flops:
            return None
        dearest = max((one for one in products if one in expands), key=lambda one: one.flops)
        return _Order(products, [*between, *tails], dearest, roots[-1], flops, instead)

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line: the ``shape`` of what it makes, of which ``shapes``, the line that multiplies on (``then``),
        the operations of all these products (``flops``, forward and backward) and those of the best order
        (``flops_instead``), how often (``calls``), of all operators' time the share of these products and what lies
        between them, and which part of it would be ``left``.
        """
        lines: dict[Any, list[_Order]] = {}
        for order in self._orders():
            key = order.dearest.line[0]
            if key is not None:
                lines.setdefault((key, order.last.line[0]), []).append(order)
        for orders in lines.values():
            first = max(orders, key=lambda one: one.flops)
            products = [one.operation for order in orders for one in order.products]
            between = [one.operation for order in orders for one in order.between]
            flops, instead = sum(one.flops for one in orders), sum(one.instead for one in orders)
            of_products = self._graph.share(products)
            everything = self._graph.share((*products, *between))
            left = float(str(of_products["whole"])) * min(1.0, _SLOWER * instead / flops)
            whole = float(str(everything["whole"]))
            yield {
                **first.dearest.line[1],
                "then": first.last.line[1],
                "shape": [size for size, _ in first.dearest.laid],
                "shapes": [one.shape for one in first.dearest.operands],
                "flops": flops,
                "flops_instead": instead,
                "calls": len(orders),
                "left": min(1.0, left / whole) if whole else 1.0,
                **everything,
            }


def _dims(tensor: torch.Tensor) -> tuple[tuple[int, int], ...]:
    return tuple(zip(tensor.shape, tensor.stride(), strict=True))


def _hang_together(made: Sequence[_Made], expands: set[_Made]) -> Iterable[list[_Made]]:
    """Products of which the later ones read the earlier ones, where those need not be there."""
    groups: dict[_Made, list[_Made]] = {}
    for one in made:
        if not one.is_product:
            continue
        group = [one]
        for source in {*one.sources(expands)}:
            before = groups.get(source, [source])
            inside = {*group}
            group += [each for each in before if each not in inside]
        for each in group:
            groups[each] = group
    return {id(group): group for group in groups.values() if len(group) > 1}.values()


def _products_of(one: _Made, expands: set[_Made]) -> set[_Made]:
    """The products that read it in the end."""
    return {
        product
        for each in one.onward
        for product in ([each] if each.is_product else _products_of(each, expands) if each in expands else [])
    }


def _made_of(expands: set[_Made]) -> dict[_Made, list[_Made]]:
    """By the products what is made of them without a product, and need not be there."""
    found: dict[_Made, list[_Made]] = {}
    for one in expands:
        for source in {*one.sources(expands)} if not one.is_product else ():
            found.setdefault(source, []).append(one)
    return found


def _sums_up(one: _Made, expands: set[_Made]) -> bool:
    """Whether a sum goes over nothing but what all its factors have, such as heads, so that it is one of a product."""
    try:
        for factors, indices in _expansions(one, expands):
            kept = {*parts_of(indices)}
            having = Counter(part for each in factors for part in parts_of(each.indices))
            if not all(part in kept or count > 1 for part, count in having.items()):
                return False
    except Unlike:
        return False
    return True


def _cost(made: Iterable[_Made], expands: set[_Made]) -> int:
    """The operations that all these take with what they expand into, each of its products in the order that takes
    least, and products that are the same once; raises ``Unlike`` where that is not known.
    """
    products: dict[Hashable, int] = {}
    for one in made:
        for factors, indices in _expansions(one, expands):
            products |= cheapest(factors, indices)
    return sum(products.values())


class _Chosen:
    """Which term of each sum is taken, in the order in which they are met; of those met anew the first one."""

    def __init__(self, taken: Sequence[int] = ()) -> None:
        self._taken = [*taken]
        self._of: list[int] = []

    def of(self, terms: int) -> int:
        """The term that is taken of so many."""
        self._of.append(terms)
        if len(self._taken) < len(self._of):
            self._taken.append(0)
        return self._taken[len(self._of) - 1]

    def next(self) -> _Chosen | None:
        """The next choice, as an odometer goes on; None after the last one."""
        at = len(self._of) - 1
        while at >= 0 and self._taken[at] + 1 == self._of[at]:
            at -= 1
        return _Chosen((*self._taken[:at], self._taken[at] + 1)) if at >= 0 else None


def _expansions(one: _Made, expands: set[_Made]) -> Iterator[tuple[list[Factor], list[Index]]]:
    """The products whose sum it is: the factors of each, and the indices that are kept.

    Raises:
        Unlike: their dimensions do not fit together, or they are too many.
    """
    chosen: _Chosen | None = _Chosen()
    for _ in range(_MOST_TERMS):
        if chosen is None:
            return
        factors: list[Factor] = []
        made = _expanded(one, factors, expands, chosen)
        yield factors, [index for indices in made for index in indices]
        chosen = chosen.next()
    if chosen is not None:
        raise Unlike


def _expanded(one: _Made, factors: list[Factor], expands: set[_Made], chosen: _Chosen) -> list[list[Index]]:
    """The indices of each dimension of what it makes; its factors, which ``expands`` are parted into, are noted."""
    found: dict[Any, list[Index]] = {}
    for operand in one.terms[chosen.of(len(one.terms)) if len(one.terms) > 1 else 0]:
        for label, indices in zip(operand.labels, _of_operand(operand, factors, expands, chosen), strict=True):
            if indices is None:
                continue
            if label in found:
                match(found[label], indices)
            elif label is not None:
                found[label] = indices
    if len(factors) > _MOST_FACTORS or any(
        size > 1 and label not in found for label, (size, _) in zip(one.labels, one.laid, strict=True)
    ):
        raise Unlike
    return [found[label] if size > 1 else [] for label, (size, _) in zip(one.labels, one.laid, strict=True)]


def _of_operand(
    operand: _Operand, factors: list[Factor], expands: set[_Made], chosen: _Chosen
) -> list[list[Index] | None]:
    """The indices of each of its dimensions; None along which it does not vary."""
    source = operand.source
    if source is None or source not in expands:
        dims = [[Index(size)] if size > 1 and stride else None for size, stride in operand.dims]
        lie = sorted(zip(operand.dims, dims, strict=True), key=lambda one: -one[0][1])  # turned, it is the same tensor
        indices = [one for _, each in lie if each for one in each]
        factors.append(Factor(indices, trained=operand.trained, what=operand.what))
        return dims
    made = _expanded(source, factors, expands, chosen)
    lies = laid_out((each, stride) for each, (_, stride) in zip(made, source.laid, strict=True))
    return [seen_in(lies, size, stride) if size > 1 and stride else None for size, stride in operand.dims]
