"""Exchanges of gradients in a trace: those after which another batch is accumulated, so that they are for nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.collectives import FORMS
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.launches import OPTIMIZER_STEP
from perf_diagnostics.diagnose.trace.leaves import Leaves
from perf_diagnostics.diagnose.trace.nodes import Nodes
from perf_diagnostics.records import Int64

#: After these gradients are no longer those of the pass before: what is exchanged then is another sum.
_CLEARS = re.compile(r"^Optimizer\.zero_grad#|^aten::(zero_|_foreach_zero_)$")

#: How the host notes that it hands gradients over to be exchanged.
_HANDS_OVER = re.compile(r"^c10d::allreduce_")


@dataclass(frozen=True, eq=False)
class Exchanges:
    """The backward passes of the steps that exchange gradients, where several go into one update.

    ``an_update`` is how many passes exchange for each update; all of them, where the steps have no update.
    ``needless`` is when all-reduces of all but an update's last pass were under way, with what the host did to start
    them; ``alone`` the part of it in which nothing was computed.
    """

    an_update: float
    needless: Times
    alone: Times


def exchanges(facts: TraceFacts) -> Exchanges:
    """What passes exchange, and how much of it for nothing.

    Raises:
        NotApplicable: no gradients are exchanged in the steps, or each pass goes into an update of its own.
        NotMeasured: the trace cannot be trusted, or tells nothing of autograd's nodes.
    """
    trace, windows = facts.trace, facts.steps.on_host
    at, start, end = _all_reduces(facts)
    if not at.size:
        raise NotApplicable("communication", "no all-reduce lies in the steps")
    nodes = facts.require_nodes()
    begins = nodes.passes.start
    # What is started beside a pass is a loss to be logged, or a metric.
    of_pass = nodes.passes.containing(at)
    inside = windows.containing(begins) >= 0
    exchanging = np.zeros(len(begins), np.bool_)
    exchanging[of_pass[of_pass >= 0]] = True
    ranges = trace.of(Kind.ANNOTATION)
    stepping = trace.named(lambda name: name.startswith(OPTIMIZER_STEP))[ranges.name]
    ends = np.sort(ranges.start_ns[stepping]) if stepping.any() else windows.end
    of_update = np.searchsorted(ends, begins)
    same = (np.diff(of_update, append=of_update[-1:] + 1) == 0) & exchanging
    # The gradients of a pass are added to those of the last one: else each has an exchange of its own.
    leaves, clears = Leaves.of(nodes), _clearing(nodes)
    adding = np.zeros(len(begins), np.bool_)
    adding[leaves.of_pass[leaves.added]] = True
    followed = np.append(adding[1:] & exchanging[1:], False)
    cleared = np.searchsorted(clears, begins) != np.searchsorted(clears, np.append(begins[1:], begins[-1:]))
    needless = same & followed & ~cleared
    chosen = needless[of_pass] & (of_pass >= 0)
    times = Times.union(start[chosen], end[chosen])
    alone = times & facts.split.parts[Part.COMMUNICATION]
    if not facts.on_device:
        operators = trace.of(Kind.OPERATOR)
        hands = operators.where(trace.named(_HANDS_OVER.match)[operators.name])
        place = nodes.passes.containing(hands.start_ns)
        hands = hands.where((place >= 0) & needless[place])
        handing = Times.union(hands.start_ns, hands.end_ns)
        times, alone = times | handing, alone | handing
    updates = int(np.count_nonzero(windows.containing(ends) >= 0))
    if not needless.any():
        raise NotApplicable("communication", "no pass that exchanges adds to gradients which were exchanged before")
    return Exchanges(
        an_update=float(np.count_nonzero(exchanging & inside)) / max(1, updates),
        needless=times,
        alone=alone,
    )


def _all_reduces(facts: TraceFacts) -> tuple[Int64, Int64, Int64]:
    """When the host started each all-reduce, and from when to when it was under way."""
    trace, names, is_one = facts.trace, facts.launches.names, facts.trace.named(FORMS["reduce"].search)
    if facts.on_device:
        device, linked = trace.device, facts.launches.linked
        chosen = (device.kind == Kind.KERNEL)[linked] & (names.communication(device) & is_one[device.name])[linked]
        rows = device.where(linked)
        return facts.launches.call_start_ns[chosen], rows.start_ns[chosen], rows.end_ns[chosen]
    ranges = trace.of(Kind.ANNOTATION)
    ranges = ranges.where(names.host_collective(ranges) & is_one[ranges.name])
    return ranges.start_ns, ranges.start_ns, ranges.end_ns


def _clearing(nodes: Nodes) -> Int64:
    """When gradients were cleared, ascending."""
    trace, others = nodes.launches.trace, nodes.others
    named, ranges = trace.named(_CLEARS.match), trace.of(Kind.ANNOTATION)
    return np.sort(np.concatenate([one.start_ns[named[one.name]] for one in (ranges, others)]))
