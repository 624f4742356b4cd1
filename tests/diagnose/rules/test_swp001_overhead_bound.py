"""SWP001: the fixed cost of a step, where it lies, and where it matters."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.swp001_overhead_bound import OverheadBound
from perf_diagnostics.records import Outcome, Phase
from perf_diagnostics.testing import run_of, sweep_of, throughput_sweep, trial_of
from tests.diagnose.answers import ask_group, changes, clear, found, missing, number

RULE = OverheadBound()
SIZES = (8, 16, 32, 64)

#: milabench, config/scaling/L40S.yaml, resnet50 (MIT): images/s by batch size.
L40S_RESNET50 = {128: 1206.49, 248: 1130.58, 296: 1101.92, 512: 1075.71, 856: 1056.76, 944: 1031.5}


def sweep_with_overhead(share, **trial):
    """A sweep in which ``share`` of the largest batch's step of 1 s is overhead."""
    return sweep_of(a_s=share, b_s=(1 - share) / 64, batch_sizes=SIZES, noise=0.02, **trial)


@pytest.mark.parametrize("share", [0.0, 0.03])
def test_little_overhead_everywhere_is_clear(share):
    # 0.03 of the step at batch 64 is 0.2 at batch 8.
    clear(ask_group(RULE, sweep_with_overhead(share)))


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.15, Severity.INFO), (0.4, Severity.WARNING), (0.6, Severity.CRITICAL), (0.9, Severity.CRITICAL)],
)
def test_the_severity_is_that_of_the_recommended_batch(share, severity):
    finding = found(ask_group(RULE, sweep_with_overhead(share)))
    assert finding.severity is severity
    assert number(finding, "overhead at batch 64").value == pytest.approx(100 * share, abs=2)
    assert number(finding, "fixed cost of a step").value == pytest.approx(1000 * share, rel=0.05)


def test_overhead_at_small_batches_only_is_an_info_with_its_measured_gain():
    # 0.15 s + 0.85/64 s a sample: batch 8 takes 0.256 s for 8 samples, batch 64 1 s for 64.
    finding = found(ask_group(RULE, sweep_with_overhead(0.15)))
    assert finding.batch_sizes == (8, 16)
    assert changes(finding) == [{"batch_size": 64}]
    assert finding.claims == {}  # it speaks of no second of the recommended batch's step
    assert finding.recoverable.value == pytest.approx(1 - (8 / 0.25625) / 64, abs=0.01)


def test_overhead_at_the_recommended_batch_is_what_could_be_won_there():
    finding = found(ask_group(RULE, sweep_with_overhead(0.6)))
    assert finding.recoverable.high == pytest.approx(0.6, abs=0.02)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.6, abs=0.02)
    assert {"batch_size": 128} in changes(finding)


def test_the_phase_that_carries_it_is_named():
    run = sweep_of(
        a_s={Phase.OPTIMIZER: 0.3, Phase.FORWARD: 0.1}, b_s={Phase.FORWARD: 0.002}, batch_sizes=SIZES, noise=0.01
    )
    finding = found(ask_group(RULE, run))
    assert "75 % of the fixed cost lies in the optimizer." in finding.summary
    assert number(finding, "fixed cost in the optimizer").value == pytest.approx(300, rel=0.02)
    assert {"optimizer_implementation": "fused"} in changes(finding)
    # At the recommended batch 64 a step takes 0.528 s.
    assert finding.claims["optimizer"] == pytest.approx(0.3 / 0.528, rel=0.02)


def test_no_phase_is_told_by_the_name_of_its_column():
    """A reader of the evidence is told of the wait for data, not of ``data_wait``."""
    run = sweep_of(
        a_s={Phase.DATA_WAIT: 0.3, Phase.OTHER: 0.1}, b_s={Phase.FORWARD: 0.002}, batch_sizes=SIZES, noise=0.01
    )
    finding = found(ask_group(RULE, run))
    assert "75 % of the fixed cost lies in the wait for data." in finding.summary
    assert number(finding, "fixed cost in the wait for data").value == pytest.approx(300, rel=0.02)
    assert number(finding, "fixed cost outside of all phases").value == pytest.approx(100, rel=0.02)
    assert not [item.metric for item in finding.evidence if "_" in item.metric]


def test_without_phases_the_cost_has_no_place():
    run = sweep_with_overhead(0.6, without=[f"host_{phase}_ns" for phase in Phase])
    finding = found(ask_group(RULE, run))
    assert "lies in" not in finding.summary
    assert finding.confidence == 0.5


def test_a_larger_batch_is_not_proposed_where_memory_ends():
    run = sweep_of(a_s=0.6, b_s=0.004, batch_sizes=(*SIZES, 128), failures={128: Outcome.OUT_OF_MEMORY_DEVICE})
    finding = found(ask_group(RULE, run))
    assert {"batch_size": 128} not in changes(finding)
    assert {"accumulation_steps": 2} in changes(finding)


@pytest.mark.parametrize(("gigabytes", "fits"), [(0.02, True), (0.10, False)])
def test_memory_is_expected_to_grow_with_the_batch(gigabytes, fits):
    # 1 GB and so many GB a sample, of 12 GB: twice the batch of 64 takes 3.6 GB, or 13.8 GB.
    trials = [
        trial_of(
            forward=0.6 + 0.004 * size,
            batch_size=size,
            quantities={"host_memory_peak": (1 + gigabytes * size) * 1e9, "host_memory_total": 12e9},
        )
        for size in SIZES
    ]
    assert ({"batch_size": 128} in changes(found(ask_group(RULE, run_of(*trials))))) is fits


def test_too_few_sizes_are_not_measured():
    reply = missing(ask_group(RULE, sweep_of(a_s=0.6, b_s=0.004, batch_sizes=(1, 8, 64))))
    assert reply.signal == "batch_size_fit"


def test_a_published_sweep_without_a_fixed_cost_is_refused():
    assert "faster than its batch" in missing(ask_group(RULE, throughput_sweep(L40S_RESNET50))).why


def test_symptoms_name_their_causes():
    assert "OPT001" in found(ask_group(RULE, sweep_with_overhead(0.6))).symptom_of
