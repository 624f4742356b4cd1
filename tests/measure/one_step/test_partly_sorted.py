"""Of which sorts it is told that a few numbers are read, and what finds these."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perf_diagnostics.measure.one_step import partly_sorted
from perf_diagnostics.measure.one_step.every_watcher import watchers_of
from perf_diagnostics.measure.one_step.partly_sorted import SIGNAL, UNTRIED
from tests.measure.one_step.looking import Loss, looked_at
from tests.measure.one_step.test_needless_operators import told, trained

ROWS, SIZE = 20, 400


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A sort takes four times as long as what finds some; gives what was tried."""
    kinds: list[Any] = []

    def took(kind: Any, few: Any) -> float:
        kinds.append(kind)
        return 4.0 if few is None else 1.0

    monkeypatch.setattr(partly_sorted, "_took", took)
    monkeypatch.setattr("perf_diagnostics.measure.one_step.operator_graph.seconds_or_bytes", lambda _ran: 1e-3)
    return kinds


def _some() -> dict[str, tuple[str, int, Loss]]:
    """What finds those that are read, how many, and a loss."""
    x, flat = trained(ROWS, SIZE), trained(ROWS * SIZE)
    weights = torch.randn(ROWS, 7)
    with torch.no_grad():
        fixed = torch.randn(ROWS, SIZE)

    def picked() -> torch.Tensor:
        hardest = flat.square().argsort(descending=True)[:50]
        return flat[hardest].exp().sum()

    def both() -> torch.Tensor:
        values, places = x.exp().sort(1)
        return values[:, :5].sum() + x.gather(1, places[:, :9]).sum()

    return {
        "the first": ("topk", 7, lambda: (x.exp().sort(1)[0][:, :7] * weights).exp().sum()),
        "the last": ("topk", 7, lambda: (x.exp().sort(1)[0][:, -7:] * weights).exp().sum()),
        "their places": ("topk", 50, picked),
        "both": ("topk", 9, both),
        "ties in order": (
            "topk",
            7,
            lambda: (x.exp().sort(dim=1, stable=True)[0][:, :7] * weights).exp().sum(),
        ),
        "of a dimension counted from the end": ("topk", 7, lambda: x.exp().sort(dim=-2)[0][:7].exp().sum()),
        "sorted by name, of places": ("topk", 9, lambda: x.gather(1, x.argsort(dim=1)[:, :9]).exp().sum()),
        "detached": ("kthvalue", 1, lambda: (x * (x > x.sort(1)[0].detach()[:, -9:-8])).exp().sum()),
        "of some rows": ("topk", 5, lambda: x.exp().sort(1)[0][3:9, :5].exp().sum()),
        "along the first dimension": ("topk", 7, lambda: x.exp().sort(0)[0][:7].exp().sum()),
        "some not at the end": ("topk", 8, lambda: x.exp().sort(1)[0][:, 3:8].exp().sum()),
        "every second of the first": ("topk", 9, lambda: x.exp().sort(1)[0][:, :10:2].exp().sum()),
        "the largest": ("amax", 1, lambda: x.exp().sort(1)[0][:, -1].exp().sum()),
        "one in the midst": ("kthvalue", 1, lambda: x.exp().sort(1)[0][:, 200].exp().sum()),
        "a number": ("kthvalue", 1, lambda: flat.exp().sum() * float(flat.detach().exp().sort()[0][-30])),
        "a quantile": ("kthvalue", 2, lambda: (x * (fixed > fixed.quantile(0.9, dim=1, keepdim=True))).exp().sum()),
    }


@pytest.mark.parametrize("words", _some())
def test_what_finds_those_that_are_read_is_told(words: str, tried: list[Any]) -> None:
    instead, count, loss = _some()[words]
    (one,) = told(SIGNAL, loss)
    assert (one["instead"], one["count"], one["calls"]) == (instead, count, 1)
    assert one["size"] in {ROWS, SIZE, ROWS * SIZE} and one["line"] and len(tried) == 6


