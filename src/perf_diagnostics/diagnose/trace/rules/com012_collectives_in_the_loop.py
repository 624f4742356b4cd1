"""COM012 for traces: DistributedDataParallel sends its buffers to all ranks before each forward."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rules.com012_collectives_in_the_loop import BUFFERS, CollectivesInTheLoop
from perf_diagnostics.diagnose.trace.collectives import collectives
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import launched_in, outermost
from perf_diagnostics.diagnose.trace.rule import caused, claims_of
from perf_diagnostics.diagnose.wording import percent

#: The range that torch's wrapper leaves around each call (``torch/nn/parallel/distributed.py`` of torch 2.6 to 2.13).
_WRAPPER = "DistributedDataParallel.forward"

#: What buffers go through before they are sent, all of one type as one piece (``torch/csrc/distributed/c10d/comm.cpp``:
#: ``broadcast_coalesced``).
_FLATTENS = "aten::flatten_dense_tensors"

#: … and what is done then: send it, take it apart, and copy it to where the buffers lie.
_SENDS = re.compile(
    r"^aten::(flatten_dense_tensors|unflatten_dense_tensors|cat|empty\w*|narrow|view|reshape|slice|select|as_strided|to"
    r"|copy_|_foreach_copy_)$|^record_param_comms$|^c10d::"
)


@dataclass(frozen=True)
class BuffersSent:
    """Before each forward buffers are made one piece, sent, and copied back."""

    code: ClassVar[str] = CollectivesInTheLoop.code
    name: ClassVar[str] = CollectivesInTheLoop.name
    family: ClassVar[Family] = CollectivesInTheLoop.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    info_share: float = field(
        default=0.05, metadata=limit("share of the step for sending buffers to mention", "as COM001")
    )
    moving_bytes_s: float = field(
        default=3e8,
        metadata=limit(
            "bytes a second of messages from which on they are sent all the time",
            "judgement: gloo on one machine was seen at 0.9 to 2.0 GB/s",
        ),
    )
    warn_share: float = field(
        default=0.08, metadata=limit("… to warn from", "below COM001's 10 %, whose cause it is; a judgement")
    )
    limits: CollectivesInTheLoop = field(default_factory=CollectivesInTheLoop)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        span, working = _sending(facts)
        if facts.on_device:
            device = facts.trace.device.where(launched_in(facts.launches, span))
            sending = Times.union(device.start_ns, device.end_ns)
            working = sending - facts.split.communicating
        else:
            sending = working | (span & facts.split.communicating)
        share = facts.share_of(sending)
        # The wait for a rank that comes late would only move to the next exchange: what is sure is the work alone, and
        # messages that take no longer than their bytes do.
        own, rate = facts.share_of(working), _rate(facts, span)
        if rate < self.moving_bytes_s:
            share = Interval(share.value, own.value, share.high, share.n)
        number = evidence("sending buffers before forward", share, "%", limit=self.warn_share)
        levels = (
            (Severity.INFO, self.info_share),
            (Severity.WARNING, self.warn_share),
            (Severity.CRITICAL, self.limits.critical_share),
        )
        level = grade(share, levels)
        if level is None:
            return cleared(self, f"sending buffers before forward takes {percent(share.value)} of a step", number)
        return caused(
            self,
            facts,
            level,
            summary=f"DistributedDataParallel sends the model's buffers from one rank to all before each forward: to "
            f"make them one piece, send it and copy it back takes {percent(share.value)} of each step.",
            numbers=(
                number,
                Evidence(metric="of it no communication", value=own.value * 100, unit="%"),
                *((Evidence(metric="sent meanwhile", value=rate / 1e9, unit="GB/s"),) if rate else ()),
            ),
            remedies=(
                Remedy(BUFFERS),
                Remedy(
                    "What never changes need be no buffer: a plain attribute is not sent (but does not move with the "
                    "model to a device, and is not saved)."
                ),
            ),
            gain=share,
            claims=claims_of(facts, sending),
        )


def _rate(facts: TraceFacts, span: Times) -> float:
    """Bytes a second of the messages that begin in ``span``, while they were under way; 0 where sizes are not told."""
    messages = collectives(facts)
    if facts.on_device or not messages.sized:
        return 0.0
    mine = span.containing(messages.start_ns) >= 0
    took = Times.union(messages.start_ns[mine], messages.end_ns[mine]).total_ns
    return 1e9 * float(messages.bytes[mine].sum()) / took if took else 0.0


def _sending(facts: TraceFacts) -> tuple[Times, Times]:
    """From the first buffers that are made one piece in a call of the wrapper to the last copy before the model's own
    operators; and the operators in this.

    Raises:
        NotApplicable: no such call is in the trace, or none sends any.
    """
    trace = facts.trace
    annotations = trace.of(Kind.ANNOTATION)
    calls = annotations.where(trace.named(lambda name: name == _WRAPPER)[annotations.name])
    operators = trace.of(Kind.OPERATOR)
    rows, _ = outermost(facts.launches, operators)
    around = Times.union(calls.start_ns, calls.end_ns)
    rows = rows.where((around.containing(rows.start_ns) >= 0) & facts.launches.on_training_threads(rows))
    flattens = trace.named(lambda name: name == _FLATTENS)[rows.name]
    if not flattens.any():
        raise NotApplicable("buffers", "no call of DistributedDataParallel in the trace sends buffers")
    of_call = around.containing(rows.start_ns)
    sends = trace.named(_SENDS.match)[rows.name] & (rows.correlation < 0)  # under no_grad() operators have no number
    start, end, chosen = [], [], np.zeros(len(rows), np.bool_)
    for call in np.unique(of_call[flattens]).tolist():
        mine = np.flatnonzero(of_call == call)
        mine = mine[np.argsort(rows.start_ns[mine], kind="stable")]
        first = int(np.argmax(flattens[mine]))
        own = np.append(~sends[mine], True)
        count = int(np.argmax(own[first:]))  # up to the first that is the model's
        if count and not (rows.correlation[mine[:first]] >= 0).any():
            run = mine[first : first + count]
            chosen[run] = True
            start.append(rows.start_ns[run[0]])
            end.append(rows.end_ns[run[-1]])
    span = Times.union(np.array(start, np.int64), np.array(end, np.int64))
    return span, Times.union(rows.start_ns[chosen], rows.end_ns[chosen])
