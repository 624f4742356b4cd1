"""Which operators of a step's forward made a tensor, of others of its size and for nobody else."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from perf_diagnostics.measure.one_step.watcher import Ran, aten, memory

#: Tensors of fewer numbers take no time worth telling.
_LEAST_NUMBERS = 4096

#: Sums of rows or columns, which come of whatever says where the numbers are that are not zero: how many samples each
#: class has, the degrees of a graph's nodes.
_SUMS = aten("sum", "mean")


class Making:
    """Follows the operators of forward by the memory that they read and write; keeps numbers, and no tensor.

    A history goes back through tensors of one size: zeros, the ones in them, a cast. It ends at products, which have
    operands of their own. Views are no operators, and what is written in place belongs to its memory's history.
    """

    def __init__(self) -> None:
        #: By operator how long it took, of how many numbers its result is, what it was made of, and who read it.
        self._seconds: list[float] = []
        self._sizes: list[int] = []
        self._made_of: list[tuple[int, ...]] = []
        self._readers: list[set[int]] = []
        self._sums: set[int] = set()
        #: By memory who wrote it last.
        self._writer: dict[int, int] = {}

    def forget_memory(self) -> None:
        """Operators were hidden meanwhile: what lies in a memory now may be somebody else's."""
        self._writer.clear()

    def see(self, ran: Ran, *, product: bool) -> int:
        """An operator of forward has run; its number, or -1 where it is of no account.

        Args:
            ran: the operator.
            product: whether it multiplies matrices, so that its result has no history here.
        """
        given = [*ran.given()]
        read = {memory(one) for one in given}
        made = [*ran.made()]
        if any(memory(one) in read and all(one is not other for other in given) for one in made):
            return -1  # a view
        large = [one for one in made if one.numel() >= _LEAST_NUMBERS]
        before = [self._writer[at] for at in read if at in self._writer]
        if not large and not before:
            return -1
        number, size = len(self._seconds), max((one.numel() for one in large), default=0)
        self._seconds.append(ran.seconds or 0.0)
        self._sizes.append(size)
        self._made_of.append(() if product else tuple(at for at in before if self._sizes[at] == size))
        self._readers.append(set())
        if ran.operator in _SUMS:
            self._sums.add(number)
        for maker in before:
            self._readers[maker].add(number)
        for one in made:
            if one.numel() >= _LEAST_NUMBERS and not product:
                self._writer[memory(one)] = number
            else:
                self._writer.pop(memory(one), None)
        return number

    def maker_of(self, tensor: torch.Tensor) -> int | None:
        """The number of the operator that wrote this last."""
        return self._writer.get(memory(tensor))

    def only_for(self, products: Iterable[int], makers: Iterable[int]) -> set[int]:
        """The operators that led to these makers, themselves included, whose results nobody but they and ``products``
        read; and of the makers' own results sums.
        """
        found: set[int] = set()
        last = frozenset(makers)
        left = [*last]
        while left:
            number = left.pop()
            if number not in found:
                found.add(number)
                left.extend(self._made_of[number])
        readers = found | {*products}
        while needed := {
            one for one in found if not self._readers[one] <= (readers | self._sums if one in last else readers)
        }:
            found -= needed
            readers -= needed
        return found

    def seconds_of(self, numbers: Iterable[int]) -> float:
        """How long these took together, in s."""
        return sum(self._seconds[one] for one in numbers)
