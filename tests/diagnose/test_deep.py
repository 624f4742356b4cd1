"""What a profiler window adds to a run's diagnosis, with windows made by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from perf_diagnostics.diagnose.asking import Placed, Replies
from perf_diagnostics.diagnose.deep import WINDOWS_ALONE, with_windows
from perf_diagnostics.diagnose.diagnosis_json import diagnosis_to_json
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Cleared, Diagnosis, Finding, Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Gap
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.trace.builder import LOADER, TO_HOST, TraceBuilder, repeated

#: A step of the windows, in µs.
STEP = 10_000


def write(path: Path, fill, **about) -> Path:
    return repeated(STEP, 5, fill, **about).write(path)


def cpu_step(loading_us: int, idle_us: int):
    """A step on the CPU: waiting for data, then operators, then nothing that the trace shows."""

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.note(LOADER, start, start + loading_us)
        builder.operator("aten::addmm", start + loading_us, start + STEP - idle_us)

    return fill


def launch_bound(builder: TraceBuilder, start: float) -> None:
    """Ten kernels of 200 µs, each launched 5 µs before it starts, a millisecond apart: idle for 80 % of the step."""
    for number in range(10):
        at = start + number * STEP / 10
        builder.kernel(at, at + 6, at + 206)


def found(diagnosis: Diagnosis, code: str) -> Finding | None:
    return next((finding for finding in diagnosis.findings if finding.code == code), None)


def diagnosed(path: Path, **trial) -> Diagnosis:
    result = trial_of(**trial)
    return diagnose(run_of(result), traces={result.trial.id: path})


def test_a_window_that_agrees_makes_a_finding_surer(tmp_path: Path) -> None:
    # Waiting for 0.4 of an undisturbed step of 10 ms, and for 4 of the window's 10 ms.
    path = write(tmp_path / "t.json", cpu_step(4000, 0))
    alone = found(diagnose(run_of(trial_of(data_wait=0.004, forward=0.006, noise=0.01))), "INP001")
    both = found(diagnosed(path, data_wait=0.004, forward=0.006, noise=0.01), "INP001")
    assert both.confidence >= 0.85 > alone.confidence
    assert both.recoverable == alone.recoverable  # the gain is that of the undisturbed steps
    assert any(item.source == "profiler window" for item in both.evidence)


def test_what_only_the_window_shows_is_an_info(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", cpu_step(4000, 0))
    finding = found(diagnosed(path, data_wait=0.0, forward=0.010, noise=0.01), "INP001")
    assert finding.severity is Severity.INFO and finding.summary.startswith("In the profiler window only")


def test_where_the_steps_could_not_answer_the_window_decides(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", launch_bound)
    given = {"forward": 0.010, "device": "cuda:0", "without": ("borders", "borders_idle", "starved")}
    finding = found(diagnosed(path, **given), "HST001")
    # (10 x 794 µs of 10 ms) idle for want of launches
    assert finding.severity is Severity.CRITICAL and finding.confidence == pytest.approx(0.85)
    assert "batch 8" in finding.scope and finding.batch_sizes == (8,)


def test_what_the_profiler_may_have_added_is_no_fault(tmp_path: Path) -> None:
    # 20 % of a window of 10 ms have no operator; undisturbed a step takes 8 ms: all of it may be the profiler's.
    path = write(tmp_path / "t.json", cpu_step(0, 2000))
    assert found(diagnosed(path, forward=0.008), "HST004").severity is Severity.INFO
    # Undisturbed it takes 10 ms as well: nothing was added.
    assert found(diagnosed(path, forward=0.010), "HST004").severity is Severity.CRITICAL


def test_what_the_profiler_may_have_added_to_a_wait_is_no_fault(tmp_path: Path) -> None:
    """XFR005 is about transfers, and yet about time of the host's: 15 % of a window that is 20 % longer."""

    def fill(builder: TraceBuilder, start: float) -> None:
        for at in (start + part * 1000 for part in range(10)):
            builder.kernel(at, at + 6, at + 848)
            builder.copy(at + 10, at + 848, at + 850, name=TO_HOST, bytes=4)
            builder.call("cudaStreamSynchronize", at + 16, at + 851)

    path = write(tmp_path / "t.json", fill)
    given = {"device": "cuda:0", "noise": 0.01}
    assert found(diagnosed(path, forward=0.010, **given), "XFR005").severity is Severity.CRITICAL
    assert found(diagnosed(path, forward=0.008, **given), "XFR005").severity is Severity.INFO


