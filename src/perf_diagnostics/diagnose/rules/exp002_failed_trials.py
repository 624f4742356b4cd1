"""EXP002: trials that did not complete, with what ended them and the largest size that ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.asked_for import asked_for, lost_sentinels
from perf_diagnostics.diagnose.facts.facts import Group, NotMeasured, SweepFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.hardware.sixteen_bits import EITHER, half_format
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared
from perf_diagnostics.diagnose.wording import counted, listing
from perf_diagnostics.records import Outcome, TrialResult

#: Endings that belong to a sweep that looks for its limits.
_EXPECTED = (Outcome.OUT_OF_MEMORY_DEVICE, Outcome.OUT_OF_MEMORY_HOST)

#: What became of a trial that failed.
_ENDED: Mapping[Outcome, str] = MappingProxyType(
    {
        Outcome.OUT_OF_MEMORY_DEVICE: "ran out of the device's memory",
        Outcome.OUT_OF_MEMORY_HOST: "ran out of the host's memory",
        Outcome.TIMEOUT: "ran out of time",
        Outcome.CRASHED: "crashed",
        Outcome.NAN_LOSS: "ended with a loss that is NaN",
        Outcome.COMMUNICATION_FAILED: "ended because ranks could not communicate",
        Outcome.INVALID_SETTINGS: "could not run with these settings",
        Outcome.INTERRUPTED: "was interrupted",
    }
)


@dataclass(frozen=True)
class FailedTrials:
    """Trials ended without completing, or none completed.

    What it measures:
        How every trial of the run ended. Out of memory and what was skipped because of it are the expected end of a
        sweep towards larger batches; a crash, a timeout or refused settings are not. Sentinels, which nobody asked
        for, are told apart and never count.

    Why it matters:
        What did not complete is missing from every chart and conclusion. If nothing completed there is no diagnosis.

    What to try:
        Read the reason given with each ending. Out of memory: stay at the largest size that ran, or trade time for
        memory with gradient checkpointing or a lower precision. Timeouts: a larger budget, or fewer steps.

    When it is wrong:
        A process that the system kills for memory can look like a crash where the kernel's reason cannot be read.
    """

    code: ClassVar[str] = "EXP002"
    name: ClassVar[str] = "failed-trials"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["run"]] = "run"

    def check(self, facts: SweepFacts) -> Answer:
        asked = asked_for(facts.run)
        results, waiting = asked.results, asked.pending
        if not results and not waiting:
            raise NotMeasured("trials", "the run holds no trial")
        endings = Counter(result.outcome for result in results)
        completed = endings[Outcome.COMPLETED]
        numbers = (
            Evidence(metric="completed trials", value=completed, n=len(results) + len(waiting)),
            *(
                Evidence(metric=f"trials that {_ENDED[o].replace('was ', 'were ')}", value=endings[o])
                for o in _ENDED
                if endings[o]
            ),
            *(_largest(group) for group in facts.groups if _ran_out(group) and group.points),
        )
        if completed == len(results) + len(waiting):
            lost = lost_sentinels(facts.run)
            beside = f"; {lost} (sentinels watch the machine and enter no number)" if lost else ""
            return cleared(self, f"{counted(completed, 'trial')} completed{beside}", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=_severity(results),
            summary=_summary(facts),
            scope="the whole run",
            evidence=numbers,
            remedies=tuple(_remedies(facts)),
            confidence=1.0,
        )


def _severity(results: tuple[TrialResult, ...]) -> Severity:
    if not any(result.outcome is Outcome.COMPLETED for result in results):
        return Severity.CRITICAL
    unexpected = any(result.outcome.failed and result.outcome not in _EXPECTED for result in results)
    return Severity.WARNING if unexpected else Severity.INFO


def _half_format(group: Group) -> str | None:
    """The 16-bit format of the group's device, from whichever of its trials recorded enough to tell."""
    results = [trial.result for trial in group.trials] + list(group.failures)
    return next((found for result in results if (found := half_format(result)) is not None), None)


