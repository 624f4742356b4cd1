"""What profiler windows add to a run's diagnosis: the trace rules, asked about the trials that have a window.

A window is a handful of steps that the profiler slowed, so the undisturbed steps have the first word. Where a rule
was answered from them, a window that agrees makes the answer surer, and one that does not is an info beside it. Where
they could not answer, the window decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perf_diagnostics.diagnose.asking import Placed, Replies, Reply, answered, filed, merged
from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, SweepFacts, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Family, Finding, Severity, StepWaterfall, Unchecked
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.operators import Operators
from perf_diagnostics.diagnose.trace.reader import read_trace
from perf_diagnostics.diagnose.trace.rule import AnyTraceRule, TraceRule
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from perf_diagnostics.diagnose.trace.thresholds import configured_traces, threshold_names
from perf_diagnostics.diagnose.trace.waterfall import Waterfall, waterfall_of
from perf_diagnostics.diagnose.window_doubt import (
    WINDOW,
    allowing_for_others,
    allowing_for_the_profiler,
    beside,
    of_undisturbed_calls,
)
from perf_diagnostics.diagnose.wording import listing, percent, significant
from perf_diagnostics.errors import RecordError

#: The rules that no record answers, only a window.
WINDOWS_ALONE = frozenset(
    rule.code
    for rule in TRACE_RULES
    if rule.looks_at == "trace"
    and rule.family not in (Family.COMMUNICATION, Family.EXPERIMENT)
    and rule.code not in {of_records.code for of_records in RULES}
)

#: Of these, those that ask something of a training on the CPU as well.
_ON_ANY_DEVICE = ("HST004",)

#: And those about the operators that the host computes itself.
_ON_CPU = ("HST011", "HST018", "CMP019")

#: An operator of less of the step is not told of by name.
LEAST_TOLD = 0.02

#: Both are about calls of operators: the one counts them in a window, the other estimates them from trained tensors.
_CALLS_COUNTED, _CALLS_ESTIMATED = "HST011", "HST010"
_COUNTED = f"the profiler window has counted the operators, and {_CALLS_COUNTED} tells what calling them takes"

_NO_WINDOW = (
    "only a profiler window tells, and none was recorded; `sweep --deep` and `run --deep` record one (`deep=True` "
    "where a loop is attached), and `trace` reads one that you recorded yourself"
)


@dataclass(frozen=True, eq=False)
class Window:
    """A trial's profiler window; ``facts`` is None where its file cannot be read, and ``why`` says so."""

    trial: TrialFacts
    facts: TraceFacts | None
    why: str = ""

    @property
    def slowdown(self) -> float | None:
        """The window's step over the trial's own: what the profiler costs."""
        if self.facts is None or not self.facts.steps.marked:
            return None
        step_s = ask(lambda: self.trial.step_time_s)
        return None if step_s is None else self.facts.step_time_s.value / step_s.value


def windows_of(sweep: SweepFacts, traces: Mapping[str, Path]) -> dict[str, Window]:
    """The windows of a run's completed trials, by trial id."""
    return {
        trial.result.trial.id: _window(trial, traces[trial.result.trial.id])
        for trial in sweep.trials
        if trial.result.trial.id in traces
    }


def _window(trial: TrialFacts, path: Path) -> Window:
    try:
        trace = read_trace(path)
    except RecordError as error:
        return Window(trial, None, str(error))
    if not trial.on_accelerator:
        # A machine's GPU is named in every trace; in a trial on the CPU it had nothing to do.
        trace = dataclasses.replace(trace, about={k: v for k, v in trace.about.items() if k != "deviceProperties"})
    return Window(trial, TraceFacts.of(trace))


def ask_windows(
    windows: Mapping[str, Window],
    sweep: SweepFacts,
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    rules: Sequence[AnyTraceRule] = TRACE_RULES,
) -> Replies:
    """Put the rules about traces to each window and merge the answers of a group's trials.

    Where no trial of a group has a window, the rules that nothing but a window answers are unchecked. Of
    ``thresholds`` those of other rules, and those that only the rule about records has, are passed over.
    """
    replies = Replies()
    rules = configured_traces(rules, _of_windows(rules, thresholds or {}))
    recommended = {group.label: group.recommended.batch_size for group in sweep.groups if group.points}
    for rule in rules:
        # A trial is one process: what ranks say about each other is not asked. Whether there are enough steps was
        # answered by the timed ones.
        if rule.looks_at != "trace" or rule.family in (Family.COMMUNICATION, Family.EXPERIMENT):
            continue
        of_groups: list[tuple[str | None, Reply]] = []
        for group in sweep.groups:
            by_size: dict[int, list[Reply]] = {}
            for trial in group.trials:
                window = windows.get(trial.result.trial.id)
                if window is not None:
                    by_size.setdefault(trial.batch_size, []).append(_reply(rule, window))
            if by_size:
                of_groups.append((group.label, merged(by_size, group, recommended.get(group.label))))
            elif group.trials and rule.code in WINDOWS_ALONE:
                of_groups.append((group.label, _without_window(rule, group.trials)))
        if of_groups or rule.code in WINDOWS_ALONE:
            replies += filed(rule, of_groups, recommended)
    return replies


