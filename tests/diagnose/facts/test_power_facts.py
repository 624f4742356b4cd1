"""The samples on which a measured energy was spent: of all ranks where it is all boards', else of the one rank."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.compare.metrics import _energy
from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.facts.power_facts import joules_per_sample, samples_of_energy
from perf_diagnostics.testing import trial_of


def of_ranks(count: int, device: str = "cuda:0", **quantities: float) -> TrialFacts:
    """Ranks of 100 steps of 8 samples each."""
    alone = trial_of(forward=0.1, batch_size=8, device=device, quantities=quantities)
    return TrialFacts.of(dataclasses.replace(alone, steps=alone.steps * count))


def test_the_energy_of_all_boards_is_over_the_samples_of_all_ranks() -> None:
    facts = of_ranks(
        2, energy_device=6400.0, energy_device_steps=100.0, energy_device_samples=1600.0, energy_device_boards=2.0
    )
    assert joules_per_sample(facts) == 4.0
    assert _energy(facts) == 4.0  # what two runs are compared by


def test_the_energy_of_one_ranks_board_is_over_its_own_samples() -> None:
    # so did records of several ranks tell it, before all ranks' energies were joined
    assert joules_per_sample(of_ranks(2, energy_device=3200.0, energy_device_steps=100.0)) == 4.0
    assert samples_of_energy(of_ranks(1, energy_device=3200.0, energy_device_steps=100.0)) == 800


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"energy_device_samples": 0.0, "energy_device_steps": 100.0}, "no sample was trained on"),
        ({}, "energy_device_steps was not recorded"),
    ],
)
def test_without_samples_there_is_no_energy_a_sample(more: dict[str, float], why: str) -> None:
    with pytest.raises(NotMeasured, match=why):
        joules_per_sample(of_ranks(2, energy_device=3200.0, **more))


def test_a_training_on_the_cpu_has_no_devices_energy() -> None:
    with pytest.raises(NotApplicable):
        joules_per_sample(of_ranks(2, "cpu", energy_device=3200.0, energy_device_samples=800.0))
