"""No rule claims what cannot be: gains and shares in 0…1, times of no less than 0, whatever the steps look like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.testing import trial_of

PHASES = ("data_wait", "transfer", "forward", "backward", "optimizer", "other")
TIMES = ("%", "s", "ms", "µs")

#: What goes up and down.
SIGNED = ("change", "growth")


def drawn(seed: int) -> TrialFacts:
    """A trial of 1 to 150 steps with phases, pauses, epochs, threads and counters at random."""
    random = np.random.default_rng(seed)
    steps, noise = int(random.integers(1, 150)), random.choice([0.0, 0.1, 0.6])
    usual = {phase: float(random.choice([0.0, 0.01, 0.3, 1.0, 3.0])) for phase in PHASES} | {"forward": 1.0}
    columns: dict[str, Any] = {}
    wall = np.zeros(steps)
    for phase, ms in usual.items():
        struck = random.random(steps) < random.choice([0.0, 0.02, 0.3])
        times = ms * np.maximum(0.1, 1 + noise * random.standard_normal(steps)) + struck * random.exponential(20, steps)
        wall += times
        columns |= {} if phase == "other" else {f"host_{phase}_ns": 1e6 * times}
    columns |= {
        "wall_ns": 1e6 * wall,
        "gc_ns": 5e5 * wall * (random.random(steps) < 0.05),
        "epoch": np.arange(steps) // int(random.integers(2, 40)),
        "data_wait_cpu_ns": columns["host_data_wait_ns"] * random.random(),
        "thread_cpu_ns": 1e6 * wall * random.choice([0.0, random.random()]),
    }
    total_s = wall.sum() / 1e3
    counted = {
        "process_cpu_s": 2 * total_s * random.random(),
        "workers_cpu_s": 2 * total_s * random.random(),
        "other_cpu_s": 4 * total_s * random.random(),
        "involuntary_switches": total_s * 10 ** random.uniform(0, 4),
        "loop_cpu_share": random.random(),
        "loop_run_delay_share": random.random(),
        "process_run_delay_share": random.random(),
        "worker_run_delay_share": random.random(),
        "measured_wall_s": total_s,
        "trainable_parameters": 10 ** random.uniform(3, 8),
        "memory_bandwidth": 1e10,
    }
    return TrialFacts.of(
        trial_of(
            **usual,
            steps=steps,
            columns=columns,
            batch_size=int(random.choice([4, 64])),
            device=str(random.choice(["cpu", "cpu", "cuda:0"])),
            facts={
                "threads": int(random.choice([1, 2, 16])),
                "cpu_count": int(random.choice([1, 2, 8])),
                "num_workers": int(random.choice([0, 0, 1, 8])),
                "persistent_workers": False,
                "optimizer": "AdamW",
                "optimizer_tensors": int(random.choice([2, 100])),
            },
            quantities={name: value for name, value in counted.items() if random.random() > 0.2},
        )
    )


def check(facts: TrialFacts) -> None:
    for rule in RULES:
        if rule.looks_at != "trial":
            continue
        try:
            answer = rule.check(facts)
        except NotMeasured:
            continue
        for item in answer.evidence:
            if item.unit in TIMES and item.low is not None and not any(word in item.metric for word in SIGNED):
                assert item.high is not None and item.high >= item.low >= 0, (rule.code, item)
        won = answer.recoverable if isinstance(answer, Finding) else None
        if won is not None:
            assert 0 <= won.low <= won.value <= won.high <= 1 + 1e-9, (rule.code, won)


@pytest.mark.parametrize("seed", range(10))
def test_a_few_trials(seed: int) -> None:
    check(drawn(seed))


@pytest.mark.slow
def test_many_trials() -> None:
    for seed in range(10, 300):
        check(drawn(seed))
