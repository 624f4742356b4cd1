"""OPT007 for traces: the device writes zeros as large as embedding tables, and updates all of their rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rule_parts.gain import KAPPA_UNMEASURED
from perf_diagnostics.diagnose.rules.opt007_dense_embedding_gradients import DenseEmbeddingGradients, takes_sparse
from perf_diagnostics.diagnose.trace.events import Events, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import LOOK_UPS, PRODUCTS
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import of_device, outermost
from perf_diagnostics.diagnose.trace.rule import caused, of_the_step
from perf_diagnostics.diagnose.wording import percent

#: The backward of tables, which makes a gradient for all of their rows.
_BACKWARD = re.compile(r"^aten::(_embedding_bag_dense_backward|embedding_dense_backward)$")

#: What fills it with zeros on the device.
_ZEROS = re.compile(r"Fill|memset", re.IGNORECASE)

#: Numbers that an update reads and writes for each one that a fill writes. SGD: parameter and gradient read, parameter
#: written; Adam: two moments read and written as well (as OPT001). Where it is another one, the least of them.
_MOVED: Mapping[str, float] = MappingProxyType({"SGD": 3.0, "Adam": 7.0, "AdamW": 7.0, "Adagrad": 5.0})


#: The same on the CPU; so many times what looking the rows up takes.
_FILLS, _MOSTLY_ZEROS = frozenset(("aten::fill_", "aten::zero_")), 2.0


def _sparse(optimizer: str) -> Remedy:
    return Remedy(
        "Make tables of which a batch looks up few rows with sparse=True: "
        f"{takes_sparse(optimizer, 'these tables')}. {CHANGES_TRAINING}"
    )


@dataclass(frozen=True)
class ZerosOfTables:
    """Gradients of embedding tables are mostly zeros, which the device writes, and reads in the update."""

    code: ClassVar[str] = DenseEmbeddingGradients.code
    name: ClassVar[str] = DenseEmbeddingGradients.name
    family: ClassVar[Family] = DenseEmbeddingGradients.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: DenseEmbeddingGradients = field(default_factory=DenseEmbeddingGradients)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        trace = facts.trace
        chosen = trace.named(_BACKWARD.match)
        operators = trace.of(Kind.OPERATOR)
        operators = operators.where(chosen[operators.name])
        if not len(operators):
            raise NotApplicable("embedding_rows", "no backward of an embedding table is in the trace")
        if not facts.on_device:
            return self._on_the_cpu(facts, operators)
        _, owner = outermost(facts.launches, operators)
        zeros = trace.named(_ZEROS.search)
        filling = facts.part_of_computing((of_device(facts.launches, owner) >= 0) & zeros[trace.device.name])
        update = facts.update
        updating = 0.0 if update is None else min(update.work, _moved(update.kind) * filling)
        untouched = _untouched(facts)
        part = 1.0 if untouched is None else untouched
        share, lost = of_the_step(facts, filling * part), of_the_step(facts, (filling + updating) * part)
        most = of_the_step(facts, filling + updating).high
        # That the update takes as long as the numbers that it moves is a guess.
        least = of_the_step(facts, (filling + updating / 2) * part).value
        numbers = (
            Evidence(
                metric="zeros and their update",
                value=lost.value * 100,
                unit="%",
                limit=self.limits.info_share * 100,
            ),
            Evidence(metric="filling tables' gradients with zeros", value=share.value * 100, unit="%"),
            *_left_alone(untouched),
            Evidence(
                metric="backward of embedding tables, a step",
                value=float(facts.calls_in_steps(operators).mean()),
                n=len(facts.steps),
            ),
        )
        warns = () if untouched is None else ((Severity.WARNING, self.limits.warn_share),)
        level = grade(Interval(lost.value, least, None, lost.n), ((Severity.INFO, self.limits.info_share), *warns))
        if level is None:
            says = f"zeros for the rows of embedding tables, and their update, take {percent(lost.value)} of a step"
            return cleared(self, says, *numbers)
        return caused(
            self,
            facts,
            level,
            summary=f"The gradients of embedding tables are as large as the tables: zeros for rows that "
            f"{'may not have been' if untouched is None else 'were not'} looked up take the device "
            f"{percent(share.value)} of each step"
            + (f", and their update some {percent(lost.value - share.value)} more." if update is not None else "."),
            numbers=numbers,
            remedies=(_sparse("" if update is None else update.kind),),
            gain=Interval(lost.value, 0.0 if untouched is None else least, most, lost.n),
            realised=KAPPA_UNMEASURED,
        )

    def _on_the_cpu(self, facts: TraceFacts, operators: Events) -> Answer:
        """There the operator itself tells what making such a gradient takes."""
        making = facts.share_of(Times.union(operators.start_ns, operators.end_ns))
        untouched = _untouched(facts)
        part = 1.0 if untouched is None else untouched
        most = min(1.0, making.value + _updating(facts).value)
        if untouched is None and _sizes_are_told(facts):
            says = "a product has a table's sizes: a head that shares the table has gradients for all of its rows"
            return cleared(self, says, evidence("making gradients as large as tables", making, "%"))
        if not part:
            says = "as many rows of tables are looked up as they have: their gradients are no zeros"
            return cleared(self, says, evidence("making gradients as large as tables", making, "%"))
        value = making.value if untouched is not None else max(making.value, _zeros_and_update(facts, operators))
        share = Interval(value, making.value * part, most, len(facts.steps))
        numbers = (
            evidence("making gradients as large as tables", making, "%", limit=self.limits.info_share),
            *_left_alone(untouched),
        )
        warns = () if untouched is None else ((Severity.WARNING, self.limits.warn_share),)
        level = grade(share, ((Severity.INFO, self.limits.info_share), *warns))
        if level is None:
            says = f"making gradients of embedding tables takes {percent(making.value)} of a step"
            return cleared(self, says, *numbers)
        return caused(
            self,
            facts,
            level,
            summary="The gradients of embedding tables are as large as the tables"
            f"{', most of them zeros' if untouched is not None and untouched > 1 / 2 else ''}: to make them takes "
            f"{percent(making.value)} of each step, and the update goes through all rows.",
            numbers=numbers,
            remedies=(_sparse("" if facts.update_on_host is None else facts.update_on_host.kind),),
            gain=share if untouched is not None else Interval(share.value, 0.0, most, share.n),
            realised=KAPPA_UNMEASURED,
        )


def _sizes_are_told(facts: TraceFacts) -> bool:
    operators = facts.trace.of(Kind.OPERATOR)
    looks = facts.trace.named(LOOK_UPS.__contains__)[operators.name]
    return bool((operators.told[looks] >= 0).any())


def _zeros_and_update(facts: TraceFacts, operators: Events) -> float:
    """The share of the step of zeros for tables' gradients on the CPU, and of their update, where no sizes are told.

    Zeros that take twice as long as looking up the rows are mostly of rows that were not; an update moves so many
    numbers for each of them. 0 where they do not.
    """
    trace = facts.trace
    inside = Times.union(operators.start_ns, operators.end_ns)
    every = trace.of(Kind.OPERATOR)
    filling = every.where(trace.named(_FILLS.__contains__)[every.name] & (inside.containing(every.start_ns) >= 0))
    zeros = facts.share_of(Times.union(filling.start_ns, filling.end_ns)).value
    looks = every.where(trace.named(LOOK_UPS.__contains__)[every.name])
    if zeros < _MOSTLY_ZEROS * facts.share_of(Times.union(looks.start_ns, looks.end_ns)).value:
        return 0.0
    kind = "" if facts.update_on_host is None else facts.update_on_host.kind
    return zeros + min(_updating(facts).value, _moved(kind) * zeros)


def _left_alone(untouched: float | None) -> tuple[Evidence, ...]:
    if untouched is None:
        return ()
    return (Evidence(metric="rows that a step did not touch, at least", value=untouched * 100, unit="%"),)


def _updating(facts: TraceFacts) -> Interval:
    """The share of the step that the optimizer's ranges take."""
    annotations = facts.trace.of(Kind.ANNOTATION)
    rows = annotations.where(facts.launches.names.phase("optimizer", annotations))
    return facts.share_of(Times.union(rows.start_ns, rows.end_ns))


