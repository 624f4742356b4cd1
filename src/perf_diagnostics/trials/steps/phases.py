"""Where a step marks its phases: the seam between one training step and whoever looks at it."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

from perf_diagnostics.records import Phase


class Phases(Protocol):
    """Where a step marks its phases: the probe, or whatever stands in its place while nothing is timed."""

    epoch: int

    def data_wait(self) -> contextlib.AbstractContextManager[None]: ...

    def transfer(self) -> contextlib.AbstractContextManager[None]: ...

    def forward(self) -> contextlib.AbstractContextManager[None]: ...

    def backward(self) -> contextlib.AbstractContextManager[None]: ...

    def optimizer(self) -> contextlib.AbstractContextManager[None]: ...

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> object: ...


class LookedAt:
    """The phases of a step that is not timed, where all of them are looked at in the same way: by ``_span``."""

    def data_wait(self) -> contextlib.AbstractContextManager[None]:
        return self._span(Phase.DATA_WAIT)

    def transfer(self) -> contextlib.AbstractContextManager[None]:
        return self._span(Phase.TRANSFER)

    def forward(self) -> contextlib.AbstractContextManager[None]:
        return self._span(Phase.FORWARD)

    def backward(self) -> contextlib.AbstractContextManager[None]:
        return self._span(Phase.BACKWARD)

    def optimizer(self) -> contextlib.AbstractContextManager[None]:
        return self._span(Phase.OPTIMIZER)

    def _span(self, phase: Phase, /) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError
