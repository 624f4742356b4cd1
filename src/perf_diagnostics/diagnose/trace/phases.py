"""When forward, backward and the optimizer went on: by the ranges that name them, else by autograd's nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import Row, launched_in
from perf_diagnostics.records import Int64

#: What may come between a forward and its backward besides the loss.
_OTHERS = ("data_wait", "transfer", "other")


@dataclass(frozen=True, eq=False)
class Phases:
    """The phases on the threads that train, on the host; none where neither a range nor a node tells of one.

    The loss belongs to the forward. What a framework calls of forward and backward inside of the optimizer's step is no
    part of that.
    """

    forward: Times
    backward: Times
    optimizer: Times

    @staticmethod
    def of(facts: TraceFacts) -> Phases:
        annotations = facts.trace.of(Kind.ANNOTATION)
        annotations = annotations.where(facts.launches.on_training_threads(annotations))
        forward, backward, optimizer = (
            _annotated(facts, annotations, one) for one in ("forward", "backward", "optimizer")
        )
        nodes = facts.nodes
        if not len(backward) and nodes is not None:
            backward = nodes.passes
        if len(forward):
            # Gradients are often set to zero in between.
            borders = _borders(facts, annotations, (forward, backward))
            forward = forward | (_losses(forward, backward, borders) - optimizer)
        elif nodes is not None:
            forward = nodes.forwards - optimizer
        return Phases(forward, backward, optimizer - forward - backward)


def phase_rows(facts: TraceFacts) -> tuple[Row, ...]:
    """Forward, backward and optimizer, as far as they are known: host time, and device time launched inside."""
    launches, found = facts.launches, []
    for name, times in vars(Phases.of(facts)).items():
        inside = times & facts.steps.on_host
        if len(inside):
            device_ns = int(facts.trace.device.duration_ns[launched_in(launches, inside)].sum())
            found.append(Row(name, len(inside), device_ns, inside.total_ns))
    return tuple(found)


def _annotated(facts: TraceFacts, annotations: Events, phase: str) -> Times:
    rows = annotations.where(facts.launches.names.phase(phase, annotations))
    return Times.union(rows.start_ns, rows.end_ns)


def _borders(facts: TraceFacts, annotations: Events, found: Sequence[Times]) -> Int64:
    """When any phase but the optimizer begins."""
    chosen = facts.trace.named(lambda name: name in _OTHERS)
    others = annotations.start_ns[chosen[annotations.name]]
    others = np.concatenate((others, annotations.start_ns[facts.launches.names.data_wait(annotations)]))
    return np.sort(np.concatenate((others, *(times.start for times in found))))


def _losses(forward: Times, backward: Times, borders: Int64) -> Times:
    """What lies between a forward and its backward, where nothing else begins in between."""
    if not len(forward) or not len(backward):
        return Times.none()
    index = np.searchsorted(borders, forward.end)
    known = index < borders.size
    following = borders[np.minimum(index, borders.size - 1)]
    into = known & np.isin(following, backward.start)
    return Times.union(forward.end[into], following[into])
