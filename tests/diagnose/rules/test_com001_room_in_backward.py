"""COM001 where exchanges were long in the warm-up, when nearly all of them are timed, and are not in steady steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.ranks.exchange_facts import ExchangeFacts
from perf_diagnostics.diagnose.rules.com001_communication_bound import CommunicationBound
from perf_diagnostics.diagnose.rules.com003_little_overlap import LittleOverlap
from perf_diagnostics.records import Quantity, TrialResult
from tests.diagnose.rules.rank_trials import STEPS, of_ranks

#: Steps whose exchange is timed (and written beside the step after the next one), all of the warm-up.
TIMED, WARM_UP = slice(1, 10), 12

COMPUTING = 0.04


def job(steady_s: float, *, facts: dict[str, Any] | None = None, **columns: Any) -> TrialResult:
    """Two ranks whose backward computes for 40 ms; the exchanges that are timed are exposed for 50 ms, and those of
    steady steps for so long. Steady steps take 100 ms."""
    at = np.arange(STEPS)
    exposed = np.where(at < WARM_UP, 0.05, steady_s)
    written = np.full(STEPS, np.nan)
    written[3:12] = exposed[TIMED]
    own = {
        "host_backward_ns": (COMPUTING + exposed) * 1e9,
        "exchange_ns": written * 1e9,
        "exchange_hidden_ns": 0 * written,
        "warmup": at < WARM_UP,
        "wall_ns": np.full(STEPS, 0.1e9),
    }
    return of_ranks(own | columns, own | columns, facts=facts)


def share_of(result: TrialResult) -> float:
    return ExchangeFacts.of(result).exposed.value


def test_what_steady_backwards_have_no_room_for_is_no_communication() -> None:
    assert share_of(job(0.02)) == pytest.approx(0.2)  # 20 of 100 ms
    answer = CommunicationBound().check(TrialFacts.of(job(0.001)))
    assert isinstance(answer, Cleared) and "takes 1.0 % of a step" in answer.summary


def test_exchanges_that_stay_as_long_are_told_in_full() -> None:
    found = CommunicationBound().check(TrialFacts.of(job(0.05)))
    assert isinstance(found, Finding) and found.severity is Severity.CRITICAL
    assert share_of(job(0.05)) == pytest.approx(0.5)


def test_of_several_exchanges_a_step_backward_is_the_most_that_all_take() -> None:
    four = {"exchanges_per_step_least": 4.0, "exchanges_per_step_most": 4.0}
    # Four times 50 ms, in a backward of 60: what it computes is not known of any single exchange.
    assert share_of(job(0.02, facts=four)) == pytest.approx(0.6)


def test_without_backward_what_was_timed_stands() -> None:
    assert share_of(job(0.02, host_backward_ns=None)) == pytest.approx(0.5)


@pytest.mark.parametrize(("waiting_s", "warns"), [(0.5, False), (0.1, True)])
@pytest.mark.parametrize("rule", [CommunicationBound(), LittleOverlap()])
def test_where_threads_wait_for_cores_ranks_may_as_well(
    rule: CommunicationBound | LittleOverlap, waiting_s: float, warns: bool
) -> None:
    """Of two seconds something waited for a processor for so long."""
    told = job(0.02)
    told = dataclasses.replace(
        told,
        quantities=(*told.quantities, Quantity("cpu_pressure_s", waiting_s, "s", "PSI")),
        facts={**told.facts, "cpu_window_s": 2.0},
    )
    found = rule.check(TrialFacts.of(told))
    assert isinstance(found, Finding)
    assert found.severity is (Severity.WARNING if warns else Severity.INFO)
    assert isinstance(rule, LittleOverlap) or ("may wait for cores instead" in found.summary) is not warns
