"""Findings, verdicts and abstention on small traces of five equal steps."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Family, Severity
from perf_diagnostics.diagnose.trace import diagnose_traces
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from perf_diagnostics.errors import InvalidSettings
from tests.diagnose.trace.builder import (
    LOADER,
    MATRIX,
    NCCL,
    POINTWISE,
    TO_DEVICE,
    TO_HOST,
    TraceBuilder,
    repeated,
)  # fmt: skip


def diagnosis_of(tmp_path, *builders):
    paths = [builder.write(tmp_path / f"trace{i}.json.gz") for i, builder in enumerate(builders)]
    return diagnose_traces(paths)


def of(result, code):
    """What the rule said: a finding's severity, 'cleared', or why it is unchecked."""
    diagnosis = result.diagnosis
    for finding in diagnosis.findings:
        if finding.code == code:
            return finding.severity
    for answer in diagnosis.cleared:
        if answer.code == code:
            return "cleared"
    return next(answer.why for answer in diagnosis.unchecked if answer.code == code)


def finding(result, code):
    return next(found for found in result.diagnosis.findings if found.code == code)


def faults(result):
    return {found.code for found in result.diagnosis.findings if found.severity is not Severity.INFO}


def queued(builder, start, end, *, pieces=40, name=POINTWISE):
    """Keeps the device busy from ``start`` to ``end``; the first kernel starts at once, the others queue for 200 µs."""
    each = (end - start) / pieces
    for i in range(pieces):
        at = start + i * each
        builder.kernel(max(start, at - 200), at, at + each, name=name)


def loading(exposed):
    """10 ms, of which the last are spent in the loader with the device idle."""

    def fill(builder, start):
        queued(builder, start, start + 10_000 - exposed)
        builder.note(LOADER, start + 9_000 - exposed, start + 10_000)

    return fill


@pytest.mark.parametrize(
    ("exposed", "severity"),
    [
        (0, "cleared"),
        (400, "cleared"),  # 4 %
        (800, Severity.INFO),  # 8 %
        (1500, Severity.WARNING),  # 15 %
        (4000, Severity.CRITICAL),  # 40 %
    ],
)
def test_waiting_for_input(tmp_path, exposed, severity):
    result = diagnosis_of(tmp_path, repeated(10_000, 5, loading(exposed)))

    assert of(result, "INP001") == severity
    assert faults(result) == (set() if severity in ("cleared", Severity.INFO) else {"INP001"})


def test_what_better_loading_could_win_back_is_capped_by_the_devices_work(tmp_path):
    result = diagnosis_of(tmp_path, repeated(10_000, 5, loading(4000)))

    found = finding(result, "INP001")
    # 40 % is exposed and 60 % is the device's work, so at most 40 % can go; a fifth of it is sure (fixes of loading).
    assert (found.recoverable.low, found.recoverable.high) == (
        pytest.approx(0.08, abs=1e-3),
        pytest.approx(0.4, abs=1e-3),
    )
    assert result.diagnosis.verdict.code == "INP001"
    assert "50 % is spent in the loader" in found.summary
    # Nothing to try: whether workers would share the data, no trace shows.
    assert not any(remedy.change for remedy in found.remedies)
    assert "every worker delivers the whole stream" in found.remedies[0].says


def test_a_loader_that_leaves_no_range_is_unchecked_and_not_clear(tmp_path):
    result = diagnosis_of(tmp_path, repeated(10_000, 5, lambda b, start: queued(b, start, start + 10_000)))

    assert "no loader left a range" in of(result, "INP001")


def test_a_device_that_computes_has_no_fault(tmp_path):
    def fill(builder, start):
        queued(builder, start, start + 10_000, name=MATRIX)

    result = diagnosis_of(tmp_path, repeated(10_000, 5, fill, deviceProperties=[{"computeMajor": 7}]))

    assert faults(result) == set()
    assert result.diagnosis.verdict.code == "CMP002"
    assert result.diagnosis.verdict.summary.startswith("No rule found a fault. 100 %")
    assert of(result, "CMP003") == Severity.INFO
    assert finding(result, "CMP003").remedies[0].change == {"precision": "float16"}  # Volta has no bfloat16
    assert finding(result, "CMP003").recoverable is None  # without its name there is no sheet, and no promise


