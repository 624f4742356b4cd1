"""What a mode has to be that only looks at the operators of somebody's training."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class LookingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that leaves torch's compiler alone."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not by torch's own wrapper, which imports all of torch._dynamo at the first operator: about a second."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """What is compiled meanwhile is left alone."""
        return True
