"""Which rows are told as read or added up in a slow form, and by how much the other form is quicker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.one_step import slow_indexing
from perf_diagnostics.measure.one_step.every_watcher import watchers_of
from perf_diagnostics.measure.one_step.slow_indexing import SIGNAL, UNTRIED
from perf_diagnostics.measure.one_step.tried_again import Like
from tests.measure.one_step.looking import Loss, looked_at
from tests.measure.one_step.test_needless_operators import told, trained

#: Seconds in forward and in backward, of the form that is looked for and of the other one.
SLOW, QUICK = slow_indexing._Took(2.0, 6.0), slow_indexing._Took(1.0, 1.0)

ROWS, WIDE, READ = 100, 64, 300


@pytest.fixture
def by_form(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A form that is looked for takes four times as long as the other one; gives whether each try has a backward."""
    learning: list[bool] = []

    def took(do: Any, form: Any, _indices: Sequence[torch.Tensor], *, learns: bool) -> Any:
        learning.append(learns)
        return SLOW if do is slow_indexing._FORMS[form.name][0] else QUICK

    monkeypatch.setattr(slow_indexing, "_took", took)
    monkeypatch.setattr("perf_diagnostics.measure.one_step.operator_graph.seconds_or_bytes", lambda _ran: 1e-3)
    return learning


def numbers(*shape: int, below: int = ROWS) -> torch.Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(3))


def _losses() -> dict[str, tuple[str, int, Loss]]:
    """By their words the form, how many rows a call has, and a loss."""
    table, wide, grid = trained(ROWS, WIDE), trained(20, ROWS, 8), trained(ROWS, ROWS, 4)
    some, rows = numbers(READ), trained(READ, WIDE)
    expanded = some[:, None].expand(-1, WIDE)
    nothing = torch.zeros(ROWS, WIDE)

    return {
        "x[i]": ("index", READ, lambda: table[some].square().sum()),
        "x[i] of two dimensions": ("index", 600, lambda: table[numbers(20, 30)].square().sum()),
        "x[:, i]": ("index", READ, lambda: wide[:, some].square().sum()),
        "x[i, j]": ("index", READ, lambda: grid[some, some.flip(0)].square().sum()),
        "x[-i]": ("index", READ, lambda: table[-some].square().sum()),
        "gather": ("gather", READ, lambda: table.gather(0, expanded).square().sum()),
        "gather, of the last dimension": (
            "gather",
            60,
            lambda: table.gather(-1, numbers(60, below=WIDE).expand(ROWS, -1)).square().sum(),
        ),
        "gather, repeated": ("gather", READ, lambda: table.gather(0, some[:, None].repeat(1, WIDE)).square().sum()),
        "scatter_add": ("scatter_add", READ, lambda: nothing.scatter_add(0, expanded, rows).square().sum()),
        "scatter_add_": ("scatter_add", READ, lambda: nothing.clone().scatter_add_(0, expanded, rows).square().sum()),
        "index_put": ("index_put", READ, lambda: nothing.index_put((some,), rows, accumulate=True).square().sum()),
        "index_put_": (
            "index_put",
            READ,
            lambda: nothing.clone().index_put_((some,), rows, accumulate=True).square().sum(),
        ),
    }


@pytest.mark.parametrize("words", _losses())
def test_each_form_is_told_with_its_rows(words: str, by_form: list[bool]) -> None:
    form, rows, loss = _losses()[words]
    (one,) = told(SIGNAL, loss)
    assert (one["form"], one["rows"], one["calls"]) == (form, rows, 1)
    assert one["function"] and one["line"]
    assert by_form == [True] * 6


@pytest.mark.usefixtures("by_form")
def test_of_a_call_goes_what_the_other_form_does_not_take() -> None:
    """Half of forward and five of six of backward, where each operator takes as long."""
    table, some = trained(ROWS, WIDE), numbers(READ)
    (one,) = told(SIGNAL, lambda: table[some].exp().sum())
    assert one["forward"] == pytest.approx(0.5 / 4)  # of index, exp, sum, and the ones that backward begins with
    # Of its seven, views among them, new_zeros and index_put are the indexing's.
    assert one["backward"] == pytest.approx(5 / 6 * 2 / 7)


