"""CMP004: the part of a step that is spent on padding."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.rules.cmp004_padding_waste import PaddingWaste
from perf_diagnostics.diagnose.rules.cmp025_rows_without_gradient import RowsWithoutGradient
from perf_diagnostics.records import Json, Settings
from perf_diagnostics.testing import trial_of


def facts(padding: int | None, tokens: int = 1000) -> TrialFacts:
    columns = {"tokens": tokens} if padding is None else {"tokens": tokens, "padding_tokens": padding}
    return TrialFacts.of(trial_of(forward=0.3, backward=0.5, optimizer=0.2, steps=40, columns=columns))


@pytest.mark.parametrize(
    ("padding", "severity"),
    # Forward and backward are 0.8 of the step: 0.04, 0.08, 0.16 and 0.56 of it are spent on padding.
    [(50, None), (100, Severity.INFO), (200, Severity.WARNING), (700, Severity.WARNING)],
)
def test_doses(padding: int, severity: Severity | None) -> None:
    answer = PaddingWaste().check(facts(padding))
    if severity is None:
        assert isinstance(answer, Cleared)
        return
    assert isinstance(answer, Finding)
    assert answer.severity is severity
    numbers = {item.metric: item.value for item in answer.evidence}
    assert numbers["of the step on padding"] == pytest.approx(100 * 0.8 * padding / 1000)
    assert answer.recoverable is not None and answer.recoverable.high == pytest.approx(0.8 * padding / 1000)


def test_no_padding_is_cleared_and_unknown_padding_is_not_checked() -> None:
    assert isinstance(PaddingWaste().check(facts(0)), Cleared)
    with pytest.raises(NotMeasured):
        PaddingWaste().check(facts(None))


def test_the_remedy_can_be_tried() -> None:
    answer = PaddingWaste().check(facts(700))
    assert isinstance(answer, Finding)
    assert Settings(batch_size=8).replace(**answer.remedies[0].change).length_bucketing is True


def fixed(unused: float, *, padding: int = 700, length: int | None = 128, **more: object) -> Finding:
    known = {"batch_length": length, "batch_length_unused": unused} if length else {}
    trial = trial_of(
        forward=0.3, backward=0.5, optimizer=0.2, steps=40, columns={"tokens": 1000, "padding_tokens": padding},
        facts=known | more,
    )  # fmt: skip
    answer = PaddingWaste().check(TrialFacts.of(trial))
    assert isinstance(answer, Finding)
    return answer


COLLATE = {"collate": {"file": "data.py", "line": 10, "function": "collate", "text": "def collate(rows):"}}


def test_padding_to_a_fixed_length_is_told_with_the_line_that_does_it_and_mended_first() -> None:
    finding = fixed(88.0, **COLLATE)
    # 88 of 128 places are the same in all samples: the longest needs 40.
    assert "collate function at data.py:10 in collate makes every batch 128 places long" in finding.summary
    assert "needs 40 of them" in finding.summary
    first, then = finding.remedies
    assert "at data.py:10" in first.says and "leaves out 69 %" in first.says and not first.change
    assert then.says.startswith("Then: Batch samples of similar length") and then.change == {"length_bucketing": True}


def test_without_a_function_of_the_users_own_the_loader_is_named() -> None:
    finding = fixed(88.0)
    assert "The loader gives every batch 128 places long" in finding.summary
    assert "pad in a collate_fn to the longest" in finding.remedies[0].says


@pytest.mark.parametrize(
    ("unused", "padding", "length"),
    [
        (12.0, 700, 128),  # some sample nearly fills each batch
        (88.0, 300, 128),  # more than there is of padding: all samples end alike
        (88.0, 700, None),  # batches of several lengths, or none was looked at
    ],
)
def test_batches_that_are_padded_to_their_longest_are_only_to_be_batched_by_length(
    unused: float, padding: int, length: int | None
) -> None:
    finding = fixed(unused, padding=padding, length=length, **COLLATE)
    assert "long" not in finding.summary and len(finding.remedies) == 1
    assert finding.remedies[0].change == {"length_bucketing": True}


def in_batches(padding: list[float], rows: float | None, *, columns: dict[str, int] | None = None) -> TrialFacts:
    """A loader's batches with padding, and the products of a step with rows that got no gradient."""
    told: dict[str, Json] = {
        "operation": "addmm",
        "shape": [1280, 128],
        "calls": 8,
        "flops_forward": 5e8,
        "flops_backward": 1e9,
    }
    facts: dict[str, Json] = {
        "batch_padding": [*padding],
        "product_flops_forward": 1e9,
        "product_flops_backward": 2e9,
        "rows_without_gradient": [] if rows is None else [{**told, "rows": rows}],
    }
    return TrialFacts.of(trial_of(forward=0.3, backward=0.5, optimizer=0.2, steps=40, columns=columns, facts=facts))


def test_padding_of_batches_without_a_mask_is_told_where_as_many_rows_got_no_gradient() -> None:
    facts = in_batches([0.5, 0.52, 0.48, 0.5], 0.53)
    answer = PaddingWaste().check(facts)
    assert isinstance(answer, Finding) and answer.severity is Severity.WARNING
    numbers = {item.metric: item.value for item in answer.evidence}
    assert numbers["of the step on padding"] == pytest.approx(100 * 0.8 * 0.5)
    assert answer.remedies[0].says.startswith("Batch samples of similar length")
    # These rows are the padding: nothing else is said of them.
    assert "as many as padding" in RowsWithoutGradient().check(facts).summary


@pytest.mark.parametrize(
    ("padding", "rows"),
    [
        ([0.5, 0.5, 0.5, 0.5], None),  # padded batches, of which nothing tells that they are computed (packed?)
        ([0.5, 0.5, 0.5, 0.5], 0.9),  # the first position only is used
        ([0.5, 0.5], 0.5),  # too few batches
    ],
)
def test_padding_of_batches_that_may_not_be_computed_is_not_told(padding: list[float], rows: float | None) -> None:
    with pytest.raises(NotMeasured):
        PaddingWaste().check(in_batches(padding, rows))


def test_masks_of_every_step_say_more_than_the_first_batches() -> None:
    answer = PaddingWaste().check(in_batches([0.5] * 4, 0.5, columns={"tokens": 1000, "padding_tokens": 0}))
    assert isinstance(answer, Cleared)


def test_rows_without_a_gradient_in_batches_without_padding_are_told_as_before() -> None:
    assert isinstance(RowsWithoutGradient().check(in_batches([0.0] * 4, 0.52)), Finding)
