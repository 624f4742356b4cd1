"""What of a run is incomplete: the trials that failed, were skipped or have not run, those alike in one line."""

from __future__ import annotations

from collections.abc import Iterable

from perf_diagnostics.records import Outcome, Run, Trial
from perf_diagnostics.report.arms import OUTCOME_WORDS
from perf_diagnostics.report.words import counted, listing, plain


def incomplete_of(run: Run) -> tuple[tuple[str, int], ...]:
    """What ended alike, with its reason, and how many trials that are; in the order of the first of each.

    ``("mlp cpu batch 8, 16 and 32: crashed. ValueError: no data", 3)``
    """
    alike: dict[tuple[Outcome | None, str], list[Trial]] = {}
    for result in run.results:
        if result.outcome.failed or result.outcome.skipped:
            alike.setdefault((result.outcome, result.reason), []).append(result.trial)
    for trial in run.pending:
        alike.setdefault((None, ""), []).append(trial)
    return tuple((f"{_named(trials)}: {_why(outcome, why)}", len(trials)) for (outcome, why), trials in alike.items())


def _why(outcome: Outcome | None, reason: str) -> str:
    if outcome is None:
        return "planned, not run"
    words = plain(reason, 600)
    told = f". {words[:1].upper()}{words[1:]}" if words else ", without a recorded reason"
    return f"{OUTCOME_WORDS[outcome]}{told}"


def _named(trials: Iterable[Trial]) -> str:
    """``mlp cpu batch 8, 16 and 32``: labels that differ in the batch alone stand together, repeats are counted.

    A sentinel is nothing that somebody asked for, and is told as what it is.
    """
    sizes: dict[tuple[str, str], list[int]] = {}
    for trial in trials:
        before, _, after = f"{trial.role} {trial.label}".strip().partition(f" batch {trial.settings.batch_size}")
        sizes.setdefault((plain(before, 100), plain(after, 60)), []).append(trial.settings.batch_size)
    told = []
    for (before, after), found in sizes.items():
        different = list(dict.fromkeys(found))
        repeats = f" ({counted(len(found), 'trial')})" if len(found) > len(different) else ""
        told.append(f"{before} batch {listing([*map(str, different)])}{f' {after}' if after else ''}{repeats}")
    return "; ".join(told)
