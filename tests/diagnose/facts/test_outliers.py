"""Long steps by cause: what each second of excess went to."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.facts.outliers import Cause, throttled_steps
from perf_diagnostics.records import Phase, Series
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import facts_of

STEPS = 100
S = 1e9


def at(step: int, value: float, otherwise: float = 0.0) -> np.ndarray:
    """A column of 100 steps with one value that differs."""
    values = np.full(STEPS, otherwise)
    values[step] = value
    return values


def long_step(phase: str = "forward", extra: float = 2.0, **more: object) -> TrialFacts:
    """Steps of 1.0 s, 0.2 of it waiting for data and 0.8 in forward; in step 40 a phase takes ``extra`` more."""
    usual = {"data_wait": 0.2, "forward": 0.8}.get(phase, 0.0)
    columns = {
        "wall_ns": at(40, (1.0 + extra) * S, 1.0 * S),
        f"host_{phase}_ns": at(40, (usual + extra) * S, usual * S),
        **more,
    }
    return facts_of(data_wait=0.2, forward=0.8, columns=columns)


def causes(facts: TrialFacts) -> frozenset[Cause]:
    assert facts.outliers.steps.tolist() == [40]
    assert facts.outliers.excess_s.tolist() == pytest.approx([2.0])
    assert sum(facts.outliers.cause_s.values()) == pytest.approx(2.0)
    return facts.outliers.causes_of(0)


def test_a_quiet_series_has_no_outlier_and_loses_nothing() -> None:
    quiet = facts_of(forward=1.0, noise=0.02).outliers
    assert len(quiet) == 0 and quiet.lost_share == 0.0 and not quiet.cause_s


def test_the_excess_is_counted_above_the_median_over_all_of_the_time() -> None:
    assert long_step().outliers.lost_share == pytest.approx(2.0 / 102.0)


def test_nothing_recorded_that_explains_it() -> None:
    assert causes(long_step()) == {Cause.UNEXPLAINED}


def test_the_collector() -> None:
    assert causes(long_step(gc_ns=at(40, 1.9 * S))) == {Cause.GC}


def test_a_pause_explains_no_more_than_it_lasted() -> None:
    facts = long_step(gc_ns=at(40, 0.5 * S))
    assert causes(facts) == {Cause.GC, Cause.UNEXPLAINED}
    assert facts.outliers.cause_s == {Cause.UNEXPLAINED: pytest.approx(1.5), Cause.GC: pytest.approx(0.5)}


def test_a_short_pause_is_no_cause() -> None:
    assert causes(long_step(gc_ns=at(40, 0.1 * S))) == {Cause.UNEXPLAINED}


def test_the_loader_and_the_edge_of_an_epoch() -> None:
    assert causes(long_step("data_wait")) == {Cause.LOADER_STALL}
    epoch = np.repeat([0, 1], [40, 60])
    assert causes(long_step("data_wait", epoch=epoch)) == {Cause.EPOCH_EDGE}
    assert causes(long_step("data_wait", epoch=np.repeat([0, 1], [41, 59]))) == {Cause.LOADER_STALL}


def test_compilation_and_allocation() -> None:
    assert causes(long_step(graphs=np.repeat([3, 4], [40, 60]))) == {Cause.COMPILE}
    assert causes(long_step(graphs=np.repeat([3, 4], [41, 59]))) == {Cause.UNEXPLAINED}
    assert causes(long_step(alloc_retries=np.repeat([0, 2], [40, 60]))) == {Cause.ALLOC_RETRY}


def test_a_thread_that_was_put_aside() -> None:
    # The thread ran for 0.8 s in every step: in step 40 it stood still for the other 2.0 s of its forward pass.
    assert causes(long_step(thread_cpu_ns=np.full(STEPS, 0.8 * S))) == {Cause.OUTSIDE}
    computing = at(40, 2.8 * S, 0.8 * S)
    assert causes(long_step(thread_cpu_ns=computing)) == {Cause.UNEXPLAINED}


def test_a_thread_that_waits_for_its_device_says_nothing_about_others() -> None:
    facts = TrialFacts.of(
        trial_of(
            forward=1.0,
            device="cuda:0",
            columns={
                "wall_ns": at(40, 3 * S, S),
                "device_forward_ns": at(40, 3 * S, S),
                "thread_cpu_ns": np.full(STEPS, 0.1 * S),
            },
        )
    )
    assert causes(facts) == {Cause.UNEXPLAINED}


def throttle(times_s: list[float], bits: list[int]) -> Series:
    return Series("gpu_throttle_reasons", "bitmask", "nvml", np.array(times_s) * S, np.array(bits, dtype=float))


@pytest.mark.parametrize(
    ("times_s", "bits", "slowed"),
    [
        ([0.0, 46.5], [0, 0x40], True),  # 5 s after the first sample the steps began; step 40 lasts from 45 to 48 s
        ([0.0, 44.0, 50.0], [0, 0x8, 0], True),  # read before the step began, and nothing else since
        ([0.0, 48.5], [0, 0x40], False),
        ([0.0, 46.5], [0, 0x4], False),  # at its power limit: a busy board
        ([0.0, 46.5], [0, 0x1], False),  # idle
    ],
)
def test_a_board_that_slowed_down(times_s: list[float], bits: list[int], slowed: bool) -> None:
    start = np.concatenate([np.arange(41), np.arange(43, 102)]) * S
    result = trial_of(
        forward=1.0,
        device="cuda:0",
        warmup_steps=0,
        columns={"wall_ns": at(40, 3 * S, S), "device_forward_ns": at(40, 3 * S, S), "start_ns": start},
        quantities={"steps_began_s": 5.0},
        series=(throttle(times_s, bits),),
    )
    assert (Cause.THROTTLE in causes(TrialFacts.of(result))) is slowed


def test_samples_that_cannot_be_laid_on_steps_are_no_cause_and_no_all_clear() -> None:
    table = facts_of(forward=1.0).table
    assert throttled_steps(table, throttle([0.0], [0x40]), 0.0) is None
    assert throttled_steps(table, throttle([], []), 0.0) is None


def test_the_phases_of_the_excess() -> None:
    facts = long_step("data_wait")
    assert facts.outliers.phase_part(Phase.DATA_WAIT) == pytest.approx(1.0)
    assert facts.outliers.phase_part(Phase.FORWARD) == 0.0
    assert facts_of(forward=1.0).outliers.phase_part(Phase.FORWARD) == 0.0


def test_few_steps_have_no_outliers_to_speak_of() -> None:
    with pytest.raises(NotMeasured, match="19 steady steps"):
        facts_of(steps=19).outliers  # noqa: B018
