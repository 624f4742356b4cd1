"""Whether a trial's steps had settled when they were measured, and the words for what is seen where they had not."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.settling import not_settled
from perf_diagnostics.records import Float64, Json
from perf_diagnostics.testing import trial_of


def said(
    times: Float64 | None = None, *, steady: bool = True, facts: dict[str, Json] | None = None, graphs: object = None
) -> str:
    columns = {} if times is None else {"wall_ns": times * 1e9}
    columns |= {} if graphs is None else {"graphs": np.asarray(graphs, dtype=int)}
    return not_settled(TrialFacts.of(trial_of(forward=1.0, steady=steady, facts=facts, columns=columns, noise=0.01)))


def test_a_warm_up_that_was_given_up_is_told_with_what_still_acted() -> None:
    given_up = "given up after 44 steps: torch.compile was still compiling"
    assert said(steady=False, facts={"warmup_ended": given_up}) == f"its warm-up was {given_up}"
    over = "its least steps were done and nothing compiled or allocated any more"
    assert said(facts={"warmup_ended": over}) == ""


@pytest.mark.parametrize(
    ("graphs", "says"),
    [
        ([4] * 100, ""),
        ([-1] * 50 + [0] * 50, ""),  # torch's compiler was imported, and made nothing
        ([4] * 50 + [5] * 50, "torch.compile was at work in 1 measured step"),
        ([4] * 50 + [5] * 10 + [7] * 40, "torch.compile was at work in 2 measured steps"),
    ],
)
def test_what_compiles_while_it_is_measured_has_not_settled(graphs: list[int], says: str) -> None:
    assert said(graphs=graphs) == says


def test_a_course_without_a_steady_part_counts_where_its_start_surely_differs_from_its_rest() -> None:
    falling = np.linspace(1.5, 1.0, 100)
    # The first three tenths average 1.43, the last five 1.13: 27 % apart.
    assert said(falling, steady=False) == "its first steps took 27 % more time than its last, and no part was steady"
    assert " less time than " in said(falling[::-1], steady=False)
    assert said(falling) == ""  # a steady part was found, and what lay before it cut
    assert said(np.linspace(1.05, 1.0, 100), steady=False) == ""  # 3 % apart
    bursts = np.where(np.arange(100) % 50 < 25, 1.0, 1.5)
    assert said(bursts, steady=False) == ""
