"""Tries advice in this process, one trial after another: for a training that lives in objects and not in a workload."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from perf_diagnostics.diagnose.experiments import Candidate, Experiment, Experiments, LeftOut
from perf_diagnostics.diagnose.tried import LEAST_PAIRS
from perf_diagnostics.records import Outcome, Trial, TrialResult
from perf_diagnostics.trials.pairs import experiment_of, in_order, length_for, orders, same_question

#: What only the code that made the model, the optimizer and the samples can change.
YOURS = ("device", "optimizer_implementation", "gradient_checkpointing", "sequence_length", "length_bucketing")


def confirm_here(
    candidates: Sequence[Candidate],
    run_trial: Callable[[Trial], TrialResult],
    *,
    known: Experiments,
    pairs: int,
    steps: int | None,
    time_budget_s: float | None,
    seed: int,
    clock: Callable[[], float] = time.monotonic,
) -> Experiments:
    """Try the candidates in their order, and return all experiments, those of ``known`` included.

    What was tried already is not tried again. Changes of what only the caller's own code can change are left out, and
    so is what no longer fits into the time; both are said with their reason.

    Args:
        candidates: what to try, the first one first.
        run_trial: measures one trial on fresh copies.
        known: what was tried before.
        pairs: pairs of trials for each change.
        steps: measured steps of each trial; None measures about five seconds of them.
        time_budget_s: seconds for everything; None for no limit.
        seed: of the order within pairs.
        clock: seconds, monotonic.
    """
    ends_at = None if time_budget_s is None else clock() + time_budget_s
    asked = {same_question(one.base, one.change) for one in known.planned}
    planned, left_out, results = list(known.planned), [], list(known.results)
    for candidate in candidates:
        if same_question(candidate.base, candidate.change) in asked:
            continue
        length = length_for(candidate.step_s, steps=steps)
        cost_s = 2 * (candidate.start_s + candidate.step_s * (length.warmup_steps + length.max_steps))
        why = _why_not(candidate, None if ends_at is None else ends_at - clock(), cost_s)
        if why:
            left_out.append(_left_out(candidate, why))
            continue
        experiment = experiment_of(candidate, number=len(planned), pairs=pairs, length=length)
        planned.append(experiment)
        results += _pairs(experiment, run_trial, seed, lambda: ends_at is not None and clock() > ends_at)
    return dataclasses.replace(
        known, planned=tuple(planned), left_out=tuple(left_out), seed=seed, results=tuple(results)
    )


def _pairs(
    experiment: Experiment, run_trial: Callable[[Trial], TrialResult], seed: int, late: Callable[[], bool]
) -> list[TrialResult]:
    results: list[TrialResult] = []
    for index, base_first in enumerate(orders(experiment, seed)):
        if index and late():
            break
        pair = [run_trial(trial) for trial in in_order(experiment.pair(index), base_first=base_first)]
        results += pair
        if any(result.outcome is not Outcome.COMPLETED for result in pair):
            break
    return results


def _why_not(candidate: Candidate, left_s: float | None, pair_s: float) -> str:
    yours = [name for name in candidate.change if name in YOURS]
    if yours:
        return f"{yours[0]} is your own code's to choose, which is measured as it is: change it there and measure again"
    if left_s is not None and LEAST_PAIRS * pair_s > left_s:
        return (
            f"{LEAST_PAIRS} pairs would take about {LEAST_PAIRS * pair_s:.0f} s, and {max(0.0, left_s):.0f} s were left"
        )
    return ""


def _left_out(candidate: Candidate, why: str) -> LeftOut:
    return LeftOut(
        about=candidate.about,
        says=candidate.says,
        change=candidate.change,
        batch_size=candidate.base.settings.batch_size,
        why=why,
    )
