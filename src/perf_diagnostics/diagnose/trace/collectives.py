"""The collectives of a trace: how many, how much they move, and how long messages of each size leave exposed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import COMMUNICATION
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import of_device, outermost
from perf_diagnostics.records import Int64

#: What collectives are for, by their kernels' names: exchanging gradients, gathering and scattering shards, and giving
#: each rank what is its own (embeddings, experts, stages of a pipeline).
FORMS = {
    "reduce": re.compile(r"all_?reduce", re.IGNORECASE),
    "shard": re.compile(r"all_?gather|reduce_?scatter", re.IGNORECASE),
    "route": re.compile(r"send_?recv|all_?to_?all", re.IGNORECASE),
}


@dataclass(frozen=True, eq=False)
class Collectives:
    """The collective kernels (on the CPU: the ranges) that start within the steps, by start; arrays of shape ``(n,)``.

    ``bytes`` is -1 where the trace does not tell; ``kinds`` counts what the collectives are called, where it tells;
    ``form`` says for each what its kernel's name does, as a place in :data:`FORMS` (-1: another).
    """

    start_ns: Int64
    end_ns: Int64
    bytes: Int64
    kinds: Counter[str]
    form: Int64
    steps: int

    def __len__(self) -> int:
        return int(self.start_ns.size)

    @property
    def sized(self) -> bool:
        """Whether the trace tells the bytes of nearly all of them."""
        return len(self) > 0 and float(np.mean(self.bytes >= 0)) >= 0.95

    @property
    def all_reduces(self) -> int:
        return int(np.count_nonzero(self.form == 0))

    @property
    def mostly(self) -> str | None:
        """The form that takes more than half of their time, if one does."""
        took = self.end_ns - self.start_ns
        of = {name: int(took[self.form == place].sum()) for place, name in enumerate(FORMS)}
        return next((name for name, ns in of.items() if 2 * ns > took.sum()), None)

    def below(self, size: float) -> Times:
        """When messages of fewer bytes than this were under way."""
        small = (self.bytes >= 0) & (self.bytes < size)
        return Times.union(self.start_ns[small], self.end_ns[small])


def collectives(facts: TraceFacts) -> Collectives:
    """What communicated, with the messages that kernels tell themselves, or else the host's note of the collective."""
    if not facts.on_device:
        return _on_host(facts)
    trace, device = facts.trace, facts.trace.device
    chosen = (device.kind == Kind.KERNEL) & facts.launches.names.communication(device)
    chosen &= facts.steps.windows.containing(device.start_ns) >= 0
    told = np.where(device.told >= 0, device.told, _noted(facts))[chosen]
    sizes = np.array([*(message.bytes for message in trace.messages), -1], np.int64)
    kinds: Counter[str] = Counter()
    for number, count in zip(*np.unique(told[told >= 0], return_counts=True), strict=True):
        kinds[trace.messages[number].collective] += int(count)
    forms = np.array([_form(name) for name in trace.names], np.int64)[device.name[chosen]]
    return Collectives(device.start_ns[chosen], device.end_ns[chosen], sizes[told], kinds, forms, len(facts.steps))


def _on_host(facts: TraceFacts) -> Collectives:
    """Those that the host carries out; the trace tells their kind by their range's name, and sizes where it has any."""
    trace, annotations = facts.trace, facts.trace.of(Kind.ANNOTATION)
    rows = annotations.where(facts.launches.names.host_collective(annotations))
    rows = rows.where(facts.steps.windows.containing(rows.start_ns) >= 0)
    kinds = Counter(trace.names[name].partition(":")[2] for name in rows.name.tolist())
    forms = np.array([_form(name) for name in trace.names], np.int64)[rows.name]
    sizes = np.array([*(message.bytes for message in trace.messages), -1], np.int64)
    return Collectives(rows.start_ns, rows.end_ns, sizes[rows.told], kinds, forms, len(facts.steps))


def _form(name: str) -> int:
    return next((place for place, form in enumerate(FORMS.values()) if form.search(name) is not None), -1)


def _noted(facts: TraceFacts) -> Int64:
    """For each device event the message of the collective that the host noted around its launch; -1 for none."""
    trace = facts.trace
    operators = trace.of(Kind.OPERATOR)
    noting = trace.named(lambda name: name == COMMUNICATION)
    rows, owner = outermost(facts.launches, operators.where(noting[operators.name] & (operators.told >= 0)))
    owned = of_device(facts.launches, owner)
    found: Int64 = np.append(rows.told, -1).astype(np.int64)[owned]
    return found


def exposed_share(facts: TraceFacts, times: Times) -> float:
    """The share of the step in which some communication ran and nothing computed."""
    return facts.share_of(times & facts.split.parts[Part.COMMUNICATION]).value
