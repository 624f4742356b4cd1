"""Why the numbers can be trusted, in sentences: what measuring cost, whether the machine changed, how many ranks."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.diagnose.facts.facts import SweepFacts, ask
from perf_diagnostics.diagnose.facts.own_cost import own_cost_words
from perf_diagnostics.diagnose.finding import Cleared, Diagnosis, Evidence, Finding
from perf_diagnostics.records import Run, TrialResult
from perf_diagnostics.report.arms import Arm
from perf_diagnostics.report.words import counted, listing, number, plain, time_unit

#: More configurations than these are not told one by one.
_TOLD = 4

#: The rule that weighs the sentinels; the report repeats its numbers and makes none of its own.
_DRIFT = "EXP008"


def overhead(arms: Sequence[Arm]) -> str:
    """What measuring added to a step at the recommended batch sizes, or why nobody knows; empty where nobody asked."""
    shown = [(arm, chosen) for arm in arms if (chosen := arm.recommended) is not None]
    told = []
    for arm, point in shown[:_TOLD]:
        words = next((words for trial in point.trials if (words := ask(own_cost_words, trial))), "")
        told += [f"On {arm.label} at batch size {point.batch_size}, {plain(words, 500)}."] if words else []
    if told:
        return " ".join(told)
    trials = [trial for _, point in shown for trial in point.trials]
    gaps = list(dict.fromkeys(gap.why for t in trials if (gap := t.result.gap("probe_overhead_s")) is not None))
    return f"What measuring adds to a step was not measured: {plain(listing(gaps), 300)}." if gaps else ""


def sentinels(run: Run, diagnosis: Diagnosis) -> str:
    """How the machine held over the sweep, by the trials that were run to see that; empty where there were none."""
    found = SweepFacts.of(run).sentinels
    if not found:
        return ""
    parts = []
    for ran in found:
        first = ran[0].result.trial.settings
        times = [step.value for trial in ran if (step := ask(lambda t=trial: t.step_time_s)) is not None]  # type: ignore[misc]
        if not times:
            continue
        unit = time_unit(max(times))
        told = listing([number(unit.of(time)) for time in times])
        words = f"on {plain(first.device, 40)} batch {first.batch_size} ran {_times(len(ran))}, a step taking {told} "
        words += unit.name
        change = _change(diagnosis, first.device)
        parts.append(f"{words}, {change}" if change else words)
    if not parts:
        return ""
    told = f"To see whether the machine changed, the same short trial {'; '.join(parts)}. It enters no other number."
    why = next((rule.why for rule in diagnosis.unchecked if rule.code == _DRIFT), "")
    return f"{told} Whether the machine drifted is not known: {plain(why, 300)}." if why else told


def _change(diagnosis: Diagnosis, device: str) -> str:
    answers: list[Finding | Cleared] = [*diagnosis.findings, *diagnosis.cleared]
    numbers = [item for answer in answers if answer.code == _DRIFT for item in answer.evidence]
    item = next((item for item in numbers if item.metric.endswith(f", {device}")), None)
    if item is None or not isinstance(item.value, int | float):
        return ""
    return f"a change of {_signed(item)}"


def _signed(item: Evidence) -> str:
    value = f"{item.value:+.1f} %"
    if item.low is None or item.high is None:
        return value
    return f"{value} over the sweep (95 % interval {item.low:+.1f} to {item.high:+.1f} %)"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def ranks(results: Sequence[TrialResult]) -> str:
    """How many ranks trained together, where more than one did."""
    counts = sorted({len(result.steps) for result in results if len(result.steps) > 1})
    if not counts:
        return ""
    of = listing([str(count) for count in counts])
    trials = counted(sum(len(result.steps) > 1 for result in results), "trial")
    return f"{trials} trained on {of} ranks together; step times are rank 0's, samples are those of all ranks."
