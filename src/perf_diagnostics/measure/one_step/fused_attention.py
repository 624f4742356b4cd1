"""Whether torch has one kernel for an attention of some shape, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.one_step.watcher import stored_numbers

#: It is tried where the attention that it stands for takes no longer, and its tensors hold no more numbers.
_LONGEST_S, _MOST_NUMBERS = 0.2, 1 << 24


@dataclass(frozen=True)
class Kernel:
    """Attention in one kernel.

    ``shape`` is (batch times heads, queries, keys, width of a head); ``causal`` that the mask leaves each query what
    does not come after it; ``biased`` that what is added to the scores is trained.
    """

    shape: tuple[int, int, int, int]
    dtype: torch.dtype
    device: torch.device
    masked: bool
    causal: bool
    biased: bool
    dropout: bool

    def exists(self) -> bool | None:
        """Whether torch would choose one; None where it does not say. Nothing is computed for it."""
        choose = getattr(torch, "_fused_sdp_choice", None)
        if choose is None:
            return None
        try:
            query, key, mask = self._tensors(torch.empty, 1)  # how many there are makes no difference
            with _kernels_on():
                return int(choose(query, key, key, mask, 0.1 if self.dropout else 0.0, is_causal=self.causal)) > 0
        except FAULTS:
            return None

    def seconds(self, takes: float) -> float | None:
        """What it takes of the thread's CPU time, forward and backward, on a CPU: the less of two tries.

        Args:
            takes: the seconds of what it stands for.

        Returns:
            None where it was not tried: on a device, with dropout, whose draws would be others', or where it would
            take too long, or too much memory.
        """
        batch, queries, keys, width = self.shape
        large = batch * (queries + keys) * width > _MOST_NUMBERS
        if self.device.type != "cpu" or self.dropout or takes > _LONGEST_S or large:
            return None
        query, key, mask = self._tensors(torch.ones, batch)
        attend = torch.nn.functional.scaled_dot_product_attention
        took = []
        try:
            for _ in range(2):
                began = time.thread_time_ns()
                with _kernels_on(), torch.enable_grad(), torch.autocast("cpu", enabled=False):
                    made = attend(query, key, key, mask, is_causal=self.causal)
                    torch.autograd.grad(made, (query, key), torch.ones_like(made))
                took.append(time.thread_time_ns() - began)
        except FAULTS:
            return None
        return min(took) * 1e-9

    def _tensors(
        self, make: Callable[..., torch.Tensor], batch: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        _, queries, keys, width = self.shape
        kind: dict[str, Any] = {"dtype": self.dtype, "device": self.device}
        query = make((1, batch, queries, width), requires_grad=True, **kind)
        key = make((1, batch, keys, width), requires_grad=True, **kind)
        mask = make((queries, keys), requires_grad=self.biased, **kind) if self.masked and not self.causal else None
        return query, key, mask


#: Torch's own switches, which hold for the CPU as well; flash is the only kernel that there is on it.
_SWITCHES: Any = torch.backends.cuda


def kernels_are_off() -> bool:
    """Whether torch must not choose flash attention; where it then computes step by step there was no other kernel."""
    return not _SWITCHES.flash_sdp_enabled()


@contextmanager
def _kernels_on() -> Iterator[None]:
    """Whoever has switched them off finds them so again."""
    flash, efficient = _SWITCHES.flash_sdp_enabled(), _SWITCHES.mem_efficient_sdp_enabled()
    _SWITCHES.enable_flash_sdp(True)
    _SWITCHES.enable_mem_efficient_sdp(True)
    try:
        yield
    finally:
        _SWITCHES.enable_flash_sdp(flash)
        _SWITCHES.enable_mem_efficient_sdp(efficient)


#: A mask of more numbers is not looked at, and of fewer it makes no difference.
_LARGEST_MASK, _LEAST_TOKENS = 1 << 22, 16

#: Scores to which so little is added come out of softmax as zeros.
_BLOCKS = -1e3


def leaves_the_past(mask: torch.Tensor, least: int = _LEAST_TOKENS) -> bool:
    """Whether a mask, of truth values or to be added, is one square that tells each query's past from its future.

    Args:
        mask: of shape (…, queries, keys).
        least: the fewest queries of one that is looked at.
    """
    numbers = stored_numbers(mask)
    if mask.dim() < 2 or mask.shape[-1] != mask.shape[-2] or mask.shape[-1] < least:
        return False
    if numbers != mask.shape[-1] ** 2 or numbers > _LARGEST_MASK:
        return False
    square = mask[(0,) * (mask.dim() - 2)].detach()
    truth = square if square.dtype is torch.bool else square < _BLOCKS
    future = torch.ones_like(truth, dtype=torch.bool).triu(1)
    return bool(torch.equal(truth, future)) or (square.dtype is torch.bool and bool(torch.equal(truth, ~future)))