def _ran_out(group: Group) -> bool:
    return any(result.outcome.out_of_memory for result in group.failures)


def _largest(group: Group) -> Evidence:
    return Evidence(metric=f"largest batch that ran, {group.label}", value=group.batch_sizes[-1])


def _summary(facts: SweepFacts) -> str:
    asked = asked_for(facts.run)
    if facts.run.of_own_training and len(asked.results) == 1:
        return _of_the_training(asked.results[0])
    total = len(asked.results) + len(asked.pending)
    parts = [f"{len(asked.completed)} of {counted(total, 'trial')} completed."]
    for group in facts.groups:
        ended = _by_outcome(group.failures)
        parts += [_sentence(group, outcome, ended[outcome]) for outcome in ended if outcome.failed]
        parts += [_sentence(group, outcome, ended[outcome]) for outcome in ended if outcome.skipped]
    if asked.pending:
        parts.append(f"{counted(len(asked.pending), 'planned trial')} did not run.")
    if lost := lost_sentinels(facts.run):
        parts.append(f"Beside them, {lost}.")
    return " ".join(parts)


def _of_the_training(result: TrialResult) -> str:
    """Of a training of the user's own, which is the only trial of its run."""
    if result.stop_reason == "steps_lost":
        return f"The steps of this training cannot be read any more. The reason: {_stopped(result.reason)}"
    steps = len(result.steps[0]) if result.steps else 0
    after = f"after {counted(steps, 'recorded step')}" if steps else "before a step was recorded"
    # A sentence of its own, for a reason may hold brackets and sentences itself.
    reason = f" The reason: {_stopped(result.reason)}" if result.reason else ""
    return f"The training {_ENDED[result.outcome]} {after}.{reason}"


def _stopped(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _by_outcome(failures: tuple[TrialResult, ...]) -> dict[Outcome, list[TrialResult]]:
    found: dict[Outcome, list[TrialResult]] = {}
    for result in failures:
        found.setdefault(result.outcome, []).append(result)
    return found


def _sentence(group: Group, outcome: Outcome, results: list[TrialResult]) -> str:
    sizes = sorted({result.trial.settings.batch_size for result in results})
    says = f"{group.label}: batch {listing(sizes)} {_ENDED.get(outcome, 'skipped')}"
    if outcome.out_of_memory:
        ran = f"the largest size that ran is {group.batch_sizes[-1]}" if group.points else "no size ran"
        return f"{says}; {ran}."
    reason = next((result.reason for result in results if result.reason), "")
    return f"{says}: {_stopped(reason)}" if reason else f"{says}."


def _remedies(facts: SweepFacts) -> list[Remedy]:
    found: list[Remedy] = []
    for group in facts.groups:
        if not _ran_out(group):
            continue
        if group.points:
            largest = group.batch_sizes[-1]
            found.append(Remedy(f"{group.label}: stay at batch {largest} or below.", {"batch_size": largest}))
        found.append(
            Remedy(
                f"{group.label}: checkpoint activations; that costs a second forward pass.",
                {"gradient_checkpointing": True},
            )
        )
        if group.on_accelerator and group.settings.get("precision") == "float32":
            half = _half_format(group)
            how = EITHER if half is None else f"in {half}"
            change = {} if half is None else {"precision": half}
            found.append(Remedy(f"{group.label}: train {how}. {CHANGES_TRAINING}", change))
    if any(result.outcome is Outcome.TIMEOUT for result in facts.unfinished):
        found.append(Remedy("Give each trial a larger time budget, or ask for fewer steps."))
    if any(result.outcome is Outcome.SKIPPED_OVER_TIME_BUDGET for result in facts.unfinished):
        found.append(Remedy("Measure what was skipped for lack of time in a new sweep, with a larger --time-budget."))
    return found