def test_rules_about_devices_are_unchecked_on_the_cpu(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", cpu_step(0, 0))  # the machine has a GPU, which the trace names
    diagnosis = diagnosed(path, forward=0.010)
    whys = {item.code: item.why for item in diagnosis.unchecked}
    for code in ("HST001", "HST002", "HST009", "XFR002"):
        assert "ran on" in whys[code], code
    assert found(diagnosis, "HST009") is None


def test_the_waterfall_adds_up_to_the_window(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", cpu_step(4000, 1000))
    diagnosis = diagnosed(path, data_wait=0.003, forward=0.005)
    waterfall = diagnosis.waterfall
    parts = dict(waterfall.parts)
    assert sum(parts.values()) == waterfall.wall_ns == 5 * STEP * 1000
    assert parts["waiting_for_input"] == 5 * 4000 * 1000 and parts["other_host_work"] == 5 * 1000 * 1000
    assert waterfall.slowdown == pytest.approx(10 / 8)
    told = diagnosis_to_json(diagnosis)["waterfall"]
    assert sum(part["share"] for part in told["parts"]) == pytest.approx(1)


def test_only_a_window_that_could_be_read_opens_what_forward_does(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", cpu_step(0, 0))
    opened = diagnosed(path, forward=0.010, noise=0.01).verdict
    assert opened is not None and opened.summary.startswith("No rule found a fault. 100 %")
    path.write_text("{", encoding="utf-8")
    closed = diagnosed(path, forward=0.010, noise=0.01).verdict
    assert closed is not None and "was not profiled (--deep does)" in closed.note


def phases(of_forward: int, of_backward: int, between_us: int):
    """A step on the CPU whose forward and backward each have one long operator, and so many short pauses between."""

    def fill(builder: TraceBuilder, start: float) -> None:
        at = start
        for phase, name, length in (
            ("forward", "aten::linear", of_forward),
            ("backward", "autograd::engine::evaluate_function: AddmmBackward0", of_backward),
        ):
            builder.note(phase, at, at + between_us + length)
            builder.operator(name, at + between_us, at + between_us + length)
            at += between_us + length

    return fill


def test_the_verdict_says_what_the_window_shows_inside(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", phases(3000, 6000, 500))
    diagnosis = diagnosed(path, forward=0.004, backward=0.006, noise=0.01)
    assert diagnosis.verdict is not None
    # 3, 6 and twice 0.5 of 10 ms; the first pause lies before the first operator of all
    assert diagnosis.verdict.note == (
        "Inside of forward and backward the profiler window shows 2.00 operators a step, most of them of forward "
        "aten::linear (30 %); of backward AddmmBackward0 (60 %) of the step; 9.0 % of a profiled step lies between "
        "operators, where the interpreter runs."
    )
    told = diagnosis_to_json(diagnosis)["waterfall"]
    assert told["calls"] == 2 and [one["name"] for one in told["operators"]] == ["aten::linear", "AddmmBackward0"]
    assert [one["share"] for one in told["operators"]] == pytest.approx([0.3, 0.6])


def test_a_broken_window_is_a_reason_and_no_error(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("{", encoding="utf-8")
    diagnosis = diagnosed(path, forward=0.010)
    assert diagnosis.waterfall is None
    assert any(item.code == "HST009" and item.signal == "deep_window" for item in diagnosis.unchecked)


def test_what_other_programs_may_have_added_is_no_fault(tmp_path: Path) -> None:
    """A window does not show who had the processor; the undisturbed steps' signs do."""
    path = write(tmp_path / "t.json", cpu_step(0, 4000))
    alone = found(diagnosed(path, forward=0.010), "HST004")
    assert alone.severity is Severity.CRITICAL
    deep = Placed(alone, alone.group, at_recommended=True)
    busy = Placed(
        dataclasses.replace(alone, code="EXP010", severity=Severity.WARNING), alone.group, at_recommended=True
    )
    slight = dataclasses.replace(busy, finding=dataclasses.replace(busy.finding, severity=Severity.INFO))
    elsewhere = dataclasses.replace(busy, group="another")
    for own, severity in ((busy, Severity.INFO), (slight, Severity.CRITICAL), (elsewhere, Severity.CRITICAL)):
        replies = with_windows(Replies(placed=(own,)), Replies(placed=(deep,)))
        (finding,) = (item.finding for item in replies.placed if item.finding.code == "HST004")
        assert finding.severity is severity
        assert finding.summary.startswith("While other programs") is (severity is Severity.INFO)


def test_what_the_window_counts_is_not_cleared_by_what_estimates_it(tmp_path: Path) -> None:
    """HST010 and HST011 are about the same calls: the one by trained tensors, the other by the operators themselves."""
    estimated = Cleared("HST010", "tiny-operations", "forward and backward take 50 µs for each of 27 tensors")
    other = Cleared("HST003", "allocation-churn")
    seen = found(diagnosed(write(tmp_path / "t.json", cpu_step(0, 4000)), forward=0.010), "HST004")
    assert seen is not None
    counted = Placed(dataclasses.replace(seen, code="HST011"), seen.group, at_recommended=True)
    told = with_windows(Replies(cleared=(estimated, other)), Replies(placed=(counted,)))
    assert told.cleared == (other,)
    ((code, why),) = ((item.code, item.why) for item in told.unchecked)
    assert code == "HST010" and "HST011 tells what calling them takes" in why
    assert with_windows(Replies(cleared=(estimated, other)), Replies()).cleared == (estimated, other)


#: The rules that only a window answers; those about operators ask of a training on the CPU only.
WINDOW_ONLY = {"CMP010", "CMP014", "CMP015", "HST004", "HST009"}
OF_THE_CPU = {"CMP019", "HST011", "HST018"}


def test_without_a_window_what_only_it_tells_is_unchecked_in_one_line() -> None:
    diagnosis = diagnose(run_of(trial_of(forward=0.010, device="cuda:0")))
    assert diagnosis.waterfall is None and diagnosis_to_json(diagnosis)["waterfall"] is None
    asking = {why: rules for why, rules in diagnosis.not_checked_because.items() if "sweep --deep" in why}
    ((why, rules),) = asking.items()  # one reason for all of them, so that reports show one line
    assert "none was recorded" in why
    assert [rule.code for rule in rules] == sorted(WINDOW_ONLY, key=[rule.code for rule in rules].index)
    beside = {rule.code for rule in diagnosis.does_not_apply["the trial did not run on the CPU"]}
    assert beside >= OF_THE_CPU
    assert {rule.code for rule in rules} == WINDOW_ONLY and {rule.signal for rule in rules} == {"deep_window"}


def test_without_a_window_a_trial_on_the_cpu_lacks_only_what_is_about_the_host() -> None:
    diagnosis = diagnose(run_of(trial_of(forward=0.010)))
    assert {rule.code for rule in diagnosis.not_checked if rule.signal == "deep_window"} == {"HST004", *OF_THE_CPU}
    beside = {rule.code for rule in diagnosis.does_not_apply["the trial ran on the CPU"]}
    assert WINDOW_ONLY - {"HST004"} <= beside


def test_a_window_that_could_not_be_recorded_says_why() -> None:
    gap = Gap("deep_window", "this torch's profiler cannot watch xpu devices")
    result = dataclasses.replace(trial_of(forward=0.010, device="cuda:0"), gaps=(gap,))
    whys = {item.code: item.why for item in diagnose(run_of(result)).unchecked}
    assert {whys[code] for code in WINDOW_ONLY} == {gap.why}


def test_what_one_group_has_a_window_for_is_unchecked_for_the_other(tmp_path: Path) -> None:
    one, two = (trial_of(forward=0.01, device="cuda:0", settings={"precision": p}) for p in ("float32", "bfloat16"))
    path = write(tmp_path / "t.json", launch_bound)
    diagnosis = diagnose(run_of(one, two), traces={one.trial.id: path})
    (why,) = {item.why for item in diagnosis.not_checked if item.signal == "deep_window"}
    assert "sweep --deep" in why and "bfloat16" in why  # which group lacks one
    assert any(item.code == "HST009" for item in diagnosis.cleared)


def test_the_rules_that_only_a_window_answers_know_whether_they_need_a_device(tmp_path: Path) -> None:
    """A rule that says of a trace of the CPU that it does not apply is one about devices, and no other is."""
    facts = repeated(STEP, 5, cpu_step(0, 0), deviceProperties=[]).facts(tmp_path)
    assert {rule.code for rule in TRACE_RULES} >= WINDOWS_ALONE == WINDOW_ONLY | OF_THE_CPU
    of_devices = set()
    for rule in TRACE_RULES:
        if rule.code in WINDOWS_ALONE:
            try:
                rule.check(facts)
            except NotApplicable:
                of_devices.add(rule.code)
            except NotMeasured:
                assert rule.code in OF_THE_CPU  # no phase is marked in it
    assert of_devices == WINDOW_ONLY - {"HST004"}


def test_limits_of_windows_alone_may_be_changed_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", cpu_step(0, 2000))  # a fifth of the step in no operator
    result = trial_of(forward=0.010)
    given = {"HST004": {"warn_share": 0.3, "critical_share": 0.4}}
    assert found(diagnose(run_of(result), traces={result.trial.id: path}, thresholds=given), "HST004") is None
    # A limit that only the rule about records has is no fault of the window's rule of that code.
    diagnose(run_of(result), traces={result.trial.id: path}, thresholds={"HST003": {"info_step_share": 0.2}})
    with pytest.raises(InvalidSettings, match="no threshold 'wrong'"):
        diagnose(run_of(result), thresholds={"HST004": {"wrong": 0.3}})
