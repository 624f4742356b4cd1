"""``largest-batch`` as it is typed: its answer, its exit codes, and going on with a search."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.cli.largest_batch import _again, answer
from perf_diagnostics.store.find import find_run
from perf_diagnostics.trials.largest_batch import Bounds, Fit, LargestBatch, Tried


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workload", "mpl"], "mlp"),
        (["--workload", "mlp", "--margin", "1"], "margin=1.0 must lie in"),
        (["--workload", "mlp", "--start", "8", "--max", "4"], "The most to try, 4"),
        (["--workload", "mlp", "--set", "colour=red"], "colour"),
        (["--workload", "mlp", "--option", "width"], "NAME=VALUE"),
        (["--resume"], "no run"),
    ],
)
def test_bad_usage_is_told_before_anything_is_made(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["largest-batch", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not Path("results").exists()


def tried(size: int, fit: Fit, why: str = "", speed: float | None = None) -> Tried:
    return Tried(size=size, fit=fit, why=why, samples_per_s=speed)


def test_only_what_ran_is_recommended_and_a_faster_size_is_named() -> None:
    fits, slower = tried(16, Fit.FITS, speed=500.0), tried(60, Fit.FITS, speed=300.0)
    largest, above = tried(64, Fit.FITS, speed=290.0), tried(65, Fit.TOO_LARGE, "CUDA out of memory")
    lines = answer(LargestBatch((fits, largest, above, slower), slower), Bounds())
    assert lines == [
        "Largest batch that ran: batch 64 (290 samples/s).",
        "Smallest that did not run: batch 65: CUDA out of memory",
        "To train with, 5% below it, and run: batch 60 (300 samples/s).",
        "The largest size that fits may be slower. Fastest over three steps: batch 16 (500 samples/s).",
    ]


def test_data_that_ends_is_no_memory_that_does() -> None:
    ended = Tried(size=65, fit=Fit.TOO_LARGE, why="one pass over the data has 64 samples", refused=True)
    lines = answer(LargestBatch((tried(64, Fit.FITS), ended), tried(60, Fit.FITS)), Bounds())
    assert lines[1:3] == [
        "Smallest that did not run: batch 65: one pass over the data has 64 samples",
        "Memory did not come to its end: a larger batch may fit.",
    ]


def test_a_search_that_fails_says_where_and_recommends_nothing() -> None:
    broken = tried(8, Fit.FAILED, "crashed: ValueError: bad shape")
    lines = answer(LargestBatch((tried(4, Fit.FITS), broken), None, broken), Bounds())
    assert lines == [
        "The search ended early at batch 8: crashed: ValueError: bad shape",
        "Largest batch that ran: batch 4.",
    ]


def test_nothing_that_fits_is_said_with_its_reason() -> None:
    lines = answer(LargestBatch((tried(1, Fit.TOO_LARGE, "CUDA out of memory"),)), Bounds())
    assert lines == ["No batch size fits; batch 1: CUDA out of memory"]


def test_a_bound_that_came_first_is_no_limit() -> None:
    lines = answer(LargestBatch((tried(8, Fit.FITS),), tried(8, Fit.FITS)), Bounds(most=8, margin=0.0))
    assert "That is the most that was to be tried (8); larger ones may fit." in lines


def test_where_it_looks_is_named_again_for_an_interrupted_search() -> None:
    """Else one that was to stop at 64 would go on without a bound."""
    given = Namespace(start=2, max=64, granularity=8, resolution=0.02, margin=0.05, time_budget=900.0, name="found")
    words = "--start 2 --max 64 --granularity 8 --resolution 0.02 --margin 0.05 --time-budget 900"
    assert " ".join(_again(given)) == words
    assert "--max" not in _again(Namespace(**{**vars(given), "max": None}))


@pytest.mark.slow
def test_a_crash_ends_the_search_and_a_resumed_one_runs_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--option", "width=16", "--option", "depth=1", "--option", "samples=64", "--quiet"]
    assert main(["largest-batch", "--workload", "mlp", "--max", "4", "--name", "found", *small]) == 0
    told = capsys.readouterr().out
    assert "Largest batch that ran: batch 4" in told and "To train with, 5% below it, and run: batch 3" in told
    before = [(result.trial.id, result.started_at) for result in find_run("found", Path("results")).results()]
    assert main(["largest-batch", "--resume", "found", "--max", "4", "--quiet"]) == 0
    after = [(result.trial.id, result.started_at) for result in find_run("found", Path("results")).results()]
    assert before == after
    crash = ["--option", "crash_after=1"]
    assert main(["largest-batch", "--workload", "faulty", *crash, *small]) == 1
    assert "The search ended early at batch 1: crashed: " in capsys.readouterr().out