A100 = {"name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0}
HALF = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"


def products_of(float32, half, *, device=A100, other=HALF, name=MATRIX, trains=True, updating=False):
    """Steps of 10 ms: so many µs of products in float32, and in bfloat16, and float32 that only moves."""

    def fill(builder, start):
        a, b = start + float32, start + float32 + half
        builder.product(start, start + 30, a, [[512, 256], [256, 4096]], kind="float", name=name)
        if half:
            builder.kernel(start + 20, a, b, name=other)
        if trains:
            builder.operator("torch::autograd::AccumulateGrad", start + 30, start + 32)
        if updating:
            builder.note("Optimizer.step#SGD.step", start + 38, start + 60)
        builder.kernel(start + 40, b, start + 10_000, name=POINTWISE)

    return repeated(10_000, 5, fill, deviceProperties=[device])


def test_products_in_float32_are_a_warning_where_the_sheet_says_what_others_win(tmp_path):
    result = diagnosis_of(tmp_path, products_of(6000, 0))

    found = finding(result, "CMP003")
    assert of(result, "CMP003") == Severity.WARNING and result.diagnosis.verdict.code == "CMP003"
    assert "512 x 256 by 256 x 4096" in found.summary and "a lower precision may pay" in found.summary
    assert [dict(remedy.change) for remedy in found.remedies] == [{"precision": "bfloat16"}, {"precision": "tf32"}]
    # 16 times as fast by the sheet, and at best half of what other kernels move in float32.
    assert found.recoverable.low == pytest.approx(0.3 * 0.6 * 15 / 16, abs=2e-3)
    assert found.recoverable.high == pytest.approx(0.6 * 15 / 16 + 0.4 / 2, abs=5e-3)


def test_products_left_out_of_autocast_are_named_as_such(tmp_path):
    result = diagnosis_of(tmp_path, products_of(4000, 3000))

    found = finding(result, "CMP003")
    assert of(result, "CMP003") == Severity.WARNING
    assert "left out of the lower precision in which others run (30 %)" in found.summary
    assert not any(remedy.change for remedy in found.remedies)  # it trains in bfloat16 already
    assert "inside of torch.autocast" in found.remedies[0].says and "TF32" in found.remedies[1].says


def test_what_the_optimizer_moves_stays_in_float32(tmp_path):
    found = finding(diagnosis_of(tmp_path, products_of(6000, 0, updating=True)), "CMP003")

    assert found.recoverable.high == pytest.approx(0.6 * 15 / 16, abs=5e-3)


TF32_CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_cudnn"


def test_convolutions_in_tf32_are_no_autocast(tmp_path):
    """Torch lets them use it, and products not."""
    found = finding(diagnosis_of(tmp_path, products_of(5000, 4000, other=TF32_CONVOLUTION)), "CMP003")

    assert "a lower precision may pay" in found.summary
    assert {"precision": "bfloat16"} in [dict(remedy.change) for remedy in found.remedies]
    assert 'torch.set_float32_matmul_precision("high")' in found.remedies[1].says


def test_convolutions_in_float32_have_a_setting_of_their_own(tmp_path):
    name = "implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>"
    found = finding(diagnosis_of(tmp_path, products_of(6000, 0, name=name)), "CMP003")

    assert "torch.backends.cudnn.allow_tf32 = True" in found.remedies[1].says


def test_inference_is_not_told_to_train_otherwise(tmp_path):
    result = diagnosis_of(tmp_path, products_of(6000, 0, trains=False))

    assert of(result, "CMP003") == Severity.INFO
    says = finding(result, "CMP003").remedies[0].says
    assert says.startswith("Run in bfloat16") and "learning rate" not in says


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        (HALF, True),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT", True),
        ("nvjet_sm100_hsh_256x256_64x4_2x1_2cta_v_bz_TNT", True),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8>", True),
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN", True),
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4", False),
        (TF32_CONVOLUTION, False),
        ("cutlass_90_tensorop_d1688gemm_64x64_16x4_tn_align1", False),
        ("Cijk_Ailk_Bljk_SB_MT64x64x16", False),
        (POINTWISE, False),
    ],
)
def test_lower_precision_is_known_by_names(tmp_path, name, lower):
    facts = repeated(1000, 3, lambda b, start: b.kernel(start, start + 30, start + 900, name=name)).facts(tmp_path)

    assert facts.launches.names.lower_precision(facts.trace.device).all() == lower