def _untouched(facts: TraceFacts) -> float | None:
    """At least this part of the numbers in tables is in rows that a step does not look up; None where the trace does
    not tell sizes, or of none but tables of which a product of their size may take all rows (as of tied heads).
    """
    trace = facts.trace
    operators = trace.of(Kind.OPERATOR)
    looks = trace.named(lambda name: name in LOOK_UPS)
    looked, _ = outermost(facts.launches, operators.where(looks[operators.name] & (operators.told >= 0)))
    products = trace.named(lambda name: name in PRODUCTS)
    multiplied = operators.where(products[operators.name] & (operators.told >= 0))
    factors = {
        frozenset(size) for kind in np.unique(multiplied.told).tolist() for size in trace.inputs[kind].sizes if size
    }
    whole = left = 0.0
    kinds, often = np.unique(looked.told, return_counts=True)
    for kind, count in zip(kinds.tolist(), often.tolist(), strict=True):
        table, numbers = (*trace.inputs[kind].sizes, (), ())[:2]
        if len(table) != 2:
            continue
        rows, width = table
        if frozenset(table) in factors:  # whether it is this one, or a head of its size, is not told
            continue
        whole += rows * width * count
        left += max(0, rows - math.prod(numbers)) * width * count
    return left / whole if whole else None


def _moved(kind: str) -> float:
    return _MOVED.get(kind, min(_MOVED.values()))
