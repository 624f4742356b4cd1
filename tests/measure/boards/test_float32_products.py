"""The precision of float32 products, said in the old way and in the new one, and what is left of it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.boards.float32_products import float32_products, float32_products_kept

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
