"""CMP023: products with an operand that is nearly all zeros, by their operations and by the time at their lines."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp023_products_with_zeros import ProductsWithZeros
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = ProductsWithZeros()


def product(line: int = 37, *, zeros: float = 0.9998, forward: float = 0.6e9, backward: float = 0.6e9, **more: object):
    told = {"operation": "mm", "shape": [512, 6000], "zeros": zeros, "calls": 1, "flops_forward": forward}
    told |= {"flops_backward": backward, "file": "lm.py", "line": line, "function": "LM.forward", "text": "x = one @ w"}
    return {name: value for name, value in (told | more).items() if value is not None}


def facts(*products: dict[str, object], forward: float = 1e9, backward: float = 2e9) -> dict[str, object]:
    """A step of a billion operations in forward and two in backward."""
    return {"product_flops_forward": forward, "product_flops_backward": backward, "zero_products": list(products)}


def ask(*products: dict[str, object], at_line: int = 0, looks: int = 400, **given: float):
    """Forward is 0.4 of a step of 0.1 s; so many of its 400 looks saw line 37."""
    trial = trial_of(forward=0.04, backward=0.06, facts=facts(*products, **given))
    if looks:
        places = (
            CodePlace(file="lm.py", line=60, function="main"),
            CodePlace(file="lm.py", line=37, function="LM.forward"),
        )
        paths = (
            CodePath(phase="forward", places=(0, 1), looks=at_line),
            CodePath(phase="forward", places=(0,), looks=looks - at_line),
        )
        code = CodeSamples(places=places, paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
        trial = dataclasses.replace(trial, code=code)
    try:
        return RULE.check(TrialFacts.of(trial))
    except NotMeasured as unmeasured:
        return unmeasured


def test_the_operations_and_the_time_at_the_line_are_told():
    finding = found(ask(product(), at_line=300))
    # 0.6 of the billion of forward and 0.6 of the two of backward; 300 of 400 looks at a forward of 0.4 of the step.
    assert number(finding, "products with an operand of zeros, of all operations").value == pytest.approx(40.0)
    assert number(finding, "the lines of these products").value == pytest.approx(30.0)
    assert finding.severity is Severity.WARNING and finding.claims == {"forward": pytest.approx(0.3)}
    assert "40 % of a step's operations" in finding.summary
    assert "99.98 % of its 512×6000 numbers at lm.py:37 in LM.forward; these lines take 30 % (" in finding.summary
    # At most the line and 0.3 of backward's operations, as a part of its 0.6 of the step.
    assert finding.recoverable is not None
    high, low = (getattr(number(finding, "the lines of these products"), end) / 100 for end in ("high", "low"))
    # Gathering the rows would take 0.0002 of 12 and of 8000 over 98 numbers, at least half as long, at most twice.
    left = 0.0002 * (12 + 8000 / (0.6e9 / 2 / 512 / 6000))
    assert finding.recoverable.high == pytest.approx(high * (1 - left / 2) + 0.18)
    assert finding.recoverable.low == pytest.approx(0.3 * low * (1 - 2 * left))
    assert [("Embedding" in remedy.says, "index_add" in remedy.says) for remedy in finding.remedies] == [
        (True, False),
        (False, True),
    ]


def test_for_a_square_operand_a_graphs_neighbours_are_spoken_of_first():
    first, second = found(ask(product(shape=[1600, 1600]), at_line=300)).remedies
    assert "index_add" in first.says and "one-hot" in second.says


def test_rows_that_were_counted_decide_what_is_advised():
    (one_hot,) = found(ask(product(most_in_a_row=1, shape=[1600, 1600]), at_line=300)).remedies
    assert "one number other than zero each" in one_hot.says and "Embedding(" in one_hot.says
    bag, gather = found(ask(product(most_in_a_row=12), at_line=300)).remedies
    assert "EmbeddingBag" in bag.says and "index_add" in gather.says
    gather, bag = found(ask(product(most_in_a_row=12, shape=[1600, 1600]), at_line=300)).remedies
    assert "EmbeddingBag" in bag.says and "index_add" in gather.says


@pytest.mark.parametrize(("at_line", "looks"), [(0, 0), (0, 400), (20, 400)])
def test_without_much_time_at_the_line_it_is_an_info(at_line: int, looks: int):
    finding = found(ask(product(), at_line=at_line, looks=looks))
    assert finding.severity is Severity.INFO
    timed = at_line > 0
    assert (finding.recoverable is not None) is timed
    assert ("in LM.forward (`x = one @ w`); how long they take was not" in finding.summary) is not timed
    assert any("--deep" in remedy.says for remedy in finding.remedies) is not timed


@pytest.mark.parametrize(
    "quiet",
    [
        product(zeros=0.9),  # a ReLU's output, and more
        product(forward=0.1e9, backward=0.1e9),  # 0.2 of 3 billion: 6.7 %
    ],
)
def test_healthy_products_are_quiet(quiet: dict[str, object]):
    clear(ask(quiet, at_line=390))
    clear(ask())


@pytest.mark.parametrize(
    ("zeros", "says"), [(0.96, "96 %"), (0.9977, "99.8 %"), (0.9998, "99.98 %"), (0.99999, "99.999 %")]
)
def test_a_part_near_all_is_told_with_the_digits_that_count(zeros: float, says: str):
    assert f": {says} of its 512×60 numbers" in found(ask(product(zeros=zeros, shape=[512, 60]))).summary


@pytest.mark.parametrize(
    ("zeros", "width", "quiet"),
    [
        (0.954, 512, True),  # rows of 1,144 numbers: gathering is estimated at 0.87 of the dense product
        (0.98, 512, False),
        (0.98, 6000, True),  # rows of 98 numbers
        (0.999, 6000, False),
    ],
)
def test_where_gathering_takes_as_long_nothing_is_advised(zeros: float, width: int, quiet: bool):
    answer = ask(product(zeros=zeros, shape=[512, width]), at_line=300)
    (clear if quiet else found)(answer)


def test_several_lines_count_together_and_the_first_is_the_one_of_most_operations():
    finding = found(ask(product(12, forward=0.1e9, backward=0.1e9), product(), looks=0))
    assert number(finding, "products with an operand of zeros, of all operations").value == pytest.approx(140 / 3)
    assert "at lm.py:37" in finding.summary and "and at 1 more line;" in finding.summary


def test_a_product_that_no_line_of_the_users_own_asks_for_has_no_place():
    finding = found(ask(product(file=None, operation="bmm"), at_line=300))
    assert "lm.py" not in finding.summary and "not measured" in finding.summary
    assert any("flex_attention" in remedy.says for remedy in finding.remedies)


def test_nobody_looked_and_no_product_are_not_measured():
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.03)))
    assert "no matrix product" in str(missing(ask(forward=0.0)))
    assert "several processes" in str(
        missing(ask_trial(RULE, forward=0.03, gaps={"zero_products": "several processes"}))
    )


@pytest.mark.parametrize("broken", [product(zeros=None), product(calls=None), {"zeros": 0.99}])
def test_what_cannot_be_read_is_passed_over(broken: dict[str, object]):
    clear(ask(broken))


def timed(*products: dict[str, object], at_line: int = 0):
    """As :func:`ask`, of a step whose operators took 0.03 s in forward and 0.06 s in backward, with nothing between."""
    seconds = {"operator_seconds_forward": 0.03, "operator_seconds_backward": 0.06}
    apart = {f"around_operators_seconds_{phase}": 0.0 for phase in ("forward", "backward")}
    nothing = {f"operator_bytes_{phase}": 0 for phase in ("forward", "backward")}
    told = {**facts(*products), **seconds, **apart, **nothing}
    trial = trial_of(forward=0.04, backward=0.06, facts=told)
    if at_line:
        places = (CodePlace(file="lm.py", line=37, function="LM.forward"),)
        paths = (
            CodePath(phase="forward", places=(0,), looks=at_line),
            CodePath(phase="forward", places=(), looks=400 - at_line),
        )
        code = CodeSamples(places=places, paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
        trial = dataclasses.replace(trial, code=code)
    return found(RULE.check(TrialFacts.of(trial)))


def test_the_time_of_the_products_in_the_step_looked_at_counts_without_looks_at_lines():
    finding = timed(product(seconds_forward=0.009, seconds_backward=0.02, seconds_making=0.006))
    # Half of forward's operators, which are 0.4 of the step, and a third of backward's, 0.6 of it.
    assert number(finding, "these products, and making their operand").value == pytest.approx(40.0)
    assert finding.severity is Severity.WARNING
    assert finding.claims == {"forward": pytest.approx(0.2), "backward": pytest.approx(0.2)}
    assert "with the making of it and backward they take 40 %" in finding.summary
    assert finding.recoverable is not None and finding.recoverable.high > 0.4


def test_where_operators_were_timed_their_line_may_hold_others():
    finding = timed(product(seconds_forward=0.01, seconds_backward=0.006, seconds_making=0.0), at_line=400)
    assert number(finding, "the lines of these products").value == pytest.approx(40)
    assert finding.claims == {"forward": pytest.approx(0.4 / 3), "backward": pytest.approx(0.06)}
    assert "they take 19 %" in finding.summary


def test_products_that_took_little_are_an_info():
    finding = timed(product(seconds_forward=0.001, seconds_backward=0.001, seconds_making=0.0))
    assert finding.severity is Severity.INFO and finding.recoverable is not None


def test_only_of_one_hot_rows_the_making_surely_goes():
    low = {}
    for most in (1, 12, None):
        told = product(most_in_a_row=most, seconds_forward=0.009, seconds_backward=0.02, seconds_making=0.006)
        recoverable = timed(told).recoverable
        assert recoverable is not None
        low[most] = recoverable.low
    # 0.3 of forward's operators without the making, which are 0.12 of the step, 0.08 with it; and 0.2 in backward.
    assert low[12] == pytest.approx(low[None]) == pytest.approx(low[1] * 0.32 / 0.4)
