"""Products of which only the diagonal, or a few of the places, are read: by autograd's nodes, in a trace."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool, Events, Trace
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import CUTS, DIAGONALS, Sizes
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.names import ENGINE

#: What leads back from some of a tensor's numbers to all of them; the first from a matrix' diagonal.
_FROM_DIAGONAL = re.compile(r"^(Diagonal|Trace)Backward\d*(_copy)?$")
_FROM_PLACES = re.compile(r"^(Select|Slice|Index|IndexSelect)Backward\d*$")

#: What takes some of the rows, by an index or a mask.
_ROWS = frozenset(("aten::index", "aten::index_select"))

#: What may lie between: the same numbers otherwise arranged, or each one for itself.
_BETWEEN = re.compile(
    r"^(View|UnsafeView|ReshapeAlias|Permute|Transpose|T|Squeeze|Unsqueeze|Expand|Alias|Clone|ToCopy|Div|Mul|Neg|Exp|Log"
    r"|Pow|Sqrt|Clamp(Min|Max)?|Relu|Gelu|Silu|Tanh|Sigmoid|LogSigmoid|Softplus|NativeDropout)Backward\d*$"
)

_PRODUCT = re.compile(r"^(Mm|Bmm|Addmm|Baddbmm|Linear|MkldnnLinear|EuclideanDist|Cdist)Backward\d*$")

#: What takes numbers out of the graph.
_DETACHES = frozenset(("aten::detach", "aten::copy_", "aten::clone"))

#: What all numbers may go through without a gradient, in a metric: then they are read.
_READS_ALL = re.compile(r"^aten::(argmax|argmin|topk|sort|argsort|max|softmax|_softmax|log_softmax|logsumexp)$")


#: So many calls after the cut may read all numbers in a metric (judgement); read of them is at most this part.
_CALLS_AFTER, _HALF = 12, 0.5

#: The same where no sizes are told.
_CALLS_UNTOLD = 4

#: One of so many calls behind one that takes rows is given them: that tells how many there are.
_GIVEN_WITHIN = 3


@dataclass(frozen=True, eq=False)
class CutProducts:
    """The products of the steps of which at most half of the numbers are read.

    ``forward`` is when they ran, and what lies between them and the cut, ``nodes`` when autograd's nodes of these did.
    ``calls`` are the cuts of a step. Of the one whose nodes take longest, ``diagonal`` says that a matrix' diagonal is
    read, ``rows`` that rows are by an index or a mask, ``part`` the part of the numbers that is read (0…1; of a
    diagonal without sizes 0), and ``size`` how many there are along what is cut (0: not told).
    """

    forward: Times
    nodes: Times
    calls: float
    diagonal: bool
    rows: bool
    part: float
    size: int


def cut_products(facts: TraceFacts) -> CutProducts | None:
    """None where all products are read by more than one, or more than half of each.

    Raises:
        NotMeasured: the trace cannot be trusted, or tells nothing of autograd's nodes.
    """
    nodes, trace, windows = facts.require_nodes(), facts.trace, facts.steps.on_host
    rows = nodes.rows.where(windows.containing(nodes.rows.start_ns) >= 0)
    others = nodes.others.where(nodes.others.correlation >= 0)
    others = others.where(np.argsort(others.correlation, kind="stable"))
    if len(rows) < 2 or not len(others):
        return None

    def named(what: re.Pattern[str]) -> Bool:
        return trace.named(lambda name: name.startswith(ENGINE) and what.match(name.removeprefix(ENGINE)))[rows.name]

    diagonals, places, between, products = map(named, (_FROM_DIAGONAL, _FROM_PLACES, _BETWEEN, _PRODUCT))
    # Each next node is of what made the one before, and of nothing else that read it a gradient has been added.
    follows = (np.diff(rows.correlation) == -1) & (np.diff(rows.track) == 0)
    follows &= ~np.isin(rows.start_ns, nodes.summing)[:-1]
    # Of what is derived itself the makers are nodes.
    follows &= ~np.append(nodes.derived, False)[nodes.passes.containing(rows.start_ns)][:-1]
    longest = (0, False, False, 0.0, 0)
    spans: list[tuple[int, int, int, int]] = []
    for first in np.flatnonzero((diagonals | places)[:-1] & follows).tolist():
        last = first + 1
        while between[last] and last < len(follows) and follows[last]:
            last += 1
        made, cut = (np.searchsorted(others.correlation, rows.correlation[[last, first]], side="right") - 1).tolist()
        if not products[last] or made < 0 or _reads_all(trace, others, made, cut, int(rows.start_ns[first])):
            continue
        part, size = _part(trace, others, cut)
        if part <= _HALF:
            spans.append((others.start_ns[made], others.end_ns[cut], rows.start_ns[first], rows.end_ns[last]))
            took = int(rows.end_ns[last] - rows.start_ns[first])
            by_rows = trace.names[others.name[cut]] in _ROWS
            longest = max(longest, (took, bool(diagonals[first]), by_rows, part, size))
    if not spans:
        return None
    begins, ends, back_from, back_to = np.array(spans, np.int64).T
    _, diagonal, by_rows, part, size = longest
    return CutProducts(
        forward=Times.union(begins, ends),
        nodes=Times.union(back_from, back_to),
        calls=len(spans) / len(facts.steps),
        diagonal=diagonal,
        rows=by_rows,
        part=part,
        size=size,
    )


def _reads_all(trace: Trace, others: Events, made: int, cut: int, until_ns: int) -> bool:
    """Whether something else may read the whole without a gradient: it is detached on the way to the cut, or one of the
    next calls before ``until_ns`` is given as many numbers; without sizes, if these read all of something, or detach or
    cut it.
    """
    end = cut + 1 + int(np.count_nonzero(others.start_ns[cut + 1 : cut + _CALLS_AFTER] < until_ns))
    names = [trace.names[name] for name in others.name[made:end].tolist()]
    before, after = names[: cut - made + 1], names[cut - made + 1 :]
    if any(name in _DETACHES for name in before) or any(_READS_ALL.match(name) for name in names):
        return True
    told = others.told[cut]
    size = trace.inputs[told].sizes[:1] if told >= 0 else ()
    if not size:
        return any(name in _DETACHES or name in CUTS for name in after[:_CALLS_UNTOLD])
    given = (trace.inputs[one].sizes[:2] if one >= 0 else () for one in others.told[cut + 1 : end].tolist())
    return any(size[0] in one for one in given)


def _part(trace: Trace, others: Events, cut: int) -> tuple[float, int]:
    """Which part of the numbers a cut reads, and how many there are along it; of places that nobody told all."""
    told, diagonal = int(others.told[cut]), trace.names[others.name[cut]] in DIAGONALS
    inputs = trace.inputs[told] if told >= 0 else None
    if inputs is not None and diagonal and inputs.sizes and len(inputs.sizes[0]) > 1:
        size = max(inputs.sizes[0][-2:])
        return 1 / max(1, size), size
    if inputs is not None and inputs.numbers and trace.names[others.name[cut]] in CUTS:
        size = inputs.sizes[0][int(inputs.numbers[1])]
        return int(inputs.numbers[2]) / max(1, size), size
    if inputs is not None and trace.names[others.name[cut]] in _ROWS:
        return _rows_read(trace, others, cut, inputs.sizes[0] if inputs.sizes else ())
    return (0.0 if diagonal else 1.0), 0


def _rows_read(trace: Trace, others: Events, cut: int, whole: Sizes) -> tuple[float, int]:
    """The same of whole rows, by what the next calls are given."""
    size = math.prod(whole[:-1])
    if len(whole) < 2 or not size:
        return 1.0, 0
    for told in others.told[cut + 1 : cut + 1 + _GIVEN_WITHIN].tolist():
        for one in trace.inputs[told].sizes[:2] if told >= 0 else ():
            if len(one) == 2 and one[-1] == whole[-1]:
                return one[0] / size, size
    return 1.0, 0
