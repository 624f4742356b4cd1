"""How many cores are left for loader workers: those that others use are not."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.loaders.loading_cost import cores_left
from perf_diagnostics.testing import trial_of


@pytest.mark.parametrize(
    ("cores", "others", "left"),
    [
        (2, 0.0, 1.0),
        (2, 0.15, 1.0),  # the system's own: still a core
        (2, 0.4, 0.0),
        (2, 1.9, 0.0),
        (8, 0.0, 7.0),
        (8, 3.0, 4.0),
        (8, 8.0, 0.0),
    ],
)
def test_cores_that_others_use_are_not_left(cores: int, others: float, left: float) -> None:
    quantities = {"other_cpu_s": others * 20.0}
    facts = {"threads": 1, "cpu_count": cores, "cpu_window_s": 20.0}
    assert cores_left(TrialFacts.of(trial_of(forward=0.1, facts=facts, quantities=quantities))) == left


def test_where_nobody_counted_others_all_but_the_trainings_are_left() -> None:
    assert cores_left(TrialFacts.of(trial_of(forward=0.1, facts={"threads": 2, "cpu_count": 8}))) == 6.0
