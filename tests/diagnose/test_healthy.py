"""No rule warns about a healthy run, however its steps scatter: fixed limits without a noise model would."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.asking import ask_all
from perf_diagnostics.diagnose.facts.facts import SweepFacts
from perf_diagnostics.diagnose.finding import Family, Severity
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.records import ALL_PHASES, MEASURED_PHASES, Phase
from perf_diagnostics.testing import run_of, trial_of

#: Where a healthy step's time goes.
HEALTHY = {
    Phase.DATA_WAIT: 0.02,
    Phase.TRANSFER: 0.01,
    Phase.FORWARD: 0.33,
    Phase.BACKWARD: 0.55,
    Phase.OPTIMIZER: 0.07,
    Phase.OTHER: 0.02,
}


def scatter(rng, steps, kind):
    """A factor a step with mean about 1: autocorrelated, or with a long slow end."""
    if kind == "lognormal":
        return rng.lognormal(0, 0.12, steps)
    noise = np.zeros(steps)
    for i in range(1, steps):
        noise[i] = 0.8 * noise[i - 1] + 0.06 * rng.standard_normal()  # a standard deviation of 0.1
    return np.maximum(0.3, 1 + noise)


def healthy_trial(seed, kind, device):
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(40, 400))
    common = scatter(rng, steps, kind)  # the machine is slow for all phases at once
    times = {p: 0.1e9 * share * common * rng.lognormal(0, 0.05, steps) for p, share in HEALTHY.items()}
    times = {phase: np.rint(values) for phase, values in times.items()}
    columns = {"wall_ns": np.sum(list(times.values()), axis=0)}
    columns |= {f"host_{phase}_ns": times[phase] for phase in MEASURED_PHASES}
    if device != "cpu":
        columns |= {f"device_{phase}_ns": times[phase] for phase in ALL_PHASES}
        columns |= {"host_lead_ns": 0.05e9, "device_allocs": 40.0, "alloc_retries": 0.0}
    columns |= {
        "gc_ns": np.where(rng.random(steps) < 0.02, 0.2e6, 0.0),
        "graphs": 0,
        "epoch": np.arange(steps) // 50,
        "data_wait_cpu_ns": 0.3 * times[Phase.DATA_WAIT],
        "thread_cpu_ns": columns["wall_ns"] - 0.7 * times[Phase.DATA_WAIT],
    }
    return trial_of(
        device=device,
        steps=steps,
        columns=columns,
        seed=seed,
        facts={
            "num_workers": 2,
            "persistent_workers": True,
            "prefetch_factor": 2,
            "pin_memory": device != "cpu",
            "threads": 2,
            "cpu_count": 8,
            "optimizer": "SGD",
            "optimizer_implementation": "fused",
        },
        quantities={"setup_s": 1.0, "first_step_s": 0.5, "workers_cpu_s": 1.0, "process_cpu_s": 0.1 * steps},
    )


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("kind", ["autocorrelated", "lognormal"])
@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_trial_gets_no_warning(seed, kind, device):
    sweep = SweepFacts.of(run_of(healthy_trial(seed, kind, device)))
    rules = [rule for rule in RULES if rule.family is not Family.EXPERIMENT]
    warned = [
        (item.finding.code, item.finding.summary)
        for item in ask_all(rules, sweep, sweep).placed
        if item.finding.severity is not Severity.INFO
    ]
    assert warned == []