def test_what_runs_beside_the_computing_takes_nothing_from_its_share(tmp_path):
    """Collectives are hidden all the time: 60 % of the computing is 60 % of the step."""

    def fill(builder, start):
        builder.kernel(start, start + 30, start + 6000)
        builder.kernel(start + 10, start + 6000, start + 10_000, name=POINTWISE)
        builder.kernel(start + 20, start + 60, start + 9_990, name=NCCL, stream=20)
        builder.operator("torch::autograd::AccumulateGrad", start + 30, start + 32)

    found = finding(diagnosis_of(tmp_path, repeated(10_000, 5, fill, deviceProperties=[A100])), "CMP003")
    assert found.evidence[0].value == pytest.approx(60, abs=0.5)
    assert found.recoverable.high == pytest.approx(0.6 * 15 / 16 + 0.4 / 2, abs=1e-2)


@pytest.mark.parametrize(
    ("until", "reaches"),
    [(8800, 0.11), (2000, 0.255)],  # launching for 88 % of the step, and for 20 % in which the device is short of work
)
def test_a_wait_may_have_cost_the_hosts_lead_where_it_has_time_for_one(tmp_path, until, reaches):
    def fill(builder, start):
        for at in range(0, until, 100):
            builder.kernel(start + at, start + at + 7, start + at + 27, name=POINTWISE)
        builder.kernel(start + until, start + until + 7, start + 8900, name=POINTWISE)
        builder.copy(start + until + 10, start + 8900, start + 8902, name=TO_HOST, call_length=8)
        builder.call("cudaStreamSynchronize", start + until + 20, start + 9600)
        builder.kernel(start + 9990, start + 9997, start + 9999, name=POINTWISE)

    result = diagnosis_of(tmp_path, repeated(10_000, 5, fill))
    assert finding(result, "HST002").recoverable.high == pytest.approx(reaches, abs=0.03)


def test_without_a_sheet_precision_is_a_remark(tmp_path):
    card = {"name": "NVIDIA GeForce GTX 1660", "computeMajor": 7, "computeMinor": 5}
    result = diagnosis_of(tmp_path, products_of(6000, 0, device=card))

    assert of(result, "CMP003") == Severity.INFO  # no sheet of it: tensor cores cannot be told


def test_precision_is_not_advised_where_the_products_are_not_float32(tmp_path):
    half = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
    result = diagnosis_of(tmp_path, repeated(10_000, 5, lambda b, start: queued(b, start, start + 10_000, name=half)))

    assert of(result, "CMP003") == "cleared"


@pytest.mark.parametrize(("name", "tf32"), [("NVIDIA A100-SXM4-80GB", True), ("AMD Instinct MI250X", False)])
def test_tf32_is_advised_on_devices_that_have_it(tmp_path, name, tf32):
    def fill(builder, start):
        queued(builder, start, start + 10_000, name="Cijk_Ailk_Bljk_SB_MT64x64x16")

    device = {"name": name, "computeMajor": 9 if "AMD" in name else 8}
    result = diagnosis_of(tmp_path, repeated(10_000, 5, fill, deviceProperties=[device]))
    changes = [dict(remedy.change) for remedy in finding(result, "CMP003").remedies]
    assert {"precision": "bfloat16"} in changes and ({"precision": "tf32"} in changes) is tf32


