"""Linear maps that are applied to more rows than they need: to copies of fewer, or to what is only added up afterwards.

``layer(x[index])`` is ``layer(x)[index]``, and where more rows are gathered than there are, the second multiplies fewer
of them; so it is with rows that are repeated, expanded or interpolated, and with all that treats each row by itself. A
layer over ``cat([a, b])`` of such rows is the sum of two layers. And ``layer(x).mean(1)`` is ``layer(x.mean(1))``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, ClassVar, NamedTuple

import torch

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph, is_pointwise, readers
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, aten, has_one_memory, memory
from perf_diagnostics.records import Json

SIGNAL = "more_rows"

#: Told is what would have at most this part of the rows.
_AT_MOST = 0.5

#: Fewer rows are multiplied at a lower speed: as ``dataflow_told`` has it.
_SLOWER = 2.0

_ATEN = torch.ops.aten

#: Where a product has the rows, among its arguments.
_PRODUCTS = {_ATEN.mm: 0, _ATEN.addmm: 1}

_INTERPOLATES = aten(
    *("upsample_bilinear2d", "upsample_bicubic2d", "upsample_linear1d", "upsample_trilinear3d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
)
_SPREADS = aten(
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
)
_COPIES = aten("clone", "_to_copy")

_ADDS = aten("add", "sub")

#: What parts of a row are added up for takes so many times what putting as many numbers together does.
_ADDED = 2.0

#: Where torch calls products for a layer that cannot be had in parts.
_RECURRENT, _WHOLE, _MOST_FRAMES = ("torch/nn/modules/rnn.py",), ("multi_head_attention_forward",), 40

#: What draws another number for each copy.
_DRAWS = aten("native_dropout", "bernoulli", "bernoulli_", "rand_like", "randn_like")

#: What scales rows by a factor each, or all of them.
_SCALES = aten("mul", "mul_", "div", "div_") | _COPIES

_SUMS = aten("sum", "mean")
_PADDED = aten("avg_pool2d", "avg_pool3d")
_POOLS = aten("_adaptive_avg_pool2d", "_adaptive_avg_pool3d") | _PADDED
_ADDS_TO = aten("index_add", "index_add_", "scatter_add", "scatter_add_")


class _Block(NamedTuple):
    """So many features of each row, which are the same in all rows that come of one of ``distinct``; by ``roots``."""

    width: int
    distinct: int
    roots: tuple[Operation, ...]


class _Rows(NamedTuple):
    """What lies in a memory: ``rows`` of features that lie ``stride`` apart, in ``blocks`` beside each other.

    They were made copies ``at`` a line; ``joined`` put the blocks together. Of what is ``mixed`` of several rows only
    linear maps are the same before and after.
    """

    rows: int
    stride: int
    blocks: tuple[_Block, ...]
    at: dict[str, Json]
    mixed: bool = False
    joined: Operation | None = None

    @property
    def features(self) -> int:
        return sum(one.width for one in self.blocks)

    @property
    def left(self) -> float:
        """The part of a product over these rows that would have to be computed."""
        return sum(one.width * one.distinct for one in self.blocks) / (self.rows * self.features)

    @property
    def copiers(self) -> tuple[Operation, ...]:
        """What makes copies, or puts them together, of this memory: by which products belong together."""
        return (self.joined,) if self.joined is not None else self.blocks[0].roots


class _Site:
    """What one line multiplies."""

    def __init__(self, told: dict[str, Json]) -> None:
        self.told = told
        self.products: list[_Product] = []


class _Product:
    """A product over ``rows`` of ``width`` features, which makes ``out`` of each; ``given`` are its rows, if copies."""

    def __init__(self, operation: Operation, shape: tuple[int, int, int], stride: int, given: _Rows | None) -> None:
        self.operation = operation
        self.rows, self.width, self.out = shape
        self.stride, self.given = stride, given
        #: What treats each of the rows by itself afterwards, and whether another such product is given what it makes.
        self.onward: list[Operation] = []
        self.goes_on = False
        #: Whether something else than operators reads it, or other rows are added to it.
        self.is_read = False

    @property
    def left(self) -> float:
        """The part of it that would have to be computed."""
        return 1.0 if self.given is None else self.given.left


class _Saved(NamedTuple):
    """What would go, in s of forward and of backward, and how many rows would be left."""

    forward: float
    backward: float
    rows: float
    sums: bool


class MoreRows(GraphWatcher):
    """Looks for products over rows that are copies of fewer ones, or that nothing reads but what adds them up.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._in_memory: dict[int, _Rows] = {}
        self._sites: dict[Any, _Site] = {}
        self._by_operation: dict[Operation, _Product] = {}
        #: All that stands between copies and products, or is such a product.
        self._ways: set[Operation] = set()
        #: The product that what treats rows by itself comes of.
        self._comes_of: dict[int, _Product] = {}
        #: To how many rows an operation adds up those of a product, and what only scales them.
        self._adds_up: dict[Operation, int] = {}
        self._scales: set[Operation] = set()

    def opens(self) -> None:
        self._in_memory.clear()
        self._comes_of.clear()

    def see(self, ran: Ran) -> None:
        if self._graph.last is None:
            self._forgets(ran)
        super().see(ran)

    def is_read(self, tensor: torch.Tensor) -> None:
        """Its numbers are read by other means than an operator."""
        product = self._comes_of.get(memory(tensor)) if has_one_memory(tensor) else None
        if product is not None:
            product.is_read = True

    def passes_over(self, ran: Ran) -> None:
        """What it did to what it was given is not known."""
        for tensor in filter(has_one_memory, (*ran.given(), *ran.made())):
            self._in_memory.pop(memory(tensor), None)
            self._comes_of.pop(memory(tensor), None)

    def _forgets(self, ran: Ran) -> None:
        """Where it made something, something else lay before; what gives nothing writes into what it is given."""
        made = [*ran.made()]
        for tensor in made or ran.given():
            self._in_memory.pop(memory(tensor), None)
            self._comes_of.pop(memory(tensor), None)

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        result = ran.result[0] if isinstance(ran.result, tuple) and ran.result else ran.result
        if operation.is_view:
            return
        if not isinstance(result, torch.Tensor) or not result.numel():
            self._forgets(ran)
            return
        product = None
        if ran.operator in _PRODUCTS or _mixes_channels(ran):
            product = self._product(operation, ran, result)
            rows = None if product is None or product.given is None else _mapped(product.given, product)
        else:
            rows = self._copies(operation, ran, result) or self._onward(operation, ran, result)
            self._notes_sums(operation, ran, result)
            given = ran.args[0] if ran.args and isinstance(ran.args[0], torch.Tensor) else None
            product = self._comes_of.get(memory(given)) if rows is not None and given is not None else None
            if product is not None:
                product.onward.append(operation)
            if rows is not None:
                self._ways.add(operation)
        self._forgets(ran)
        at = memory(result)
        if rows is not None:
            self._in_memory[at] = rows
        if product is not None:
            self._comes_of[at] = product

    def _product(self, operation: Operation, ran: Ran, result: torch.Tensor) -> _Product | None:
        if _in_one_module():
            return None
        place, axis = (0, 1) if ran.operator not in _PRODUCTS else (_PRODUCTS[ran.operator], 1)
        given = ran.args[place]
        width, out = int(given.shape[axis]), int(result.shape[axis])
        copied = self._rows_of(given, axis)
        added = ran.operator is _ATEN.addmm and ran.args[0].dim() > 1 and ran.args[0].shape[0] != 1
        if copied is not None and (copied.left > _AT_MOST or added):
            copied = None
        product = _Product(operation, (result.numel() // out, width, out), int(result.stride()[axis]), copied)
        product.is_read = added
        if copied is not None:
            self._ways.add(operation)
            before = self._comes_of.get(memory(given))
            if before is not None and before.given is not None:
                before.goes_on = True
        key, told = self._lines.line()
        if key is not None:
            self._sites.setdefault(key, _Site(told)).products.append(product)
        self._by_operation[operation] = product
        return product

    def _rows_of(self, tensor: torch.Tensor, axis: int) -> _Rows | None:
        """What is known of a tensor's rows along this axis; None where they are no copies."""
        known = self._in_memory.get(memory(tensor))
        if known is None or known.features != tensor.shape[axis] or known.stride != tensor.stride()[axis]:
            return None
        return known if known.rows * known.features == tensor.numel() else None

    def _copies(self, operation: Operation, ran: Ran, result: torch.Tensor) -> _Rows | None:
        """What an operator makes copies of rows with, or puts such beside each other."""
        operator, args = ran.operator, ran.args
        if operator is _ATEN.cat:
            return self._beside(operation, ran, result)
        given = next(iter(ran.given()), None)
        if given is None or not given.is_floating_point() or given.dim() < 2 or result.dim() < 2:
            return None
        axis, mixed = -1, False
        if operator in _INTERPOLATES or operator in _SPREADS:
            axis, mixed = 1, operator in _INTERPOLATES
        elif not (_picks_rows(operator, args) or _repeats_rows(operator, args, given)):
            return None
        width = int(result.shape[axis])
        if width != given.shape[axis] or width < 2:
            return None
        distinct, rows = given.numel() // width, result.numel() // width
        if distinct > _AT_MOST * rows:
            return None
        _, told = self._lines.line()
        return _Rows(rows, int(result.stride()[axis]), (_Block(width, distinct, (operation,)),), told, mixed)

    def _beside(self, operation: Operation, ran: Ran, result: torch.Tensor) -> _Rows | None:
        """Rows put together of parts, of which some are copies."""
        parts = ran.args[0]
        axis = int(ran.args[1] if len(ran.args) > 1 else ran.named.get("dim", 0)) % result.dim()
        if not isinstance(parts, list | tuple) or axis not in (1, result.dim() - 1) or result.dim() < 2:
            return None
        rows = result.numel() // int(result.shape[axis])
        blocks: list[_Block] = []
        told, mixed = self._lines.line()[1], False
        for part in parts:
            if part.dim() != result.dim():
                return None
            known = self._rows_of(part, axis)
            if known is not None:
                blocks += known.blocks
                told, mixed = known.at, mixed or known.mixed
            else:
                blocks.append(_Block(int(part.shape[axis]), _stored_rows(part, axis), ()))
        found = _Rows(rows, int(result.stride()[axis]), tuple(blocks), told, mixed, operation)
        return found if found.left <= _AT_MOST else None

    def _onward(self, operation: Operation, ran: Ran, result: torch.Tensor) -> _Rows | None:
        """What is still the same in all copies of a row, after an operator that treats each row by itself."""
        tensors = [*ran.given()]
        whole = [one for one in tensors if one.numel() == result.numel()]
        if len(whole) == 2 and ran.operator in _ADDS:
            return self._added(ran, whole, result)
        if len(whole) != 1 or ran.operator in _DRAWS:
            return None
        given = whole[0]
        known = self._in_memory.get(memory(given))
        if known is None:
            return self._expanded(operation, ran, given, result)
        axis = _axis_of(given, known)
        if axis is None or given.shape != result.shape or not _by_rows(ran, known, axis):
            return None
        if not all(one is given or _along(one, result, axis) for one in tensors):
            return None
        return known._replace(stride=int(result.stride()[axis]))

    def _added(self, ran: Ran, whole: Sequence[torch.Tensor], result: torch.Tensor) -> _Rows | None:
        """Differences of copies: a linear map of these is one of each, of the rows that there are."""
        first, second = (self._in_memory.get(memory(one)) for one in whole)
        if first is None or second is None or len(first.blocks) + len(second.blocks) > 2:
            return None
        axes = {_axis_of(one, known) for one, known in zip(whole, (first, second), strict=True)}
        axis = axes.pop()
        if axes or axis is None or any(one.shape != result.shape for one in whole):
            return None
        (one,), (other,) = first.blocks, second.blocks
        block = _Block(one.width, one.distinct + other.distinct, (*one.roots, *other.roots))
        found = _Rows(first.rows, int(result.stride()[axis]), (block,), first.at, mixed=True)
        return found if found.left <= _AT_MOST else None

    def _expanded(self, operation: Operation, ran: Ran, given: torch.Tensor, result: torch.Tensor) -> _Rows | None:
        """A copy of what was expanded, or what a function of each number makes of it."""
        if given.dim() < 2 or given.shape != result.shape or not given.is_floating_point():
            return None
        if not is_pointwise(ran.operator) or len([*ran.given()]) != 1 or given.stride()[-1] == 0:
            return None
        width = int(given.shape[-1])
        rows, distinct = given.numel() // width, _stored_rows(given, given.dim() - 1)
        if width < 2 or distinct > _AT_MOST * rows:
            return None
        _, told = self._lines.line()
        return _Rows(rows, int(result.stride()[-1]), (_Block(width, distinct, (operation,)),), told)

    def _notes_sums(self, operation: Operation, ran: Ran, result: torch.Tensor) -> None:
        """Whether it adds up rows of a product, or scales them."""
        for one in operation.inputs:
            product = self._by_operation.get(_behind(one, self._scales))
            if product is None:
                continue
            added = _added_to(ran, result, product)
            if added is not None:
                self._adds_up[operation] = added
            elif ran.operator in _SCALES and _scales_rows(ran, result, product):
                self._scales.add(operation)

    def _saved(self) -> dict[_Product, _Saved]:
        """What would go if products had fewer rows."""
        found: dict[_Product, _Saved] = {}
        groups: dict[tuple[Operation, ...], list[_Product]] = {}
        for product in self._by_operation.values():
            if product.given is not None:
                groups.setdefault(product.given.copiers, []).append(product)
            elif not product.is_read and (saved := self._saved_by_sums(product)) is not None:
                found[product] = saved
        for products in groups.values():
            found |= self._saved_of_copies(products)
        return found

    def _saved_by_sums(self, product: _Product) -> _Saved | None:
        read_by, scales = [], []
        left = readers(product.operation)
        while left:
            one = left.pop()
            if one in self._scales:
                scales.append(one)
                left += readers(one)
            elif one in self._adds_up:
                read_by.append(one)
            else:
                return None
        rows = sum(self._adds_up[one] for one in read_by)
        if not read_by or rows > _AT_MOST * product.rows:
            return None
        goes = 1 - min(1.0, _SLOWER * rows / product.rows)
        # What adds up has as many numbers of each row as go into the product, in place of those that come of it.
        narrower = 1 - product.width / product.out
        forward, backward = (
            goes * getattr(product.operation, way) + narrower * sum(getattr(one, way) for one in (*read_by, *scales))
            for way in ("forward", "backward")
        )
        return _Saved(max(0.0, forward), max(0.0, backward), rows, sums=True)

    def _saved_of_copies(self, products: Sequence[_Product]) -> dict[_Product, _Saved]:
        """Of those of the same copies: what makes these makes them of what comes of the products instead, unless others
        read them as well; rows that were put together are added up.
        """
        given = products[0].given
        if given is None:
            return {}
        own: dict[_Product, tuple[float, float]] = {}
        for one in products:
            goes, done = 1 - min(1.0, _SLOWER * one.left), [one.operation, *one.onward]
            own[one] = goes * sum(each.forward for each in done), goes * sum(each.backward for each in done)
        out = sum(one.out for one in products if not one.goes_on)
        more = 0.0
        if given.joined is not None:
            more -= given.joined.seconds if self._only_on_the_way(given.joined) else 0.0
            more += _ADDED * (len(given.blocks) - 1) * given.joined.forward * out / given.features
        for block in given.blocks:
            for root in block.roots:
                more += (out / block.width - self._only_on_the_way(root)) * root.seconds
        seconds = sum(map(sum, own.values()))
        part = max(0.0, 1 - more / seconds) if seconds else 0.0
        return {
            one: _Saved(part * forward, part * backward, one.left * one.rows, sums=False)
            for one, (forward, backward) in own.items()
        }

    def _only_on_the_way(self, operation: Operation) -> bool:
        """Whether nobody reads what it makes but what leads to such products."""
        return all(one in self._ways for one in readers(operation))

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line that multiplies too many ``rows``: ``rows_left``, how many would do, whether they are added up
        afterwards (``sums``), how many parts are put together to a row (``parts``), where copies are made (``copied``),
        how often (``calls``), and of all operators' time the share that would go.
        """
        all_saved = self._saved()
        for site in self._sites.values():
            found = [(one, all_saved[one]) for one in site.products if one in all_saved]
            if not sum(saved.forward + saved.backward for _, saved in found):
                continue
            product, most = max(found, key=lambda one: one[1].forward + one[1].backward)
            forward, backward = (sum(saved[way] for _, saved in found) for way in (0, 1))
            given = product.given
            yield {
                **site.told,
                "shape": [product.rows, product.width],
                "rows": product.rows,
                "rows_left": most.rows,
                "sums": most.sums,
                "parts": 1 if given is None else len(given.blocks),
                "copied": {} if given is None else given.at,
                "calls": len(found),
                **self._graph.share_of(forward, backward),
            }


def _mapped(given: _Rows, product: _Product) -> _Rows | None:
    """The rows that a product makes of copies; of several parts, or mixed ones, they are copies no more."""
    if len(given.blocks) > 1 or given.mixed:
        return None
    block = given.blocks[0]._replace(width=product.out)
    return given._replace(stride=product.stride, blocks=(block,), rows=product.rows)


def _mixes_channels(ran: Ran) -> bool:
    """Whether it is a convolution that treats each place by itself: one by one, of one group."""
    if ran.operator is not _ATEN.convolution or len(ran.args) < 9:
        return False
    weight, stride, padding, transposed, groups = (ran.args[at] for at in (1, 3, 4, 6, 8))
    return (
        all(size == 1 for size in weight.shape[2:])
        and all(one == 1 for one in stride)
        and not any(padding)
        and not transposed
        and groups == 1
    )


def _picks_rows(operator: Any, args: Sequence[Any]) -> bool:
    """Whether it gathers rows, whole ones."""
    if operator is _ATEN.embedding:
        # A row that stands for padding gets no gradient, which a layer before would give it.
        return not (len(args) > 2 and args[2] >= 0) and not (len(args) > 4 and args[4])
    if operator is _ATEN.index_select:
        return bool(args[1] % args[0].dim() != args[0].dim() - 1)
    if operator is _ATEN.index:
        return bool(len(args[1]) < args[0].dim() or args[1][-1] is None)
    if operator is _ATEN.gather:
        along, index = args[1] % args[0].dim(), args[2]
        return bool(along != args[0].dim() - 1 and index.dim() > 1 and index.stride()[-1] == 0)
    return False


def _repeats_rows(operator: Any, args: Sequence[Any], given: torch.Tensor) -> bool:
    return operator is _ATEN.repeat and bool(args[1]) and args[1][-1] == 1 and given.stride()[-1] != 0


def _stored_rows(tensor: torch.Tensor, axis: int) -> int:
    """How many different rows a tensor has along this axis: those that it was expanded over count once."""
    pairs = enumerate(zip(tensor.shape, tensor.stride(), strict=True))
    return math.prod(size for at, (size, stride) in pairs if at != axis and stride)


def _axis_of(tensor: torch.Tensor, known: _Rows) -> int | None:
    """The axis along which the features of rows lie; None where that is not sure."""
    found = [
        at
        for at, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))
        if size == known.features and stride == known.stride
    ]
    return found[0] if len(found) == 1 and known.rows * known.features == tensor.numel() else None


def _by_rows(ran: Ran, known: _Rows, axis: int) -> bool:
    """Whether an operator does the same to each row, without the others."""
    operator, args = ran.operator, ran.args
    if operator in _COPIES:
        return True
    if known.mixed:
        return False
    if operator is _ATEN.native_layer_norm:
        return bool(axis == args[0].dim() - 1 and len(args[1]) == 1)
    if operator in (_ATEN._softmax, _ATEN._log_softmax):
        return bool(args[1] % args[0].dim() == axis)
    return is_pointwise(operator)


def _along(tensor: torch.Tensor, result: torch.Tensor, axis: int) -> bool:
    """Whether an operand is the same for all rows: it has one number, or lies along the axis of the features alone."""
    at = axis - result.dim()
    return all(size == 1 or number == at for number, size in zip(range(-tensor.dim(), 0), tensor.shape, strict=True))


def _in_one_module() -> bool:
    """Whether a layer of torch's asks for it that nobody can take apart: a recurrent one, or attention."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None or frame.f_code.co_name in _WHOLE or frame.f_code.co_filename.endswith(_RECURRENT):
            return frame is not None
        frame = frame.f_back
    return False


def _behind(operation: Operation, scales: set[Operation]) -> Operation:
    """What made what this views, or scales row by row."""
    while (operation.is_view or operation in scales) and operation.inputs:
        operation = max(operation.inputs, key=lambda one: one.numel)
    return operation


def _features(tensor: torch.Tensor, product: _Product) -> int | None:
    """The axis of a product's result, or a view of all of it, along which its features lie."""
    found = [
        at
        for at, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))
        if size == product.out and stride == product.stride
    ]
    whole = tensor.numel() == product.rows * product.out
    return found[0] if whole and len(found) == 1 else None


