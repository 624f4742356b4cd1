"""How many tokens a mask of shape (batch, length) takes out, on the host."""

from __future__ import annotations

import torch


def padding_of(mask: torch.Tensor, *, marks_padding: bool) -> int | None:
    """The padding tokens by a mask, None where its numbers have no certain meaning; it must lie on the host.

    Whole numbers are zero or not. Floating ones are read only where all of them are what one kind of mask has: 1 at
    tokens and 0 at padding, or 0 at tokens and, to be added to scores, minus infinity or the least number at padding.

    Args:
        mask: any shape.
        marks_padding: whether it marks padding (torch's ``key_padding_mask``) or tokens (``attention_mask``).
    """
    numbers = mask.numel()
    if not (mask.is_floating_point() or mask.is_complex()):
        marked = int(torch.count_nonzero(mask))
        return marked if marks_padding else numbers - marked
    if mask.is_complex():
        return None
    others = int(torch.count_nonzero(mask))
    if not others:
        return 0 if marks_padding else None  # torch adds the one; the other may be either kind
    if int(torch.count_nonzero(mask <= torch.finfo(mask.dtype).min)) == others:
        return others
    if not marks_padding and int(torch.count_nonzero(mask == 1)) == others:
        return numbers - others
    return None