def test_precision_is_not_advised_on_a_device_nobody_named(tmp_path):
    fill = lambda b, start: queued(b, start, start + 10_000, name=MATRIX)  # noqa: E731
    result = diagnosis_of(tmp_path, repeated(10_000, 5, fill, deviceProperties=[]))

    assert "which device" in of(result, "CMP003")


def eager(busy):
    """A launch each 100 µs, each for a kernel of ``busy`` µs that starts 10 µs after its call begins."""

    def fill(builder, start):
        for at in range(0, 10_000, 100):
            builder.kernel(start + at, start + at + 10, start + at + 10 + busy, name=MATRIX)

    return fill


@pytest.mark.parametrize(("busy", "severity"), [(20, Severity.CRITICAL), (80, Severity.WARNING), (93, "cleared")])
def test_launch_bound(tmp_path, busy, severity):
    result = diagnosis_of(tmp_path, repeated(10_000, 5, eager(busy)))  # idle 80, 20 and 7 %

    assert of(result, "HST001") == severity
    assert "precision" in str(result.diagnosis.cleared)  # lower precision changes nothing here
    if severity != "cleared":
        assert finding(result, "HST001").recoverable.high == pytest.approx((100 - busy) / 100, abs=0.02)


def test_a_fed_device_with_some_late_launches_is_at_most_a_warning(tmp_path):
    def fill(builder, start):  # Half of the step eager with a fifth busy, the other half queued.
        for at in range(0, 5_000, 100):
            builder.kernel(start + at, start + at + 10, start + at + 30)
        queued(builder, start + 5_000, start + 10_000, pieces=100)

    result = diagnosis_of(tmp_path, repeated(10_000, 5, fill))

    assert finding(result, "HST001").evidence[0].value > 30
    assert of(result, "HST001") == Severity.WARNING


def item_each(wait_us):
    """Eight times a step the host waits for the device, then takes ``wait_us`` to launch again."""

    def fill(builder, start):
        for at in range(0, 8_000, 1000):
            builder.kernel(start + at, start + at + 10, start + at + 1000 - wait_us)
            builder.call("cudaStreamSynchronize", start + at + 20, start + at + 1000 - wait_us + 2)

    return fill


@pytest.mark.parametrize(("wait_us", "severity"), [(20, "cleared"), (100, Severity.WARNING), (300, Severity.CRITICAL)])
def test_synchronisation_costs_what_the_device_idles_after_it(tmp_path, wait_us, severity):
    result = diagnosis_of(tmp_path, repeated(8_000, 5, item_each(wait_us)))

    assert of(result, "HST002") == severity


def test_a_wait_at_the_end_with_a_deep_queue_is_no_fault(tmp_path):
    def fill(builder, start):
        queued(builder, start, start + 10_000)
        builder.call("cudaDeviceSynchronize", start + 1000, start + 9_700)

    result = diagnosis_of(tmp_path, repeated(10_000, 5, fill))

    assert of(result, "HST002") == "cleared"
    assert faults(result) == set()


@pytest.mark.parametrize(("steps_with", "severity"), [(5, Severity.WARNING), (1, "cleared")])
def test_allocation_is_churn_only_if_steps_keep_allocating(tmp_path, steps_with, severity):
    def fill(builder, start):
        queued(builder, start, start + 9_500)
        if start < steps_with * 10_000:
            builder.call("cudaMalloc", start + 9_500, start + 10_000)

    assert of(diagnosis_of(tmp_path, repeated(10_000, 5, fill)), "HST003") == severity


def test_preparation_before_the_first_kernel_is_host_work(tmp_path):
    result = diagnosis_of(
        tmp_path, repeated(10_000, 5, lambda b, start: queued(b, start + 6_000, start + 10_000, pieces=40))
    )

    assert of(result, "HST004") == Severity.CRITICAL
    assert of(result, "HST001") == "cleared"
    assert result.diagnosis.verdict.code == "HST004"


