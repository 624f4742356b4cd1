"""What can be said of a run while it is being measured: where the time goes, how fast it is, the verdict so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.rule_parts.experiments import Experiments
from perf_diagnostics.diagnose.verdict_place import verdict_words
from perf_diagnostics.records import ALL_PHASES, Outcome, Phase, Run, StepTable, TrialResult
from perf_diagnostics.report.words import counted, plain

#: Phases are shown over so much of the newest time, so that a change in mid-run shows.
RECENT_S = 30.0

_BAR_CELLS = 24

#: A verdict of more letters is cut: the view is redrawn in a terminal.
_VERDICT_LETTERS = 500


@dataclass(frozen=True)
class LiveView:
    """A run as it stands. ``shares`` adds up to 1 over the phases that were measured; empty without a steady step.

    ``trial`` is the trial under way or, when all have ended, the last; ``verdict`` what the rules say of everything
    measured so far, or why they say nothing.
    """

    run_name: str
    trial: str
    done: int
    planned: int
    steps: int
    samples_per_s: float | None
    step_time_s: float | None
    shares: tuple[tuple[Phase, float], ...]
    verdict: str


def live_view(run: Run, *, experiments: Experiments | None = None) -> LiveView:
    """The view of a run in which the trial under way stands as ``interrupted``, which is how a run folder reads it.

    ``experiments`` is what was tried of its advice so far, which overrules predictions as it does in the report.
    Profiler windows stay unread: taking one apart every few seconds would disturb what is being measured.
    """
    under_way = [result for result in run.results if result.outcome is Outcome.INTERRUPTED]
    shown = (under_way or list(run.results))[-1:]
    tables = [table for result in shown for table in result.steps[:1]]
    steps = sum(len(table) for table in tables)
    recent = None if not shown or not tables else _recent(shown[0], tables[0])
    rate = None if recent is None else ask(lambda: recent.throughput)
    step = None if recent is None else ask(lambda: recent.step_time_s)
    return LiveView(
        run_name=plain(run.name, 80),
        trial=plain(shown[0].trial.label, 80) if shown else "",
        done=len(run.results) - len(under_way),
        planned=max(len(run.planned), len(run.results)),
        steps=steps,
        samples_per_s=None if rate is None else rate.value,
        step_time_s=None if step is None else step.value,
        shares=() if recent is None else tuple(_shares(recent)),
        verdict=_verdict_so_far(run, experiments),
    )


def live_lines(view: LiveView) -> list[str]:
    """The view in a few lines of text."""
    place = f" [{view.done}/{view.planned} trials]" if view.planned > 1 else ""
    numbers = [counted(view.steps, "step")]
    if view.samples_per_s is not None:
        numbers.append(f"{view.samples_per_s:.4g} samples/s")
    if view.step_time_s is not None:
        numbers.append(f"{1e3 * view.step_time_s:.4g} ms a step")
    lines = [f"{view.trial}{place}: {', '.join(numbers)}"]
    if view.shares:
        lines.append("  ".join(f"{str(phase).replace('_', ' ')} {100 * share:.0f} %" for phase, share in view.shares))
    return [*lines, f"verdict so far: {view.verdict}"]


def live_bars(view: LiveView) -> list[str]:
    """One line a phase, with a bar of its share."""
    return [
        f"{str(phase).replace('_', ' '):<10} {'█' * round(share * _BAR_CELLS):<{_BAR_CELLS}} {100 * share:>3.0f} %"
        for phase, share in view.shares
    ]


def _recent(result: TrialResult, table: StepTable) -> TrialFacts:
    """The newest steady steps of a trial (its newest ones, while it still warms up)."""
    newest = dataclasses.replace(result, steps=tuple(_newest(rank) for rank in (table, *result.steps[1:])))
    return TrialFacts(newest, newest.steps[0])


def _newest(table: StepTable) -> StepTable:
    steady = table.steady if len(table.steady) else table
    before_s = (steady.wall_ns[::-1].cumsum()[::-1] - steady.wall_ns) / 1e9  # time after each step's end
    return steady.where(before_s < RECENT_S)


def _shares(facts: TrialFacts) -> Iterable[tuple[Phase, float]]:
    for phase in ALL_PHASES:
        share = ask(facts.whole_share, phase)
        if share is not None:
            yield phase, share.value


def _verdict_so_far(run: Run, experiments: Experiments | None) -> str:
    """What the rules make of it, with the trial under way taken as if it had ended here."""
    so_far = tuple(
        dataclasses.replace(result, outcome=Outcome.COMPLETED, reason="")
        if result.outcome is Outcome.INTERRUPTED
        else result
        for result in run.results
    )
    found = diagnose(dataclasses.replace(run, results=so_far), experiments=experiments)
    return plain(f"{'no verdict: ' if found.verdict is None else ''}{verdict_words(found)}", _VERDICT_LETTERS)
