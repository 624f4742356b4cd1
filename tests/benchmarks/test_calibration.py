"""Hit rates against stated confidence, and what was realised of what was predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.calibration import LEAST_PLANTS, Kept, brier, by_origin, ledger, lines, main, reliability, wilson


def row(plant: str, **told: Any) -> Kept:
    given = {
        "number": "1",
        "real": True,
        "inert": "",
        "right": True,
        "confidence": 0.7,
        "verdict": "INP001",
        "predicted": None,
        "realised": None,
    }
    return Kept({"plant": plant} | given | told)


@pytest.mark.parametrize(
    ("rate", "n", "low", "high"),
    [
        (0.0, 10, 0.0, 0.2775),  # z²/(n + z²) = 3.8415 / 13.8415
        (1.0, 20, 0.8389, 1.0),  # n/(n + z²) = 20 / 23.8415
        (0.5, 10, 0.2366, 0.7634),
        (0.0, 0, 0.0, 1.0),
    ],
)
def test_the_interval_of_a_rate(rate: float, n: int, low: float, high: float) -> None:
    assert wilson(rate, n) == pytest.approx((low, high), abs=5e-5)


def test_turns_of_one_plant_count_once() -> None:
    """Four rows of one plant, three of them right, and one row of another that is wrong: (0.75 + 0) / 2."""
    rows = [*(row("one", right=right) for right in (True, True, True, False)), row("two", right=False)]
    (level,) = reliability(rows)
    assert (level["n"], level["plants"], level["right"]) == (5, 2, 0.375)
    assert level["says"] == f"too thin: 2 of {LEAST_PLANTS} plants"


@pytest.mark.parametrize(
    ("right", "says"),
    [(40, "too modest"), (28, "agrees"), (18, "too sure")],  # of 40 at 0.7: above 0.91, around 0.7, below 0.60
)
def test_a_level_is_judged_by_its_interval(right: int, says: str) -> None:
    (level,) = reliability([row(str(number), right=number < right) for number in range(40)])
    assert level["says"] == says


def test_a_tier_less_a_little_is_still_that_tier() -> None:
    """0.7 for what the phases account for wholly, and for all but a thousandth."""
    (level,) = reliability([row("one"), row("two", confidence=0.6993)])
    assert level["n"] == 2


def test_what_was_not_asked_or_inert_or_without_a_verdict_is_left_out() -> None:
    rows = [row("a", right=None), row("b", inert="did nothing"), row("c", confidence=None, verdict=None, right=False)]
    assert reliability(rows) == [] and brier(rows) is None


def test_brier_of_a_hit_and_a_miss() -> None:
    """(0.7 - 1)² and (0.7 - 0)², and half of them right: 0.5 · 0.5."""
    score = brier([row("one"), row("two", right=False)])
    assert score is not None
    assert (score["score"], score["base"]) == (pytest.approx((0.09 + 0.49) / 2), 0.25)


def test_what_was_realised_stands_beside_kappa() -> None:
    """Of 0.8 predicted 0.1, 0.3, … were realised: 0.125, 0.375 of it; the prior for the input is 0.2."""
    rows = [row(str(n), predicted=[0.1, 0.8], realised=0.1 + 0.2 * n) for n in range(3)]
    told = ledger(rows)["INP"]
    assert (told["n"], told["least"], told["median"], told["kappa"]) == (3, 0.125, pytest.approx(0.375), 0.2)
    assert told["tenth"] == pytest.approx(0.125 + 0.2 * 0.25)
    assert told["says"] == "too thin: 3 plants"
    many = ledger([row(str(n), predicted=[0.1, 0.8], realised=0.08) for n in range(LEAST_PLANTS)])["INP"]
    assert many["says"] == "promises too much"  # a tenth of what was predicted, and kappa is 0.2


def test_tables_are_read_from_the_folders_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        rows = [vars(row(name, predicted=[0.1, 0.5], realised=0.25))]
        (tmp_path / name / "diagnosis.json").write_text(json.dumps({"rows": rows}))
    main([str(tmp_path / "one"), str(tmp_path / "two")])
    said = capsys.readouterr().out
    assert "| 0.60 to 0.78 | 2 | 2 | 0.70 | 1.00 |" in said and "| INP | 2 | 0.50 |" in said


def test_a_folder_without_scores_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="holds no scores"):
        main([str(tmp_path)])
    assert lines([]) == []


def test_drawn_designed_and_made_up_are_told_apart() -> None:
    rows = [row("a", number="drawn"), row("b"), row("c", real=False), row("d", real=False)]
    assert {origin: len(there) for origin, there in by_origin(rows).items()} == {
        "drawn": 1,
        "designed": 1,
        "made up": 2,
    }
    assert [said for said in lines(rows) if said.startswith("Confidence")] == [
        "Confidence and gains, drawn:",
        "Confidence and gains, designed:",
        "Confidence and gains, made up:",
    ]
