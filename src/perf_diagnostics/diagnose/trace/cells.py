"""Recurrent cells that the forward pass calls one by one: the sign of a loop in Python over time steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.operators import PHASES, Operators
from perf_diagnostics.records import Int64

#: One time step of a recurrence. On a whole sequence ``torch.nn.LSTM`` and its like call ``aten::lstm``, and what that
#: calls inside is no call of the training's own.
CELLS = frozenset(
    f"aten::{name}"
    for name in (
        "lstm_cell",
        "gru_cell",
        "rnn_tanh_cell",
        "rnn_relu_cell",
        "_thnn_fused_lstm_cell",
        "_thnn_fused_gru_cell",
    )
)

#: Operators of backward that are called at least so often for each call of a cell are of its loop. Of the first or the
#: last time step some gradients are not needed.
AS_OFTEN = 0.9


@dataclass(frozen=True, eq=False)
class Cells:
    """Calls of recurrent cells in forward, and the time of them and of what backward calls as often.

    ``name`` is the cell that is called most, ``calls`` how often all are in a step, ``each_pass`` in a step's forward
    and backward pass (a step of several micro-batches has several). ``forward_ns`` and ``backward_ns`` have one value a
    step. In backward no operator tells which forward it derives: those count whose name is called about as often as
    the cells, or oftener, so that another loop of that length is in it.
    """

    name: str
    calls: float
    each_pass: float
    forward_ns: Int64
    backward_ns: Int64

    @staticmethod
    def of(operators: Operators) -> Cells | None:
        """Those of a trace; None where forward calls no cell itself."""
        names, rows, steps = operators.facts.trace.names, operators.rows, operators.facts.steps
        is_cell = operators.facts.trace.named(lambda name: name in CELLS)
        cells = is_cell[rows.name] & operators.in_phase("forward")
        if not cells.any():
            return None
        called = np.bincount(rows.name[cells], minlength=len(names))
        backward = operators.in_phase("backward")
        often = np.bincount(rows.name[backward], minlength=len(names)) >= AS_OFTEN * called.max()
        begins = operators.ranges[PHASES.index("backward")].start
        passes = int(np.count_nonzero(steps.on_host.containing(begins) >= 0))
        return Cells(
            name=names[int(called.argmax())],
            calls=float(called.sum()) / len(steps),
            each_pass=float(called.sum()) / max(1, passes),
            forward_ns=operators.time_in(cells),
            backward_ns=operators.time_in(backward & often[rows.name]),
        )
