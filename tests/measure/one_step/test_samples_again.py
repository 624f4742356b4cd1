"""Whether samples come again is told by what lies in their rows, in whichever batch they come."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from perf_diagnostics.measure.one_step import samples_again
from perf_diagnostics.measure.one_step.samples_again import RowsSeen, SamplesAgain, arguments_of

ROWS, BATCH = 640, 32


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples_again, "_ALLOWANCE_NS", 1 << 62)


def seen(x: torch.Tensor, passes: int, noise: float = 0.0) -> RowsSeen:
    """What is known after so many passes over shuffled rows."""
    torch.manual_seed(0)
    rows = RowsSeen()
    for _ in range(passes):
        for at in torch.randperm(len(x)).split(BATCH):
            batch = x[at]
            rows.see((batch + noise * torch.randn_like(batch) if noise else batch,), {})
    assert rows.why_not == ""
    return rows


SORTS = {
    "numbers": lambda: torch.randn(ROWS, 40),
    "one number": lambda: torch.randn(ROWS, 1),
    "tokens": lambda: torch.randint(1000, (ROWS, 12)),
    "mostly zeros": lambda: torch.randn(ROWS, 1, 16, 16) * (torch.rand(ROWS, 1, 16, 16) > 0.8),
    "bytes": lambda: torch.randint(255, (ROWS, 3, 8, 8), dtype=torch.uint8),
    "bfloat16": lambda: torch.randn(ROWS, 40).bfloat16(),
    "yes and no": lambda: torch.rand(ROWS, 64) > 0.5,
}


@pytest.mark.parametrize("sort", SORTS)
def test_rows_are_known_again_in_other_batches(sort: str) -> None:
    torch.manual_seed(1)
    rows = seen(SORTS[sort](), passes=3).told
    assert rows.rows == 3 * ROWS and rows.again == 1.0
    # One in sixteen is kept: 40 of 640, give or take three times their root.
    assert rows.different == pytest.approx(ROWS, rel=0.5) and rows.compared == pytest.approx(3 * ROWS / 16, rel=0.5)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("different", [1, 2])
def test_a_prompt_that_is_always_the_same_comes_again(seed: int, different: int) -> None:
    """Whether what lies in it would have it kept or not."""
    torch.manual_seed(seed)
    prompts = torch.randint(1000, (different, 77)).repeat(4, 1)
    rows = RowsSeen()
    for _ in range(60):
        rows.see((prompts,), {})
    told = rows.told
    assert told.again == 1.0 and told.different <= 16 and told.compared >= 64


def test_one_pass_and_rows_with_noise_never_come_again() -> None:
    x = torch.randn(ROWS, 40)
    for rows in (seen(x, passes=1).told, seen(x, passes=4, noise=1e-3).told):
        assert rows.again == 0.0 and rows.different == pytest.approx(rows.rows, rel=0.3)


def test_rows_that_differ_in_one_number_are_others() -> None:
    x = torch.zeros(ROWS, 4000)
    x[:, 77] = torch.arange(ROWS)  # which is none of those that decide what is kept
    x[:, 0] = torch.arange(ROWS) // 4
    told = seen(x, passes=1).told
    assert told.again == 0.0 and told.compared > 16


def test_what_is_known_is_compared_no_more_and_goes_on_being_counted() -> None:
    rows = seen(torch.randn(ROWS, 40), passes=12)
    told = rows.told
    assert rows.settled and told.rows == 12 * ROWS
    assert told.compared < 9 * ROWS / 16


def test_little_is_kept_of_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples_again, "_MOST_KEPT", 20)
    told = seen(torch.randn(4 * ROWS, 8), passes=8).told
    assert told.again == 1.0 and told.compared <= 8 * 20
    assert told.different == pytest.approx(4 * ROWS, rel=0.7)


def test_all_that_a_call_is_given_counts() -> None:
    x, steps = torch.randn(ROWS, 40), iter(range(1000))
    others: dict[str, Any] = {
        "a number": lambda: next(steps),
        "rows beside": lambda: torch.randn(BATCH, 2),
        "a tensor of another length": lambda: torch.randn(3),
        "in a dictionary": lambda: {"noise": [torch.randn(BATCH, 2)]},
    }
    for other in others.values():
        rows = RowsSeen()
        for _ in range(3):
            for at in torch.randperm(ROWS).split(BATCH):
                rows.see((x[at],), {"other": other()})
        assert rows.why_not == "" and rows.told.again == 0.0 and rows.told.compared > 32


def test_what_cannot_be_compared_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, why in (((), "no tensor"), ((torch.eye(3).to_sparse(),), "one piece"), ((torch.tensor(1.0),), "rows")):
        rows = RowsSeen()
        rows.see(given, {})
        assert why in rows.why_not
    monkeypatch.setattr(samples_again, "_ALLOWANCE_NS", -(1 << 62))
    rows = RowsSeen()
    rows.see((torch.randn(3, 3),), {})
    assert "too short" in rows.why_not


def test_only_the_calls_of_models_that_were_named_are_seen_and_nothing_is_left_behind() -> None:
    wanted, other = nn.Linear(4, 4), nn.Linear(4, 4)
    quiet = [False]
    samples = SamplesAgain(lambda: quiet[0])
    assert (samples.number(wanted), samples.number(other), samples.number(wanted)) == (0, 1, 0)
    samples.begin([wanted, other], 0b01)
    wanted(torch.randn(5, 4))
    other(torch.randn(5, 4))
    quiet[0] = True
    wanted(torch.randn(5, 4))
    assert [one.rows for one in samples.told(0b11)] == [5]
    samples.stop()
    assert "_compiled_call_impl" not in wanted.__dict__


def test_arguments_are_found_in_lists_and_dictionaries() -> None:
    one, two, three = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    assert [len(given) for given in arguments_of((one, 3, [two]), {"more": {"x": three, "y": None}})] == [1, 2, 3]
