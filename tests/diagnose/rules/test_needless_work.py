"""CMP027 to CMP030, CMP032 and CMP038: work that need not be done, as following the data through one step tells it."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp027_constants_made_anew import ConstantsMadeAnew
from perf_diagnostics.diagnose.rules.cmp028_parameters_multiplied_first import ParametersMultipliedFirst
from perf_diagnostics.diagnose.rules.cmp029_results_never_used import ResultsNeverUsed
from perf_diagnostics.diagnose.rules.cmp030_computed_again import ComputedAgain
from perf_diagnostics.diagnose.rules.cmp032_computed_each_step import ComputedEachStep
from perf_diagnostics.diagnose.rules.cmp038_beside_the_loss import BesideTheLoss
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import clear, found, missing, number

RULES: tuple[tuple[Any, str, str], ...] = (
    (ConstantsMadeAnew(), "constants_made", "making constants"),
    (ParametersMultipliedFirst(), "dense_products", "multiplying parameters first"),
    (ResultsNeverUsed(), "never_used", "results that nothing uses"),
    (BesideTheLoss(), "beside_the_loss", "results beside the loss"),
    (ComputedAgain(), "computed_again", "computing the same again"),
    (ComputedEachStep(), "unchanging", "computing what never changes"),
)


def entry(line: int = 31, *, forward: float = 0.5, backward: float = 0.5, **more: object) -> dict[str, Any]:
    told = {"file": "gan.py", "line": line, "function": "main", "text": "fake = G(z)", "operators": 12}
    told |= {"seconds_forward": forward, "seconds_backward": backward}
    return {name: value for name, value in (told | more).items() if value is not None}


def ask(
    rule: Any, name: str, *lines: object, forward: float = 2.0, backward: float = 4.0, python: float = 0.0, **more: Any
) -> Any:
    """Operators take 2 s in forward and 4 s in backward, which are 0.04 and 0.06 of a step of 0.1 s."""
    facts = {"operator_seconds_forward": forward, "operator_seconds_backward": backward, name: list(lines)}
    facts |= {"python_seconds_forward": python}
    trial = trial_of(**({"forward": 0.04, "backward": 0.06} | more), facts=facts)
    try:
        return rule.check(TrialFacts.of(trial))
    except NotMeasured as unmeasured:
        return unmeasured


@pytest.mark.parametrize(("rule", "name", "metric"), RULES)
def test_the_share_of_the_step_is_that_of_the_operators_by_phase(rule: Any, name: str, metric: str) -> None:
    finding = found(ask(rule, name, entry()))
    # 0.5 of 2 s in 40 % of the step, and 0.5 of 4 s in 60 % of it.
    share = number(finding, metric)
    assert share.value == pytest.approx(17.5) and (share.n, share.low, share.high, share.limit) == (1, None, None, 5.0)
    assert finding.claims == {"forward": pytest.approx(0.1), "backward": pytest.approx(0.075)}
    won = finding.recoverable
    # Surely a part of forward's; at most it is twice as long beside the rest, with what is let go and the caches.
    assert won is not None and won.low == pytest.approx(0.3 * 0.1) and won.high == pytest.approx(0.35 / (0.35 + 0.825))
    assert "About 18 % of the step" in finding.summary and "gan.py:31 in main (`fake = G(z)`)" in finding.summary


@pytest.mark.parametrize(("rule", "name", "metric"), RULES)
def test_one_step_timed_is_trusted_to_a_factor(rule: Any, name: str, metric: str) -> None:
    def severity(forward: float) -> Severity:
        return found(ask(rule, name, entry(forward=forward, backward=0))).severity

    assert severity(0.26) is Severity.INFO and severity(0.7) is Severity.INFO  # 14 %, which may be 9.3
    assert severity(0.8) is Severity.WARNING  # 16 %, which may be 10.7
    assert number(clear(ask(rule, name, entry(forward=0.24, backward=0))), metric).value == pytest.approx(4.8)
    assert clear(ask(rule, name)).evidence == ()


@pytest.mark.parametrize(("rule", "name", "metric"), RULES)
def test_lines_add_up_and_the_one_with_the_most_is_named(rule: Any, name: str, metric: str) -> None:
    finding = found(ask(rule, name, entry(5, forward=0.3), entry(9, forward=0.4), entry(7, forward=0.1)))
    assert number(finding, metric).value == pytest.approx(16 + 22.5)
    assert "gan.py:9" in finding.summary and ", and at 2 more lines" in finding.summary


@pytest.mark.parametrize(("rule", "name", "metric"), RULES)
def test_without_a_look_or_times_nothing_is_said(rule: Any, name: str, metric: str) -> None:
    with pytest.raises(NotMeasured, match="no step was looked through"):
        rule.check(TrialFacts.of(trial_of(forward=0.04, backward=0.06)))
    assert "have no times" in str(missing(ask(rule, name, entry(), forward=0.0, backward=0.0)))


@pytest.mark.parametrize(("rule", "name", "metric"), RULES)
@pytest.mark.parametrize("broken", ["text", None, 3, {"seconds_forward": "long"}, {"seconds_forward": True}])
def test_what_is_no_record_of_work_is_passed_over(rule: Any, name: str, metric: str, broken: object) -> None:
    clear(ask(rule, name, broken))
    finding = found(ask(rule, name, broken, entry(file=None, operators=None, text=None, seconds_backward=None)))
    assert number(finding, metric).value == pytest.approx(10.0) and "gan.py" not in finding.summary


def test_what_was_computed_again_is_told_with_the_line_that_had_it() -> None:
    first = {"file": "gan.py", "line": 24, "function": "main", "text": "fake = G(z)"}
    inside = {"file": "nets.py", "line": 7, "function": "G.forward", "text": "return self.up(z)"}
    finding = found(ask(ComputedAgain(), "computed_again", entry(first=first, inside=inside)))
    assert finding.summary == (
        "About 18 % of the step computes the same again from the same values: 12 operators at gan.py:31 in main "
        "(`fake = G(z)`) give what gan.py:24 had given, most of it at nets.py:7 in G.forward (`return self.up(z)`)."
    )
    assert not any("parametrize" in remedy.says for remedy in finding.remedies)
    again = found(ask(ComputedAgain(), "computed_again", entry(first=first | {"line": 31}, of_parameters=True)))
    assert "(`fake = G(z)`), passed again." in again.summary
    assert "parametrize.cached()" in again.remedies[0].says


def test_what_the_other_order_takes_is_taken_off() -> None:
    sizes = {"rows": 1536, "inner": 8, "columns": 768, "batch_rows": 32, "uses": 8}
    finding = found(ask(ParametersMultipliedFirst(), "dense_products", entry(seconds_instead=0.6, **sizes)))
    # 0.6 of 6 s in all of the step, of 17.5 %.
    assert number(finding, "multiplying parameters first").value == pytest.approx(7.5)
    assert "(1,536×8 and 8×768 for 32 rows, 8 times a step)" in finding.summary
    # Forward's 10 % less 10 %: nothing of it is sure.
    assert finding.recoverable is not None and finding.recoverable.low == 0
    assert "for 0 rows" in found(ask(ParametersMultipliedFirst(), "dense_products", entry(uses=True))).summary


def test_no_more_is_won_than_forward_and_backward_take() -> None:
    finding = found(ask(ResultsNeverUsed(), "never_used", entry(forward=2, backward=4), optimizer=0.1))
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.5)


def test_what_is_the_same_in_each_step_is_told_with_the_memory_that_keeping_it_takes() -> None:
    told = (entry(bytes=3 << 20, looks=6), entry(9, forward=0.1, bytes=1 << 20, looks=4))
    finding = found(ask(ComputedEachStep(), "unchanging", *told))
    assert number(finding, "memory to keep the results").value == 4
    assert number(finding, "steps that gave the same").value == 4
    assert "register_buffer" in finding.remedies[0].says
    cast = found(ask(ComputedEachStep(), "unchanging", entry(casts=True)))
    assert "to(torch.bfloat16)" in cast.remedies[0].says


def test_tensors_that_python_makes_anew_are_told_as_such_and_weighed_with_its_time() -> None:
    table = entry(operators=2, forward=1.0, backward=0.0, of_python=True)
    finding = found(ask(ComputedEachStep(), "unchanging", table, python=2.0))
    # 1 s of the 2 s of operators and 2 s of Python in 40 % of the step.
    assert number(finding, "computing what never changes").value == pytest.approx(10.0)
    assert "makes tensors of the same numbers from Python in each step" in finding.summary
    assert "once: 2 tensors at gan.py:31" in finding.summary


def test_a_model_called_beside_the_trained_one_is_weighed_by_backward() -> None:
    beside = entry(forward=0.0, backward=0.0, seconds_outside=1.0)
    finding = found(ask(ComputedEachStep(), "unchanging", beside, other=0.1))
    # Backward's 4 s are 0.06 of 0.2 s, so that 1 s is 7.5 %; it is neither forward's nor backward's.
    assert number(finding, "computing what never changes").value == pytest.approx(7.5)
    assert finding.claims == {"forward": 0.0, "backward": 0.0}
    assert finding.recoverable is not None and finding.recoverable.low == pytest.approx(0.3 * 0.075)
    most = entry(forward=0.0, backward=0.0, seconds_outside=100.0)
    capped = found(ask(ComputedEachStep(), "unchanging", most, other=0.05, optimizer=0.05))
    # Whatever its seconds: no more than what backward and the optimizer leave of 0.2 s.
    assert number(capped, "computing what never changes").value == pytest.approx(45.0)


def test_a_loop_that_calls_no_model_has_its_operators_in_other() -> None:
    facts = {"operator_seconds_forward": 2.0, "operator_seconds_backward": 4.0, "computed_again": [entry()]}
    trial = trial_of(forward=0.0, other=0.04, backward=0.06, facts=facts | {"operators_of_the_whole_step": True})
    finding = found(ComputedAgain().check(TrialFacts.of(trial)))
    # Gradients may lie in other as well: half a second and another half, of 6 s in all of the step.
    assert finding.claims == {"other": pytest.approx(0.5 / 6), "backward": pytest.approx(0.5 / 6)}
    assert number(finding, "computing the same again").value == pytest.approx(100 / 6)
