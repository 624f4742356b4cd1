"""Of which inverses it is told that solving would do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perf_diagnostics.measure.one_step import inverted_matrices
from perf_diagnostics.measure.one_step.every_watcher import watchers_of
from perf_diagnostics.measure.one_step.inverted_matrices import SIGNAL, UNTRIED
from tests.measure.one_step.looking import Loss, looked_at
from tests.measure.one_step.test_needless_operators import told, trained

SIZE = 24


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Inverting takes four times as long as solving; gives what was tried."""
    kinds: list[Any] = []

    def took(kind: Any, *, solves: bool) -> float:
        kinds.append(kind)
        return 1.0 if solves else 4.0

    monkeypatch.setattr(inverted_matrices, "_took", took)
    monkeypatch.setattr("perf_diagnostics.measure.one_step.operator_graph.seconds_or_bytes", lambda _ran: 1e-3)
    return kinds


def _some() -> dict[str, tuple[int, int, Loss]]:
    """How many columns, how many inverses, and a loss."""
    x, many, y = trained(SIZE, SIZE), trained(3, SIZE, SIZE), torch.randn(SIZE)
    rows, columns, each = torch.randn(7, SIZE), torch.randn(SIZE, 5), torch.randn(3, SIZE, 2)
    one, held = torch.eye(SIZE), list[torch.Tensor]()

    def matrix() -> torch.Tensor:
        return x / 10 + 4 * one

    def quadratic() -> torch.Tensor:
        return y @ torch.inverse(matrix()) @ y

    def twice() -> torch.Tensor:
        inverse = torch.linalg.inv(matrix())
        return (inverse @ y).sum() + (rows @ inverse).exp().sum()

    def with_logdet() -> torch.Tensor:
        covariance = matrix()
        return y @ torch.inverse(covariance) @ y + torch.logdet(covariance)

    return {
        "a vector": (1, 1, lambda: (torch.inverse(matrix()) @ y).exp().sum()),
        "a quadratic form": (1, 1, quadratic),
        "beside its determinant": (1, 1, with_logdet),
        "columns": (5, 1, lambda: (torch.linalg.inv(matrix()) @ columns).exp().sum()),
        "rows": (7, 1, lambda: (rows @ matrix().inverse()).exp().sum()),
        "transposed": (7, 1, lambda: (matrix().inverse().T @ rows.T).exp().sum()),
        "by a name that lives on": (1, 1, lambda: (held.append(torch.inverse(matrix())) or held[-1] @ y).exp().sum()),
        "two places": (8, 1, twice),
        "added to something": (5, 1, lambda: torch.addmm(columns, matrix().inverse(), columns).exp().sum()),
        "many matrices": (2, 1, lambda: (torch.inverse(many / 10 + 4 * one) @ each).exp().sum()),
        "one by one": (
            1,
            3,
            lambda: torch.stack([torch.inverse(part / 10 + 4 * one) @ y for part in many]).exp().sum(),
        ),
    }


@pytest.mark.parametrize("words", _some())
def test_an_inverse_that_is_only_multiplied_is_told(words: str, tried: list[Any]) -> None:
    columns, calls, loss = _some()[words]
    (one,) = told(SIGNAL, loss)
    assert (one["columns"], one["calls"], one["shape"][-2:]) == (columns, calls, [SIZE, SIZE])
    assert one["line"] and one["forward"] > 0 and one["backward"] > 0
    assert len(tried) == 6 and {sum(kind.columns) for kind in tried} == {columns} and all(kind.learns for kind in tried)


