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

from perf_diagnostics.diagnose.asking import Placed, Replies, Reply, filed, merged
from perf_diagnostics.diagnose.facts import NotMeasured, SweepFacts, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Cleared, Evidence, Family, Finding, Severity, StepWaterfall, Unchecked
from perf_diagnostics.diagnose.gain import Tier
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.reader import read_trace
from perf_diagnostics.diagnose.trace.rule import AnyTraceRule, TraceRule
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from perf_diagnostics.diagnose.trace.thresholds import configured_traces
from perf_diagnostics.diagnose.trace.waterfall import Waterfall, waterfall_of
from perf_diagnostics.errors import RecordError

_SOURCE = "profiler window"

#: What the profiler itself adds to.
_OF_THE_HOST = (Family.HOST, Family.INPUT)

#: And of transfers what is time of the host's own: between a wait and the next launch.
_OF_ITS_CALLS = ("XFR003", "XFR005")


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
    """Put the rules about traces to each window and merge the answers of a group's trials; nothing without windows.

    Of ``thresholds`` those of other rules are passed over.
    """
    replies = Replies()
    if not windows:
        return replies
    codes = {rule.code for rule in rules}
    rules = configured_traces(rules, {code: change for code, change in (thresholds or {}).items() if code in codes})
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
        replies += filed(rule, of_groups, recommended)
    return replies


def _reply(rule: TraceRule, window: Window) -> Reply:
    if window.facts is None:
        return NotMeasured("deep_window", window.why)
    try:
        answer = rule.check(window.facts)
    except NotMeasured as missing:
        return missing
    if isinstance(answer, Cleared):
        return answer
    return _allowing_for_the_profiler(answer, window)


def _allowing_for_the_profiler(finding: Finding, window: Window) -> Finding:
    """A finding with what the profiler cost beside it; an info where that alone could have made it.

    The profiler slows the host. Of a share h of a window that is s times as long as the undisturbed steps, at least
    ``h s - (s - 1)`` of an undisturbed step remains if all that was added went into this share.
    """
    slower = window.slowdown
    if slower is None:
        return finding
    finding = dataclasses.replace(
        finding,
        evidence=(
            *finding.evidence,
            Evidence(metric="profiled step over undisturbed step", value=slower, unit="×", source=_SOURCE),
        ),
    )
    limit = finding.evidence[0].limit
    of_the_host = finding.family in _OF_THE_HOST or finding.code in _OF_ITS_CALLS
    if not of_the_host or limit is None or not finding.claims:
        return finding
    least = sum(finding.claims.values()) * slower - max(0.0, slower - 1)
    return finding if least >= limit / 100 else dataclasses.replace(finding, severity=Severity.INFO)


def with_windows(own: Replies, deep: Replies) -> Replies:
    """The answers from the undisturbed steps, with what the windows add to them; see the module's text."""
    found = {(item.finding.code, item.group): item for item in own.placed}
    answered = {item.finding.code for item in own.placed} | {item.code for item in own.cleared}
    agreeing = {(item.finding.code, item.group): item for item in deep.placed}
    placed = [_surer(item, agreeing.get((item.finding.code, item.group))) for item in own.placed]
    for key, item in agreeing.items():
        if key not in found:
            placed.append(_beside(item) if item.finding.code in answered else item)
    told = answered | {item.finding.code for item in deep.placed}
    settled = told | {item.code for item in deep.cleared}
    return Replies(
        tuple(placed),
        (*(item for item in own.cleared), *_new_cleared(deep.cleared, told)),
        (
            *(item for item in own.unchecked if item.code in answered or item.code not in settled),
            *_new_unchecked(deep.unchecked, {*settled, *(item.code for item in own.unchecked)}),
        ),
    )


def _surer(own: Placed, deep: Placed | None) -> Placed:
    """A finding that its window shares: at least as sure as a window makes it, the window's numbers beside its own."""
    if deep is None or deep.finding.severity is Severity.INFO:
        return own
    seen = tuple(dataclasses.replace(item, source=_SOURCE) for item in deep.finding.evidence)
    finding = dataclasses.replace(
        own.finding,
        confidence=max(own.finding.confidence, deep.finding.confidence),
        evidence=own.finding.evidence + seen,
    )
    return dataclasses.replace(own, finding=finding)


def _beside(deep: Placed) -> Placed:
    """What only the window shows, although the undisturbed steps were asked: the profiler may have made it."""
    finding = deep.finding
    says = f"In the profiler window only, which slows the host: {finding.summary}"
    changed = dataclasses.replace(
        finding, severity=Severity.INFO, summary=says, confidence=min(finding.confidence, Tier.CONFIGURATION.value)
    )
    return dataclasses.replace(deep, finding=changed)


def _new_cleared(cleared: Sequence[Cleared], told: set[str]) -> list[Cleared]:
    return [item for item in cleared if item.code not in told]


def _new_unchecked(unchecked: Sequence[Unchecked], settled: set[str]) -> list[Unchecked]:
    return [item for item in unchecked if item.code not in settled]


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


def _of(whole: Waterfall, window: Window, scope: str) -> StepWaterfall:
    return StepWaterfall(
        scope=scope,
        steps=whole.steps,
        wall_ns=whole.wall_ns,
        parts=tuple((str(part), ns) for part, ns, _ in whole.parts),
        on_device=whole.on_device,
        slowdown=window.slowdown,
        prompt_share=whole.prompt_share,
    )
