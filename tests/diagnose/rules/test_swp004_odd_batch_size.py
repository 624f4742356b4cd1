"""SWP004: how often sizes on a line are called odd because processes differ; what it finds is in test_stb_time.py."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, SweepFacts
from perf_diagnostics.diagnose.finding import Finding, Severity
from perf_diagnostics.diagnose.rules.swp004_odd_batch_size import OddBatchSize
from perf_diagnostics.testing import sweep_of


def mentioned(sizes: tuple[int, ...], repeats: int, scatter: float, sweeps: int) -> list[Severity]:
    """What sweeps of a fixed cost and a cost a sample are told, where they are told anything."""
    found = []
    for seed in range(sweeps):
        run = sweep_of(a_s=0.01, b_s=0.001, batch_sizes=sizes, repeats=repeats, process_noise=scatter, noise=0.02,
                       steps=20, seed=seed)  # fmt: skip
        (group,) = SweepFacts.of(run).groups
        try:
            answer = OddBatchSize().check(group)
        except NotMeasured:
            continue
        found += [answer.severity] if isinstance(answer, Finding) else []
    return found


@pytest.mark.parametrize("scatter", [0.05, 0.10])
@pytest.mark.parametrize("repeats", [1, 2])
def test_sizes_on_a_line_are_seldom_called_odd(repeats, scatter):
    found = mentioned((8, 16, 24, 32, 48, 64), repeats, scatter, 25)
    assert set(found) <= {Severity.INFO} and len(found) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(8, 16, 24, 32, 48, 64), (8, 16, 32, 64, 128, 256, 512, 1024)])
@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_of_many_none_warns_and_8_percent_are_mentioned(repeats, sizes):
    """What the docstring says: of 120 sweeps each, at 2, 5 and 10 % of scatter."""
    for scatter in (0.02, 0.05, 0.10):
        found = mentioned(sizes, repeats, scatter, 120)
        assert set(found) <= {Severity.INFO} and len(found) <= (0.08 if repeats == 1 else 0.05) * 120
