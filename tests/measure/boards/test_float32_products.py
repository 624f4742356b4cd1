"""The precision of float32 products, said in the old way and in the new one, and what is left of it afterwards."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.boards.float32_products import (
    float32_products,
    float32_products_kept,
    say_float32_products,
)

MATMUL: Any = torch.backends.cuda.matmul
needs_the_new_way = pytest.mark.skipif(not hasattr(MATMUL, "fp32_precision"), reason="torch before 2.9")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    with float32_products_kept():
        yield


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_the_old_way(precision: str) -> None:
    torch.set_float32_matmul_precision(precision)
    assert float32_products() == precision


@needs_the_new_way
@pytest.mark.parametrize(("setting", "precision"), [("tf32", "high"), ("ieee", "highest")])
def test_the_new_way_has_the_last_word(setting: str, precision: str) -> None:
    torch.set_float32_matmul_precision({"tf32": "highest", "ieee": "high"}[setting])
    MATMUL.fp32_precision = setting
    assert float32_products() == precision


def test_what_was_said_in_the_old_way_is_put_back_after_an_error_too() -> None:
    torch.set_float32_matmul_precision("medium")
    with pytest.raises(KeyError), float32_products_kept():
        torch.set_float32_matmul_precision("high")
        raise KeyError
    assert torch.get_float32_matmul_precision() == "medium"


@needs_the_new_way
def test_what_was_said_in_the_new_way_is_put_back() -> None:
    torch.set_float32_matmul_precision("highest")
    MATMUL.fp32_precision = "tf32"
    with pytest.raises(RuntimeError, match="mix of the legacy and new"):
        torch.get_float32_matmul_precision()  # why none of our code asks this way
    with float32_products_kept():
        torch.set_float32_matmul_precision("highest")
        assert MATMUL.fp32_precision == "ieee"
    assert MATMUL.fp32_precision == "tf32"


#: aten/src/ATen/Context.cpp of torch 2.9, warn_deprecated_fp32_precision_api, from both of them.
ADVICE = "Please use the new API settings to control TF32 behavior, such as torch.backends.cudnn.conv.fp32_precision"


@needs_the_new_way
def test_the_advice_that_torch_2_9_gives_to_who_asks_the_old_way_reaches_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All warnings are errors here; asking for what is set must not even look as if it had been asked the old way."""
    asked: list[str] = []

    def advising(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            asked.append(name)
            warnings.warn(ADVICE, UserWarning, stacklevel=2)
            return function(*arguments)

        return call

    for name in ("get_float32_matmul_precision", "set_float32_matmul_precision"):
        monkeypatch.setattr(torch, name, advising(name, getattr(torch, name)))
    assert float32_products() == "highest"
    assert asked == []
    with float32_products_kept():
        say_float32_products("high")
        assert float32_products() == "high"
    assert float32_products() == "highest"
    assert "set_float32_matmul_precision" in asked


def test_a_torch_that_knows_only_the_old_way_is_asked_that_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch 2.8, whose backends raise AttributeError for what they do not know."""
    for of in ("cuda", "mkldnn"):
        monkeypatch.setattr(torch.backends, of, types.SimpleNamespace(matmul=types.SimpleNamespace()))
    with float32_products_kept():
        say_float32_products("medium")
        assert float32_products() == "medium"
    assert float32_products() == "highest"


@needs_the_new_way
def test_what_processors_compute_in_is_put_back_too() -> None:
    before = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    with float32_products_kept():
        say_float32_products("medium")
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"  # type: ignore[attr-defined]
    assert torch.backends.mkldnn.matmul.fp32_precision == before  # type: ignore[attr-defined]
