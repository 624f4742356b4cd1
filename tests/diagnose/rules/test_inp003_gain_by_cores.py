"""INP003: what more workers surely win is no more than the cores allow, unless loading is known not to compute.

A naive 79 % was promised for one worker more on two cores, and nothing of it came.
"""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.rules.inp003_too_few_workers import TooFewWorkers
from tests.diagnose.answers import changes, found
from tests.diagnose.rules.test_inp_loading import loading

#: Of what is predicted for input, so much is surely realised.
KAPPA = 0.2


@pytest.mark.parametrize(
    ("threads", "cpu", "won"),
    [
        (7, None, 0.4),  # one core is free: the 0.6 s of a batch take it 0.6 s, of a step of 1 s today
        (6, None, 0.6),  # two are: 0.3 s, less than the 0.4 s of training, which are left
        (7, 0.1, 0.6),  # the wait is known to be no computing, and needs no core
    ],
)
def test_the_sure_part_of_the_gain(threads: int, cpu: float | None, won: float) -> None:
    facts: dict[str, Any] = {"threads": threads, "cpu_count": 8}
    finding = found(loading(TooFewWorkers(), 0.6, cpu=cpu, facts=facts))
    assert changes(finding) == [{"num_workers": 3, "persistent_workers": True}]
    assert finding.recoverable is not None
    assert finding.recoverable.low == pytest.approx(KAPPA * won, abs=0.002)
    assert finding.recoverable.high == pytest.approx(0.6, abs=0.002)
