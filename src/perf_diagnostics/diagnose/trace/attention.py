"""Attention that a trace shows product by product: softmax between two batched products, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.trace.events import Bool, Events, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import ATTENTION, PRODUCTS, SOFTMAX
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import of_device

_BATCHED = ("aten::bmm", "aten::baddbmm")

#: Fused attention, by what its operators' names begin with: torch's own, and the flash_attn package's.
_FUSED = ("aten::_scaled_dot_product_", "aten::_flash_attention", "aten::_efficient_attention", "flash_attn::")
_NOT_FUSED = "aten::_scaled_dot_product_attention_math"

#: Where the part to drop stands among the arguments of scaled_dot_product_attention.
_DROPOUT = 4

#: From this part of all attention in steps on it is that of scaled_dot_product_attention.
_MOSTLY = 0.5

#: Dimensions of inputs that it takes in steps.
_WITHOUT_HEADS = 3


@dataclass(frozen=True)
class Attention:
    """Attention whose scores are written to memory, in the steps of a trace.

    ``work`` and ``scores`` are masks over the device's events: all of its work, and what of it is no matrix product,
    which a fused kernel does not have. ``tokens`` is the longest row of scores (None: not recorded).
    """

    work: Bool
    scores: Bool
    tokens: int | None


def written_attention(facts: TraceFacts) -> Attention | None:
    """Attention that is computed product by product; None where the trace shows fused attention only.

    Raises:
        NotApplicable: no attention is in the trace (parts that are compiled whole show none).
        NotMeasured: the trace cannot be trusted, or holds no operators.
    """
    facts.require_device("attention")
    facts.require_steady()
    trace = facts.trace
    operators = trace.of(Kind.OPERATOR)
    if not len(operators):
        raise NotMeasured("operators", "the trace holds no operator; record ProfilerActivity.CPU too")
    spans, tokens = _spans(facts, operators)
    if not spans:
        _require_fused(facts)
        return None
    owner = np.full(len(trace.runtime), -1, np.intp)
    for track, times in spans.items():
        mine = trace.runtime.track == track
        owner[mine] = times.containing(trace.runtime.start_ns[mine])
    device = trace.device
    work = (of_device(facts.launches, owner) >= 0) & (facts.steps.windows.containing(device.start_ns) >= 0)
    return Attention(work, work & ~facts.launches.names.matrix_product(device), tokens)


@dataclass(frozen=True)
class AttentionOnCpu:
    """The same by the time that operators of the CPU take themselves, as shares of the steps' time."""

    work: float
    scores: float
    tokens: int | None


def written_on_the_cpu(facts: TraceFacts) -> AttentionOnCpu | None:
    """Attention that a trace of the CPU shows product by product; None where it shows fused attention only.

    Raises:
        NotApplicable: no attention is in the trace.
        NotMeasured: the trace cannot be trusted, or holds no operators.
    """
    own = facts.own_times
    spans, tokens = _spans(facts, facts.trace.of(Kind.OPERATOR))
    if not spans:
        _require_fused(facts)
        return None
    inside = own.within(spans)
    return AttentionOnCpu(own.share(inside), own.share(inside & ~own.named(*PRODUCTS)), tokens)


def steps_of_sdpa(facts: TraceFacts) -> tuple[bool, str]:
    """Whether scaled_dot_product_attention is called and takes its own steps one by one; and why, as far as its
    arguments tell (of torch 2.13 on the CPU: dropout, three dimensions; a mask that needs a gradient they do not tell).
    """
    trace = facts.trace
    if _NOT_FUSED not in trace.names:
        return False, ""
    operators = trace.of(Kind.OPERATOR)
    spans, _ = _spans(facts, operators)
    of_sdpa = operators.where(trace.named(lambda name: name == _NOT_FUSED)[operators.name])
    forward = sum(len(times) for times in spans.values()) / 2  # as many lie in backward
    if len(of_sdpa) < _MOSTLY * forward:
        return False, ""  # most of it is written by somebody else
    told = operators.told[trace.named(lambda name: name == ATTENTION)[operators.name]]
    calls = [trace.inputs[one] for one in np.unique(told[told >= 0]).tolist()]
    dropped = [one.numbers[_DROPOUT] for one in calls if len(one.numbers) > _DROPOUT]
    if any(one not in ("", "0", "0.") for one in dropped):
        return True, "its dropout_p is above 0"
    if calls and all(len(size) == _WITHOUT_HEADS for one in calls for size in one.sizes[:1]):
        return True, "its inputs have three dimensions, and not (batch, heads, length, width)"
    if any(one.sizes[0][-1:] != one.sizes[2][-1:] for one in calls if len(one.sizes) > 2):
        return True, "its values have another width than its queries"
    return True, ""


def _require_fused(facts: TraceFacts) -> None:
    """Raise NotApplicable where the trace shows no fused attention either."""
    if not any(name.startswith(_FUSED) and not name.startswith(_NOT_FUSED) for name in facts.trace.names):
        raise NotApplicable("attention", "no operator of attention lies in the trace (parts compiled whole show none)")


def _spans(facts: TraceFacts, operators: Events) -> tuple[dict[int, Times], int | None]:
    """When each thread was between the two products around a softmax, both included; and the longest row of scores."""
    names, inputs = facts.trace.names, facts.trace.inputs
    is_batched, is_softmax, matters = (
        np.fromiter((name in those for name in names), np.bool_, len(names))
        for those in (_BATCHED, SOFTMAX, {*PRODUCTS, *SOFTMAX})
    )
    rows = operators.where(matters[operators.name])
    rows = rows.where(np.lexsort((rows.start_ns, rows.track)))
    batched, softmax = is_batched[rows.name], is_softmax[rows.name]
    found = np.flatnonzero(softmax[1:-1] & batched[:-2] & batched[2:]) + 1
    found = found[(rows.track[found - 1] == rows.track[found]) & (rows.track[found + 1] == rows.track[found])]
    spans = {
        int(track): Times.union(rows.start_ns[mine - 1], rows.end_ns[mine + 1])
        for track in np.unique(rows.track[found])
        for mine in (found[rows.track[found] == track],)
    }
    known = {int(told) for told in rows.told[found] if told >= 0}
    lengths = [inputs[told].sizes[0][-1] for told in known if inputs[told].sizes and inputs[told].sizes[0]]
    return spans, max(lengths, default=None)
