"""HST013: text, copies, logs and files inside of forward, backward or the optimizer."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.rules.hst013_chores_inside_work import ChoresInsideWork
from perf_diagnostics.diagnose.verdict_place import verdict_place
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, TrialResult
from perf_diagnostics.testing import run_of, trial_of

RULE = ChoresInsideWork()
LOOP = CodePlace(file="train.py", line=20, function="main", text="loss = model(x)")
WORK = CodePlace(file="net.py", line=11, function="Net.forward", text="h = self.b(h)")
SAYS = CodePlace(file="net.py", line=10, function="Net.forward", text='log.debug(f"hidden {h}")')
PRINTS = ("torch._tensor.Tensor.__format__", "torch._tensor.Tensor.__repr__", "torch._tensor_str._str")
LAYER = ("torch.nn.modules.linear.Linear.forward",)


def seen(there: int, whole: int = 400, *, phase: str = "forward", calls: tuple[str, ...] = PRINTS, late: int = 0,
         **trial) -> TrialResult:  # fmt: skip
    """Half of a step is forward, the other half backward; of its looks so many saw what the line calls."""
    paths = (
        CodePath(phase=phase, places=(0, 2), looks=there - late, calls=calls),
        CodePath(phase=phase, places=(0, 2), looks=late, late=True, calls=calls),
        CodePath(phase=phase, places=(0, 1), looks=whole - there, calls=LAYER),
    )
    code = CodeSamples(places=(LOOP, WORK, SAYS), paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    return dataclasses.replace(trial_of(forward=0.5, backward=0.5, noise=0.02, **trial), code=code)


def answer(trial: TrialResult) -> Finding | Cleared:
    return RULE.check(TrialFacts.of(trial))


def test_text_of_tensors_is_told_with_its_share_and_its_line() -> None:
    finding = answer(seen(160))
    assert isinstance(finding, Finding) and finding.severity is Severity.WARNING
    assert finding.claims == {"forward": pytest.approx(0.2, abs=0.005)}  # 160 of 400 looks at a half
    assert "mostly turning tensors into text" in finding.summary
    assert "isEnabledFor" in finding.remedies[0].says
    # Wilson's ends of 160 of 400: 0.353 and 0.449; of what is told 0.3 is sure.
    assert finding.recoverable is not None
    assert finding.recoverable.high == pytest.approx(0.5 * 0.4488, abs=0.005)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.5 * 0.3531, abs=0.005)
    assert [line.place for line in finding.lines] == [SAYS]


def test_the_verdict_names_the_line_that_asks_for_it_and_not_the_one_with_most_work() -> None:
    diagnosis = diagnose(run_of(seen(160)))
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "HST013"
    assert "net.py:10 in Net.forward" in verdict_place(diagnosis)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("copy.deepcopy", "copying objects"),
        ("torch.serialization.save", "saving"),
        ("logging.Logger.info", "logging"),
        ("matplotlib.pyplot.savefig", "drawing"),
    ],
)
def test_other_chores(call: str, kind: str) -> None:
    finding = answer(seen(160, calls=(call,)))
    assert isinstance(finding, Finding) and f"mostly {kind}." in finding.summary


@pytest.mark.parametrize("calls", [LAYER, (), ("scipy.optimize.linear_sum_assignment",), ("socket.socket.recv",)])
def test_what_a_loss_may_be_computed_with_is_none(calls: tuple[str, ...]) -> None:
    quiet = answer(seen(160, calls=calls))
    assert isinstance(quiet, Cleared) and quiet.summary.startswith("0 % of a step")


def test_little_is_mentioned_and_less_is_clear() -> None:
    little = answer(seen(80, 600))  # 6.7 % of a step, from 5.4 % on
    assert isinstance(little, Finding) and little.severity is Severity.INFO
    assert isinstance(answer(seen(10)), Cleared)


def test_looks_that_came_late_make_it_less_sure() -> None:
    """They may have come to the line only in the moment between: the least is without them."""
    sure, late = answer(seen(160)), answer(seen(160, late=120))
    assert isinstance(sure, Finding) and isinstance(late, Finding)
    assert late.severity is Severity.INFO and sure.recoverable is not None and late.recoverable is not None
    assert late.recoverable.low < 0.4 * sure.recoverable.low


def test_what_lies_outside_of_the_phases_is_none_of_it() -> None:
    with pytest.raises(NotMeasured, match="too seldom"):
        answer(seen(160, phase="other"))


def test_it_is_not_asked_on_a_device_nor_without_looks() -> None:
    with pytest.raises(NotApplicable, match="wait for what is computed"):
        answer(seen(160, device="cuda:0"))
    with pytest.raises(NotMeasured, match="was not looked at"):
        answer(trial_of(forward=0.5))
    with pytest.raises(NotMeasured, match="too seldom"):
        answer(seen(5, 10))
