"""The numbers of every trial for programs that read a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.records import Json
from perf_diagnostics.report.arms import Arm, TrialFigures, net_energy_per_sample_j
from perf_diagnostics.report.work_and_roofline import contradiction


def data_of(arms: Sequence[Arm]) -> dict[str, Json]:
    """The numbers of every trial for programs, in base units (s, bytes, J), what was not measured as null."""
    return {"trials": [_trial(arm, f) for arm in arms for f in arm.results]}


def _trial(arm: Arm, figures: TrialFigures) -> Json:
    result = figures.result
    facts = TrialFacts.of(result)
    return {
        "id": result.trial.id,
        "configuration": arm.label,
        "workload": result.trial.workload,
        "settings": result.trial.settings.canonical(),
        "seed": result.trial.seed,
        "repeat": result.trial.repeat,
        "outcome": str(result.outcome),
        "reason": result.reason,
        "stop_reason": result.stop_reason,
        "steady": result.steady,
        "steps": figures.steps,
        "warmup_steps": figures.warmup_steps,
        "samples": figures.samples,
        "throughput_samples_per_s": _interval(figures.throughput),
        "step_time_s": _interval(figures.step_s),
        "step_time_spread": _spread(facts),
        "phase_clock": figures.clock if figures.phase_s else None,
        "phase_time_s": {str(phase): seconds for phase, seconds in figures.phase_s.items()},
        "phase_share": {str(phase): _interval(share) for phase, share in figures.share.items()},
        "energy_per_sample_j": figures.energy_per_sample_j,
        "energy_above_idle_per_sample_j": ask(net_energy_per_sample_j, facts),
        "energy_by_board": result.facts.get("energy_by_board"),
        "work": _work(facts),
        "slow_steps": _slow_steps(facts),
        "ranks": len(result.steps),
        "quantities": {q.name: {"value": q.value, "unit": q.unit, "estimated": q.estimated} for q in result.quantities},
    }


def _interval(interval: Interval | None) -> Json:
    return None if interval is None else dict(dataclasses.asdict(interval))


def _spread(facts: TrialFacts) -> Json:
    """Median, median deviation and percentiles of the steps' times; null without a step whose time is possible."""
    found = ask(lambda: facts.step_time_spread)
    return None if found is None else dict(dataclasses.asdict(found))


def _work(facts: TrialFacts) -> Json:
    """Achieved operations a second and the shares of the ceilings; null where they would contradict one."""
    sound = not contradiction(facts)
    return {
        "flops_per_s": _interval(ask(roofline.flops_per_s, facts)) if sound else None,
        "share_of_measured_ceiling": _interval(ask(roofline.ceiling_share, facts)) if sound else None,
        "mfu": _interval(ask(roofline.mfu, facts)) if sound else None,
        "intensity_flop_per_byte": ask(roofline.intensity, facts),
        "ridge_flop_per_byte": ask(roofline.ridge, facts),
    }


def _slow_steps(facts: TrialFacts) -> Json:
    found = ask(lambda: facts.outliers)
    if found is None:
        return None
    return {
        "steps": len(found),
        "lost_share": found.lost_share,
        "lost_s_by_cause": {str(cause): seconds for cause, seconds in found.cause_s.items()},
    }
