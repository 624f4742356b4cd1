"""XFR003, XFR005, HST002, OPT003: copies, reads and waits, as a few steps that do not count showed them."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.hst002_synchronisation_tax import SynchronisationTax
from perf_diagnostics.diagnose.rules.opt003_optimizer_synchronises import OptimizerSynchronises
from perf_diagnostics.diagnose.rules.xfr003_many_small_copies import ManySmallCopies
from perf_diagnostics.diagnose.rules.xfr005_reads_back import ReadsBack
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

#: A step of 100 ms.
STEP = {"forward": 0.1, "device": "cuda:0"}


def small(copies: float, cost: float, *, half: float = 0.0, **trial):
    """So many small copies a step that cost this share of it, give or take ``half``."""
    quantities = {
        "copies_in_per_step": copies + 1,
        "copies_in_median_bytes": 8,
        "small_copies_per_step": copies,
        "small_copies_cost_s": 0.1 * cost,
        "small_copies_cost_low_s": 0.1 * (cost - half),
        "small_copies_cost_high_s": 0.1 * (cost + half),
    }
    return ask_trial(ManySmallCopies(), quantities=quantities, **{**STEP, **trial})


@pytest.mark.parametrize(("copies", "cost"), [(0, 0.0), (20, 0.5), (500, 0.019), (21, 0.0)])
def test_few_or_cheap_copies_are_clear(copies, cost):
    answer = clear(small(copies, cost))
    assert number(answer, "cost of small copies").value == pytest.approx(100 * cost)
    assert number(answer, "copies under 64 KiB a step").value == copies


def test_one_copy_costs_and_several_cost():
    assert clear(small(1, 0.0)).summary.startswith("1 small copy a step costs ")
    assert clear(small(4, 0.0)).summary.startswith("4 small copies a step cost ")
    assert clear(reads(1, 0.0)).summary.startswith("1 read of the device a step costs ")
    assert clear(reads(4, 0.0)).summary.startswith("4 reads of the device a step cost ")


@pytest.mark.parametrize(
    ("copies", "cost", "severity"),
    [(21, 0.021, Severity.INFO), (500, 0.049, Severity.INFO), (500, 0.051, Severity.WARNING)],
)
def test_many_that_cost_are_graded(copies, cost, severity):
    finding = found(small(copies, cost))
    assert finding.severity is severity
    assert finding.recoverable.high == pytest.approx(cost)
    assert finding.recoverable.low == pytest.approx(0.3 * cost)


def test_an_interval_across_the_limit_is_an_unsure_info():
    sure, unsure = found(small(500, 0.06, half=0.005)), found(small(500, 0.06, half=0.045))
    assert (sure.severity, unsure.severity) == (Severity.WARNING, Severity.INFO)
    assert unsure.confidence == pytest.approx(0.6 * sure.confidence)


def reads(count: float, idle: float, *, half: float = 0.0, **trial):
    quantities = {
        "copies_in_per_step": 1,
        "reads_back_per_step": count,
        "reads_back_idle_s": 0.1 * idle,
        "reads_back_idle_low_s": 0.1 * (idle - half),
        "reads_back_idle_high_s": 0.1 * (idle + half),
    }
    return ask_trial(ReadsBack(), quantities=quantities, **{**STEP, **trial})


@pytest.mark.parametrize(("count", "idle"), [(0, 0.0), (1, 0.0), (40, 0.029)])
def test_reads_after_which_the_device_has_work_are_clear(count, idle):
    answer = clear(reads(count, idle))
    assert number(answer, "reads of the device a step").value == count
    assert number(answer, "idle after reads").value == pytest.approx(100 * idle)


@pytest.mark.parametrize(
    ("idle", "severity"),
    [(0.031, Severity.WARNING), (0.099, Severity.WARNING), (0.101, Severity.CRITICAL)],
)
def test_the_idle_time_after_reads_is_graded(idle, severity):
    finding = found(reads(12, idle))
    assert finding.severity is severity
    assert finding.recoverable.high == pytest.approx(idle)


def test_idle_time_whose_interval_reaches_below_the_limit_is_an_info():
    assert found(reads(12, 0.05, half=0.03)).severity is Severity.INFO


def waits(count: float, idle: float, *, half: float = 0.0, read: float = 0.0, **trial):
    """So many waits a step, after which the device idles for this share of it, ``read`` of it after reads."""
    values = {"reads_back_idle": 0.1 * read, "waits_idle": 0.1 * idle}
    quantities = {"copies_in_per_step": 1, "reads_back_per_step": count / 2, "waits_per_step": count}
    for name, value in values.items():
        quantities |= {f"{name}_s": value, f"{name}_low_s": value - 0.1 * half, f"{name}_high_s": value + 0.1 * half}
    return {**STEP, "quantities": quantities, **trial}


@pytest.mark.parametrize(
    ("idle", "severity"),
    [(0.0, None), (0.049, None), (0.051, Severity.WARNING), (0.149, Severity.WARNING), (0.151, Severity.CRITICAL)],
)
def test_idle_time_after_any_wait_is_graded(idle, severity):
    answer = ask_trial(SynchronisationTax(), **waits(4, idle))
    if severity is None:
        clear(answer)
    else:
        finding = found(answer)
        assert finding.severity is severity and finding.recoverable.high == pytest.approx(idle)
    assert number(answer, "waits for the device a step").value == 4


def test_waits_that_may_cost_less_than_the_limit_are_an_info():
    assert found(ask_trial(SynchronisationTax(), **waits(4, 0.06, half=0.02))).severity is Severity.INFO


@pytest.mark.parametrize(("read", "explains"), [(0.12, ("HST002",)), (0.08, ())])
def test_reads_explain_the_waits_if_at_least_half_of_the_idle_time_is_theirs(read, explains):
    findings = {f.code: f for f in diagnose(run_of(trial_of(**waits(4, 0.2, read=read)))).findings}
    assert findings["XFR005"].explains == explains


def in_optimizer(count: float, idle: float, *, half: float = 0.0, **trial):
    quantities = {"copies_in_per_step": 1, "optimizer_waits_per_step": count}
    for name, value in {"": idle, "low_": idle - half, "high_": idle + half}.items():
        quantities[f"optimizer_waits_idle_{name}s"] = 0.1 * value
    return ask_trial(OptimizerSynchronises(), quantities=quantities, **STEP, **trial)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize(("count", "idle", "fires"), [(0, 0.0, False), (1, 0.049, False), (1, 0.051, True)])
def test_waits_in_the_optimizer_are_charged_with_the_idle_time_after_them(precision, count, idle, fires):
    answer = in_optimizer(count, idle, settings={"precision": precision})
    assert number(answer, "waits in the optimizer a step").value == count
    if fires:
        finding = found(answer)
        assert finding.severity is Severity.WARNING and finding.recoverable.high == pytest.approx(idle)
        assert {"optimizer_implementation": "fused"} in changes(finding)
    else:
        clear(answer)


def test_a_wait_in_the_optimizer_that_may_cost_nothing_is_an_info():
    assert found(in_optimizer(1, 0.06, half=0.03)).severity is Severity.INFO


def test_waits_in_the_optimizer_that_nobody_looked_for_are_not_measured():
    assert "trained for a second" in missing(ask_trial(OptimizerSynchronises(), **STEP)).why


def test_a_wait_that_was_not_looked_for_is_not_measured():
    missing(ask_trial(SynchronisationTax(), **STEP))
    assert isinstance(missing(ask_trial(SynchronisationTax(), **waits(4, 0.2, device="cpu"))), NotApplicable)


@pytest.mark.parametrize(("ask", "rule"), [(small, ManySmallCopies), (reads, ReadsBack)])
def test_on_the_cpu_nothing_crosses(ask, rule):
    assert isinstance(missing(ask(500, 0.5, device="cpu")), NotApplicable)


@pytest.mark.parametrize("rule", [ManySmallCopies(), ReadsBack()])
def test_what_was_not_looked_at_is_not_measured_and_says_how(rule):
    assert "trained for a second" in missing(ask_trial(rule, **STEP)).why
    why = missing(
        ask_trial(rule, gaps={"copies_in_per_step": "a compiled model's operators are not shown"}, **STEP)
    ).why
    assert why == "a compiled model's operators are not shown"


def line(kind, number, calls):
    text = f"x{number}.item()"
    return {"kind": kind, "calls": calls, "file": "train.py", "line": number, "function": "step", "text": text}


def test_the_line_that_reads_most_often_is_named_with_how_many_others_there_are():
    told = [line("read", 4, 1.0), line("read", 7, 24.0), line("small copy", 9, 500.0), line("read", 8, 2.0)]
    summary = found(reads(27, 0.2, facts={"crossings_at": told})).summary
    assert summary.endswith(" Most often at train.py:7 in step (`x7.item()`), and at 2 more lines.")
    summary = found(small(500, 0.2, facts={"crossings_at": told})).summary
    assert summary.endswith(" It is asked for at train.py:9 in step (`x9.item()`).")
    waiting = waits(4, 0.2, facts={"crossings_at": [line("wait", 3, 4.0), *told[:1]]})
    assert " Most often at train.py:3 in step" in found(ask_trial(SynchronisationTax(), **waiting)).summary


@pytest.mark.parametrize("told", [[], "nonsense", [5], [{"kind": "read"}]])
def test_without_a_line_the_finding_stands_as_it_is(told):
    assert "train.py" not in found(reads(27, 0.2, facts={"crossings_at": told})).summary