def _others() -> dict[str, Loss]:
    table, some, rows = trained(ROWS, WIDE), numbers(READ), trained(READ, WIDE)
    cube, added = trained(ROWS, 10, ROWS), trained(20, READ, 8)
    return {
        "a slice": lambda: table[3:70].square().sum(),
        "a mask": lambda: table[torch.ones(ROWS, dtype=torch.bool)].square().sum(),
        "index_select": lambda: table.index_select(0, some).square().sum(),
        "index_add": lambda: torch.zeros(ROWS, WIDE).index_add(0, some, rows).square().sum(),
        "of each number its own": lambda: table.gather(0, numbers(READ, WIDE)).square().sum(),
        "dimensions apart": lambda: cube[some, :, some].square().sum(),
        "sparse gradients": lambda: table.gather(0, some[:, None].expand(-1, WIDE), sparse_grad=True).exp().sum(),
        "added behind another dimension": lambda: (
            torch.ops.aten.index_put(torch.zeros(20, ROWS, 8), [None, some], added, True).square().sum()
        ),
        "set and not added": lambda: torch.zeros(ROWS, WIDE).index_put((some,), rows).square().sum(),
        "little": lambda: table[:5].clone()[some[:9] % 5].square().sum(),
        "whole numbers": lambda: table.sum() + numbers(ROWS, WIDE)[some].sum(),
        "a part of each row": lambda: (
            torch.zeros(ROWS, WIDE).scatter_add(0, some[:, None].expand(-1, 30), rows[:, :30]).square().sum()
        ),
        "some of what is given": lambda: (
            table + torch.zeros(ROWS, WIDE).scatter_add(0, some[:200, None].expand(-1, WIDE), rows.detach())
        ).mean(dim=(0, 1)),
    }


@pytest.mark.usefixtures("by_form")
@pytest.mark.parametrize("words", _others())
def test_other_reading_and_adding_is_not(words: str) -> None:
    assert told(SIGNAL, _others()[words]) == []


def test_where_no_gradient_goes_backward_is_not_tried(by_form: list[bool]) -> None:
    fixed, weight = torch.randn(ROWS, WIDE), trained(WIDE)
    (one,) = told(SIGNAL, lambda: (fixed[numbers(READ)] * weight).exp().sum())
    assert by_form == [False] * 6 and one["backward"] == 0


@pytest.mark.parametrize(("part", "tells"), [(0.85, False), (0.75, True)])
def test_a_form_that_is_nearly_as_quick_is_not_told(
    by_form: list[bool], monkeypatch: pytest.MonkeyPatch, part: float, tells: bool
) -> None:
    quick = slow_indexing._Took(*(part * one for one in SLOW))
    monkeypatch.setitem(globals(), "QUICK", quick)
    assert bool(told(SIGNAL, lambda: trained(ROWS, WIDE)[numbers(READ)].exp().sum())) is tells and by_form


def test_what_is_slower_there_is_less_of_what_is_saved_here(
    by_form: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "QUICK", slow_indexing._Took(3.0, 1.0))
    table, some = trained(ROWS, WIDE), numbers(READ)
    (one,) = told(SIGNAL, lambda: table[some].exp().sum())
    monkeypatch.setitem(globals(), "QUICK", slow_indexing._Took(2.0, 1.0))
    (alone,) = told(SIGNAL, lambda: table[some].exp().sum())
    assert one["forward"] == 0 and 0 < one["backward"] < alone["backward"] and by_form


def test_what_there_was_no_time_to_try_is_told_as_such(by_form: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_indexing, "_BUDGET_S", 0.0)
    table, some = trained(ROWS, WIDE), numbers(READ)
    facts, gaps = looked_at(watchers_of([]), lambda: table[some].exp().sum())
    assert facts[SIGNAL] == [] and SIGNAL not in gaps and by_form == []
    assert 0.2 < float(str(facts[UNTRIED])) < 1
    facts, _ = looked_at(watchers_of([]), lambda: table.exp().sum())
    assert facts[UNTRIED] == 0


