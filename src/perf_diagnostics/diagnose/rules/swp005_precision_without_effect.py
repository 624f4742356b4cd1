"""SWP005: lower precision makes training hardly faster; what sets the pace instead."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Group, Interval, NotMeasured, Point, SweepFacts, ask
from perf_diagnostics.diagnose.finding import Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.statistics.intervals import quotient
from perf_diagnostics.diagnose.wording import listing, significant

_ORDER = ("float64", "float32", "tf32", "float16", "bfloat16")


@dataclass(frozen=True, eq=False)
class _Pair:
    size: int
    full: Point
    low: Point
    full_name: str
    low_name: str

    @property
    def speedup(self) -> Interval:
        return quotient(self.low.throughput, self.full.throughput)


@dataclass(frozen=True)
class PrecisionWithoutEffect:
    """Lower precision was measured, and does next to nothing.

    What it measures:
        Throughput in a lower precision over that in a higher one, at every batch that both ran, everything else equal;
        and what the step in the higher precision goes to besides arithmetic.

    Why it matters:
        Lower precision costs care, and wins where products set the pace. Published for BERT on an H100: 5.1 times at
        large batches, and nothing at batch 1, where the host's launches do.

    What to try:
        What sets the pace first; then measure precision again. Until then train in the higher one.

    When it is wrong:
        A device without fast units for the lower precision behaves the same. Memory saved is a gain of its own, which
        may allow a larger batch.
    """

    code: ClassVar[str] = "SWP005"
    name: ClassVar[str] = "precision-without-effect"
    family: ClassVar[Family] = Family.SWEEP
    looks_at: ClassVar[Literal["run"]] = "run"

    least_speedup: float = field(
        default=1.10,
        metadata=limit("speed-up from which a precision has an effect", "seen without effect: 1.003 to 1.006"),
    )

    def check(self, facts: SweepFacts) -> Answer:
        pairs = list(_pairs(facts))
        if not pairs:
            raise NotMeasured("precision", "no two trials differ in nothing but their precision")
        speedups = [(pair, pair.speedup) for pair in pairs]
        numbers = tuple(
            evidence(f"{pair.low_name} over {pair.full_name}, batch {pair.size}", speedup, "", limit=self.least_speedup)
            for pair, speedup in speedups
        )
        useless = [(pair, speedup) for pair, speedup in speedups if speedup.surely_below(self.least_speedup)]
        best = max((speedup.value for _, speedup in speedups))
        if not useless:
            return cleared(self, f"lower precision is up to {significant(best, 2)} times as fast", *numbers)
        pair, speedup = max(useless, key=lambda item: item[0].size)
        held = ask(roofline.held_back_by, pair.full.trials[0])
        cause = f"{held} sets the pace" if held else "what sets the pace instead was not seen"
        sizes = tuple(dict.fromkeys(one.size for one, _ in useless))
        elsewhere = f" Elsewhere it is up to {significant(best, 2)} times." if best >= self.least_speedup else ""
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"At batch {listing(sizes)} lower precision does not make training faster: at batch {pair.size} "
            f"{pair.low_name} is {significant(speedup.value, 3)} times as fast as {pair.full_name}; {cause}."
            + elsewhere,
            scope=pair.full.trials[0].label,
            evidence=numbers,
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if held else Tier.SHARE, sure=True, thin=any(t.thin for t in pair.full.trials)
            ),
            batch_sizes=sizes,
        )


def _pairs(facts: SweepFacts) -> Iterator[_Pair]:
    """Every two points that differ in nothing but precision, by rising batch size."""
    alike: dict[str, list[Group]] = {}
    for group in facts.groups:
        rest = {name: value for name, value in group.settings.items() if name != "precision"}
        alike.setdefault(json.dumps([group.workload, dict(group.options), rest], sort_keys=True), []).append(group)
    for groups in alike.values():
        for full, low in itertools.product(groups, groups):
            if _rank(full) < _rank(low):
                for size in sorted(set(full.batch_sizes) & set(low.batch_sizes)):
                    yield _Pair(size, _at(full, size), _at(low, size), _name(full), _name(low))


def _at(group: Group, size: int) -> Point:
    return next(point for point in group.points if point.batch_size == size)


def _name(group: Group) -> str:
    return str(group.settings.get("precision", "float32"))


def _rank(group: Group) -> int:
    """float64, float32, TF32, then the 16-bit precisions, which are not set against each other."""
    return min(_ORDER.index(_name(group)), 3)
