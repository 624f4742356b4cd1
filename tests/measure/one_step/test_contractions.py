"""What products of several factors take in their best order, and indices that views split."""

from __future__ import annotations

import pytest

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


def sizes(indices: list[Index]) -> list[int]:
    return [one.size for one in parts_of(indices)]


def least(factors: list[Factor], kept: list[Index]) -> int:
    return sum(cheapest(factors, kept).values())


def test_the_best_of_both_orders_is_found_with_its_gradients() -> None:
    n, k, m, p = Index(100), Index(5), Index(80), Index(3)
    # k.m.p first: 2·5·80·3 and 2·100·5·3; the other way it would be 2·100·5·80 and 2·100·80·3.
    frozen = [Factor(one, trained=False) for one in ([n, k], [k, m], [m, p])]
    assert least(frozen, [n, p]) == 2 * 5 * 80 * 3 + 2 * 100 * 5 * 3
    trained = [Factor(one, trained=True) for one in ([n, k], [k, m], [m, p])]
    assert least(trained, [n, p]) == 3 * least(frozen, [n, p])
    # Only the last one is trained: two products of it have a gradient for one operand each.
    last = [*frozen[:2], Factor([m, p], trained=True)]
    assert least(last, [n, p]) == 2 * least(frozen, [n, p])


def test_a_mask_of_both_indices_keeps_the_other_order_from_being_cheap() -> None:
    n, k, m, p = Index(64), Index(4), Index(64), Index(4)
    factors = [Factor(one, trained=False) for one in ([n, k], [k, m], [m, p])]
    assert least(factors, [n, p]) == 4 * 64 * 4 * 4
    masked = least([*factors, Factor([n, m], trained=False)], [n, p])
    assert masked == 2 * 64 * 64 * 4 + 64 * 64 + 2 * 64 * 64 * 4
    row = least([*factors, Factor([n], trained=False)], [n, p])
    assert row == 4 * 64 * 4 * 4 + 64 * 4  # scales q or the result


def test_the_same_product_of_the_same_tensors_is_computed_once() -> None:
    """X (X' X) (X' X) of 100 rows of 5: X' X once, its square, and X times that."""
    rows, columns = [Index(100) for _ in range(3)], [Index(5) for _ in range(3)]
    chain = [[rows[0], columns[0]], [rows[1], columns[0]], [rows[1], columns[1]], [rows[2], columns[1]]]
    chain.append([rows[2], columns[2]])
    same = [Factor(one, trained=False, what="X") for one in chain]
    once, cube, last = 2 * 5 * 5 * 100, 2 * 5**3, 2 * 100 * 5 * 5
    assert least(same, [rows[0], columns[2]]) == once + cube + last
    others = [Factor(one, trained=False, what=number) for number, one in enumerate(chain)]
    assert least(others, [rows[0], columns[2]]) == 2 * once + cube + last
    # X X' is none of X' X.
    square = [Factor([one, columns[0]], trained=False, what="X") for one in rows[:2]]
    made = {key for key, takes in cheapest(square, rows[:2]).items() if takes}
    assert made.isdisjoint(cheapest(same, [rows[0], columns[2]]))


def test_an_index_that_nobody_else_has_is_summed_before() -> None:
    n, k, m = Index(100), Index(5), Index(80)
    # The rows' sums of a product: 5·80 for the sum of one factor, and a product with a vector.
    assert least([Factor(one, trained=False) for one in ([n, k], [k, m])], [n]) == 5 * 80 + 2 * 100 * 5


def test_a_view_goes_through_parts_of_indices_and_through_several() -> None:
    rows, columns = Index(24), Index(10)
    lies = laid_out([([rows], 10), ([columns], 1)])
    assert sizes(seen_in(lies, 4, 60)) == [4] and sizes(seen_in(lies, 6, 10)) == [6]
    assert sizes([rows]) == [4, 6]
    assert sizes(seen_in(lies, 60, 1)) == [6, 10]
    assert sizes(seen_in(lies, 240, 1)) == [4, 6, 10]


@pytest.mark.parametrize(("size", "stride"), [(16, 10), (5, 20), (5, 48)])
def test_what_goes_through_no_whole_index_is_unlike(size: int, stride: int) -> None:
    with pytest.raises(Unlike):
        seen_in(laid_out([([Index(24)], 10), ([Index(10)], 1)]), size, stride)


def test_matched_dimensions_are_split_alike() -> None:
    whole, outer, inner = Index(12), Index(3), Index(4)
    match([whole], [outer, inner])
    assert parts_of([whole]) == parts_of([outer, inner])
    with pytest.raises(Unlike):
        match([Index(2), Index(3)], [Index(3), Index(2)])
