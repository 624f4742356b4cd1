"""What each rank of a trial did on average, where a trial has several."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.facts.facts import ask
from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.records import ALL_PHASES, Float64, Phase, StepTable, TrialResult
from perf_diagnostics.report.arms import Arm
from perf_diagnostics.report.model import Cell, ReportTable, TableColumn
from perf_diagnostics.report.phases import PHASE_NAMES
from perf_diagnostics.report.words import percent

SECTION = "Ranks"


def rank_table(arm: Arm, index: int) -> ReportTable | None:
    """One row a rank of the first trial at the recommended batch size that has several; None where none has."""
    chosen = arm.recommended
    result = next((t.result for t in chosen.trials if len(t.result.steps) > 1), None) if chosen is not None else None
    if chosen is None or result is None:
        return None
    facts = ask(RankFacts.of, result)
    columns = [
        TableColumn("Rank"),
        TableColumn("Steps"),
        TableColumn("Samples a step"),
        TableColumn("Step", "ms"),
        *(TableColumn(PHASE_NAMES[phase].capitalize(), "ms") for phase in ALL_PHASES),
        TableColumn("In collectives", "ms"),
        TableColumn("Ready last", "%"),
    ]
    rows = [_row(rank, table.steady, facts) for rank, table in enumerate(result.steps)]
    kept = [i for i in range(len(columns)) if any(row[i] is not None for row in rows)]
    return ReportTable(
        key=f"ranks_{index + 1}",
        title=f"Ranks of {arm.label}, batch size {chosen.batch_size}",
        columns=tuple(columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        note=_note(result, facts),
        section=SECTION,
    )


def _row(rank: int, steady: StepTable, facts: RankFacts | None) -> list[Cell]:
    times = [steady.phase_ns(phase) for phase in ALL_PHASES]
    last = None if facts is None else ask(facts.often_last, rank)
    return [
        rank,
        len(steady),
        _mean(steady.samples),
        _ms(steady.wall_ns),
        *(_ms(values) for values in times),
        _ms(_in_collectives(steady)),
        None if last is None else 100 * last,
    ]


def _in_collectives(steady: StepTable) -> Float64 | None:
    """What each step waits for collectives outside of backward, in ns; None where nobody looked, or nothing was."""
    waits = [steady.get(f"collective_{phase}_ns") for phase in ALL_PHASES if phase is not Phase.BACKWARD]
    known: Float64 = np.sum(np.asarray([each for each in waits if each is not None], dtype=np.float64), axis=0)
    return known if known.any() else None


def _mean(values: object) -> float | None:
    numbers = np.asarray(values, dtype=np.float64)
    known = numbers[np.isfinite(numbers)]
    return float(known.mean()) if known.size else None


def _ms(values: object) -> float | None:
    """Mean of times in ns, in ms; None where nothing was measured."""
    mean = None if values is None else _mean(values)
    return None if mean is None else mean / 1e6


def _note(result: TrialResult, facts: RankFacts | None) -> str:
    words = (
        f"Means over the steady steps of each of the {len(result.steps)} ranks. Step times elsewhere in this report "
        "are rank 0's, samples are all ranks'. Under DistributedDataParallel backward ends when the last gradients "
        "have been exchanged: waiting for them is in it."
    )
    if any(_in_collectives(table.steady) is not None for table in result.steps):
        words += (
            " What lies in collectives (barriers, reductions, buffers that are broadcast) is part of the other phases: "
            "who waits there for longer than another rank waits for that one."
        )
    waited = None if facts is None else ask(lambda: facts.waited)
    if waited is not None:
        words += (
            f" On average {percent(waited.value)} of a step is a rank's wait for the one that is ready last, by when "
            "each arrives at the exchange of gradients. Ready last are those who are later by more than noise."
        )
    return words
