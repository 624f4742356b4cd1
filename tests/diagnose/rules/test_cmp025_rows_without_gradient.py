"""CMP025: products for rows that got no gradient, by their operations in forward and backward."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp025_rows_without_gradient import RowsWithoutGradient
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import clear, found, missing, number

RULE = RowsWithoutGradient()


def idle(line: int = 37, *, rows: float = 0.85, forward: float = 0.5e9, backward: float = 1e9, **more: object):
    told = {"operation": "addmm", "shape": [1024, 8000], "rows": rows, "calls": 1, "flops_forward": forward}
    told |= {"flops_backward": backward, "file": "lm.py", "line": line, "function": "LM.forward", "text": "x = head(h)"}
    return {name: value for name, value in (told | more).items() if value is not None}


def ask(*lines: object, forward: float = 1e9, backward: float = 2e9, phases: dict[str, float] | None = None, **more):
    """A step of a billion operations in forward and two in backward, which take 0.04 and 0.06 of 0.1 s."""
    facts = {"product_flops_forward": forward, "product_flops_backward": backward, "rows_without_gradient": list(lines)}
    trial = trial_of(**(phases or {"forward": 0.04, "backward": 0.06}), facts=facts, **more)
    try:
        return RULE.check(TrialFacts.of(trial))
    except NotMeasured as unmeasured:
        return unmeasured


def test_operations_for_nothing_are_told_with_their_line_and_what_they_may_win() -> None:
    finding = found(ask(idle()))
    # 0.5 of forward's billion and 1 of backward's two.
    assert number(finding, "operations for rows without a gradient, of all").value == pytest.approx(50.0)
    assert finding.severity is Severity.WARNING  # 0.3 of the step is backward's part
    assert finding.summary == (
        "50 % of a step's operations are for rows whose result the loss made no use of: 85 % of 1,024 rows got no "
        "gradient at lm.py:37 in LM.forward (`x = head(h)`)."
    )
    won = finding.recoverable
    # Half of 0.4 and half of 0.6 of the step, and a fifth more; surely a part of backward's.
    assert won is not None and won.high == pytest.approx(0.6) and won.low == pytest.approx(0.3 * 0.3)
    assert any("labels != -100" in remedy.says for remedy in finding.remedies)


def test_what_may_be_won_is_no_more_than_forward_and_backward_take() -> None:
    finding = found(ask(idle(forward=1e9, backward=2e9), phases={"forward": 0.02, "backward": 0.03, "optimizer": 0.05}))
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("severity", "rows", "samples", "part", "backward"),
    [
        (Severity.WARNING, 1024, 64, 0.95, 1e9),  # positions of 64 samples
        (Severity.INFO, 64, 64, 0.95, 1e9),  # samples: of a margin, or learnt already
        (Severity.INFO, 256, 64, 0.95, 1e9),  # four views of each
        (Severity.INFO, 1024, 64, 0.95, 0.3e9),  # backward's part is 0.09 of the step
    ],
)
def test_it_warns_where_much_is_surely_won_and_the_rows_are_no_choice_of_the_loss(
    severity: Severity, rows: int, samples: int, part: float, backward: float
) -> None:
    """``part`` of forward's operations are those of the line, of whose rows 0.85 are idle."""
    line = idle(shape=[rows, 8000], forward=part * 0.85e9, backward=backward)
    assert found(ask(line, batch_size=samples)).severity is severity


@pytest.mark.parametrize(
    ("severity", "library", "rows"),
    [
        (Severity.INFO, "transformers", 63 / 64),  # the first of 64 positions
        (Severity.WARNING, "", 63 / 64),  # a model of the user's own
        (Severity.WARNING, "transformers", 0.5),  # half of the positions: padding, or labels that are left out
    ],
)
def test_a_librarys_classifier_that_uses_one_position_is_no_fault_of_the_training(
    severity: Severity, library: str, rows: float
) -> None:
    assert found(ask(idle(shape=[1024, 8000], rows=rows, library=library), batch_size=16)).severity is severity


@pytest.mark.parametrize(("severity", "forward"), [(Severity.INFO, 0.18e9), (Severity.WARNING, 0.5e9)])
def test_positions_that_a_library_leaves_out_after_its_last_layer_are_none_of_the_users(
    severity: Severity, forward: float
) -> None:
    """Of masked tokens 85 % are not predicted: of the operations of one layer of four, or of all, as with padding."""
    line = idle(shape=[1024, 8000], rows=0.85, library="transformers", forward=forward, backward=2 * forward)
    assert found(ask(line, batch_size=16)).severity is severity


def test_lines_add_up_and_the_one_with_the_most_is_named() -> None:
    finding = found(ask(idle(5, forward=0.1e9, backward=0.2e9), idle(9, forward=0.2e9, backward=0.4e9)))
    assert number(finding, "operations for rows without a gradient, of all").value == pytest.approx(30.0)
    assert "at lm.py:9 in LM.forward (`x = head(h)`), and at 1 more line." in finding.summary


