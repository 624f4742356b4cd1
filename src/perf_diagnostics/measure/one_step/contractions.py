"""What products of several factors take, by their indices, in the order that takes least.

A factor has a set of indices, as in Einstein's summation: ``(Q @ K.T) @ V`` is Q of (n, k), K of (m, k), V of (m, p),
and n and p are kept. What scales rows or columns is a factor with one index, a mask is one with two.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cache


class Unlike(ValueError):
    """Dimensions do not fit together index by index, such as 6 seen as 2 by 3 and as 3 by 2."""


class Index:
    """One index of a size; it may turn out to be several (a view splits it), or the same as another one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._same: Index | None = None
        self._parts: tuple[Index, ...] = ()

    def parts(self) -> list[Index]:
        """What it is made of, the slowest first."""
        if self._same is not None:
            return self._same.parts()
        return [part for one in self._parts for part in one.parts()] if self._parts else [self]

    def split(self, *sizes: int) -> tuple[Index, ...]:
        """Into indices of these sizes, the slowest first; one of size 1 is none."""
        self._parts = tuple(Index(size) for size in sizes if size > 1)
        return self._parts

    def is_same_as(self, other: Index) -> None:
        if self is not other:
            self._same = other


#: An index, and how far its numbers lie apart in memory.
Laid = tuple[Index, int]


def parts_of(indices: Iterable[Index]) -> list[Index]:
    return [part for one in indices for part in one.parts()]


def laid_out(dims: Iterable[tuple[Sequence[Index], int]]) -> list[Laid]:
    """Each index of dimensions that lie ``stride`` apart."""
    found: list[Laid] = []
    for indices, stride in dims:
        apart = stride
        for one in reversed(indices):
            found.append((one, apart))
            apart *= one.size
    return found


def seen_in(memory: Sequence[Laid], size: int, stride: int) -> list[Index]:
    """The indices that one dimension of a view goes through, the slowest first; may split those of the memory.

    Raises:
        Unlike: it goes through no whole indices.
    """
    first, last = stride, stride * size
    found: list[Laid] = []
    for whole, at in memory:
        for one, begins in laid_out([(whole.parts(), at)]):
            ends = begins * one.size
            low, high = max(first, begins), min(last, ends)
            if high <= low:
                continue
            if low % begins or ends % high or high % low:
                raise Unlike
            found.append((one if (low, high) == (begins, ends) else _middle(one, ends // high, low // begins), low))
    if math.prod(one.size for one, _ in found) != size:
        raise Unlike
    return [one for one, _ in sorted(found, key=lambda each: -each[1])]


def _middle(one: Index, outer: int, inner: int) -> Index:
    """Of an index, what lies between parts of these sizes."""
    return one.split(outer, one.size // outer // inner, inner)[1 if outer > 1 else 0]


def match(first: Sequence[Index], second: Sequence[Index]) -> None:
    """Two dimensions run together: their indices are the same.

    Raises:
        Unlike: they cannot be.
    """
    left, right = parts_of(first), parts_of(second)
    while left and right:
        one, other = left.pop(), right.pop()
        if one.size > other.size:
            one, other, left, right = other, one, right, left
        if other.size % one.size:
            raise Unlike
        if other.size > one.size:
            *rest, other = other.split(other.size // one.size, one.size)
            right += rest
        one.is_same_as(other)
    if left or right:
        raise Unlike


class Factor:
    """A tensor among others that are multiplied: its indices, and whether it needs a gradient.

    ``what`` is the same of two factors that are one and the same tensor, whose indices are then to come in one order.
    """

    def __init__(self, indices: Sequence[Index], *, trained: bool, what: Hashable = None) -> None:
        self.indices, self.trained = indices, trained
        self.what = object() if what is None else what


def cheapest(factors: Sequence[Factor], kept: Sequence[Index]) -> dict[Hashable, int]:
    """The operations of forward and backward in the order that takes least, for each product of two.

    A product takes two operations for each combination of its factors' indices where one is summed over, else one; and
    as many again for the gradient of each of the two. Found by trying all orders (dynamic programming over sets of
    factors, as in opt_einsum), so that 8 factors take some 3,000 products of two. A product has the key of another one
    where it is the same of the same tensors, which needs to be computed once.
    """
    numbers: dict[Index, int] = {}
    sets = [sum({1 << numbers.setdefault(part, len(numbers)) for part in parts_of(one.indices)}) for one in factors]
    out = sum({1 << numbers.setdefault(part, len(numbers)) for part in parts_of(kept)})
    sizes = [one.size for one in numbers]
    everything = (1 << len(factors)) - 1

    @cache
    def numel(indices: int) -> int:
        return math.prod(size for at, size in enumerate(sizes) if indices >> at & 1)

    def union(subset: int) -> int:
        found = 0
        for at, one in enumerate(sets):
            found |= one if subset >> at & 1 else 0
        return found

    @cache
    def left(subset: int) -> int:
        """The indices of the product of these factors, those summed over that nobody else has."""
        return union(subset) & (out | union(everything & ~subset))

    def trained(subset: int) -> bool:
        return any(one.trained for at, one in enumerate(factors) if subset >> at & 1)

    @cache
    def least(subset: int) -> tuple[int, tuple[int, ...]]:
        """What these factors take together, and the two halves that are multiplied last."""
        if not subset & (subset - 1):
            own = sets[subset.bit_length() - 1]
            return (numel(own) * (1 + trained(subset)) if left(subset) != own else 0), ()
        return min(
            (least(one)[0] + least(other)[0] + joined(one, other), (one, other)) for one, other in _halves(subset)
        )

    def joined(one: int, other: int) -> int:
        together = left(one) | left(other)
        summed = together != left(one | other)
        return numel(together) * (1 + summed) * (1 + trained(one) + trained(other))

    def key(subset: int) -> Hashable:
        """The tensors, which of their indices are the same, and which are left."""
        seen: dict[Index, int] = {}
        named = tuple(
            (one.what, tuple(seen.setdefault(part, len(seen)) for part in parts_of(one.indices)))
            for at, one in enumerate(factors)
            if subset >> at & 1
        )
        return named, frozenset(at for part, at in seen.items() if left(subset) >> numbers[part] & 1)

    found: dict[Hashable, int] = {}
    ask = [everything]
    while ask:
        subset = ask.pop()
        takes, halves = least(subset)
        found[key(subset)] = takes - sum(least(one)[0] for one in halves)
        ask += halves
    return found


def _halves(subset: int) -> Iterator[tuple[int, int]]:
    """All ways to part a set in two, each once."""
    lowest = subset & -subset
    one = (subset - 1) & subset
    while one:
        if one & lowest:
            yield one, subset & ~one
        one = (one - 1) & subset