@pytest.mark.parametrize(
    ("name", "dim"),
    # index_put is looked for where it adds to the first dimensions.
    [(name, dim) for name in slow_indexing._FORMS for dim in (0, 1) if (name, dim) != ("index_put", 1)],
)
def test_both_forms_make_the_same(name: str, dim: int) -> None:
    torch.manual_seed(0)
    shape, several = (12, 9, 7), name.startswith("index")
    indices = [numbers(30, below=shape[dim + at]) for at in range(1 + several)]
    source = (*shape[:dim], 30, *shape[dim + len(indices) :]) if name in slow_indexing._ADD else ()
    like = Like(shape, (63, 7, 1), torch.float64)
    form = slow_indexing._Form(name, like, dim, tuple(tuple(one.shape) for one in indices), source)
    made = []
    for do in slow_indexing._FORMS[name]:
        torch.manual_seed(1)
        tensor = torch.randn(shape, dtype=torch.float64, requires_grad=not source)
        rows = [torch.randn(source, dtype=torch.float64, requires_grad=True)] if source else []
        result = do(form, tensor, indices, *rows)
        weights = torch.randn(shape if source else result.shape, dtype=torch.float64)
        (gradient,) = torch.autograd.grad((result.reshape(weights.shape) * weights).sum(), rows or [tensor])
        made.append((result.reshape(weights.shape), gradient))
    torch.testing.assert_close(*made)


@pytest.mark.parametrize("words", _losses())
def test_both_forms_are_really_tried(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long each takes is another matter; negative numbers are tried, too, and nothing of the user's is met."""
    really, tried = slow_indexing._took, []

    def took(do: Any, form: Any, indices: Sequence[torch.Tensor], *, learns: bool) -> Any:
        tried.append(really(do, form, indices, learns=learns))
        return SLOW if do is slow_indexing._FORMS[form.name][0] else QUICK

    monkeypatch.setattr(slow_indexing, "_took", took)
    (one,) = told(SIGNAL, _losses()[words][2])
    assert one["whole"] > 0 and len(tried) == 6 and all(min(took) >= 0 for took in tried)


def test_an_index_that_the_script_writes_over_is_tried_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    table, some, seen = torch.randn(ROWS, WIDE), numbers(READ), []
    first, weight = some.clone(), trained(WIDE)

    def took(do: Any, form: Any, indices: Sequence[torch.Tensor], *, learns: bool) -> Any:
        seen.extend(indices)
        return SLOW if do is slow_indexing._FORMS[form.name][0] else QUICK

    def loss() -> torch.Tensor:
        made = (table[some] * weight).exp().sum()
        some.fill_(0)
        return made

    monkeypatch.setattr(slow_indexing, "_took", took)
    assert told(SIGNAL, loss) and all(torch.equal(one, first) for one in seen)


@pytest.mark.usefixtures("by_form")
def test_all_calls_of_a_line_count_and_one_that_takes_too_many_numbers_is_untried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, some, more = trained(ROWS, WIDE), numbers(READ), numbers(2 * READ)

    def loss() -> torch.Tensor:
        return sum((table[index].exp().sum() for index in (some, more, some)), torch.tensor(0.0))

    (one,) = told(SIGNAL, loss)
    assert (one["calls"], one["rows"]) == (3, 2 * READ)
    monkeypatch.setattr(slow_indexing, "_MOST_KEPT", READ)
    facts, _ = looked_at(watchers_of([]), loss)
    found: Any = facts[SIGNAL]
    assert [few["calls"] for few in found] == [2]
    assert 0.6 < found[0]["whole"] / one["whole"] < 0.7  # two of three
    assert 0 < float(str(facts[UNTRIED])) < 0.5


@pytest.mark.usefixtures("by_form")
def test_what_is_the_same_for_rows_by_chance_is_not_told() -> None:
    """The last step of each sample, whose lengths are equal in this batch."""
    x, lengths = trained(20, 30, WIDE), torch.full((20,), 30)
    assert told(SIGNAL, lambda: x.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, WIDE)).exp().sum()) == []
    table, alike = trained(ROWS, WIDE), numbers(READ)[:, None] + torch.zeros(1, WIDE, dtype=torch.int64)
    assert told(SIGNAL, lambda: table.gather(0, alike + 0).exp().sum()) == []
