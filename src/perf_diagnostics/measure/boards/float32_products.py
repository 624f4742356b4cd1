"""What float32 matrix products may be computed in on a GPU, whichever of torch's two ways of saying it was used."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch


def float32_products() -> str:
    """``highest`` (float32), ``high`` (TF32 is allowed) or ``medium`` (bfloat16 parts).

    From torch 2.9 on ``torch.backends.cuda.matmul.fp32_precision`` says it, too, and has the last word: whoever says it
    the old way sets the new one as well (aten/src/ATen/Context.cpp, setFloat32MatmulPrecision). There the old way is
    not asked: ``torch.get_float32_matmul_precision`` warns on standard error in torch 2.9, and once the new way was
    used it raises ("mix of the legacy and new APIs") or tells what no longer holds.
    """
    on_gpu = _new_setting("cuda")
    if on_gpu is None:
        return str(torch.get_float32_matmul_precision())
    if on_gpu != "tf32":
        return "highest"
    return "medium" if _new_setting("mkldnn") == "bf16" else "high"


@contextlib.contextmanager
def float32_products_kept() -> Iterator[None]:
    """Puts back afterwards what both ways said before."""
    said, new = _old_setting(), {of: _new_setting(of) for of in ("cuda", "mkldnn")}
    try:
        yield
    finally:
        # The old way sets the new one as well, so that goes last.
        if said is not None and said != _old_setting():
            say_float32_products(said)
        for of, setting in new.items():
            if setting is not None and setting != _new_setting(of):
                getattr(torch.backends, of).matmul.fp32_precision = setting


def say_float32_products(precision: str) -> None:
    """Say it in the old way, which sets both: the compiler asks that one, which raises where only the new was used."""
    with _without_advice():
        torch.set_float32_matmul_precision(precision)


def _old_setting() -> str | None:
    """None where the new way was used, and contradicts it."""
    try:
        with _without_advice():
            return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        return None


def _new_setting(of: str) -> str | None:
    """``none`` (not set), ``ieee``, ``tf32``, on processors (``mkldnn``) ``bf16``; None before torch 2.9."""
    matmul: Any = getattr(getattr(torch.backends, of), "matmul", None)
    try:
        return str(matmul.fp32_precision)
    except AttributeError:
        return None


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Torch 2.9 advises whoever uses the old way to use the new one, which before 2.9 is not there."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Please use the new API settings", category=UserWarning)
        yield
