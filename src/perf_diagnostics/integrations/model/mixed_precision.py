"""The type that a framework's mixed precision computes in, by the name the framework gives it."""

from __future__ import annotations

import torch

#: Accelerate's names (``mixed_precision``) and Lightning's (``precision``); what computes in float32 is not among them.
_TYPES = {
    "bf16": torch.bfloat16,
    "bf16-mixed": torch.bfloat16,
    "bf16-true": torch.bfloat16,
    "fp16": torch.float16,
    "16-mixed": torch.float16,
    "16-true": torch.float16,
}


def autocast_named(name: object) -> torch.dtype | None:
    """The type, or None where the parameters' own decides."""
    return _TYPES.get(str(name))