def _others() -> dict[str, Loss]:
    x, y, held = trained(SIZE, SIZE), torch.randn(SIZE), []
    one, small = torch.eye(SIZE), trained(8, 8)
    columns = torch.randn(SIZE, 5)

    def matrix() -> torch.Tensor:
        return x / 10 + 4 * one

    def kept() -> torch.Tensor:
        held.append(torch.inverse(matrix().detach()))
        return (x @ held[-1] @ y).exp().sum()

    def expanded() -> torch.Tensor:
        return torch.bmm(torch.inverse(matrix()).expand(9, SIZE, SIZE), torch.ones(9, SIZE, 1)).exp().sum()

    def written_into() -> torch.Tensor:
        with torch.no_grad():
            inverse = torch.inverse(matrix())
            inverse[0] = 0.0
            times = inverse @ y
        return (x @ times).sum()

    def squared() -> torch.Tensor:
        inverse = torch.inverse(matrix())
        return (inverse @ inverse).exp().sum()

    def also_its_trace() -> torch.Tensor:
        inverse = torch.inverse(matrix())
        return (inverse @ y).exp().sum() + inverse.diagonal().sum()

    def to_numpy() -> torch.Tensor:
        summed = float(torch.inverse(matrix().detach()).numpy().sum())
        return (x * summed).sum()

    return {
        "all of it": lambda: torch.inverse(matrix()).exp().sum(),
        "a part of it": lambda: (torch.inverse(matrix())[:5, :5] @ y[:5]).exp().sum(),
        "its trace": also_its_trace,
        "by itself": squared,
        "written into": written_into,
        "kept": kept,
        "expanded": expanded,
        "numpy": to_numpy,
        "solved for": lambda: torch.linalg.solve(matrix(), y).exp().sum(),
        "as a summand": lambda: torch.addmm(torch.inverse(matrix()), columns, columns.T).exp().sum(),
        "small": lambda: (torch.inverse(small / 10 + 4 * torch.eye(8)) @ y[:8]).exp().sum(),
    }


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("words", _others())
def test_other_inverses_are_not(words: str) -> None:
    assert told(SIGNAL, _others()[words]) == []


def test_without_a_gradient_backward_is_not_tried(tried: list[Any]) -> None:
    x, y = trained(SIZE, SIZE), torch.randn(SIZE)
    (one,) = told(SIGNAL, lambda: (x @ (torch.inverse(x.detach() / 10 + 4 * torch.eye(SIZE)) @ y)).exp().sum())
    assert one["backward"] == 0 < one["forward"] and not any(kind.learns for kind in tried)


@pytest.mark.parametrize(("part", "tells"), [(0.85, False), (0.75, True)])
def test_what_is_nearly_as_long_is_not_told(monkeypatch: pytest.MonkeyPatch, part: float, tells: bool) -> None:
    monkeypatch.setattr(inverted_matrices, "_took", lambda _kind, *, solves: part if solves else 1.0)
    assert bool(told(SIGNAL, _some()["a vector"][2])) is tells


def test_what_there_was_no_time_to_try_is_told_as_such(tried: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inverted_matrices, "_BUDGET_S", 0.0)
    facts, gaps = looked_at(watchers_of([]), _some()["a vector"][2])
    assert facts[SIGNAL] == [] and SIGNAL not in gaps and tried == []
    assert 0 < float(str(facts[UNTRIED])) < 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("shape", [(16, 16), (3, 16, 16)])
def test_both_are_really_tried(dtype: torch.dtype, learns: bool, shape: tuple[int, ...]) -> None:
    kind = inverted_matrices._Kind(shape, dtype, (2, 1), learns)
    drawn = torch.random.get_rng_state()
    with torch.inference_mode():
        assert all(inverted_matrices._took(kind, solves=solves) > 0 for solves in (False, True))
    assert torch.equal(torch.random.get_rng_state(), drawn)


def test_solving_for_one_column_is_told_without_pretending() -> None:
    x, y = trained(300, 300), torch.randn(300)
    (one,) = told(SIGNAL, lambda: (torch.inverse(x / 10 + 4 * torch.eye(300)) @ y).exp().sum())
    assert one["whole"] > 0.2


def test_one_inverse_for_many_products_is_left_alone() -> None:
    """Forty steps of a scheme whose matrix stays the same: solving in each of them is dearer."""
    x, y = trained(128, 128), torch.randn(128, 1)

    def steps() -> torch.Tensor:
        inverse, state = torch.inverse(x / 10 + 4 * torch.eye(128)), y
        for _ in range(40):
            state = inverse @ state
        return state.exp().sum()

    assert told(SIGNAL, steps) == []
