"""CMP004: the part of a step that is spent on padding."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.rules.cmp004_padding_waste import PaddingWaste
from perf_diagnostics.records import Settings
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