def _added_to(ran: Ran, result: torch.Tensor, product: _Product) -> int | None:
    """To how many rows an operator adds up those of a product; None where it does something else."""
    operator, args = ran.operator, ran.args
    if operator in _SUMS or operator in _POOLS:
        if operator in _PADDED and ((len(args) > 3 and any(args[3])) or (len(args) > 6 and args[6] is not None)):
            return None
        axis = _features(args[0], product)
        if axis is None:
            return None
        if operator in _POOLS:
            return result.numel() // product.out if axis == 1 else None
        named = next((one for one in args[1:] if isinstance(one, list | tuple)), ()) or range(args[0].dim())
        over = {at % args[0].dim() for at in named}
        return None if axis in over else result.numel() // product.out
    if operator in _ADDS_TO and len(args) > 3 and isinstance(args[3], torch.Tensor):
        axis = _features(args[3], product)
        along = args[1] % args[0].dim()
        index = args[2]
        spread = index.dim() == 1 or (axis is not None and index.stride()[axis] == 0)
        if axis is None or along == axis or not spread or args[0].shape[axis] != product.out:
            return None
        return int(args[0].numel() // product.out)
    return None


def _scales_rows(ran: Ran, result: torch.Tensor, product: _Product) -> bool:
    """Whether it multiplies each row of a product by a number of its own, or all by one."""
    tensors = [*ran.given()]
    whole = [one for one in tensors if one.numel() == result.numel()]
    divides = ran.operator.__name__.startswith("div")
    axis = _features(whole[0], product) if len(whole) == 1 else None
    if axis is None or ran.named.get("rounding_mode") is not None or (divides and whole[0] is not tensors[0]):
        return False
    if result.shape != whole[0].shape or result.stride() != whole[0].stride():
        return False
    others = [one for one in tensors if one is not whole[0]]
    return all(one.dim() < result.dim() - axis or one.shape[axis - result.dim()] == 1 for one in others)
