"""What DistributedDataParallel's options cost beside what its log says: gradients' own memory, and graphs that change.

Nothing is put in and nothing is copied: gradients are asked whose memory they are, and a flag that DDP's reducer keeps
is read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def gradient_memory(ddp: nn.Module) -> int | None:
    """The memory that the gradients hold which DDP exchanges; None where the loop has let go of them (``zero_grad``).

    Without ``gradient_as_bucket_view`` none of it is a bucket's: DDP's reducer asserts so for each gradient that it
    copies (``check_grad_layout``, torch/csrc/distributed/c10d/reducer.cpp). Sparse gradients are in no bucket, and
    those that are spread over several processes not wholly here: both are left out.

    Args:
        ddp: the wrapper, just after an optimizer step.

    Returns:
        Bytes, memory that several gradients share counted once.
    """
    torch: Any = sys.modules["torch"]
    exchanged: Iterable[Any] = getattr(ddp, "_module_parameters", None) or ddp.parameters()
    gradients = (parameter.grad for parameter in exchanged)
    memories = [one.untyped_storage() for one in gradients if type(one) is torch.Tensor and one.layout is torch.strided]
    return sum({memory.data_ptr(): memory.nbytes() for memory in memories}.values()) if memories else None


def same_graph_so_far(ddp: Any) -> bool | None:
    """Whether the parameters that each backward pass left unused were the same in all steps; None where nobody knows.

    DDP compares them from step to step where it looks for them (``find_unused_parameters``), and logs the outcome as
    ``can_set_static_graph`` when the wrapper goes, which is too late for a report.
    """
    told: Callable[[], bool] | None = getattr(getattr(ddp, "reducer", None), "_ddp_graph_static", None)
    return None if told is None else bool(told())