def _of_windows(
    rules: Sequence[AnyTraceRule], thresholds: Mapping[str, Mapping[str, float]]
) -> dict[str, Mapping[str, float]]:
    """The changes that concern these rules; of a rule that records answer, too, those of its limits a window has."""
    known = {rule.code: threshold_names(rule) for rule in rules}
    return {
        code: change
        if code in WINDOWS_ALONE
        else {name: value for name, value in change.items() if name in known[code]}
        for code, change in thresholds.items()
        if code in known
    }


def _without_window(rule: TraceRule, trials: Sequence[TrialFacts]) -> NotMeasured:
    """Why a rule that only a window answers has nothing to say about these trials: no window, or none was possible."""
    tried = next((trial for trial in trials if trial.result.gap("deep_window") is not None), trials[0])
    if tried.on_accelerator and rule.code in _ON_CPU:
        return NotApplicable("deep_window", "the trial did not run on the CPU")
    if not tried.on_accelerator and rule.code not in (*_ON_ANY_DEVICE, *_ON_CPU):
        return NotApplicable("deep_window", "the trial ran on the CPU")
    return tried.missing("deep_window", _NO_WINDOW)


def _reply(rule: TraceRule, window: Window) -> Reply:
    if window.facts is None:
        return NotMeasured("deep_window", window.why)
    answer = answered(rule.check, window.facts)
    if not isinstance(answer, Finding):
        return answer
    return allowing_for_the_profiler(of_undisturbed_calls(answer, window.trial), window.slowdown)


def with_windows(own: Replies, deep: Replies) -> Replies:
    """The answers from the undisturbed steps, with what the windows add to them; see the module's text."""
    found = {(item.finding.code, item.group): item for item in own.placed}
    answered = {item.finding.code for item in own.placed} | {item.code for item in own.cleared}
    agreeing = {(item.finding.code, item.group): allowing_for_others(item, own.placed) for item in deep.placed}
    placed = [_surer(item, agreeing.get((item.finding.code, item.group))) for item in own.placed]
    for key, item in agreeing.items():
        if key not in found:
            placed.append(beside(item) if item.finding.code in answered else item)
    told = answered | {item.finding.code for item in deep.placed}
    settled = told | {item.code for item in deep.cleared}
    asked = answered | {item.code for item in own.unchecked}
    counted = any(item.finding.code == _CALLS_COUNTED for item in deep.placed)
    explained = [item for item in own.cleared if counted and item.code == _CALLS_ESTIMATED]
    return Replies(
        tuple(placed),
        (
            *(item for item in own.cleared if item not in explained),
            *(item for item in deep.cleared if item.code not in told),
        ),
        (
            *(Unchecked(item.code, item.name, "deep_window", _COUNTED) for item in explained),
            *(item for item in own.unchecked if item.code in answered or item.code not in settled),
            # Of two groups one may have a window: what it settles is settled for that one.
            *(item for item in deep.unchecked if item.code not in asked),
        ),
    )


def _surer(own: Placed, deep: Placed | None) -> Placed:
    """A finding that its window shares: at least as sure as a window makes it, the window's numbers beside its own."""
    if deep is None or deep.finding.severity is Severity.INFO:
        return own
    seen = tuple(dataclasses.replace(item, source=WINDOW) for item in deep.finding.evidence)
    finding = dataclasses.replace(
        own.finding,
        confidence=max(own.finding.confidence, deep.finding.confidence),
        evidence=own.finding.evidence + seen,
    )
    return dataclasses.replace(own, finding=finding)


def waterfall(windows: Mapping[str, Window], sweep: SweepFacts) -> StepWaterfall | None:
    """Where a step went at the batch at which one would train, from its window; None without a sound one."""
    primary = sweep.primary
    if primary is None:
        return None
    for trial in primary.recommended.trials:
        window = windows.get(trial.result.trial.id)
        whole = None if window is None or window.facts is None else waterfall_of(window.facts)
        if window is not None and whole is not None:
            return _of(whole, window, f"{primary.label}, batch {trial.batch_size}")
    return None


def what_is_inside(window: StepWaterfall | None) -> str:
    """What a window on the CPU shows of forward and backward, in one sentence; empty without one."""
    if window is None or window.calls is None:
        return ""
    parts = []
    for phase in ("forward", "backward"):
        most = [one for one in window.operators if one.phase == phase and one.share >= LEAST_TOLD]
        if most:
            parts.append(f"of {phase} {listing([f'{one.name} ({percent(one.share)})' for one in most])}")
    shown = f", most of them {'; '.join(parts)} of the step" if parts else ""
    pauses = (
        ""
        if window.pauses is None
        else f"; {percent(window.pauses)} of a profiled step lies between operators, where the interpreter runs"
    )
    return (
        f"Inside of forward and backward the profiler window shows {significant(window.calls)} operators a step"
        f"{shown}{pauses}."
    )


def _of(whole: Waterfall, window: Window, scope: str) -> StepWaterfall:
    facts = window.facts
    operators = None if facts is None else ask(Operators.of, facts)
    return StepWaterfall(
        scope=scope,
        steps=whole.steps,
        wall_ns=whole.wall_ns,
        parts=tuple((str(part), ns) for part, ns, _ in whole.parts),
        on_device=whole.on_device,
        slowdown=window.slowdown,
        prompt_share=whole.prompt_share,
        operators=() if operators is None else (*operators.most("forward"), *operators.most("backward")),
        calls=None if operators is None else operators.calls("forward", "backward"),
        pauses=None if operators is None or facts is None else ask(operators.pauses_share),
    )
