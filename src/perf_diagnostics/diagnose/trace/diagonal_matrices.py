"""Matrices that a trace shows made of their diagonals, and factorised or solved with as if they were full."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events, Rows, Trace
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import DIAG_EMBED, LINEAR_ALGEBRA, Sizes
from perf_diagnostics.diagnose.trace.intervals import Times

#: What makes full matrices of them.
_ADDS = frozenset(f"aten::{name}" for name in ("add", "add_", "sub", "sub_"))


@dataclass(frozen=True, eq=False)
class DiagonalMatrices:
    """What the steps do with those: when their operators ran, and autograd's nodes that lead back.

    ``calls`` of linear algebra are in a step, ``size`` is that of the largest matrices, and ``operators`` their names.
    """

    forward: Times
    nodes: Times
    calls: float
    size: Sizes
    operators: tuple[str, ...]


def diagonal_matrices(facts: TraceFacts) -> DiagonalMatrices | None:
    """None where no matrix that is made of its diagonal goes through linear algebra.

    Behind ``diag_embed`` all calls on tensors of the matrices' sizes count: what is made of them is mostly as large.

    Raises:
        NotMeasured: the trace cannot be trusted, tells no sizes, or nothing of autograd's nodes.
    """
    nodes, trace, windows = facts.require_nodes(), facts.trace, facts.steps.on_host
    rows = nodes.others.where(windows.containing(nodes.others.start_ns) >= 0)
    facts.require_sizes(rows)
    of_step = windows.containing(rows.start_ns)
    algebra = trace.named(frozenset(LINEAR_ALGEBRA).__contains__)[rows.name]
    made = trace.named(lambda name: name == DIAG_EMBED)[rows.name]
    members: list[int] = []
    calls: list[int] = []
    best: Sizes = ()
    for told in np.unique(rows.told[made & (rows.told >= 0)]).tolist():
        given = trace.inputs[told].sizes[:1]
        if not given or not given[0]:
            continue
        size = (*given[0], given[0][-1])
        kinds = np.array([size in one.sizes[:2] for one in trace.inputs], np.bool_)
        begins = made & (rows.told == told)
        places: Rows = np.flatnonzero(begins | np.append(kinds, False)[rows.told])
        for step in np.unique(of_step[begins]).tolist():
            mine = places[of_step[places] == step]
            mine = mine[np.argmax(begins[mine]) :]  # from the first that is made on
            worked = mine[algebra[mine]]
            if worked.size and not _filled(trace, rows.where(mine[mine < worked[0]])):
                members += mine.tolist()
                calls += worked.tolist()
                best = max(best, size, key=math.prod) if best else size
    if not calls:
        return None
    every = np.array(sorted({*members}), np.intp)
    back = nodes.made_by(rows, every)
    names = (trace.names[rows.name[place]].removeprefix("aten::") for place in sorted({*calls}))
    return DiagonalMatrices(
        forward=Times.union(rows.start_ns[every], rows.end_ns[every]),
        nodes=Times.union(back.start_ns, back.end_ns),
        calls=len({*calls}) / len(windows),
        size=best,
        operators=tuple(dict.fromkeys(names)),
    )


def _filled(trace: Trace, before: Events) -> bool:
    """Whether something other than a number is added to the matrices before they are worked with: a covariance."""
    adds = before.where(trace.named(_ADDS.__contains__)[before.name])
    return any(() not in trace.inputs[told].sizes[:2] for told in adds.told.tolist())
