"""Why the numbers can be trusted, in sentences: what measuring cost, whether the machine changed, how many ranks."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.diagnose.facts import SweepFacts, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Cleared, Diagnosis, Evidence, Finding
from perf_diagnostics.records import Run, TrialResult
from perf_diagnostics.report.figures import Arm
from perf_diagnostics.report.words import between, counted, listing, number, percent, plain, time_unit

#: More configurations than these are not told one by one.
_TOLD = 4

#: The rule that weighs the sentinels; the report repeats its numbers and makes none of its own.
_DRIFT = "EXP008"


def overhead(arms: Sequence[Arm]) -> str:
    """What measuring added to a step at the recommended batch sizes, or why nobody knows; empty where nobody asked."""
    shown = [(arm, chosen) for arm in arms if (chosen := arm.recommended) is not None]
    told = []
    for arm, point in shown[:_TOLD]:
        words = next((words for words in map(_added, point.trials) if words), "")
        told += [f"{arm.label}, batch {point.batch_size}: {words}"] if words else []
    if told:
        return f"What measuring adds to a step, from alternating blocks with and without it: {'; '.join(told)}."
    trials = [trial for _, point in shown for trial in point.trials]
    gaps = list(dict.fromkeys(gap.why for t in trials if (gap := t.result.gap("probe_overhead_s")) is not None))
    return f"What measuring adds to a step was not measured: {plain(listing(gaps), 300)}." if gaps else ""


def _added(trial: TrialFacts) -> str:
    """``6.1 to 11.2 µs (0.1 % of the step)``."""
    value, low, high = (trial.result.value(f"probe_overhead_{end}s") for end in ("", "low_", "high_"))
    if value is None:
        return ""
    step = ask(lambda: trial.step_time_s)
    if low is None or high is None:
        unit = time_unit(abs(value))
        return f"{number(unit.of(value))} {unit.name}"
    unit = time_unit(max(abs(low), abs(high)))
    ends = f"{between(low / unit.size, high / unit.size)} {unit.name}"
    if low <= 0 <= high:
        return f"not to be told from nothing ({ends})"
    if high < 0:
        return f"{ends}: the blocks without it were slower, so something else made the difference"
    return ends if step is None else f"{ends} ({percent(value / step.value)} of the step)"


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
    return f"To see whether the machine changed, the same short trial {'; '.join(parts)}. It enters no other number."


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
