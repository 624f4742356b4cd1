"""Two runs to compare, made from plain step times: each time is one process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from perf_diagnostics.records import Environment, Length, Outcome, Run, Trial, TrialResult
from perf_diagnostics.testing import run_of, trial_of

MIB = 2**20
ABOUT_1_S = (0.99, 1.01, 1.0, 0.995, 1.005)


def processes(*step_times_s: float, memory_mib: Sequence[float] = (), **trial: Any) -> list[TrialResult]:
    """One completed trial a step time, all of one configuration; with ``memory_mib`` also its peak memory."""
    return [
        trial_of(
            **{
                "forward": step_s,
                "repeat": repeat,
                "steps": 5,
                "quantities": {"host_memory_peak": memory_mib[repeat] * MIB} if memory_mib else {},
            }
            | trial
        )
        for repeat, step_s in enumerate(step_times_s)
    ]


def ended(outcome: Outcome, reason: str = "", *, repeat: int = 0, **trial: Any) -> TrialResult:
    """A trial that did not complete, planned to be as long as those of :func:`processes`."""
    result = trial_of(outcome=outcome, reason=reason, repeat=repeat, steps=0, warmup_steps=0, **trial)
    return dataclasses.replace(result, trial=dataclasses.replace(result.trial, length=Length.exactly(5)))


def named(name: str, *results: TrialResult, pending: Sequence[Trial] = ()) -> Run:
    return dataclasses.replace(run_of(*results, pending=pending), name=name)


def on(environment: Environment, results: Sequence[TrialResult], **facts: Any) -> list[TrialResult]:
    """The same trials, measured elsewhere."""
    return [dataclasses.replace(result, environment=environment, facts={**result.facts, **facts}) for result in results]


def machine(*, torch: str | None = "2.13.0", cpu: str | None = "EPYC", **libraries: str) -> Environment:
    python = {"version": "3.11.7", **({"torch": torch} if torch else {}), **libraries}
    return Environment(python=python, host={"cpu_model": cpu} if cpu else {})


def times(factor: float, **trial: object) -> list[TrialResult]:
    """Five processes of about ``factor`` seconds a step."""
    return processes(*(factor * seconds for seconds in ABOUT_1_S), **trial)
