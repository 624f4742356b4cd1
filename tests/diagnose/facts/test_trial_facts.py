"""Each fact of a trial: the arithmetic, the measured zero, and the absence with its reason."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.records import ALL_PHASES, Outcome, Phase, Series, TrialResult
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import facts_of

GPU = "cuda:0"


def why(question) -> str:
    with pytest.raises(NotMeasured) as caught:
        question()
    return caught.value.why


# -- steps and time


def test_warm_up_counts_nowhere():
    facts = facts_of(forward=0.5, batch_size=8, steps=10, warmup_steps=4)  # warm-up steps take 2.5 s
    assert facts.steps == 10
    assert facts.samples == 80
    assert facts.step_time_s.value == pytest.approx(0.5)
    assert facts.throughput.value == pytest.approx(16.0)


def test_throughput_is_all_samples_over_all_time():
    # 10 samples in 1 s and 10 in 3 s; ten times over: 200 samples in 40 s.
    facts = facts_of(steps=20, columns={"wall_ns": np.tile([1e9, 3e9], 10), "samples": 10})
    assert facts.throughput.value == pytest.approx(5.0)


def test_throughput_adds_up_all_ranks():
    result = trial_of(forward=1.0, batch_size=8)
    both = TrialResult(**{**vars(result), "steps": result.steps * 2})
    assert TrialFacts.of(both).throughput.value == pytest.approx(16.0)


def test_a_trial_without_steps_has_no_throughput():
    facts = facts_of(steps=0, warmup_steps=0, outcome=Outcome.TIMEOUT, reason="the budget of 5 s was spent")
    assert facts.steps == 0
    assert "the budget of 5 s was spent" in why(lambda: facts.throughput)
    assert "0 steady steps" in why(lambda: facts.share(Phase.FORWARD))


def test_shares_of_all_phases_make_one():
    facts = facts_of(data_wait=0.1, transfer=0.05, forward=0.3, backward=0.4, optimizer=0.1, other=0.05, noise=0.2)
    assert sum(facts.share(phase).value for phase in ALL_PHASES) == pytest.approx(1.0)
    assert facts.share(Phase.BACKWARD).value == pytest.approx(0.4, abs=0.02)
    assert sum(facts.phase_time_s(phase).value for phase in ALL_PHASES) == pytest.approx(facts.step_time_s.value)


def test_shares_are_made_of_means_not_of_medians():
    # Every tenth step waits 5 s, the others not at all: a median would say 0.
    facts = facts_of(forward=0.5, steps=100, columns={"host_data_wait_ns": 0, "wall_ns": 0.5e9})
    stalls = np.where(np.arange(100) % 10 == 0, 5e9, 0)
    facts = facts_of(forward=0.5, columns={"host_data_wait_ns": stalls, "wall_ns": stalls + 0.5e9})
    assert facts.share(Phase.DATA_WAIT).value == pytest.approx(0.5)


def test_a_phase_without_marks_is_not_zero():
    facts = facts_of(without=["host_transfer_ns"])
    assert "does not mark its transfer" in why(lambda: facts.share(Phase.TRANSFER))
    assert facts_of(transfer=0.0).share(Phase.TRANSFER).value == 0.0


def test_a_recorded_gap_gives_its_reason():
    facts = facts_of(without=["host_transfer_ns"], gaps={"host_transfer_ns": "the framework copies elsewhere"})
    assert why(lambda: facts.share(Phase.TRANSFER)) == "the framework copies elsewhere"


def test_joint_share_of_two_phases():
    facts = facts_of(forward=0.3, backward=0.5, other=0.2)
    assert facts.joint_share(Phase.FORWARD, Phase.BACKWARD).value == pytest.approx(0.8)


# -- closure


def test_closure_against_a_clock_of_its_own():
    assert facts_of(forward=0.7, steps=100).closure_error == pytest.approx(0.0)
    facts = facts_of(forward=0.7, steps=100, quantities={"measured_wall_s": 77.0})  # 70 of 77 s are in steps
    assert facts.closure_error == pytest.approx(70 / 77 - 1)
    assert facts.coverage == pytest.approx(70 / 77)


def test_closure_that_nobody_measured():
    facts = facts_of(without=["measured_wall_s"])
    assert "measured_wall_s was not recorded: wall time of the steady blocks" in why(lambda: facts.closure_error)
    assert facts.coverage == 1.0


def test_phases_that_claim_more_than_their_step():
    # Forward alone claims 0.7 s of steps of 0.5 s.
    facts = facts_of(forward=0.7, columns={"wall_ns": 0.5e9}, quantities={"measured_wall_s": 50.0})
    assert facts.overlap_share == pytest.approx(0.4)
    assert facts.coverage == pytest.approx(0.6)
    assert facts_of(forward=0.7).overlap_share == 0.0


# -- the device's clock


def test_on_a_device_phases_are_its_streams():
    facts = facts_of(device=GPU, forward=0.3, backward=0.6, other=0.1, host={Phase.FORWARD: 0.05})
    assert facts.share(Phase.BACKWARD).value == pytest.approx(0.6)
    assert facts.host_time_s(Phase.FORWARD).value == pytest.approx(0.05)


def test_host_times_alone_say_nothing_about_a_device():
    without = [f"device_{phase}_ns" for phase in ALL_PHASES]
    assert "when work was queued" in why(lambda: facts_of(device=GPU, without=without).share(Phase.FORWARD))
    synchronised = facts_of(device=GPU, without=without, provenance={"device_clock": "synchronised"})
    assert synchronised.share(Phase.FORWARD).value == pytest.approx(1.0)


def test_steps_with_lost_events_are_left_out():
    lost = np.full(100, 0.7e9)
    lost[:50] = np.nan
    facts = facts_of(device=GPU, columns={"device_forward_ns": lost})
    assert facts.share(Phase.FORWARD).n == 50
    every = facts_of(device=GPU, columns={"device_forward_ns": np.nan})
    assert "no step has all of its phases timed" in why(lambda: every.share(Phase.FORWARD))


# -- input


def test_exposed_wait_on_the_cpu_is_the_wait():
    assert facts_of(data_wait=0.3, forward=0.7).exposed_data_wait_share.value == pytest.approx(0.3)


def test_exposed_wait_on_a_device_is_its_idling():
    # The host waits 0.8 s of each second, but the device is fed from its queue for all but 0.1 s.
    facts = facts_of(device=GPU, data_wait=0.1, forward=0.9, host={Phase.DATA_WAIT: 0.8})
    assert facts.exposed_data_wait_share.value == pytest.approx(0.1)


def test_exposed_wait_without_events_counts_starved_steps():
    # The host waits 0.3 of each second; in every second step the device had run dry: 0.15.
    facts = facts_of(
        device=GPU,
        data_wait=0.3,
        forward=0.7,
        columns={"starved": np.tile([0.0, 1.0], 50)},
        without=[f"device_{phase}_ns" for phase in ALL_PHASES],
    )
    assert facts.exposed_data_wait_share.value == pytest.approx(0.15)


def test_exposed_wait_without_events_and_queue_is_unknown():
    without = ["starved", *(f"device_{phase}_ns" for phase in ALL_PHASES)]
    assert why(lambda: facts_of(device=GPU, data_wait=0.3, without=without).exposed_data_wait_share)


def test_cpu_share_of_the_wait():
    facts = facts_of(data_wait=0.3, columns={"data_wait_cpu_ns": 0.24e9})
    assert facts.data_wait_cpu_share.value == pytest.approx(0.8)
    assert facts_of(data_wait=0.3, columns={"data_wait_cpu_ns": 0}).data_wait_cpu_share.value == 0.0
    assert why(lambda: facts_of(data_wait=0.3).data_wait_cpu_share)


def test_a_loop_that_never_waits_has_no_cpu_share_of_its_wait():
    facts = facts_of(data_wait=0.0, columns={"data_wait_cpu_ns": 0})
    assert "is zero" in why(lambda: facts.data_wait_cpu_share)


def test_free_cores():
    assert facts_of(facts={"threads": 3, "cpu_count": 8}).free_cores == 5
    assert facts_of(facts={"threads": 16, "cpu_count": 8}).free_cores == 0
    assert facts_of(device=GPU, facts={"cpu_count": 8}).free_cores == 7
    assert why(lambda: facts_of(facts={"cpu_count": 8}).free_cores) == "threads was not recorded"


def test_a_truth_value_is_no_number():
    assert why(lambda: facts_of(facts={"num_workers": True}).number("num_workers"))
    assert facts_of(facts={"num_workers": 0}).number("num_workers") == 0.0


# -- tokens


def test_tokens():
    # 1000 tokens a second, 250 of them padding, 8 samples a step.
    facts = facts_of(forward=1.0, columns={"tokens": 1000, "padding_tokens": 250})
    assert facts.tokens_per_s.value == pytest.approx(1000)
    assert facts.padding_share.value == pytest.approx(0.25)
    assert facts.tokens_per_sample.value == pytest.approx(125)


def test_no_padding_is_zero_and_unknown_padding_is_not():
    assert facts_of(columns={"tokens": 1000, "padding_tokens": 0}).padding_share.value == 0.0
    assert why(lambda: facts_of(columns={"tokens": 1000}).padding_share)


def test_step_time_explained_by_tokens():
    tokens = np.tile([100, 200, 400, 800], 25)
    facts = facts_of(columns={"tokens": tokens, "wall_ns": 1e6 * tokens})
    assert facts.step_time_by_tokens == pytest.approx(1.0)
    assert facts_of(noise=0.1, columns={"tokens": 100}).step_time_by_tokens is None
    assert "at least 20" in why(lambda: facts_of(steps=10, columns={"tokens": tokens[:10]}).step_time_by_tokens)


# -- the device's queue


def test_the_queue():
    facts = facts_of(
        device=GPU,
        columns={"starved": np.tile([0, 0, 0, 1], 25), "borders": 6, "borders_idle": 3, "host_lead_ns": 2e6},
    )
    assert facts.starved_share.value == pytest.approx(0.25)
    assert facts.queue_empty_rate.value == pytest.approx(0.5)
    assert facts.host_lead_s.value == pytest.approx(0.002)


def test_the_queue_of_a_cpu_is_no_question():
    for question in (
        lambda: facts_of().starved_share,
        lambda: facts_of().queue_empty_rate,
        lambda: facts_of().host_lead_s,
        lambda: facts_of().alloc_retries,
    ):
        with pytest.raises(NotApplicable):
            question()


def test_lost_readings_of_the_queue_are_no_readings():
    starved = np.tile([np.nan, 1.0], 50)
    assert facts_of(device=GPU, columns={"starved": starved}).starved_share.value == 1.0
    assert "no step has a value" in why(lambda: facts_of(device=GPU, columns={"starved": np.nan}).starved_share)


# -- pauses, noise, trend


def test_drift_of_a_ramp():
    # From 1.0 s to 1.2 s over the trial: 20 % of about 1.1 s.
    facts = facts_of(columns={"wall_ns": np.linspace(1.0e9, 1.2e9, 100)})
    assert facts.drift.rise == pytest.approx(0.2 / 1.1, rel=0.02)
    assert facts.drift.monotone
    assert facts_of(noise=0.0).drift.rise == 0.0
    assert "at least 20" in why(lambda: facts_of(steps=19).drift)


def test_noise_is_that_of_the_middle():
    facts = facts_of(noise=0.05, steps=500)
    assert facts.noise == pytest.approx(0.05, rel=0.2)
    assert facts_of(noise=0.0).noise == 0.0


def test_infinite_losses():
    loss = np.ones(100)
    loss[[5, 6]] = np.inf
    loss[7] = np.nan  # not read
    assert facts_of(columns={"loss": loss}).infinite_losses == 2
    assert facts_of(columns={"loss": 1.0}).infinite_losses == 0
    assert "read in no step" in why(lambda: facts_of(columns={"loss": np.nan}).infinite_losses)


# -- memory


def test_host_memory_prefers_the_process_tree():
    peaks = {"host_memory_peak": 2e9, "host_memory_total": 8e9}
    assert facts_of(quantities=peaks).host_memory_share == pytest.approx(0.25)
    assert facts_of(quantities=peaks | {"host_tree_memory_peak": 6e9}).host_memory_share == pytest.approx(0.75)
    assert why(lambda: facts_of(quantities={"host_memory_peak": 2e9}).host_memory_share)


def test_device_memory_prefers_what_everybody_uses():
    numbers = {"device_memory_peak_reserved": 4e9, "device_memory_total": 16e9}
    used = Series("gpu_memory_used", "bytes", "NVML", np.arange(3), np.array([5e9, 12e9, 8e9]))
    assert facts_of(device=GPU, quantities=numbers).device_memory_share == pytest.approx(0.25)
    assert facts_of(device=GPU, quantities=numbers, series=[used]).device_memory_share == pytest.approx(0.75)
    with pytest.raises(NotApplicable):
        _ = facts_of(quantities=numbers).device_memory_share


def test_retries_are_counted_over_the_steady_steps():
    assert facts_of(device=GPU, quantities={"alloc_retries": 0}).alloc_retries == 0
    assert facts_of(device=GPU, columns={"alloc_retries": np.arange(100) // 25 + 7}).alloc_retries == 3
    assert why(lambda: facts_of(device=GPU).alloc_retries)


def test_a_trial_is_thin_with_few_steps_or_an_open_warm_up():
    assert facts_of(steps=4).thin
    assert facts_of(steps=50, steady=False).thin
    assert not facts_of(steps=5).thin
