"""How an experiment is laid out: how long its trials are, which of a pair runs first, and what it will cost."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable
from datetime import datetime

from perf_diagnostics.diagnose.rule_parts.experiments import Candidate, Experiment, Experiments, same_question
from perf_diagnostics.diagnose.tried.outcomes import still_unsettled
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Length, Trial, TrialResult

#: Pairs of processes an experiment takes when nothing is said. Simulated, with processes that scatter by 3 %: a gain of
#: 10 % is confirmed in 91 % of cases, one of 5 % in 25 %; equal against equal in 0.2 %, a true gain of 2 % in 2.4 %.
PAIRS = 5

#: Seconds of steps that a trial measures, as far as the least and the most number of steps allow.
MEASURED_S = 5.0
LEAST_STEPS, MOST_STEPS = 10, 200
WARMUP_STEPS = 3

#: Each experiment has so many repeats to itself, so that the trials of two never share an id.
REPEATS_APART = 1000

#: Forking, imports and what the parent writes, in s a trial.
AROUND_S = 1.0


def length_for(step_s: float, *, steps: int | None = None, workers: int = 0) -> Length:
    """Both arms of an experiment measure the same number of steps, every one of which counts.

    Workers that are waited for give their batches in rounds, of which whole ones are measured: 12 steps and not 10 with
    four workers, or the part of a round makes the mean wrong by several percent.
    """
    if steps is None:
        wanted = MEASURED_S / step_s if step_s > 0 else MOST_STEPS
        steps = min(MOST_STEPS, max(LEAST_STEPS, math.ceil(wanted)))
        steps += -steps % max(1, workers)
    return Length.exactly(steps, warmup_steps=WARMUP_STEPS)


def trial_cost_s(candidate: Candidate, length: Length, *, around_s: float = AROUND_S) -> float:
    """What one trial will take, in s, as far as the run's own trial of the base tells."""
    return around_s + candidate.start_s + candidate.step_s * (length.warmup_steps + length.max_steps)


def lasted_s(result: TrialResult) -> float | None:
    """What a trial took from its start to its result, in s; None where its record does not tell."""
    try:
        began, ended = (datetime.fromisoformat(text) for text in (result.started_at, result.finished_at))
    except ValueError:
        return None
    return max(0.0, (ended - began).total_seconds())


def experiment_of(candidate: Candidate, *, number: int, pairs: int, length: Length) -> Experiment:
    """The experiment that tries a candidate.

    Raises:
        InvalidSettings: fewer than one pair or more than there are repeats for.
    """
    if not 1 <= pairs <= REPEATS_APART:
        raise InvalidSettings(f"pairs={pairs} must lie between 1 and {REPEATS_APART}.")
    return Experiment(
        about=candidate.about,
        says=candidate.says,
        change=candidate.change,
        base=dataclasses.replace(candidate.base, length=length, repeat=0, role=""),
        first_repeat=number * REPEATS_APART,
        pairs=pairs,
    )


def next_number(planned: Iterable[Experiment]) -> int:
    """The number of the next new experiment: above all there are, of which some may have been passed over."""
    return 1 + max((one.first_repeat // REPEATS_APART for one in planned), default=-1)


def begun_as(candidate: Candidate, known: Experiments) -> Experiment | None:
    """The experiment that was begun to try this, the last one of several; None where none was."""
    asked = same_question(candidate.base, candidate.change)
    return next((one for one in reversed(known.planned) if same_question(one.base, one.change) == asked), None)


def after_longer_warm_up(experiment: Experiment, known: Experiments, spare_steps: int | None = None) -> Length | None:
    """The length with which to try anew what had not settled; None where it had, or where no more steps are to be had.

    The warm-up is then as long as all that the longest of the unsettled trials has done.

    Args:
        experiment: as it was begun.
        known: all there are, with their results.
        spare_steps: that the training has beside the experiment's; None: it has any number.
    """
    length = experiment.base.length
    unsettled = still_unsettled(experiment, {result.trial.id: result for result in known.results})
    most = math.inf if spare_steps is None else length.warmup_steps + spare_steps
    wanted = min(most, max((len(table) for result in unsettled for table in result.steps), default=0))
    return dataclasses.replace(length, warmup_steps=int(wanted)) if wanted > length.warmup_steps else None


def orders(experiment: Experiment, seed: int) -> tuple[bool, ...]:
    """For each pair whether the base runs first: base, new, new, base or the other way round, drawn for every two.

    A machine that grows slower all the while then weighs on both sides alike.
    """
    drawn = random.Random(f"{seed} {experiment.first_repeat}")  # noqa: S311 - an experiment's order, not a secret
    first: list[bool] = []
    while len(first) < experiment.pairs:
        first += drawn.choice(([True, False], [False, True]))
    return tuple(first[: experiment.pairs])


def in_order(pair: tuple[Trial, Trial], *, base_first: bool) -> tuple[Trial, Trial]:
    return pair if base_first else (pair[1], pair[0])
