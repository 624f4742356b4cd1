"""How long the operators of a step in float64 would take in float32.

On one core (torch 2.13) float32 was 0.9 (max_pool2d) to 5.6 times (a depthwise convolution) as fast: products and sums
are twice as fast, GELU, which has no kernel for float64, four times, and convolutions and an LSTM, for which float32
has kernels of oneDNN, two to five times.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.tried_again import TriedAgain
from perf_diagnostics.measure.one_step.watcher import ON_A_DEVICE, Ran, Watcher, aten
from perf_diagnostics.records import Json

SIGNAL = "float64_operators"

#: What trying may take in all, in s of the thread.
_BUDGET_S = 0.8

#: Decompositions and solvers, whose errors grow with the matrix's condition: a Gram matrix of a Gaussian process has a
#: million and more, and float32 seven digits.
_WANT_DIGITS = aten(
    *("linalg_cholesky_ex", "cholesky", "linalg_eigh", "_linalg_eigh", "linalg_eig", "_linalg_svd", "linalg_qr"),
    *("linalg_lu_factor_ex", "linalg_inv_ex", "_linalg_solve_ex", "linalg_solve_triangular", "triangular_solve"),
    *("cholesky_solve", "linalg_lstsq", "_linalg_slogdet", "_linalg_det", "linalg_matrix_exp", "linalg_ldl_factor_ex"),
)

_HALVED = {torch.float64: torch.float32, torch.complex128: torch.complex64}


class SinglePrecision(Watcher):
    """Notes what runs in float64 on the CPU, and tries it in float32 when the step is over.

    Args:
        lines: names the line that leads to the first of them.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, lines: OperatorLines) -> None:
        self._lines = lines
        self._place: dict[str, Json] | None = None
        self._doubles = TriedAgain(_HALVED, _BUDGET_S)
        self._on_device = self._any = False
        self._wants_digits = ""

    def see(self, ran: Ran) -> None:
        if ran.seconds is None:
            self._on_device = True
            return
        if not any(one.dtype in _HALVED for one in ran.given()):
            return
        self._any = True
        if not self._wants_digits and ran.operator in _WANT_DIGITS:
            self._wants_digits = str(ran.operator).removeprefix("aten.")
        if self._place is None and not ran.in_backward:
            self._place = self._lines.line()[1]
        self._doubles.add(ran)

    @property
    def why_not(self) -> str:
        return ON_A_DEVICE if self._on_device else ""

    @property
    def told(self) -> dict[str, Json]:
        """By ``SIGNAL``, where there are any: seconds of the step's operators in float64, ``forward`` and ``backward``;
        of these what was ``tried_…`` and what that would take in float32, ``single_…``; the first one's line; and the
        first that may need the digits (``wants_digits``), empty where there is none.
        """
        if not self._any:
            return {}
        told = self._doubles.told("single")
        return {SIGNAL: {**(self._place or {}), **told, "wants_digits": self._wants_digits}}
