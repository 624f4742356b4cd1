"""XFR003, XFR005 and INP007 in traces: small copies, reads back, and work on a batch before its first launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.diagnosis import diagnose_traces
from perf_diagnostics.diagnose.trace.rules.cmp011_conv_layout import LayoutChanges
from perf_diagnostics.diagnose.trace.rules.inp007_preprocessing_in_the_loop import Preprocessing
from perf_diagnostics.diagnose.trace.rules.opt003_optimizer_synchronises import WaitsInOptimizer
from perf_diagnostics.diagnose.trace.rules.xfr003_many_small_copies import SmallCopies
from perf_diagnostics.diagnose.trace.rules.xfr005_reads_back import CopiesBack
from tests.diagnose.answers import changes, clear, found, number
from tests.diagnose.trace.builder import LOADER, TO_DEVICE, TO_HOST, TraceBuilder, repeated

STEP = 10_000.0


def computing(builder: TraceBuilder, start: float, end: float) -> None:
    """Kernels of 500 µs end to end, all launched before they start."""
    at = start
    while at < end - 1e-6:
        until = min(at + 500, end)
        builder.kernel(max(0.0, at - 60), at, until)
        at = until


def reading(idle_us: float, reads: int = 10) -> Any:
    """A step of 10 ms with ten reads of the device, each followed by so much time in which nothing is queued."""

    def fill(builder: TraceBuilder, start: float) -> None:
        part = STEP / reads
        for one in range(reads):
            at = start + one * part
            until = at + part - idle_us - 2
            builder.kernel(at + 1, at + 6, until)
            builder.copy(at + 10, until, until + 2, name=TO_HOST, bytes=4)
            builder.call("cudaStreamSynchronize", at + 16, until + 3)

    return fill


@pytest.mark.parametrize(("idle_us", "severity"), [(15, None), (40, Severity.WARNING), (130, Severity.CRITICAL)])
def test_the_idle_time_after_reads_is_graded(idle_us: float, severity: Severity | None, tmp_path: Path) -> None:
    answer = CopiesBack().check(repeated(STEP, 5, reading(idle_us)).facts(tmp_path))
    if severity is None:
        clear(answer)
    else:
        finding = found(answer)
        assert finding.severity is severity
        # ten times idle_us and the 6 µs until the next kernel is launched; after the last read nothing follows
        assert number(finding, "idle after reads").value == pytest.approx((idle_us + 6) / 10 * 49 / 50, rel=0.03)


def test_after_a_long_wait_the_next_launch_still_belongs_to_it(tmp_path: Path) -> None:
    """One read a step, waited for for 9 ms: what follows it within a millisecond is no other work of the host."""
    answer = found(CopiesBack().check(repeated(STEP, 5, reading(500, 1)).facts(tmp_path)))
    assert number(answer, "idle after reads").value == pytest.approx(506 / 100 * 4 / 5, rel=0.03)


def test_a_wait_with_a_deep_queue_is_free(tmp_path: Path) -> None:
    """The decoy: one read a step, behind which the next step's work is queued."""

    def fill(builder: TraceBuilder, start: float) -> None:
        computing(builder, start + 2, start + STEP)
        builder.copy(max(0.0, start - 50), start, start + 2, name=TO_HOST, bytes=4)

    answer = clear(CopiesBack().check(repeated(STEP, 5, fill).facts(tmp_path)))
    assert number(answer, "copies back to the host a step").value == pytest.approx(1, abs=0.2)