def test_host_work_of_one_step_of_five_is_not_told_from_none(tmp_path):
    def fill(builder, start):
        queued(builder, start + (8_000 if start == 0 else 0), start + 10_000, pieces=40)

    assert of(diagnosis_of(tmp_path, repeated(10_000, 5, fill)), "HST004") == "cleared"


def test_a_gap_with_work_queued_is_unexplained_and_promises_nothing(tmp_path):
    def fill(builder, start):
        builder.kernel(start - 50, start, start + 4_000)
        builder.kernel(start - 40, start + 6_000, start + 10_000)

    result = diagnosis_of(tmp_path, repeated(10_000, 5, fill))

    assert of(result, "HST009") == Severity.CRITICAL
    assert finding(result, "HST009").recoverable is None
    assert faults(result) == {"HST009"}


@pytest.mark.parametrize(("gap", "verdict"), [(5000, "HST009"), (1500, "COM001")])
def test_a_riddle_that_takes_most_of_the_step_comes_before_what_could_be_won_back(tmp_path, gap, verdict):
    """2 ms of exposed communication, and a gap in the device's queue whose gain nobody knows."""

    def fill(builder, start):
        builder.kernel(start - 50, start, start + 8_000 - gap)
        builder.kernel(start - 45, start + 8_000 - gap, start + 10_000 - gap, name=NCCL, stream=20)
        builder.kernel(start - 40, start + 9_900, start + 10_000)

    result = diagnosis_of(tmp_path, repeated(10_000, 5, fill))

    assert faults(result) >= {"HST009", "COM001"}
    assert result.diagnosis.verdict.code == verdict


def exchanging(computed, exchanged, *, overlap=0):
    def fill(builder, start):
        queued(builder, start, start + computed, pieces=20)
        builder.kernel(
            start - 100, start + computed - overlap, start + computed - overlap + exchanged, name=NCCL, stream=20
        )
        queued(builder, start + computed - overlap + exchanged, start + 10_000, pieces=20)

    return fill


@pytest.mark.parametrize(
    ("exchanged", "overlap", "severity"),
    [
        (3000, 0, Severity.CRITICAL),  # 30 % exposed
        (3000, 3000, "cleared"),  # the same, hidden
        (3000, 1500, Severity.WARNING),  # 15 %
        (600, 0, Severity.INFO),  # 6 %
    ],
)
def test_only_exposed_communication_is_a_fault(tmp_path, exchanged, overlap, severity):
    result = diagnosis_of(tmp_path, repeated(10_000, 5, exchanging(6_000, exchanged, overlap=overlap)))

    assert of(result, "COM001") == severity


def test_communication_is_not_laid_to_computing(tmp_path):
    result = diagnosis_of(tmp_path, repeated(10_000, 5, exchanging(3_000, 6_600)))

    assert result.diagnosis.verdict.code == "COM001"
    assert of(result, "CMP002") == "cleared"
    assert [item.value for item in finding(result, "COM001").evidence if item.metric.startswith("overlap")] == [0]


def test_a_job_whose_communication_is_not_on_the_device_is_unchecked(tmp_path):
    fill = lambda b, start: queued(b, start, start + 10_000)  # noqa: E731
    job = repeated(10_000, 5, fill, distributedInfo={"rank": 0, "world_size": 2})

    assert "without one collective kernel" in of(diagnosis_of(tmp_path, job), "COM001")
    assert of(diagnosis_of(tmp_path, repeated(10_000, 5, fill)), "COM001") == "cleared"


def copying(length, name=TO_DEVICE):
    def fill(builder, start):
        builder.copy(start - 100, start, start + length, name=name)
        queued(builder, start + length, start + 10_000)

    return fill


