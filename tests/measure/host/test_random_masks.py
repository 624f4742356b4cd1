"""Masks that are drawn from bits of whole random words: their distribution, their seed, and torch as it was after."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.measure.host.random_masks import drawn_from_bits, masks_from_bits


@pytest.fixture
def from_bits() -> Iterator[list[int]]:
    drawn: list[int] = []
    undo = masks_from_bits(lambda: drawn.append(1))
    yield drawn
    undo()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool])
def test_each_number_is_a_one_by_the_probability(p: float, dtype: torch.dtype) -> None:
    mask = drawn_from_bits(torch.empty(400, 1001, dtype=dtype), p, torch.Generator().manual_seed(7)).double()
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    # Six standard deviations of 400,400 draws; neighbours share a word, and are as independent as others.
    spread = 6 * (p * (1 - p) / mask.numel()) ** 0.5
    assert abs(mask.mean().item() - p) < spread + 1 / 65_536
    pairs = (mask[:, :-1] * mask[:, 1:]).mean().item()
    assert abs(pairs - p * p) < 2 * spread + 2 / 65_536


@pytest.mark.parametrize(("p", "all_of_them"), [(0.0, 0.0), (1.0, 1.0), (1e-9, 0.0)])
def test_the_ends(p: float, all_of_them: float) -> None:
    assert drawn_from_bits(torch.empty(10_003), p).unique().tolist() == [all_of_them]


def test_layouts_and_sizes_are_kept() -> None:
    turned = torch.empty(30, 20).t()
    assert drawn_from_bits(turned, 0.5) is turned and turned.shape == (20, 30)
    assert drawn_from_bits(torch.empty(0), 0.5).numel() == 0
    assert drawn_from_bits(torch.empty(()), 1.0).item() == 1


def test_dropout_and_attention_draw_so_until_it_is_undone() -> None:
    torch.manual_seed(3)
    plain = functional.dropout(torch.ones(1000), 0.3)
    drawn: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        undo = masks_from_bits(lambda: drawn.append(1))
    try:
        x = torch.ones(100_000, requires_grad=True)
        out = functional.dropout(x, 0.3)
        out.sum().backward()
        assert out.detach().unique().tolist() == pytest.approx([0.0, 1 / 0.7])
        assert (out.detach() == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
        assert x.grad is not None and torch.equal(x.grad, out.detach())
        query = torch.randn(2, 2, 8, 4)
        functional.scaled_dot_product_attention(query, query, query, dropout_p=0.1)
        assert len(drawn) == 2
        torch.manual_seed(3)
        first = functional.dropout(torch.ones(1000), 0.3)
        torch.manual_seed(3)
        assert torch.equal(functional.dropout(torch.ones(1000), 0.3), first) and not torch.equal(first, plain)
        with pytest.raises(RuntimeError, match=r"p=1\.5"):
            torch.empty(3).bernoulli_(1.5)
    finally:
        undo()
    torch.manual_seed(3)
    assert torch.equal(functional.dropout(torch.ones(1000), 0.3), plain)


def drawn_of_seed_3() -> torch.Tensor:
    torch.manual_seed(3)
    return functional.dropout(torch.ones(1000), 0.3)


def test_it_holds_where_a_script_drops_what_it_gives() -> None:
    """In a process of its own: nothing can undo it here."""
    script = (
        "import gc, torch, perf_diagnostics\n"
        "def drawn():\n"
        "    torch.manual_seed(3)\n"
        "    return torch.nn.functional.dropout(torch.ones(1000), 0.3)\n"
        "plain = drawn()\n"
        "perf_diagnostics.masks_from_bits()\n"
        "gc.collect()\n"
        "assert not torch.equal(drawn(), plain)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_asked_for_twice_it_holds_until_both_are_undone() -> None:
    """A script that has it, and is run with it in a trial."""
    plain, drawn = drawn_of_seed_3(), []
    first = masks_from_bits(lambda: drawn.append("first"))
    second = masks_from_bits(lambda: drawn.append("second"))
    try:
        assert not torch.equal(drawn_of_seed_3(), plain) and drawn == ["first", "second"]
        first()
        first()  # once more is nothing more
        assert not torch.equal(drawn_of_seed_3(), plain) and drawn[2:] == ["second"]
    finally:
        first(), second()
    assert torch.equal(drawn_of_seed_3(), plain)
    masks_from_bits()()
    assert torch.equal(drawn_of_seed_3(), plain)


def test_a_torch_that_cannot_take_its_kernel_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = drawn_of_seed_3()
    monkeypatch.delattr(torch.library.Library, "_destroy")
    with pytest.raises(InvalidSettings, match="leave it out"):
        masks_from_bits()
    assert torch.equal(drawn_of_seed_3(), plain)


def test_others_that_draw_are_left_as_they_are(from_bits: list[int]) -> None:
    torch.rand(3), torch.randn(3), torch.bernoulli(torch.full((3,), 0.5)), torch.empty(3).bernoulli_(torch.rand(3))
    assert not from_bits