def test_a_wait_for_something_else_is_not_charged_to_reads(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.kernel(start + 1, start + 6, start + 8000)
        builder.call("cudaDeviceSynchronize", start + 16, start + 8001)

    answer = clear(CopiesBack().check(repeated(STEP, 5, fill).facts(tmp_path)))
    assert number(answer, "idle after reads").value == 0  # a measured zero
    assert number(answer, "copies back to the host a step").value == 0


def test_reads_explain_the_synchronisation_tax(tmp_path: Path) -> None:
    path = repeated(STEP, 5, reading(150)).write(tmp_path / "t.json")
    findings = {finding.code: finding for finding in diagnose_traces([path]).diagnosis.findings}
    assert "HST002" in findings["XFR005"].explains
    codes = [finding.code for finding in diagnose_traces([path]).diagnosis.findings]
    assert codes.index("XFR005") < codes.index("HST002")


@pytest.mark.parametrize(("idle_us", "fires"), [(40, False), (60, True)])
def test_waits_inside_the_optimizers_range_are_the_optimizers(idle_us: float, fires: bool, tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        reading(idle_us)(builder, start)
        builder.note("Optimizer.step#AdamW.step", start + 1000, start + STEP - 1)

    answer = WaitsInOptimizer().check(repeated(STEP, 5, fill).facts(tmp_path))
    # the gaps of nine of ten reads lie inside, and those of the last a step's end; each is idle_us and 6 µs long
    assert number(answer, "idle after waits in the optimizer").value == pytest.approx((idle_us + 6) * 0.09, rel=0.15)
    assert bool(found(answer)) if fires else clear(answer)


def test_waits_outside_of_the_optimizer_are_not_its(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        reading(150)(builder, start)
        builder.note("Optimizer.step#AdamW.step", start + 200, start + 300)

    answer = clear(WaitsInOptimizer().check(repeated(STEP, 5, fill).facts(tmp_path)))
    assert number(answer, "idle after waits in the optimizer").value == 0  # a measured zero


def test_without_an_optimizers_range_it_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match="optimizer"):
        WaitsInOptimizer().check(repeated(STEP, 5, reading(150)).facts(tmp_path))


def turning(part: float, name: str) -> Any:
    """A step of 10 ms of which this part is one kernel of that name, behind one that computes."""

    def fill(builder: TraceBuilder, start: float) -> None:
        border = start + STEP * (1 - part)
        builder.kernel(start, start + 6, border)
        if part:
            builder.kernel(start + 10, border, start + STEP, name=name)

    return fill


NCHW = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(cudnn::ops::nchw2nhwc_params_t<float>)"


@pytest.mark.parametrize(
    ("part", "name", "fires"), [(0, NCHW, False), (0.029, NCHW, False), (0.031, NCHW, True), (0.5, "conv2d", False)]
)
def test_kernels_that_turn_memory_formats(part: float, name: str, fires: bool, tmp_path: Path) -> None:
    answer = LayoutChanges().check(repeated(STEP, 5, turning(part, name)).facts(tmp_path))
    share = part if "nchw" in name else 0
    assert number(answer, "device's work in changes of memory format").value == pytest.approx(100 * share, rel=0.01)
    if fires:
        finding = found(answer)
        assert finding.severity is Severity.INFO and changes(finding) == [{"channels_last": True}]
        assert finding.recoverable.high == pytest.approx(share, rel=0.02)
    else:
        clear(answer)


def copying(copies: int, size: int | None, gap_us: float = 8.0) -> Any:
    """A step of 10 ms: blocking copies one after the other, then one kernel for the rest of the step."""

    def fill(builder: TraceBuilder, start: float) -> None:
        at = start
        args = {} if size is None else {"bytes": size}
        for _ in range(copies):
            builder.copy(at, at + 3, at + 5, name=TO_DEVICE, call_length=6, **args)
            builder.call("cudaStreamSynchronize", at + 6, at + gap_us)
            at += gap_us
        builder.kernel(at, at + 5, start + STEP)

    return fill


def test_many_small_copies_cost_the_time_in_which_nothing_is_computed(tmp_path: Path) -> None:
    # 100 copies, 8 µs each: 8 % of 10 ms
    finding = found(SmallCopies().check(repeated(STEP, 5, copying(100, 4)).facts(tmp_path)))
    assert finding.severity is Severity.WARNING
    assert number(finding, "small copies a step").value == 100
    assert number(finding, "cost of small copies").value == pytest.approx(8, abs=0.2)


@pytest.mark.parametrize(
    ("copies", "size", "gap_us"),
    [
        (0, 4, 8),  # none: a measured zero
        (20, 4, 40),  # 8 % of the step, but no more than 20
        (24, 4, 8),  # more than 20, but 1.9 % of the step
        (100, 65536, 8),  # large ones
    ],
)
def test_few_cheap_or_large_copies_are_clear(copies: int, size: int, gap_us: float, tmp_path: Path) -> None:
    clear(SmallCopies().check(repeated(STEP, 5, copying(copies, size, gap_us)).facts(tmp_path)))


def test_just_above_both_limits_is_mentioned(tmp_path: Path) -> None:
    finding = found(SmallCopies().check(repeated(STEP, 5, copying(30, 4)).facts(tmp_path)))  # 240 µs of 10 ms
    assert finding.severity is Severity.INFO


def test_copies_of_unknown_size_are_not_measured(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match="how large"):
        SmallCopies().check(repeated(STEP, 5, copying(100, None)).facts(tmp_path))


@pytest.mark.parametrize("rule", [SmallCopies(), CopiesBack()])
def test_on_the_cpu_nothing_crosses(rule: Any, tmp_path: Path) -> None:
    builder = TraceBuilder(deviceProperties=[])
    for step in range(4):
        builder.step(step, step * 100, (step + 1) * 100).operator("aten::mm", step * 100, (step + 1) * 100)
    with pytest.raises(NotApplicable):
        rule.check(builder.facts(tmp_path))


def preparing(prepare_us: float, *, loader: bool = True, forward: bool = False) -> Any:
    """A step of 10 ms: 1 ms in the loader, so much work on the batch, then one kernel until the step's end."""

    def fill(builder: TraceBuilder, start: float) -> None:
        if loader:
            builder.note(LOADER, start, start + 1000)
        if forward:
            builder.note("forward", start + 1000 + prepare_us, start + STEP)
        builder.kernel(start + 1000 + prepare_us, start + 1005 + prepare_us, start + STEP)

    return fill


@pytest.mark.parametrize(("prepare_us", "severity"), [(800, None), (1200, Severity.WARNING), (2300, Severity.CRITICAL)])
@pytest.mark.parametrize("forward", [False, True])
def test_work_before_the_first_launch_is_graded(
    prepare_us: float, severity: Severity | None, forward: bool, tmp_path: Path
) -> None:
    answer = Preprocessing().check(repeated(STEP, 5, preparing(prepare_us, forward=forward)).facts(tmp_path))
    if severity is None:
        clear(answer)
    else:
        finding = found(answer)
        assert finding.severity is severity
        assert number(finding, "between a batch and its forward").value == pytest.approx(prepare_us / 100, abs=0.2)


def test_a_busy_device_hides_the_work_on_a_batch(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.note(LOADER, start, start + 1000)
        builder.kernel(start + 5000, start + 5010, start + STEP + 5000)  # until the next step's launch

    answer = clear(Preprocessing().check(repeated(STEP, 5, fill).facts(tmp_path)))
    # only the first step of the trace begins with an idle device
    assert number(answer, "between a batch and its forward").value <= 10


def test_without_a_loaders_range_it_is_an_info_that_says_so(tmp_path: Path) -> None:
    finding = found(Preprocessing().check(repeated(STEP, 5, preparing(3000, loader=False)).facts(tmp_path)))
    assert finding.severity is Severity.INFO and "no loader left a range" in finding.summary


def test_work_on_batches_explains_other_host_work(tmp_path: Path) -> None:
    path = repeated(STEP, 5, preparing(3000)).write(tmp_path / "t.json")
    findings = {finding.code: finding for finding in diagnose_traces([path]).diagnosis.findings}
    assert "HST004" in findings["INP007"].explains


def on_the_cpu(prepare_us: float, *, forward: bool = True) -> TraceBuilder:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.note(LOADER, start, start + 1000)
        builder.operator("aten::normalise", start + 1000, start + 1000 + prepare_us)
        if forward:
            builder.note("forward", start + 1000 + prepare_us, start + 6000)
        builder.operator("aten::addmm", start + 1000 + prepare_us, start + STEP)

    return repeated(STEP, 5, fill, deviceProperties=[])


def test_on_the_cpu_it_lasts_until_the_forward_operators_or_not(tmp_path: Path) -> None:
    finding = found(Preprocessing().check(on_the_cpu(3000).facts(tmp_path)))
    assert finding.severity is Severity.CRITICAL
    assert finding.claims == {"compute": pytest.approx(0.3)}
    assert finding.recoverable.high == pytest.approx(0.3)
    clear(Preprocessing().check(on_the_cpu(0).facts(tmp_path)))  # a measured zero


def test_on_the_cpu_without_a_marked_forward_it_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match="record_function"):
        Preprocessing().check(on_the_cpu(3000, forward=False).facts(tmp_path))
