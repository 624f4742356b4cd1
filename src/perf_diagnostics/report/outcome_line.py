"""A trial that has ended in one line, for whoever waits for the next one."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.wording import significant

if TYPE_CHECKING:
    from perf_diagnostics.records import TrialResult


def outcome_line(result: TrialResult, *, told: Collection[str] = ()) -> str:
    """``cpu batch 8  412 ± 9 samples/s over 40 steps``, or what went wrong; a reason once ``told`` is not repeated."""
    name = f"{result.trial.settings.device} batch {result.trial.settings.batch_size}"
    name = f"{result.trial.role} {name}" if result.trial.role else name
    changed = result.trial.settings.canonical()
    others = [f"{key}={value}" for key, value in changed.items() if key not in ("device", "batch_size", "precision")]
    if changed["precision"] != "float32":
        others.insert(0, str(changed["precision"]))
    name = " ".join([name, *others])
    if result.outcome != "completed":
        why = f": {result.reason}" if result.reason else ""
        why = ", for the reason above" if result.reason and result.reason in told else why
        return f"{name}  {str(result.outcome).replace('_', ' ')}{why}"
    facts = TrialFacts.of(result)
    try:
        rate = facts.throughput
    except NotMeasured as missing:
        return f"{name}  completed; throughput not measured: {missing}"
    half = None if rate.low is None or rate.high is None else (rate.high - rate.low) / 2
    # Of three steps of a search an interval may be wider than the value is large, which tells nobody anything.
    width = f" ± {significant(half, 2)}" if half is not None and half < rate.value else ""
    ended = result.stop_reason.replace("_", " ")
    return f"{name}  {significant(rate.value, 4)}{width} samples/s over {facts.steps} steps ({ended})"
