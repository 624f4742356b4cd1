"""From looks at loader workers' stacks to the lines that the wait for them goes to."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.code.code_shares import all_code_shares
from perf_diagnostics.diagnose.code.code_words import seen_at
from perf_diagnostics.diagnose.code.worker_lines import worker_library, worker_shares
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples
from perf_diagnostics.testing import run_of, trial_of

GET, READ, CUT = (
    CodePlace(file="data.py", line=7, function="Data.__getitem__", text="return self.cut(self.read(i))"),
    CodePlace(file="data.py", line=11, function="Data.read", text="row = json.loads(line)"),
    CodePlace(file="data.py", line=15, function="Data.cut", text="return row[:8]"),
)
FETCH = "torch.utils.data._utils.fetch._MapDatasetFetcher.fetch"
LIBRARY = (FETCH, "images.folder.Folder.__getitem__", "images.resize.Resize.forward")


def samples(*seen: tuple[tuple[CodePlace, ...], int, tuple[str, ...]], phase: str = "loading") -> CodeSamples:
    numbers: dict[CodePlace, int] = {}
    paths = tuple(
        CodePath(
            phase=phase,
            places=tuple(numbers.setdefault(place, len(numbers)) for place in places),
            looks=looks,
            calls=calls,
        )
        for places, looks, calls in seen
    )
    return CodeSamples(places=tuple(numbers), paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)


def facts(worker_code: CodeSamples | None, code: CodeSamples | None = None, **trial: Any) -> TrialFacts:
    result = trial_of(**({"data_wait": 0.6, "forward": 0.4} | trial))
    return TrialFacts.of(dataclasses.replace(result, worker_code=worker_code, code=code))


def test_the_wait_is_divided_as_the_workers_time_on_batches_is() -> None:
    code = samples(((GET, READ), 75, ()), ((GET, CUT), 20, ()), ((), 5, (FETCH,)))
    shares = worker_shares(facts(code), 0.6)
    assert [(one.place, one.callers, round(one.share.value, 3)) for one in shares] == [
        (READ, (GET,), 0.45),
        (CUT, (GET,), 0.12),
    ]
    assert all(one.in_workers and one.looks for one in shares)
    assert worker_library(facts(code)) is None


def test_of_few_looks_nothing_is_said() -> None:
    assert worker_shares(facts(samples(((GET,), 19, ()))), 0.6) == ()
    assert worker_shares(facts(samples(((GET,), 20, ()))), 0.6) != ()
    assert worker_shares(facts(None), 0.6) == () and worker_library(facts(None)) is None


def test_a_library_is_named_by_its_innermost_function_with_most_of_the_time() -> None:
    blur = (*LIBRARY[:2], "images.blur.Blur.forward")
    code = samples(((), 60, LIBRARY), ((), 30, blur), ((GET,), 10, ()))
    found = worker_library(facts(code))
    assert found == ("images.resize.Resize.forward", pytest.approx(0.6))
    spread = samples(((), 40, LIBRARY), ((), 40, blur), ((GET,), 20, ("images.folder.Folder.__getitem__",)))
    assert worker_library(facts(spread)) == ("images.folder.Folder.__getitem__", pytest.approx(0.8))
    assert worker_library(facts(samples(((), 40, (FETCH,)), ((GET,), 60, LIBRARY)))) is None
    late = dataclasses.replace(code, paths=(dataclasses.replace(code.paths[0], late=True), *code.paths[1:]))
    assert worker_library(facts(late)) is None


def test_they_stand_for_the_loops_line_where_it_waits_for_them() -> None:
    loop = CodePlace(file="train.py", line=3, function="main", text="for batch in loader:")
    main = samples(((loop,), 100, ("torch.utils.data.dataloader.next",)), phase="data_wait")
    about = facts(samples(((GET, READ), 100, ())), main)
    named = worker_shares(about, 0.6)
    assert [one.place for one in all_code_shares(about)] == [loop]
    assert [one.place for one in all_code_shares(about, named)] == [READ]
    # What workers compute meanwhile is no part of a wait that is shorter.
    busy = facts(samples(((GET, READ), 100, ())), main, data_wait=0.1, forward=0.9)
    assert [one.place for one in all_code_shares(busy, worker_shares(busy, 0.2))] == [loop]


LOADS: dict[str, Any] = {"num_workers": 1, "cpu_count": 4, "threads": 1, "persistent_workers": True}


def waiting(worker_code: CodeSamples, **quantities: float) -> Any:
    """100 steps of 1 s, of which 0.6 are waiting for one worker, which computes."""
    used = {"workers_cpu_s": 99.0, "process_cpu_s": 40.0, "other_cpu_s": 0.0, "measured_wall_s": 100.0}
    result = trial_of(data_wait=0.6, forward=0.4, facts=LOADS, quantities=used | quantities)
    return diagnose(run_of(dataclasses.replace(result, worker_code=worker_code)))


def test_a_wait_for_workers_that_compute_names_their_lines() -> None:
    told = waiting(samples(((GET, READ), 90, ()), ((GET, CUT), 10, ())))
    finding = next(one for one in told.findings if one.code == "INP001")
    assert finding.lines[0].place == READ and finding.lines[0].share.value == pytest.approx(0.54)
    assert [one.place for one in told.lines] == [READ]
    said = seen_at(finding, told)[0].words()
    assert said == (
        "Seen at data.py:11 in Data.read: `row = json.loads(line)` (54 % of a step), in the loader's workers, "
        "called from data.py:7"
    )
    for other in ("INP002", "INP003"):
        assert next(one for one in told.findings if one.code == other).lines[0].place == READ


def test_a_wait_for_workers_in_a_library_names_its_function() -> None:
    told = waiting(samples(((), 90, LIBRARY), ((GET,), 10, ())))
    finding = next(one for one in told.findings if one.code == "INP001")
    assert "For 90 % of it the workers are in images.resize.Resize.forward." in finding.summary
