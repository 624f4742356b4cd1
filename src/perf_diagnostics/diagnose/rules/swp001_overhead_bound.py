"""SWP001: a fixed cost in every step, which small batches pay for few samples; how large, and in which phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Group, Interval, Point, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, Grade, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, measured_gain, recoverable
from perf_diagnostics.diagnose.rule_parts.stalls import PLACES
from perf_diagnostics.diagnose.statistics.scaling import LARGEST_ERROR, LinearCost, fit_cost, overhead_by_phase
from perf_diagnostics.diagnose.wording import duration, percent, percent_between
from perf_diagnostics.records import ALL_PHASES, Phase

#: A larger batch is proposed only where its memory is expected to stay below this part of what there is.
FULL = 0.92


@dataclass(frozen=True)
class OverheadBound:
    """A fixed cost in every step dominates small batches.

    What it measures:
        Over all measured batch sizes (at least four, spanning a factor of eight) the step time is fitted as a fixed
        cost plus a cost a sample; where padding makes a sample dearer in a larger batch, plus a cost a token. The
        overhead share of a batch is the fixed cost over its step time; each phase is fitted too, to say where the
        fixed cost lies. Nothing is said about batch sizes that were not measured.

    Why it matters:
        Kernel launches, Python, the optimizer's update and calls into the loader cost the same for one sample as for
        many. Until the batch is large enough, the hardware mostly waits for them.

    What to try:
        The recommended batch of the sweep. Where even that is dominated by overhead: a larger one if memory allows,
        compilation or CUDA graphs for launches, a fused optimizer or accumulation where the update carries it.

    When it is wrong:
        A device that is idle at small batches and busy at large ones bends instead of following a line; then the fit
        is refused and the rule stays unchecked, as it does where a step's time grows faster than its batch. The
        severity speaks of the recommended batch; that a batch of one is dominated by overhead is no fault.
    """

    code: ClassVar[str] = "SWP001"
    name: ClassVar[str] = "overhead-bound"
    family: ClassVar[Family] = Family.SWEEP
    looks_at: ClassVar[Literal["group"]] = "group"

    warn_share: float = field(default=0.30, metadata=limit("overhead over the step to warn from", "judgement"))
    critical_share: float = field(default=0.50, metadata=limit("overhead over the step that is critical", "judgement"))

    largest_error: float = field(
        default=LARGEST_ERROR,
        metadata=limit("largest relative error of an accepted fit", "published sweeps: 3.8 % median, 10.5 % p90"),
    )

    def check(self, facts: Group) -> Answer:
        load = facts.load
        seconds = [point.step_time_s.value for point in facts.points]
        fit = fit_cost(load.per_step, seconds, largest_error=self.largest_error, noun=load.noun)
        shares = {
            point.batch_size: fit.overhead_share(held) for point, held in zip(facts.points, load.per_step, strict=True)
        }
        heavy = tuple(size for size, share in shares.items() if share.value >= self.warn_share)
        numbers = (*_costs(fit, load.noun), *(self._share(size, share) for size, share in _ends(facts, shares)))
        if not heavy:
            return cleared(self, f"at most {percent(max(s.value for s in shares.values()))} overhead", *numbers)
        there = facts.recommended
        share = shares[there.batch_size]
        graded = grade(share, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        by_phase = _by_phase(facts.points, load.per_step, seconds)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if graded is None else graded.severity,
            summary=_summary(facts, fit, shares, by_phase),
            scope=facts.label,
            evidence=(*numbers, *_phase_numbers(by_phase, fit)),
            remedies=_remedies(facts, by_phase, at_recommended=graded is not None),
            recoverable=_gain(facts, share, graded),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if by_phase else Tier.SHARE,
                sure=graded is None or graded.sure,
                thin=any(trial.thin for trial in there.trials),
            ),
            batch_sizes=heavy,
            claims={
                str(phase): cost / there.step_time_s.value for phase, cost in by_phase.items() if graded is not None
            },
            symptom_of=("INP001", "OPT001", "XFR001", "HST001", "HST012", "CPU001", "CPU003"),
        )

    def _share(self, size: int, share: Interval) -> Evidence:
        return evidence(f"overhead at batch {size}", share, "%", limit=self.warn_share)


def _costs(fit: LinearCost, noun: str) -> tuple[Evidence, ...]:
    found = [
        evidence("fixed cost of a step", fit.overhead_s.scaled(1e3), "ms"),
        evidence(f"cost of a {noun}", fit.per_sample_s.scaled(1e3), "ms"),
        Evidence(metric="largest error of the fit", value=fit.worst_error * 100, unit="%", n=len(fit.batches)),
    ]
    if fit.half_batch is not None:
        found.append(
            Evidence(metric=f"{noun}s at which half of a step is overhead", value=fit.half_batch, n=len(fit.batches))
        )
    return tuple(found)


def _ends(facts: Group, shares: Mapping[int, Interval]) -> list[tuple[int, Interval]]:
    """The smallest, the recommended and the largest batch, each once."""
    sizes = dict.fromkeys((facts.batch_sizes[0], facts.recommended.batch_size, facts.batch_sizes[-1]))
    return [(size, shares[size]) for size in sizes]


def _by_phase(points: tuple[Point, ...], load: Sequence[float], seconds: list[float]) -> dict[Phase, float]:
    """The fixed cost of each phase, in s; empty where the phases were not timed at every batch size."""
    times: dict[Phase, list[float]] = {}
    for phase in ALL_PHASES:
        known = [ask(point.phase_time_s, phase) for point in points]
        if all(time is not None for time in known):
            times[phase] = [time.value for time in known if time is not None]
    return overhead_by_phase(load, seconds, times)


def _carrier(by_phase: Mapping[Phase, float]) -> tuple[Phase, float] | None:
    """The phase with the largest fixed cost, and its part of all."""
    total = sum(by_phase.values())
    if not total > 0:
        return None
    phase = max(by_phase, key=lambda p: by_phase[p])
    return phase, by_phase[phase] / total


def _phase_numbers(by_phase: Mapping[Phase, float], fit: LinearCost) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(metric=f"fixed cost {PLACES[phase]}", value=cost * 1e3, unit="ms", n=len(fit.batches))
        for phase, cost in sorted(by_phase.items(), key=lambda item: -item[1])
        if cost > 0
    )


def _summary(facts: Group, fit: LinearCost, shares: Mapping[int, Interval], by_phase: Mapping[Phase, float]) -> str:
    smallest, there = facts.batch_sizes[0], facts.recommended.batch_size
    says = (
        f"A step costs {duration(fit.overhead_s.value)} whatever its batch, and {duration(fit.per_sample_s.value)} "
        f"more a {facts.load.noun}: {percent_between(shares[smallest])} of a step is overhead at batch {smallest}"
    )
    says += "." if there == smallest else f", {percent(shares[there].value)} at the recommended {there}."
    carrier = _carrier(by_phase)
    if carrier is None:
        return says
    return f"{says} {percent(carrier[1])} of the fixed cost lies {PLACES[carrier[0]]}."


def _gain(facts: Group, share: Interval, graded: Grade | None) -> Share:
    """At the recommended batch the predicted gain of removing overhead; else the measured one of going there."""
    if graded is not None:
        return recoverable(share, Family.SWEEP)
    return measured_gain(facts.relative_to(facts.points[0], facts.recommended))


def _remedies(facts: Group, by_phase: Mapping[Phase, float], *, at_recommended: bool) -> tuple[Remedy, ...]:
    there = facts.recommended
    if not at_recommended:
        return (Remedy(f"Train with batch {there.batch_size}. {CHANGES_TRAINING}", {"batch_size": there.batch_size}),)
    found = [_larger_batch(facts)]
    carrier = _carrier(by_phase)
    fused = there.trials[0].word("optimizer_implementation") == "fused"
    if carrier is not None and carrier[0] is Phase.OPTIMIZER and not fused:
        found.append(Remedy("Use the fused optimizer.", {"optimizer_implementation": "fused"}))
    if not there.trials[0].compiled:
        mode = "reduce-overhead" if facts.on_accelerator else "default"
        found.append(Remedy("Compile the model, so that a step takes fewer calls.", {"compile_mode": mode}))
    return tuple(found)


def _larger_batch(facts: Group) -> Remedy:
    """Twice the largest measured batch, unless memory has no room for it."""
    size = 2 * facts.batch_sizes[-1]
    if any(result.outcome.out_of_memory for result in facts.failures) or _too_large(facts):
        return Remedy(
            f"Memory does not allow a batch of {size}: accumulate gradients instead. {CHANGES_TRAINING}",
            {"accumulation_steps": 2 * facts.accumulation_steps},
        )
    return Remedy(f"Measure batch {size} too. {CHANGES_TRAINING}", {"batch_size": size})


def _too_large(facts: Group) -> bool:
    """Whether a straight line through the memory peaks says that twice the largest batch does not fit.

    Published peaks are linear in the batch (R² 0.997 in the median of 90 sweeps).
    """
    first, last = facts.points[0], facts.points[-1]
    for question in (_device_share, _host_share):
        before, now = first.largest(question), last.largest(question)
        if before is not None and now is not None:
            slope = (now - before) / (last.batch_size - first.batch_size)
            if now + slope * last.batch_size > FULL:
                return True
    return False


def _device_share(trial: TrialFacts) -> float:
    return trial.device_memory_share


def _host_share(trial: TrialFacts) -> float:
    return trial.host_memory_share