class _SortsOnce(torch.autograd.Function):
    """Gives the first five, and needs all of them in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        values, _ = x.sort(1)
        ctx.save_for_backward(values)
        return values[:, :5].sum(1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (values,) = ctx.saved_tensors
        return values.softmax(1) * gradients[0][:, None]


def _others() -> dict[str, Loss]:
    x, cube, held = trained(ROWS, SIZE), trained(4, SIZE, 5), []
    weights = torch.randn(ROWS, SIZE)

    def kept() -> torch.Tensor:
        held.append(x.exp().sort(1)[0])
        return held[-1][:, :7].exp().sum()

    def written_over() -> torch.Tensor:
        with torch.no_grad():
            values = x.exp().sort(1)[0]
            values[:, :3] = 0.0
            first = values.cumsum(1)
        return (x * first).sum()

    return {
        "all": lambda: (x.exp().sort(1)[0] * weights).exp().sum(),
        "most": lambda: x.exp().sort(1)[0][:, :250].exp().sum(),
        "flattened whole": lambda: x.exp().sort(0)[0].flatten().exp().sum(),
        "flattened with others": lambda: cube.exp().sort(1)[0].flatten(1).exp().sum(),
        "a diagonal": lambda: x.exp().sort(1)[0].diagonal().exp().sum(),
        "the other diagonal": lambda: x.exp().sort(0)[0].diagonal().exp().sum(),
        "places in order of equals": lambda: x.gather(1, (x > 0).int().sort(dim=1, stable=True)[1][:, :9]).exp().sum(),
        "truth values": lambda: x.gather(1, (x > 0).sort(dim=1)[1][:, :9]).exp().sum(),
        "read in backward": lambda: _SortsOnce.apply(x.exp()).sum(),
        "flattened": lambda: x.exp().sort(1)[0].flatten()[:900].exp().sum(),
        "kept": kept,
        "written over": written_over,
        "little": lambda: x[:2, :100].exp().sort(1)[0][:, :5].exp().sum(),
        "numpy": lambda: x.exp().sum() * float(x.detach().exp().sort(1)[0].numpy().sum()),
        "topk": lambda: x.exp().topk(7, 1)[0].exp().sum(),
        "many quantiles": lambda: x.exp().sum() * x.detach().quantile(torch.tensor([0.1, 0.5, 0.9]), dim=1).sum().exp(),
        "none": lambda: x.exp().sum() + 0 * len(x.sort(1)[0]),
    }


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("words", _others())
def test_other_sorts_are_not(words: str) -> None:
    assert told(SIGNAL, _others()[words]) == []


@pytest.mark.usefixtures("tried")
def test_from_both_ends_is_more_than_half() -> None:
    x = trained(ROWS, SIZE)

    def loss() -> torch.Tensor:
        values = x.exp().sort(1)[0]
        return values[:, :2].sum() + values[:, -2:].exp().sum()

    assert told(SIGNAL, loss) == []


def test_without_a_gradient_backward_is_not_tried(tried: list[Any]) -> None:
    x = trained(ROWS, SIZE)
    (one,) = told(SIGNAL, lambda: (x * (x.detach() > x.detach().sort(1)[0][:, -9:-8])).exp().sum())
    assert one["backward"] == 0 < one["forward"] and not any(kind.learns for kind in tried)
    tried.clear()
    (one,) = told(SIGNAL, lambda: x.sort(1)[0][:, :5].exp().sum())
    assert one["backward"] > 0 and all(kind.learns for kind in tried)


@pytest.mark.parametrize(("part", "tells"), [(0.85, False), (0.75, True)])
def test_what_is_nearly_as_long_is_not_told(monkeypatch: pytest.MonkeyPatch, part: float, tells: bool) -> None:
    monkeypatch.setattr(partly_sorted, "_took", lambda _kind, few: 1.0 if few is None else part)
    x = trained(ROWS, SIZE)
    assert bool(told(SIGNAL, lambda: x.sort(1)[0][:, :5].exp().sum())) is tells


def test_what_there_was_no_time_to_try_is_told_as_such(tried: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partly_sorted, "_BUDGET_S", 0.0)
    x = trained(ROWS, SIZE)
    facts, gaps = looked_at(watchers_of([]), lambda: x.sort(1)[0][:, :5].exp().sum())
    assert facts[SIGNAL] == [] and SIGNAL not in gaps and tried == []
    assert 0.1 < float(str(facts[UNTRIED])) < 1
    facts, _ = looked_at(watchers_of([]), lambda: x.sort(1)[0].exp().sum())
    assert facts[UNTRIED] == 0


@pytest.mark.parametrize("words", _some())
def test_both_are_really_tried(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long each takes is another matter; what it finds is what a sort has there."""
    really, seen = partly_sorted._took, []

    def took(kind: Any, few: Any) -> float:
        assert really(kind, few) >= 0
        seen.append(few)
        return 4.0 if few is None else 1.0

    monkeypatch.setattr(partly_sorted, "_took", took)
    (one,) = told(SIGNAL, _some()[words][2])
    assert one["whole"] > 0 and len(seen) == 6 and seen[0] is None and seen[1] is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize(("name", "count"), [("topk", 9), ("kthvalue", 1), ("kthvalue", 2), ("amax", 1)])
def test_each_is_tried_in_the_sorts_type(dtype: torch.dtype, name: str, count: int) -> None:
    few = partly_sorted._Few(name, count)
    kind = partly_sorted._Kind((12, 30), dtype, 1, few, True)
    assert partly_sorted._took(kind, few) >= 0 and partly_sorted._took(kind, None) >= 0
    numbers = torch.randperm(360).view(12, 30).double()
    in_order = numbers.sort(1)[0]
    for made in partly_sorted._found(numbers, 1, few):
        assert torch.isin(made, in_order).all() and made.shape[0] == 12
