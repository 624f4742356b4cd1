"""What float32 matrix products may be computed in on a GPU, whichever of torch's two ways of saying it was used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


def float32_products() -> str:
    """``highest`` (float32), ``high`` (TF32 is allowed) or ``medium`` (bfloat16 parts).

    From torch 2.9 on ``torch.backends.cuda.matmul.fp32_precision`` says it too, and the last word is its: once it was
    set, ``torch.get_float32_matmul_precision`` raises ("mix of the legacy and new APIs") or tells what no longer holds
    (seen in torch 2.13).
    """
    old, new = _old_setting(), _new_setting()
    if new == "ieee":
        return "highest"
    if new == "tf32":
        return "medium" if old == "medium" else "high"
    return old or "highest"


@contextlib.contextmanager
def float32_products_kept() -> Iterator[None]:
    """Puts back afterwards what both ways said before."""
    said, new = _old_setting(), _new_setting()
    try:
        yield
    finally:
        # The old way sets the new one as well, so that goes last.
        if said is not None and said != _old_setting():
            torch.set_float32_matmul_precision(said)
        if new != _new_setting():
            torch.backends.cuda.matmul.fp32_precision = new


def _old_setting() -> str | None:
    """None where the new way was used, and contradicts it."""
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        return None


def _new_setting() -> str | None:
    """``none`` (not set), ``ieee`` or ``tf32``; None before torch 2.9."""
    matmul: Any = torch.backends.cuda.matmul
    try:
        return str(matmul.fp32_precision)
    except AttributeError:
        return None
