"""Advice whose change the run holds already: predictions that the run itself contradicts are not repeated."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose import diagnose
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import changes

#: Float32 on an A100, all of it forward and backward: 16 bits are predicted to win 28 to 94 %.
SINGLE = {"device": "cuda:0", "forward": 0.3, "backward": 0.6, "noise": 0.01, "facts": {
    "device_name": "NVIDIA A100-SXM4-80GB", "matmul_precision": "high"
}}  # fmt: skip


def run_with_half(times, **trial):
    """The same in bfloat16, which takes so many times as long, in the same run."""
    half = SINGLE | {"forward": 0.3 * times, "backward": 0.6 * times, "settings": {"precision": "bfloat16"}}
    return run_of(trial_of(**SINGLE), trial_of(**half | trial))


def finding(diagnosis, code="CMP003"):
    return next(found for found in diagnosis.findings if found.code == code)


def test_a_prediction_that_nobody_measured_stands():
    found = finding(diagnose(run_of(trial_of(**SINGLE))))
    assert found.severity is Severity.WARNING and changes(found) == [{"precision": "bfloat16"}]


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (1.0, "shows no gain (0 % of the time a sample takes, with an interval of -0.2 % to 0.2 %), at batch 8."),
        (1.2, "costs 20 % of the time a sample takes, at batch 8."),
    ],
)
def test_what_the_run_has_tried_in_vain_is_not_advised(times, says):
    diagnosis = diagnose(run_with_half(times))
    found = finding(diagnosis)

    assert found.severity is Severity.INFO and changes(found) == []
    assert f"This run has tried it: precision=bfloat16 {says}" in found.summary
    assert found.recoverable.measured and found.recoverable.high < 0.01
    assert diagnosis.verdict.code == "CMP002"
    # Nor by the finding that nothing is wrong, which promises nothing and is not taken back.
    assert {"precision": "bfloat16"} not in changes(finding(diagnosis, "CMP002"))


def test_what_the_run_has_tried_with_success_is_advised():
    found = finding(diagnose(run_with_half(0.5)))
    assert found.severity is Severity.WARNING and changes(found) == [{"precision": "bfloat16"}]


@pytest.mark.parametrize("other", [{"batch_size": 16}, {"workload": "another"}, {"options": {"depth": 3}}])
def test_another_batch_or_work_contradicts_nothing(other):
    found = finding(diagnose(run_with_half(1.0, **other)))
    assert changes(found) == [{"precision": "bfloat16"}]


def test_trials_under_other_conditions_contradict_nothing():
    # Others used half of the cores beside one of the two trials, and none was idle.
    busy = {"other_cpu_s": 200.0, "process_cpu_s": 180.0, "workers_cpu_s": 0.0, "cpu_pressure_s": 50.0}
    known = {"facts": SINGLE["facts"] | {"cpu_count": 4, "cpu_window_s": 100.0, "threads": 1}, "quantities": busy}
    diagnosis = diagnose(run_with_half(1.0, **known))

    assert finding(diagnosis, "EXP010").severity is Severity.WARNING
    assert changes(finding(diagnosis)) == [{"precision": "bfloat16"}]


def test_one_vain_change_leaves_the_others():
    # An optimizer of 40 % tensor by tensor: foreach wins nothing in the same run, fused was not measured.
    known = {"optimizer": "AdamW", "optimizer_implementation": "single"}
    trial = {"forward": 0.2, "backward": 0.4, "optimizer": 0.4, "noise": 0.01, "facts": known}
    settings = {"optimizer_implementation": "foreach"}
    run = run_of(trial_of(**trial), trial_of(**trial | {"settings": settings, "facts": known | settings}))
    found = next(one for one in diagnose(run).findings if one.code == "OPT001" and "single" in one.summary)

    assert found.severity is Severity.WARNING
    assert settings not in changes(found) and {"optimizer_implementation": "fused"} in changes(found)
