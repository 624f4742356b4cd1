"""Recurrent cells that the forward pass calls one by one: the sign of a loop in Python over time steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool
from perf_diagnostics.diagnose.trace.operators import MOST_NAMES, PHASES, Operators
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

#: What a recurrence does between two of its time steps that feeds its output back: it joins that to the next input,
#: asks by it what to attend to, or draws the next token. A loop over inputs that are there before takes the next one,
#: and may put what comes out through a layer, which can be done for all afterwards.
FEEDS_BACK = frozenset(
    f"aten::{name}"
    for name in (
        *("cat", "concat", "bmm", "baddbmm", "matmul", "einsum", "softmax", "scaled_dot_product_attention"),
        *("argmax", "multinomial", "topk"),
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
    the cells, or oftener, so that another loop of that length is in it. ``fed_back`` is how often, in a pass, what a
    recurrence does to feed its output back (:data:`FEEDS_BACK`) is called between two cells, and ``feeding`` what is.
    """

    name: str
    calls: float
    each_pass: float
    fed_back: float
    feeding: tuple[str, ...]
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
        after, feeding = _between(operators, cells)
        return Cells(
            name=names[int(called.argmax())],
            calls=float(called.sum()) / len(steps),
            each_pass=float(called.sum()) / max(1, passes),
            fed_back=after / max(1, passes),
            feeding=feeding,
            forward_ns=operators.time_in(cells),
            backward_ns=operators.time_in(backward & often[rows.name]),
        )


def _between(operators: Operators, cells: Bool) -> tuple[int, tuple[str, ...]]:
    """After how many cells, of those that another one of their pass follows, the recurrence may be fed back
    (:data:`FEEDS_BACK`), and the names of what does that most.
    """
    names, rows = operators.facts.trace.names, operators.rows
    feeds = operators.facts.trace.named(lambda name: name in FEEDS_BACK)[rows.name] & operators.in_phase("forward")
    of_pass = operators.ranges[PHASES.index("forward")].containing(rows.start_ns + 1)
    # A row's cell is the last one that began before it; before its pass's first and after its last is none between.
    cell = np.cumsum(cells)
    first, last = (np.full(of_pass.max() + 1, end) for end in (len(rows), 0))
    np.minimum.at(first, of_pass[cells], cell[cells])
    np.maximum.at(last, of_pass[cells], cell[cells])
    between = feeds & (cell >= first[of_pass]) & (cell < last[of_pass])
    often = np.bincount(rows.name[between], minlength=len(names))
    most = np.argsort(-often, kind="stable")[:MOST_NAMES]
    return len(np.unique(cell[between])), tuple(names[one] for one in most if often[one])
