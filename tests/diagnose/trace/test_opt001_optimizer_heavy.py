"""OPT001 for traces: launches for single tensors that the device waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.rules.hst001_launch_bound import LaunchBound
from perf_diagnostics.diagnose.trace.rules.opt001_optimizer_heavy import LaunchesInOptimizer
from tests.diagnose.answers import changes, clear, found, missing, number
from tests.diagnose.trace.builder import BACKWARD, POINTWISE, TraceBuilder, ask, repeated

STEP = 10_000


def updating(launches: int, gradients: int, *, apart: float = 20, operator: str = "aten::add_") -> TraceBuilder:
    """Five steps of 10 ms: the device is fed, and at their end an optimizer launches kernels of 4 µs, so many µs apart,
    each of which starts 6 µs after its launch began.
    """

    def fill(builder: TraceBuilder, start: float) -> None:
        update = start + STEP - launches * apart
        builder.kernel(start, start + 6, update - 1000, name=POINTWISE)
        for n in range(gradients):
            builder.operator("torch::autograd::AccumulateGrad", start + n, start + n + 0.5, tid=BACKWARD)
        builder.kernel(start + 60, update - 1000, update, name=POINTWISE)
        builder.note("Optimizer.step#AdamW.step", update - 1, start + STEP - 1)
        builder.operator(operator, update, update + 5)
        for n in range(launches):
            at = update + n * apart
            builder.kernel(at, at + 6, at + 10, name=POINTWISE)

    return repeated(STEP, 5, fill)


def test_launches_tensor_by_tensor_are_a_warning_where_the_device_waits_for_them(tmp_path: Path) -> None:
    # 160 x (20 - 4) µs of 10 ms are idle, less what lies beyond the optimizer's range
    finding = found(ask(LaunchesInOptimizer(), updating(160, 40).facts(tmp_path)))
    assert finding.severity is Severity.WARNING
    assert number(finding, "idle for want of the optimizer's launches").value == pytest.approx(25.6, abs=0.3)
    assert number(finding, "launches for each gradient").value == 4
    assert "160 kernels a step for 40 tensors" in finding.summary
    assert {"optimizer_implementation": "fused"} in changes(finding)
    # What the device spends on them, 160 x 4 µs, a fused one makes 7 passes of 20 of.
    assert finding.recoverable.high == pytest.approx(0.256 + 0.064 * 13 / 20, abs=0.003)
    assert finding.claims["launch_overhead"] == pytest.approx(0.256, abs=0.003)


def test_launches_that_cost_little_are_an_info_and_less_is_nothing(tmp_path: Path) -> None:
    assert found(ask(LaunchesInOptimizer(), updating(20, 10).facts(tmp_path))).severity is Severity.INFO  # 3.2 %
    answer = clear(ask(LaunchesInOptimizer(), updating(5, 4).facts(tmp_path)))  # 0.8 %
    assert number(answer, "launches of the optimizer a step").value == 5


def test_few_launches_for_many_tensors_are_clear(tmp_path: Path) -> None:
    """Foreach: a launch for dozens of tensors; that the device waits for them is not their number's doing."""
    answer = clear(ask(LaunchesInOptimizer(), updating(20, 400).facts(tmp_path)))
    assert number(answer, "launches for each gradient").value == pytest.approx(0.05)


@pytest.mark.parametrize("operator", ["aten::_fused_adamw_", "aten::_foreach_add_"])
def test_without_gradients_an_operator_on_many_tensors_tells(operator: str, tmp_path: Path) -> None:
    assert "together" in clear(ask(LaunchesInOptimizer(), updating(20, 0, operator=operator).facts(tmp_path))).summary
    assert missing(ask(LaunchesInOptimizer(), updating(20, 0).facts(tmp_path))).signal == "optimizer_tensors"


def in_passes(
    part: float,
    *,
    kind: str = "AdamW",
    operator: str = "aten::_foreach_mul_",
    closure: bool = False,
    name: str = POINTWISE,
) -> TraceBuilder:
    """Steps of 10 ms in which a fed device spends this part on the update; ``closure``: all of it is launched within
    ``step()``, as Lightning does.
    """

    def fill(builder: TraceBuilder, start: float) -> None:
        border = start + STEP * (1 - part)
        for n in range(40):
            node = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
            builder.operator(node, start + n, start + n + 0.5, tid=BACKWARD)
            builder.operator("torch::autograd::AccumulateGrad", start + n, start + n + 0.4, tid=BACKWARD)
        builder.operator("aten::_fused_sdp_choice", start + 2, start + 3)
        builder.kernel(start + 6, start + 70, border, name=POINTWISE)
        builder.note(f"Optimizer.step#{kind}.step", start if closure else start + 100, start + 200)
        builder.operator(operator, start + 110, start + 120)
        builder.kernel(start + 112, border, start + STEP, name=name)

    return repeated(STEP, 5, fill)


