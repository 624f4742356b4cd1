"""Whole diagnoses: the right cause first, nothing where nothing is wrong, no verdict from too little."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from perf_diagnostics.diagnose import diagnose, diagnosis_to_json
from perf_diagnostics.diagnose.deep import WINDOWS_ALONE
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import OWN_TRAINING, Outcome, Phase
from perf_diagnostics.testing import run_of, sweep_of, throughput_sweep, trial_of

#: A healthy training on two cores: 7.5 ms fixed and 3 ms a sample, as a model of a few million parameters has it.
HEALTHY = {
    "a_s": {Phase.FORWARD: 0.002, Phase.BACKWARD: 0.003, Phase.OPTIMIZER: 0.002, Phase.OTHER: 0.0005},
    "b_s": {Phase.FORWARD: 0.001, Phase.BACKWARD: 0.002, Phase.DATA_WAIT: 0.00005},
    "facts": {"num_workers": 0, "threads": 2, "cpu_count": 2, "optimizer": "AdamW"},
    "columns": {"loss": 0.7, "tokens": 128, "padding_tokens": 10},
    "quantities": {"host_memory_peak": 1e9, "host_memory_total": 8e9},
    "steps": 60,
}


def codes(diagnosis, *severities):
    return [finding.code for finding in diagnosis.findings if finding.severity in severities]


def faults(diagnosis):
    return codes(diagnosis, Severity.WARNING, Severity.CRITICAL)


@pytest.mark.parametrize(("noise", "process_noise"), [(0.05, 0.0), (0.15, 0.01)])
def test_a_healthy_sweep_has_no_fault(noise, process_noise):
    clean = 0
    for seed in range(20):
        diagnosis = diagnose(sweep_of(**HEALTHY, noise=noise, process_noise=process_noise, seed=seed))
        clean += not faults(diagnosis)
        assert diagnosis.verdict.code == "CMP002"
    assert clean >= 19


def test_a_healthy_sweep_with_correlated_noise_has_no_fault():
    """AR(1) steps with rho 0.9 drift to and fro; that is neither input nor trend."""
    clean = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        trials = []
        for size in (4, 8, 16, 32):
            level = np.zeros(100)
            for step in range(1, 100):
                level[step] = 0.9 * level[step - 1] + 0.02 * rng.standard_normal()
            wall = 1e9 * (0.01 + 0.003 * size) * (1 + level)
            parts = {"host_data_wait_ns": 0.03, "host_forward_ns": 0.3, "host_backward_ns": 0.6}
            columns = {"wall_ns": wall} | {name: part * wall for name, part in parts.items()}
            trials.append(trial_of(batch_size=size, columns=columns | {"loss": 1.0}, without=["measured_wall_s"]))
        clean += not faults(diagnose(run_of(*trials)))
    assert clean >= 19


def test_every_rule_answers_once_in_one_of_three_ways():
    diagnosis = diagnose(sweep_of(**HEALTHY, noise=0.02))
    answered = [item.code for item in (*diagnosis.findings, *diagnosis.cleared, *diagnosis.unchecked)]
    assert sorted(answered) == sorted([*(rule.code for rule in RULES), *WINDOWS_ALONE])


def test_slow_loading_is_the_verdict():
    run = run_of(trial_of(data_wait=0.5, forward=0.5, columns={"data_wait_cpu_ns": 0.02e9}, facts=HEALTHY["facts"]))
    diagnosis = diagnose(run)
    assert diagnosis.verdict.code == "INP001"
    assert "waits for data 50 %" in diagnosis.verdict.summary
    assert diagnosis.findings[0].severity is Severity.CRITICAL


def test_input_on_a_device_explains_its_poor_speedup():
    gpu = {"device": "cuda:0", "facts": {"num_workers": 0, "cpu_count": 8}}
    run = run_of(
        *(trial_of(batch_size=b, forward=0.02 * b) for b in (8, 16)),
        *(trial_of(batch_size=b, data_wait=0.008 * b, forward=0.002 * b, **gpu) for b in (8, 16)),
    )
    diagnosis = diagnose(run)
    assert diagnosis.verdict.code == "INP001"
    assert faults(diagnosis) == ["INP001", "CMP001"]
    assert diagnosis.findings[0].explains == ("CMP001", "INP003")  # CMP001 is a fault, INP003 what mends INP001


def test_a_heavy_optimizer_explains_the_overhead_it_makes():
    run = sweep_of(
        a_s={Phase.OPTIMIZER: 0.2, Phase.FORWARD: 0.005},
        b_s={Phase.FORWARD: 0.003},
        batch_sizes=(4, 8, 16, 32),
        noise=0.02,
    )
    diagnosis = diagnose(run)
    assert faults(diagnosis) == ["OPT001", "SWP001"]
    assert diagnosis.verdict.code == "OPT001"


def test_overhead_without_a_known_cause_is_the_verdict():
    run = sweep_of(a_s={Phase.FORWARD: 0.2}, b_s={Phase.FORWARD: 0.002}, batch_sizes=(4, 8, 16, 32), noise=0.02)
    assert diagnose(run).verdict.code == "SWP001"


def test_past_the_peak_by_full_memory():
    def trial(size, rate, memory):
        quantities = {"host_memory_peak": memory, "host_memory_total": 10e9}
        return trial_of(batch_size=size, forward=size / rate, noise=0.01, quantities=quantities)

    diagnosis = diagnose(run_of(trial(8, 80, 2e9), trial(16, 100, 4e9), trial(32, 70, 9.8e9)))
    finding = next(f for f in diagnosis.findings if f.code == "SWP003")
    assert "the host's memory is 98 % full" in finding.summary
    assert diagnosis.verdict.code == "SWP003"
    # At the recommended batch memory is fine, so that it is full elsewhere is an info.
    assert next(f for f in diagnosis.findings if f.code == "MEM001").severity is Severity.INFO


def test_a_fault_at_other_sizes_does_not_displace_the_one_where_one_trains():
    trials = [trial_of(batch_size=8, forward=0.16), trial_of(batch_size=16, data_wait=0.03, forward=0.13)]
    trials.append(trial_of(batch_size=32, forward=0.64))
    diagnosis = diagnose(run_of(*trials))
    assert faults(diagnosis) == ["INP001", "SWP003"]


# -- no verdict


def test_nothing_ran():
    diagnosis = diagnose(run_of())
    assert (diagnosis.verdict, diagnosis.no_verdict_because) == (None, "no trial was run")


def test_nothing_completed():
    diagnosis = diagnose(sweep_of(a_s=1, b_s=1, batch_sizes=(8, 16), failures=dict.fromkeys((8, 16), Outcome.CRASHED)))
    assert diagnosis.verdict is None
    assert diagnosis.no_verdict_because == "none of 2 trials completed (crashed)"
    assert codes(diagnosis, Severity.CRITICAL) == ["EXP002"]
    # All rules that wanted a completed trial share one reason.
    assert len(diagnosis.not_checked_because["no trial completed"]) > 20


def test_a_training_that_crashed_is_no_sweep():
    diagnosis = diagnose(run_of(trial_of(steps=19, outcome=Outcome.CRASHED, reason="KeyError: 'x'")))
    assert diagnosis.no_verdict_because == "the only trial did not complete (crashed)"
    assert "batch 8 crashed: KeyError: 'x'." in diagnosis.findings[0].summary


def test_a_training_that_crashed_late_has_measured_what_came_before():
    late = trial_of(data_wait=0.5, forward=0.5, steps=200, outcome=Outcome.CRASHED, reason="KeyError: 'x'")
    diagnosis = diagnose(run_of(late))
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "INP001"
    assert faults(diagnosis)[0] == "EXP002"
    # Beside a trial that completed it enters no number.
    beside = diagnose(run_of(late, trial_of(data_wait=0.0, forward=1.0, repeat=1)))
    assert "INP001" not in faults(beside)


def test_a_training_that_was_cut_off_gets_no_clean_bill():
    broken = {"forward": 0.4, "backward": 0.6, "steps": 200, "facts": {"num_workers": 0}}
    diagnosis = diagnose(run_of(trial_of(**broken, outcome=Outcome.INTERRUPTED)))
    assert diagnosis.verdict is None
    assert "the trial broke off before its end; a step of 1.00 s is 60 % backward" in diagnosis.no_verdict_because
    whole = diagnose(run_of(trial_of(**broken))).verdict.summary
    assert whole.startswith("No rule found a fault. 100 %")


def test_steps_up_to_a_loss_that_is_no_number_are_not_used():
    diagnosis = diagnose(run_of(trial_of(data_wait=0.5, forward=0.5, steps=200, outcome=Outcome.NAN_LOSS)))
    assert diagnosis.verdict is None and "INP001" not in faults(diagnosis)


def test_without_a_verdict_the_parts_of_a_step_are_said():
    # 0.09, 0.29 and 0.09 are no more than remarks, and 0.53 of forward and backward less than the 0.6 of CMP002.
    run = run_of(trial_of(data_wait=0.09, optimizer=0.29, forward=0.3, backward=0.23, transfer=0.05, other=0.04))
    parts = "; a step of 1.00 s is 30 % forward, 29 % optimizer and 23 % backward"
    diagnosis = diagnose(run, rules=[rule for rule in RULES if rule.code != "OPT001"])
    assert diagnosis.verdict is None
    assert diagnosis.no_verdict_because == f"no rule found a fault; forward and backward take 53 % of a step{parts}"
    # A remark about the optimizer promises enough to be said first, and is no fault.
    saving = diagnose(run).verdict
    assert (saving.code, saving.fault) == ("OPT001", False)
    assert saving.note.endswith(f"{parts}.")


def test_without_a_verdict_pauses_are_told_apart_from_the_phases_they_fell_into():
    """In each tenth step backward holds a collection of 4 s: steps of 1 s become 1.4 s, of which 0.4 s are pauses."""
    pause = np.tile([0.0] * 9 + [4e9], 20).astype(np.int64)
    columns = {"gc_ns": pause, "host_backward_ns": 350_000_000 + pause, "wall_ns": 1_000_000_000 + pause}
    trial = trial_of(forward=0.35, backward=0.35, other=0.3, steps=200, columns=columns)
    told = diagnose(run_of(trial), rules=[rule for rule in RULES if rule.code == "CMP002"]).no_verdict_because
    # 0.35 of 1.4 s each, where the whole of backward with its pauses is 0.75 of 1.4 s.
    assert told == (
        "no rule found a fault; forward and backward take 50 % of a step; "
        "a step of 1.40 s is 29 % single long pauses, 25 % forward and 25 % backward"
    )


def test_without_a_verdict_it_is_said_what_was_not_measured_of_forward_and_backward():
    run = run_of(trial_of(forward=0.4, backward=0.4, other=0.2, device="cuda:0", without=["starved"]))
    told = diagnose(run, rules=[rule for rule in RULES if rule.code == "CMP002"]).no_verdict_because
    assert "whether forward and backward set the pace was not measured (" in told and "40 % forward" in told


def test_two_steps_are_no_evidence():
    diagnosis = diagnose(run_of(trial_of(data_wait=0.9, forward=0.1, steps=2)))
    assert diagnosis.verdict is None
    assert "Only 2 steady steps" in diagnosis.no_verdict_because
    assert faults(diagnosis) == ["EXP001"]


def test_a_non_finite_loss_voids_the_trial():
    diagnosis = diagnose(run_of(trial_of(data_wait=0.5, forward=0.5, columns={"loss": np.inf})))
    assert diagnosis.verdict is None
    assert "NaN or infinite" in diagnosis.no_verdict_because
    assert "INP001" not in codes(diagnosis, *Severity)


def test_only_the_sound_trials_are_judged():
    run = run_of(
        trial_of(batch_size=8, data_wait=0.5, forward=0.5, columns={"loss": np.inf}),
        trial_of(batch_size=16, forward=1.0, columns={"loss": 1.0}),
    )
    diagnosis = diagnose(run)
    assert diagnosis.verdict.code == "CMP002"
    assert next(item for item in diagnosis.cleared if item.code == "INP001")


def test_time_that_is_lost_voids_the_trial():
    diagnosis = diagnose(run_of(trial_of(forward=1.0, steps=50, quantities={"measured_wall_s": 100.0})))
    assert diagnosis.verdict is None
    assert "unaccounted" in diagnosis.no_verdict_because


def test_a_few_noisy_steps_make_a_finding_but_no_verdict():
    # Five waits of 1.2, 0, 0, 0.9, 0 s beside 1 s of work: 30 % in the mean, and anything in the interval.
    waits = np.array([1.2e9, 0, 0, 0.9e9, 0])
    columns = {"host_data_wait_ns": waits, "host_forward_ns": 1e9, "wall_ns": waits + 1e9}
    diagnosis = diagnose(run_of(trial_of(steps=5, steady=False, columns=columns, without=["measured_wall_s"])))
    assert next(f for f in diagnosis.findings if f.code == "INP001").severity is Severity.INFO
    assert diagnosis.verdict is None


# -- settings and data


def test_thresholds_reach_the_rules():
    run = run_of(trial_of(data_wait=0.3, forward=0.7))
    lenient = {"INP001": {"info_share": 0.5, "warn_share": 0.6, "critical_share": 0.7}}
    assert "INP001" in [item.code for item in diagnose(run, thresholds=lenient).cleared]
    with pytest.raises(InvalidSettings):
        diagnose(run, thresholds={"INP001": {"nonsense": 1.0}})


def test_rules_can_be_chosen():
    diagnosis = diagnose(run_of(trial_of(data_wait=0.3)), rules=[rule for rule in RULES if rule.code == "INP001"])
    assert [finding.code for finding in diagnosis.findings] == ["INP001"]
    assert diagnosis.cleared == diagnosis.unchecked == ()


def test_the_same_run_gives_the_same_diagnosis():
    run = sweep_of(**HEALTHY, noise=0.1)
    assert diagnose(run) == diagnose(run)


def test_published_numbers_go_all_the_way():
    """L40S resnet50 (milabench, MIT): no fixed cost to be told, and the peak lies at the smallest batch."""
    run = throughput_sweep({128: 1206.49, 248: 1130.58, 296: 1101.92, 512: 1075.71, 856: 1056.76, 944: 1031.5})
    diagnosis = diagnose(run)
    assert diagnosis.verdict.code == "SWP003"
    assert "SWP001" in [item.code for item in diagnosis.unchecked]
    json.dumps(diagnosis_to_json(diagnosis), allow_nan=False)


def test_a_training_of_ones_own_is_judged_though_nobody_counted_its_samples():
    """Functions of tensors, which no module calls: there is no throughput, but time outside of the phases."""
    run = run_of(trial_of(forward=0.02, backward=0.02, other=0.06, data_wait=0.001, columns={"samples": 0}, noise=0.02))
    assert diagnose(run).verdict is None  # of a sweep, which is about throughput
    own = diagnose(dataclasses.replace(run, notes=(OWN_TRAINING,)))
    # What is recorded as its batch size stands for an unknown one.
    assert {finding.scope for finding in own.findings} == {"synthetic on cpu"}
    assert own.verdict is not None and own.verdict.code == "HST006"
