"""A run that waits for its data, and experiments on it with times given by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from perf_diagnostics.diagnose.finding import Share
from perf_diagnostics.diagnose.rule_parts.experiments import About, Experiment, Experiments
from perf_diagnostics.records import Json, Outcome, Run, Trial, TrialResult
from perf_diagnostics.testing import run_of, trial_of

FACTS: dict[str, Json] = {"num_workers": 0, "cpu_count": 8, "threads": 1}
GROUP = "synthetic on cpu"
STILL_COMPILING = "given up after 43 steps: torch.compile was still compiling"
WORKERS: dict[str, Json] = {"num_workers": 2, "persistent_workers": True}
CACHED: dict[str, Json] = {"ceiling": "cached_batches"}


def waiting_run(waits: float = 0.6) -> Run:
    """Batch 8 takes 1.0 s a step, so many of it waiting (not computing) for data."""
    return run_of(
        trial_of(
            data_wait=waits,
            forward=1.0 - waits,
            facts=FACTS,
            noise=0.01,
            columns={"data_wait_cpu_ns": 0.01e9},
            quantities={"setup_s": 2.0, "first_step_s": 1.0},
        )
    )


def base_of(run: Run) -> Trial:
    return run.results[0].trial


def experiment(
    change: Mapping[str, Json], *, number: int = 0, pairs: int = 5, code: str = "INP001", group: str = GROUP
) -> Experiment:
    return Experiment(
        about=(About(code, group, Share(0.4, 0.1, 0.6)),),
        says="Try it.",
        change=change,
        base=base_of(waiting_run()),
        first_repeat=1000 * number,
        pairs=pairs,
    )


def measured(trial: Trial, step_s: float, **of_trial: Any) -> TrialResult:
    """A result of exactly this trial, whose every step takes so long."""
    made = trial_of(forward=step_s, batch_size=trial.settings.batch_size, **of_trial)
    return dataclasses.replace(made, trial=trial)


def unsettled(trial: Trial, step_s: float) -> TrialResult:
    """Likewise, of a trial that still compiled when it was measured."""
    return measured(trial, step_s, facts={"warmup_ended": STILL_COMPILING}, steady=False)


def results(one: Experiment, new_s: Sequence[float], *, base_s: float = 1.0) -> tuple[TrialResult, ...]:
    """One pair for each time of the changed arm."""
    found: list[TrialResult] = []
    for index, seconds in enumerate(new_s):
        base, new = one.pair(index)
        found += [measured(base, base_s), measured(new, seconds)]
    return tuple(found)


def tried(*pairs: tuple[Experiment, Sequence[float]]) -> Experiments:
    """Experiments with the times of their changed arms; the base's step takes 1.0 s."""
    return Experiments(
        planned=tuple(one for one, _ in pairs),
        results=tuple(result for one, times in pairs for result in results(one, times)),
    )


def failed(trial: Trial, reason: str) -> TrialResult:
    return TrialResult(trial=trial, outcome=Outcome.CRASHED, reason=reason)
