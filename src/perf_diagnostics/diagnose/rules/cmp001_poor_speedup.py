"""CMP001: the accelerator is hardly faster than the CPU at the same batch, or slower, with what its step goes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import DevicePair, Interval, NotMeasured, SweepFacts, TrialFacts, ask
from perf_diagnostics.diagnose.facts.power_facts import KEEPS_WAITING
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, measured_gain
from perf_diagnostics.diagnose.rule_parts.products import in_16_bits
from perf_diagnostics.diagnose.statistics.scaling import fit_cost
from perf_diagnostics.diagnose.wording import listing, percent, significant
from perf_diagnostics.records import Phase

#: A share of the accelerator's step from which it is named as what holds it back.
NOTABLE = 0.10


@dataclass(frozen=True)
class PoorSpeedup:
    """The accelerator is hardly faster than the CPU.

    What it measures:
        Throughput on the accelerator over throughput on the CPU at equal batch and equal work, each in its fastest
        measured configuration; judged at the largest batch both ran. Where the fastest product and the fastest copy
        were measured on both, it is held against what these allow. Beside it, what the accelerator's step goes to
        besides computing: exposed wait for data, copies, and the fixed cost of a step.

    Why it matters:
        A speed-up far below what the hardware can do means that something else sets the pace, and usually something
        that is cheap to change. Below 1 the accelerator is wasted.

    What to try:
        What is named as holding it back. If the speed-up rises with the batch, fixed costs do: larger batches,
        compilation. If it stays low and flat, kernels and precision do. A model that is too small stays on the CPU.

    When it is wrong:
        Where the ceilings were not measured, that a speed-up below 3 is poor is a judgement: a large CPU beside a small
        device deserves less. A CPU measured with few threads makes the device look good. A batch too small for the
        device makes it look poor, and that is said.
    """

    code: ClassVar[str] = "CMP001"
    name: ClassVar[str] = "poor-speedup"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["run"]] = "run"

    warn_speedup: float = field(
        default=3.0,
        metadata=limit("speed-up to warn below where nobody measured what to expect", "judgement; a BERT reached 28"),
    )
    roof_share: float = field(
        default=0.30, metadata=limit("part of the speed-up to be expected, to warn below", "the catalogue's 0.3")
    )

    def check(self, facts: SweepFacts) -> Answer:
        if not facts.pairs:
            raise NotMeasured("device_pair", "no batch size ran with the same work on both the CPU and an accelerator")
        judged = min(_largest_of_each_work(facts.pairs), key=lambda pair: pair.speedup.value)
        speedup, roof = judged.speedup, ask(_roof, judged)
        least = self.warn_speedup if roof is None else max(1.0, self.roof_share * roof)
        numbers = (
            *(
                evidence(f"speed-up at batch {pair.batch_size}", pair.speedup, "", limit=least)
                for pair in facts.pairs
                if pair.work == judged.work
            ),
            *(() if roof is None else (Evidence(metric="speed-up by the measured ceilings", value=roof),)),
        )
        if not speedup.surely_below(least):
            return cleared(self, f"{_times(speedup)} as fast as the CPU at batch {judged.batch_size}", *numbers)
        slower = speedup.surely_below(1.0)
        causes = _causes(judged)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.CRITICAL if slower else Severity.WARNING,
            summary=_summary(facts, judged, causes, roof),
            scope=f"{judged.accelerator_group.label} against {judged.cpu_group.label}",
            evidence=(*numbers, *_threads(judged), *(evidence(name, share, "%") for name, share in causes)),
            remedies=_remedies(judged, slower=slower),
            recoverable=measured_gain(speedup) if slower else None,
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if causes else Tier.SHARE,
                sure=True,
                thin=any(trial.thin for trial in (*judged.cpu.trials, *judged.accelerator.trials)),
            ),
            batch_sizes=(judged.batch_size,),
            symptom_of=KEEPS_WAITING,
        )


def _largest_of_each_work(pairs: tuple[DevicePair, ...]) -> list[DevicePair]:
    return list({pair.work: pair for pair in sorted(pairs, key=lambda pair: pair.batch_size)}.values())


def _times(speedup: Interval) -> str:
    return f"{significant(speedup.value, 2)} times"


def _exposed(trial: TrialFacts) -> Interval:
    return trial.exposed_data_wait_share


def _transfer(trial: TrialFacts) -> Interval:
    return trial.share(Phase.TRANSFER)


def _causes(pair: DevicePair) -> list[tuple[str, Interval]]:
    """What the accelerator's step goes to besides computing, largest first; what nobody measured is left out."""
    point, group = pair.accelerator, pair.accelerator_group
    known = {
        "exposed data wait": ask(point.pooled, _exposed),
        "copying to the device": ask(point.pooled, _transfer),
        "fixed cost of a step": ask(
            lambda: fit_cost(
                [p.samples_per_step for p in group.points], [p.step_time_s.value for p in group.points]
            ).overhead_share(point.samples_per_step)
        ),
    }
    found = [(name, share) for name, share in known.items() if share is not None]
    return sorted(found, key=lambda item: -item[1].value)


def _threads(pair: DevicePair) -> tuple[Evidence, ...]:
    threads = ask(lambda: pair.cpu.trials[0].number("threads"))
    return () if threads is None else (Evidence(metric="threads on the CPU", value=threads),)


def _roof(pair: DevicePair) -> float:
    """The speed-up that both measured ceilings allow: the less of products and of memory."""
    ceilings = ("matmul_ceiling", "memory_bandwidth")
    fast, slow = pair.accelerator.trials[0], pair.cpu.trials[0]
    return min(fast.quantity(name) / slow.quantity(name) for name in ceilings)


def _summary(facts: SweepFacts, judged: DevicePair, causes: list[tuple[str, Interval]], roof: float | None) -> str:
    says = f"At batch {judged.batch_size} the accelerator is {_times(judged.speedup)} as fast as the CPU"
    says += "." if roof is None else f"; products and memory would allow {significant(roof, 2)} times."
    named = [(name.replace("fixed cost", "the fixed cost"), share.value) for name, share in causes]
    notable = [f"{name} takes {percent(share)}" for name, share in named if share >= NOTABLE]
    if notable:
        says += f" Of its step {listing(notable)}."
    elif causes:
        says += " Neither waiting for data nor copying takes a tenth of its step: its kernels are small or slow."
    smallest = min((p for p in facts.pairs if p.work == judged.work), key=lambda pair: pair.batch_size)
    if smallest.speedup.value < judged.speedup.value / 1.5:
        says += f" At batch {smallest.batch_size} it is {_times(smallest.speedup)} as fast: fixed costs hold it back."
    return says


def _remedies(judged: DevicePair, *, slower: bool) -> tuple[Remedy, ...]:
    group = judged.accelerator_group
    found: list[Remedy] = []
    best = group.best.batch_size
    if best > judged.batch_size:
        found.append(Remedy(f"Train with batch {best}. {CHANGES_TRAINING}", {"batch_size": best}))
    if slower:
        found.append(Remedy("Train this on the CPU.", {"device": judged.cpu_group.device}))
    if not judged.accelerator.trials[0].compiled:
        found.append(Remedy("Compile the model, so that fewer kernels are launched.", {"compile_mode": "default"}))
    return (*found, *in_16_bits(judged.accelerator.trials[0]))