def test_nearly_all_rows_are_told_by_those_that_are_left() -> None:
    told = found(ask(idle(rows=1 - 6 / 8640, shape=[8640, 48]), batch_size=6))
    assert "all but 6 of 8,640 rows got no gradient" in told.summary
    assert "only one position is used" in told.remedies[0].says
    assert "99 % of 8,640 rows" in found(ask(idle(rows=128 / 129, shape=[8640, 48]), batch_size=6)).summary  # drawn
    assert "100 % of 8,640 rows" in found(ask(idle(rows=1.0, shape=[8640, 48]), batch_size=6)).summary


def test_few_rows_or_few_operations_are_cleared() -> None:
    assert "no considerable part" in clear(ask(idle(rows=0.49))).summary
    assert "no considerable part" in clear(ask(idle(forward=0.1e9, backward=0.19e9))).summary
    assert "no considerable part" in clear(ask()).summary
    found(ask(idle(rows=0.5, forward=0.1e9, backward=0.2e9)))


def test_rows_that_a_maximum_chose_others_of_are_the_methods_own() -> None:
    """As of a network for points, which pools what it says of each of them."""
    assert "of which a maximum chooses others" in clear(ask(idle(chosen=1.0))).summary
    assert "maximum" not in clear(ask(idle(rows=0.3))).summary
    finding = found(ask(idle(chosen=1.0), idle(50, chosen=0.1)))
    assert "lm.py:50" in finding.summary and "more" not in finding.summary


def test_rows_that_are_padding_are_left_to_the_rule_about_padding() -> None:
    def padded(part: float) -> dict[str, object]:
        return {"columns": {"tokens": 1000, "padding_tokens": round(1000 * part)}}

    assert "as many as padding" in clear(ask(idle(rows=0.6), **padded(0.55))).summary
    finding = found(ask(idle(rows=0.85), **padded(0.55)))
    assert number(finding, "padding among the tokens").value == pytest.approx(55.0)


def test_without_a_look_nothing_is_said() -> None:
    try:
        RULE.check(TrialFacts.of(trial_of(forward=0.04, backward=0.06)))
    except NotMeasured as unmeasured:
        assert "no step was looked through" in str(unmeasured)
    else:
        pytest.fail("it said something")
    assert "no matrix product" in str(missing(ask(idle(), forward=0.0)))


@pytest.mark.parametrize("broken", ["text", {"rows": "many"}, idle(flops_forward=None), idle(rows=True), None])
def test_what_is_no_record_of_rows_is_passed_over(broken: object) -> None:
    assert "no considerable part" in clear(ask(broken)).summary
    assert "at 1 more line" not in found(ask(broken, idle())).summary


def test_without_a_line_the_rows_are_told_all_the_same() -> None:
    finding = found(ask(idle(file=None, shape=None)))
    assert finding.summary.endswith("85 % of the rows got no gradient.")


def test_what_is_multiplied_by_zero_is_told_elsewhere_and_other_rows_here() -> None:
    trial = trial_of(
        forward=0.04,
        backward=0.06,
        facts={
            "product_flops_forward": 1e9,
            "product_flops_backward": 2e9,
            "rows_without_gradient": [idle(rows=1.0), idle(50, forward=0.4e9, backward=0.4e9)],
            "zero_factors": [{"file": "lm.py", "line": 40, "calls": 1, "forward": 0.5, "backward": 0.5, "whole": 0.5}],
        },
    )
    finding = found(RULE.check(TrialFacts.of(trial)))
    assert "at lm.py:50" in finding.summary and "more line" not in finding.summary


def test_where_no_row_has_a_gradient_there_are_no_others_to_select() -> None:
    (remedy,) = found(ask(idle(rows=1.0))).remedies
    assert "nothing before that line learns" in remedy.says


@pytest.mark.parametrize(
    ("rows", "samples", "first"),
    [
        (1 - 16 / 1024, 16, "If only one position is used"),  # one row a sample
        (1 - 64 / 1024, 16, "If the loss leaves these rows out"),  # four
        (1 - 16 / 1024, 1024, "If the loss leaves these rows out"),  # rows are samples
    ],
)
def test_where_each_sample_uses_one_row_that_is_said_first(rows: float, samples: int, first: str) -> None:
    finding = found(ask(idle(rows=rows), batch_size=samples))
    assert finding.remedies[0].says.startswith(first)
    # Of whole samples it may be the model itself that lets no gradient through.
    assert any("dead ReLUs" in remedy.says for remedy in finding.remedies) is (samples == 1024)
    assert len(finding.remedies) == 5 + (samples == 1024)


@pytest.mark.parametrize(("padding", "against"), [(0, False), (300, True)])
def test_nothing_is_advised_against_padding_where_there_is_none(padding: int, against: bool) -> None:
    finding = found(ask(idle(), columns={"tokens": 1000, "padding_tokens": padding}))
    assert any("padding up to a fixed length" in remedy.says for remedy in finding.remedies) is against
