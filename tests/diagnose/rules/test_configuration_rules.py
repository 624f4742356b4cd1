"""CMP008, CMP009, CMP011, CMP012, CMP013, HST008 and OPT002: what the configuration alone says."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp008_misaligned_dimensions import MisalignedDimensions
from perf_diagnostics.diagnose.rules.cmp009_unfused_attention import UnfusedAttention
from perf_diagnostics.diagnose.rules.cmp011_conv_layout import ConvLayout
from perf_diagnostics.diagnose.rules.cmp012_conv_bias_before_norm import ConvBiasBeforeNorm
from perf_diagnostics.diagnose.rules.cmp013_low_gpu_utilisation import LowGpuUtilisation
from perf_diagnostics.diagnose.rules.hst008_debug_settings import DebugSettings
from perf_diagnostics.diagnose.rules.opt002_zero_grad_memset import ZeroGradMemset
from perf_diagnostics.records import Series
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

QUIET = {
    "anomaly_detection": False,
    "cuda_launch_blocking": False,
    "autograd_profiler": False,
    "deterministic_algorithms": False,
    "distributed_debug": "OFF",
}


def on_gpu(rule, *, precision="bfloat16", forward=1.0, **trial):
    return ask_trial(rule, device="cuda:0", forward=forward, noise=0.01, settings={"precision": precision}, **trial)


# -- CMP008


def misaligned(share, **trial):
    facts = {"misaligned_parameter_share": share, "misaligned_layers": {"lm_head": [768, 50257]}}
    return on_gpu(MisalignedDimensions(), facts=facts, **trial)


@pytest.mark.parametrize(("share", "severity"), [(0.02, Severity.INFO), (0.31, Severity.WARNING)])
def test_odd_sizes_are_graded_by_their_part_of_the_parameters(share, severity):
    finding = found(misaligned(share))
    assert finding.severity is severity
    assert "lm_head (768 x 50257)" in finding.summary
    assert finding.recoverable.high == pytest.approx(share * (1 - 1 / 1.46), rel=0.02)


def test_even_sizes_are_a_measured_zero():
    assert number(clear(misaligned(0.0)), "parameters in odd layers").value == 0


def test_sizes_do_not_matter_in_float32_nor_where_the_host_sets_the_pace():
    assert "any size" in clear(misaligned(0.3, precision="float32")).summary
    assert "the host" in clear(misaligned(0.3, columns={"starved": 1.0, "borders_idle": 6})).summary


def test_sizes_that_nobody_looked_at_are_not_even():
    missing(on_gpu(MisalignedDimensions()))


# -- CMP009


def attention(how, tokens=64, device="cuda:0"):
    facts = {} if how is None else {"attention": how}
    columns = {"tokens": 8 * tokens}
    return ask_trial(UnfusedAttention(), device=device, forward=1.0, facts=facts, columns=columns)


@pytest.mark.parametrize(("tokens", "severity"), [(64, Severity.INFO), (4096, Severity.WARNING)])
def test_eager_attention_matters_with_the_length(tokens, severity):
    assert found(attention("eager", tokens)).severity is severity


def test_on_a_processor_it_is_only_mentioned():
    assert found(attention("eager", 4096, device="cpu")).severity is Severity.INFO


def test_fused_attention_is_clear_and_unknown_is_not():
    clear(attention("sdpa"))
    missing(attention(None))


# -- CMP011, CMP012


def convolutions(layout="contiguous", share=0.9, benchmark=True, precision="bfloat16", **trial):
    facts = {"conv_memory_format": layout, "convolution_parameter_share": share, "cudnn_benchmark": benchmark}
    return on_gpu(ConvLayout(), precision=precision, facts={k: v for k, v in facts.items() if v is not None}, **trial)


def test_contiguous_filters_in_16_bits_are_found():
    assert changes(found(convolutions())) == [{"channels_last": True}]
    assert len(found(convolutions(benchmark=False)).remedies) == 2


def test_channels_last_float32_and_small_parts_are_clear():
    clear(convolutions(layout="channels_last"))
    clear(convolutions(precision="float32"))
    clear(convolutions(share=0.1))


def test_kernels_that_were_never_tried_are_mentioned_where_shapes_stay():
    answer = found(convolutions(layout="channels_last", benchmark=False))
    assert "tries none" in answer.summary
    assert changes(answer) == []
    lengths = {"tokens": np.arange(100) + 1}
    clear(convolutions(layout="channels_last", benchmark=False, columns=lengths))


def test_without_convolutions_there_is_nothing_to_say():
    missing(convolutions(layout=None))
    missing(on_the_cpu(layout=None))


def on_the_cpu(layout="contiguous", share=0.9, **trial):
    facts = {"conv_memory_format": layout, "convolution_parameter_share": share, "cudnn_benchmark": False}
    known = {name: value for name, value in facts.items() if value is not None} | trial.pop("facts", {})
    return ask_trial(ConvLayout(), forward=0.5, backward=0.4, other=0.1, facts=known, **trial)


def test_on_the_cpu_contiguous_filters_may_win_up_to_a_third_and_nothing_is_sure():
    finding = found(on_the_cpu())
    assert changes(finding) == [{"channels_last": True}] and finding.severity is Severity.INFO
    assert (finding.recoverable.low, finding.recoverable.high) == (0, pytest.approx(0.9 * 0.35))
    assert "cuDNN" not in " ".join(remedy.says for remedy in finding.remedies)


@pytest.mark.parametrize(
    "trial",
    [
        {"layout": "channels_last"},
        {"share": 0.1},
        {"settings": {"compile_mode": "default"}},
        {"facts": {"compiled": True}},
    ],
)
def test_on_the_cpu_nothing_is_said_where_it_lies_so_hardly_convolves_or_is_compiled(trial):
    clear(on_the_cpu(**trial))


@pytest.mark.parametrize("count", [0, 3])
def test_biases_before_norms_are_counted(count):
    answer = ask_trial(ConvBiasBeforeNorm(), forward=1.0, facts={"convolutions": 5, "conv_bias_before_norm": count})
    if count:
        assert "3 convolutions" in found(answer).summary
    else:
        assert number(clear(answer), "convolutions with a bias before a normalisation").value == 0


def test_a_model_nobody_scanned_has_no_count():
    missing(ask_trial(ConvBiasBeforeNorm(), forward=1.0))


# -- CMP013


def utilisation(*values):
    times = np.arange(len(values)) * 10**8
    series = [Series("gpu_utilization", "%", "NVML", times, np.array(values))]
    return on_gpu(LowGpuUtilisation(), series=series)


def test_low_utilisation_is_a_symptom_without_advice():
    finding = found(utilisation(10, 20, 30))
    assert number(finding, "utilisation").value == pytest.approx(20)
    assert not finding.remedies and finding.recoverable is None
    assert {"INP001", "SWP001"} <= set(finding.symptom_of)


def test_utilisation_counts_over_the_steady_steps_where_it_is_known_when_they_were():
    # 30 s of set-up with an idle device, then 10 s of steps at 100 %: over the whole trial that would be 25 %.
    times = np.arange(400) * 10**8
    series = [Series("gpu_utilization", "%", "NVML", times, np.where(np.arange(400) < 300, 0.0, 100.0))]
    steps = {"start_ns": np.arange(100) * 10**8, "wall_ns": 10**8}
    known = {"series": series, "columns": steps, "steps": 100}

    reply = on_gpu(LowGpuUtilisation(), **known, quantities={"steps_began_s": 30.0})
    assert number(clear(reply), "utilisation").value == 100
    assert number(found(on_gpu(LowGpuUtilisation(), **known)), "utilisation").value == 25


def test_idle_is_zero_and_unsampled_is_not():
    assert number(found(utilisation(0, 0)), "utilisation").value == 0
    clear(utilisation(90, 100))
    assert missing(utilisation()).signal == "gpu_utilization"
    assert missing(on_gpu(LowGpuUtilisation())).signal == "gpu_utilization"


# -- HST008


def debug(**facts):
    return ask_trial(DebugSettings(), forward=1.0, facts=QUIET | facts)


def test_anomaly_mode_is_a_warning_with_its_known_cost():
    finding = found(debug(anomaly_detection=True))
    assert finding.severity is Severity.WARNING
    assert finding.recoverable.high == pytest.approx(0.75)  # 117 ms of CPU time a step with it, 30 without: 74 %
    assert finding.recoverable.low == pytest.approx(0.3 * 0.29)
    assert "set_detect_anomaly(False)" in finding.remedies[0].says


def test_a_switch_that_was_read_is_certain_after_few_steps_and_only_its_price_is_not():
    few, many = found(debug(anomaly_detection=True, steps=3)), found(debug(anomaly_detection=True))
    assert few.confidence == many.confidence == 0.6
    assert found(debug(cuda_launch_blocking=True)).confidence == 0.3  # nobody knows what that costs here


def test_blocking_launches_are_a_warning_without_a_number():
    finding = found(debug(cuda_launch_blocking=True))
    assert finding.severity is Severity.WARNING and finding.recoverable is None


def test_determinism_is_only_mentioned():
    assert found(debug(deterministic_algorithms=True)).severity is Severity.INFO


def test_distributed_debugging_counts_where_training_is_distributed():
    clear(debug(distributed_debug="DETAIL"))
    found(debug(distributed_debug="DETAIL", data_parallel="DistributedDataParallel"))


def test_quiet_is_clear_and_unseen_is_not():
    clear(debug())
    missing(ask_trial(DebugSettings(), forward=1.0))


# -- OPT002


def test_zeroed_gradients_cost_eight_bytes_a_parameter():
    speed = {"trainable_parameters": 1e9, "memory_bandwidth": 80e9}
    finding = found(ask_trial(ZeroGradMemset(), forward=1.0, facts={"zero_grad_to_none": False}, quantities=speed))
    assert number(finding, "zeroing a step").value == pytest.approx(100)  # ms: 8e9 bytes at 80e9 a second


def test_let_go_is_clear_and_unseen_is_not():
    clear(ask_trial(ZeroGradMemset(), forward=1.0, facts={"zero_grad_to_none": True}))
    missing(ask_trial(ZeroGradMemset(), forward=1.0))