def test_pageable_copies_that_take_a_percent_are_a_remark(tmp_path):
    result = diagnosis_of(tmp_path, repeated(10_000, 5, copying(100)))

    assert of(result, "XFR002") == Severity.INFO
    assert of(result, "XFR001") == "cleared"
    assert faults(result) == set()


def test_copies_that_hold_the_device_up_are_a_fault(tmp_path):
    result = diagnosis_of(tmp_path, repeated(10_000, 5, copying(3_000, "Memcpy HtoD (Pinned -> Device)")))

    assert of(result, "XFR001") == Severity.CRITICAL
    assert of(result, "XFR002") == "cleared"


def test_without_marked_steps_shares_are_shown_and_no_verdict(tmp_path):
    builder = TraceBuilder()
    loading(4000)(builder, 0)
    result = diagnosis_of(tmp_path, builder)

    assert result.diagnosis.verdict is None
    assert "marked no steps" in result.diagnosis.no_verdict_because
    assert of(result, "INP001") == Severity.INFO
    assert result.waterfalls[0].steps == 1
    assert not result.waterfalls[0].marked


def test_a_cold_start_is_said_and_nothing_else_concluded(tmp_path):
    def fill(builder, start):
        builder.call("cudaMalloc", start, start + 7_000)
        queued(builder, start + 7_500, start + 10_000)

    result = diagnosis_of(tmp_path, repeated(10_000, 3, fill))

    assert [found.code for found in result.diagnosis.findings] == ["EXP006"]
    assert "cold start: 70 %" in result.diagnosis.no_verdict_because
    assert "cold start" in of(result, "HST003")


def test_a_trace_of_the_cpu_answers_what_it_can(tmp_path):
    def fill(builder, start):
        builder.note(LOADER, start, start + 4_000).operator("aten::mm", start + 4_000, start + 9_900)

    result = diagnosis_of(tmp_path, repeated(10_000, 5, fill, deviceProperties=[]))

    assert of(result, "INP001") == Severity.CRITICAL
    assert of(result, "HST004") == "cleared"
    assert "nothing in the trace ran on a device" in of(result, "HST001")
    assert not result.waterfalls[0].on_device
    assert {part: ns for part, ns, _ in result.waterfalls[0].parts}[Part.INPUT] == 5 * 4_000_000


def rank(number, work):
    """10 ms steps of ``work`` µs; the collective lasts until all are there, at 10 ms."""

    def fill(builder, start):
        queued(builder, start, start + work)
        builder.kernel(start - 100, start + work, start + 10_000, name=NCCL, stream=20)

    return repeated(10_000, 5, fill, distributedInfo={"rank": number, "world_size": 3})


def test_the_straggler_is_the_rank_with_the_short_collectives(tmp_path):
    result = diagnosis_of(tmp_path, rank(0, 7_000), rank(1, 9_900), rank(2, 7_000))

    found = finding(result, "COM002")
    assert (found.scope, found.severity) == ("rank 1", Severity.WARNING)
    assert found.evidence[0].value == pytest.approx(29)  # (9.9 − 7.0) / 10
    # The victims look bound by communication.
    assert finding(result, "COM001").scope == "rank 0 and rank 2; numbers of rank 0"
    assert len(result.waterfalls) == 3
    # They wait for the late rank inside the collective: the same seconds, of which it is the cause.
    assert result.diagnosis.verdict.code == "COM002"
    assert finding(result, "COM002").explains == ("COM001",)


def test_without_a_straggler_communication_is_its_own_cause(tmp_path):
    result = diagnosis_of(tmp_path, rank(0, 7_000), rank(1, 7_000))

    assert result.diagnosis.verdict.code == "COM001"


@pytest.mark.parametrize(("world", "says"), [(2, "cleared"), (4, "traces of 2 of 4 ranks")])
def test_nobody_is_cleared_for_a_rank_whose_trace_is_missing(tmp_path, world, says):
    builders = [rank(number, 9_500) for number in (0, 1)]
    for builder in builders:
        builder.about["distributedInfo"]["world_size"] = world

    assert says in of(diagnosis_of(tmp_path, *builders), "COM002")


