"""What a trial's own process records about itself."""

from __future__ import annotations

import torch

from perf_diagnostics.measure.environment import capture
from perf_diagnostics.records import Length, Settings, Trial
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.workloads.registry import find


def test_the_environment_has_the_threads_that_the_trial_ran_with() -> None:
    before = torch.get_num_threads()
    trial = Trial(
        workload="mlp",
        settings=Settings(batch_size=8, threads=before + 1),
        options={"width": 8, "depth": 1, "samples": 64},
        length=Length.exactly(3, warmup_steps=1),
    )
    environment = capture(command=())
    result = measure(
        trial, lambda settings: find("mlp").build(settings, options=trial.options, seed=0), environment=environment
    ).result
    assert environment.threads["torch_intra_op"] == before
    assert result.environment.threads["torch_intra_op"] == result.facts["threads"] == before + 1