@pytest.mark.parametrize(
    ("part", "severity"), [(0.05, None), (0.10, Severity.INFO), (0.30, Severity.WARNING)]
)  # 3, 6.5 and 19.5 %
def test_passes_over_memory_that_one_could_do_are_told(part: float, severity: Severity | None, tmp_path: Path) -> None:
    answer = ask(LaunchesInOptimizer(), in_passes(part).facts(tmp_path))
    if severity is None:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is severity and "a fused AdamW makes one" in finding.summary
    assert changes(finding) == [{"optimizer_implementation": "fused"}]
    gain = finding.recoverable
    assert gain.low == pytest.approx(0.3 * part * 13 / 20, rel=0.02)
    assert gain.high == pytest.approx(part * 13 / 20, rel=0.02)


def test_what_a_closure_does_within_the_step_is_no_update(tmp_path: Path) -> None:
    clear(ask(LaunchesInOptimizer(), in_passes(0.05, closure=True).facts(tmp_path)))
    finding = found(ask(LaunchesInOptimizer(), in_passes(0.3, closure=True).facts(tmp_path)))
    assert number(finding, "the optimizer, of the device's work").value == pytest.approx(30, abs=1)
    assert number(finding, "launches of the optimizer a step").value == 1


def test_clipping_and_zeroing_beside_the_step_are_no_update(tmp_path: Path) -> None:
    builder = in_passes(0.05)
    for number_ in range(5):
        start = number_ * STEP
        builder.note("optimizer", start + 50, start + 250)
        builder.note("Optimizer.zero_grad#AdamW.zero_grad", start + 4, start + 99)
    clear(ask(LaunchesInOptimizer(), builder.facts(tmp_path)))


@pytest.mark.parametrize(
    "name", ["void kOptimizer32bit2State<float, 1>(float*, float*)", "multi_tensor_apply_kernel<AdamFunctor<float>>"]
)
def test_other_libraries_kernels_that_update_at_once_are_clear(name: str, tmp_path: Path) -> None:
    clear(ask(LaunchesInOptimizer(), in_passes(0.3, name=name, operator="aten::empty").facts(tmp_path)))


@pytest.mark.parametrize(("kind", "operator"), [("AdamW", "aten::_fused_adamw_"), ("SGD", "aten::_foreach_add_")])
def test_one_pass_already_and_optimizers_of_which_nothing_is_known_are_clear(
    kind: str, operator: str, tmp_path: Path
) -> None:
    clear(ask(LaunchesInOptimizer(), in_passes(0.3, kind=kind, operator=operator).facts(tmp_path)))


def test_without_a_range_of_an_optimizer_it_is_not_measured(tmp_path: Path) -> None:
    bare = repeated(STEP, 5, lambda b, start: b.kernel(start - 100, start, start + STEP))
    assert missing(ask(LaunchesInOptimizer(), bare.facts(tmp_path))).signal == "optimizer"


@pytest.mark.parametrize(("of_optimizer", "named"), [(0.8, True), (1.1, False)])
def test_launches_held_up_by_the_optimizer_alone_are_its_symptom(tmp_path: Path, of_optimizer, named) -> None:
    finding = found(ask(LaunchBound(of_optimizer=of_optimizer), updating(160, 40).facts(tmp_path)))
    assert finding.symptom_of == ("HST007", *(("OPT001",) if named else ()))
    assert any(one.metric == "of it in the optimizer" for one in finding.evidence) is named


def test_launches_of_the_whole_step_are_not_the_optimizers(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        for at in range(0, STEP, 100):
            builder.kernel(start + at, start + at + 10, start + at + 60)
        builder.note("Optimizer.step#AdamW.step", start + STEP / 2, start + STEP - 1)

    assert found(ask(LaunchBound(), repeated(STEP, 5, fill).facts(tmp_path))).symptom_of == ("HST007",)