def test_two_traces_of_one_rank_are_not_compared(tmp_path):
    assert "more than one trace is of rank 1" in of(diagnosis_of(tmp_path, rank(1, 7_000), rank(1, 9_900)), "COM002")


def test_ranks_that_finish_together_have_no_straggler(tmp_path):
    assert of(diagnosis_of(tmp_path, rank(0, 9_500), rank(1, 9_600), rank(2, 9_500)), "COM002") == "cleared"


def test_one_rank_cannot_be_compared(tmp_path):
    assert "one trace was given" in of(diagnosis_of(tmp_path, rank(0, 9_000)), "COM002")


def test_one_rank_that_cannot_be_trusted_forbids_a_verdict_on_the_job(tmp_path):
    broken = rank(1, 9_000).kernel(4_000, 3_000, 3_001, stream=9)
    result = diagnosis_of(tmp_path, rank(0, 9_000), broken)

    assert result.diagnosis.verdict is None
    assert result.diagnosis.no_verdict_because.startswith("the trace cannot be trusted: rank 1:")
    assert result.waterfalls[1] is None


def test_no_file_is_refused():
    with pytest.raises(InvalidSettings, match="No trace"):
        diagnose_traces([])


def test_codes_belong_to_families_and_are_asked_once():
    assert len({rule.code for rule in TRACE_RULES}) == len(TRACE_RULES)
    for rule in TRACE_RULES:
        assert isinstance(rule.family, Family)
        assert rule.code.startswith(rule.family)
        assert type(rule).__module__.endswith(f".{rule.code.lower()}_{rule.name.replace('-', '_')}")


@pytest.mark.parametrize(("queued", "told"), [(True, True), (False, False)])
def test_a_gap_before_all_work_may_be_work_of_before_the_recording(tmp_path, queued, told):
    # Of 10 steps of 1 ms the device does nothing in the first 2 ms, or in 2 ms in their middle; the work was queued.
    builder = repeated(1000, 10, lambda builder, start: None)
    for at in range(0, 10_000, 100):
        if not (0 <= at < 2000 if queued else 4000 <= at < 6000):
            builder.kernel(1 + at / 1000, at + 20, at + 120, call_length=0.5)
    answer = finding(diagnose_traces([builder.write(tmp_path / "trace.json")]), "HST009")

    assert ("20 % of the step lies before all work in the trace" in answer.summary) is told
    assert ("before the profiler starts" in answer.remedies[0].says) is told


@pytest.mark.parametrize(("lasts", "named"), [(3000, True), (500, False)])
def test_without_a_stack_host_work_is_laid_to_the_operator_that_it_lies_in(tmp_path, lasts, named):
    # In each 10 ms the host launches nothing for 4; so much of that it is inside an operator of its own.
    def fill(builder, start):
        queued(builder, start + 4_000, start + 10_000, pieces=40)
        builder.operator("aten::unflatten_dense_tensors", start + 500, start + 500 + lasts)

    answer = finding(diagnosis_of(tmp_path, repeated(10_000, 5, fill)), "HST004")
    assert ("Begin with aten::unflatten_dense_tensors, 30 % of each step" in answer.remedies[0].says) is named
    assert any(line.metric == "of it in aten::unflatten_dense_tensors" for line in answer.evidence) is named


@pytest.mark.parametrize(("length", "level"), [(999, Severity.INFO), (1001, "cleared")])
def test_launches_that_load_their_kernels_are_not_laid_to_many_launches(tmp_path, length, level):
    # Each kernel of 9 ms starts 1 ms after its step, in which its launch is under way.
    def fill(builder, start):
        builder.kernel(start, start + 1003, start + 10_000, call_length=length)

    result = diagnosis_of(tmp_path, repeated(10_000, 5, fill))
    assert (of(result, "HST001") == "cleared") is (level == "cleared")
