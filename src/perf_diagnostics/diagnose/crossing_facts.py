"""What copies and reads between host and device cost a step, from steps that were looked at operator by operator."""

from __future__ import annotations

from perf_diagnostics.diagnose.facts import Interval, NotMeasured, TrialFacts

#: What a rule says that finds no record of it: which run has one.
HOW_TO = (
    "only the trials of a sweep are looked at operator by operator, after their timed steps; for a loop of your own "
    "record a trace with torch.profiler and give it to `perf-diagnostics trace`"
)

#: The key of a claim on the device's idle time after waits, which lies in no phase of its own.
WAITS = "waits"


def crossing_count(facts: TrialFacts, name: str) -> float:
    """A count a step, such as ``reads_back_per_step``.

    Raises:
        NotMeasured: nobody looked, with the reason that the pass gave.
    """
    facts.require_accelerator(name)
    if facts.result.value(name) is None:
        raise NotMeasured(name, facts.missing("copies_in_per_step", HOW_TO).why)
    return facts.quantity(name)


def crossing_cost(facts: TrialFacts, name: str) -> Interval:
    """The share of an undisturbed step that ``<name>_s`` is, with the ends of its interval."""
    value = crossing_count(facts, f"{name}_s")
    low, high = (facts.result.value(f"{name}_{end}_s") for end in ("low", "high"))
    return Interval(value, low, high, facts.steps).scaled(1 / facts.step_time_s.value).within(0.0, 1.0)


def crossing_source(facts: TrialFacts, name: str) -> str:
    """Where a number comes from, and for reads which operators they were."""
    found = facts.result.quantity(name)
    return "" if found is None else found.source
