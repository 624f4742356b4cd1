"""Tries advice in this process, one trial after another: for a training that lives in objects and not in a workload."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from perf_diagnostics.diagnose.rule_parts.experiments import Candidate, Experiments, LeftOut
from perf_diagnostics.records import Trial, TrialResult
from perf_diagnostics.trials.confirm.confirm_order import (
    Attempt,
    asks_the_same,
    left_out,
    next_one,
    not_tried,
    standings_of,
)
from perf_diagnostics.trials.confirm.pairs import (
    after_longer_warm_up,
    begun_as,
    experiment_of,
    in_order,
    length_for,
    next_number,
    orders,
)

#: What only the code that made the model, the optimizer and the samples can change.
YOURS = ("device", "optimizer_implementation", "gradient_checkpointing", "sequence_length", "length_bucketing")

#: What stays changed for the rest of a process, and so cannot take turns with its opposite in one.
FOR_GOOD = ("keep_freed_memory",)

#: How one goes on where a call ended.
AGAIN = "profiler.confirm()"


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
    """Try the candidates, the best first, and return all experiments, those of ``known`` included.

    What has a result is not run again, and what was begun is continued. Changes of what only the caller's own code can
    change are left out, and so is what no longer fits into the time; both are said with their reason. Which pair runs
    next is said in :func:`~perf_diagnostics.trials.confirm.confirm_order.next_one`.

    Args:
        candidates: what to try, the first one first.
        run_trial: measures one trial on fresh copies.
        known: what was tried before; its order within pairs is kept.
        pairs: pairs of trials for each change.
        steps: measured steps of each trial; None measures about five seconds of them.
        time_budget_s: seconds for everything; None for no limit.
        seed: of the order within pairs.
        clock: seconds, monotonic.
    """
    ends_at = None if time_budget_s is None else clock() + time_budget_s
    if known.planned:
        seed = known.seed
    refused = [not_tried(candidate, why) for candidate in candidates if (why := _why_not(candidate))]
    attempts = _attempts([one for one in candidates if not _why_not(one)], known, pairs=pairs, steps=steps)
    results = {result.trial.id: result for result in known.results}
    took_s: dict[str, float] = {}
    while True:
        standings = standings_of(attempts, results, took_s, set())
        left_s = None if ends_at is None else ends_at - clock()
        place = next_one(standings, left_s)
        if place is None:
            break
        for trial in _next_pair(attempts[place], results, seed):
            began = clock()
            results[trial.id] = run_trial(trial)
            took_s[trial.id] = clock() - began
    late = [one for one in zip(attempts, standings, strict=True) if not one[1].begun]
    new = [*refused, *(left_out(one.candidate, standing, left_s or 0.0) for one, standing in late)]
    begun = {one.experiment.first_repeat: one.experiment for one in attempts if one.begun(results)}
    planned = {one.first_repeat: one for one in known.planned} | begun
    return dataclasses.replace(
        known,
        planned=tuple(planned[repeat] for repeat in sorted(planned)),
        left_out=(*_still_left_out(known.left_out, attempts, new), *new),
        seed=seed,
        results=tuple(results.values()),
        again=AGAIN,
    )


def _attempts(candidates: Sequence[Candidate], known: Experiments, *, pairs: int, steps: int | None) -> list[Attempt]:
    """The candidates' experiments as they were begun, with at least so many pairs, or new ones.

    What had not settled is tried anew, after a longer warm-up.
    """
    number = next_number(known.planned)
    attempts = []
    for place, candidate in enumerate(candidates):
        one = begun_as(candidate, known)
        length = None if one is None else after_longer_warm_up(one, known)
        if one is None or length is not None:
            length = length or length_for(candidate.step_s, steps=steps, workers=candidate.settings.num_workers or 0)
            one = experiment_of(candidate, number=number + place, pairs=pairs, length=length)
        attempts.append(Attempt.of(candidate, dataclasses.replace(one, pairs=max(one.pairs, pairs)), around_s=0.0))
    return attempts


def _next_pair(attempt: Attempt, results: dict[str, TrialResult], seed: int) -> list[Trial]:
    """The trials without a result of the first pair that lacks one, in their order."""
    index = attempt.missing(results)[0]
    pair = in_order(attempt.experiment.pair(index), base_first=orders(attempt.experiment, seed)[index])
    return [trial for trial in pair if trial.id not in results]


def _why_not(candidate: Candidate) -> str:
    for name in candidate.change:
        if name in FOR_GOOD:
            return f"{name} would stay for the rest of this process: measure it in a script, or by a sweep"
    yours = [name for name in candidate.change if name in YOURS]
    if not yours:
        return ""
    return f"{yours[0]} is your own code's to choose, which is measured as it is: change it there and measure again"


def _still_left_out(
    known: Sequence[LeftOut], attempts: Sequence[Attempt], new: Sequence[LeftOut]
) -> tuple[LeftOut, ...]:
    """What an earlier call left out and this one was not about."""
    asked = [*(not_tried(one.candidate, "") for one in attempts), *new]
    return tuple(item for item in known if not any(asks_the_same(item, one) for one in asked))
