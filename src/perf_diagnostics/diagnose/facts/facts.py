"""The facts a rule may ask for: of one trial, of a group of trials, of a whole sweep."""

from perf_diagnostics.diagnose.facts.groups import Group, Knee, Point
from perf_diagnostics.diagnose.facts.own_shares import TREND_STEPS
from perf_diagnostics.diagnose.facts.recorded import ask
from perf_diagnostics.diagnose.facts.sweep_facts import DevicePair, SweepFacts
from perf_diagnostics.diagnose.facts.trial_facts import INDICATIVE_STEPS, LEAST_STEPS, TrialFacts
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.statistics.intervals import Interval

__all__ = [
    "INDICATIVE_STEPS",
    "LEAST_STEPS",
    "TREND_STEPS",
    "DevicePair",
    "Group",
    "Interval",
    "Knee",
    "NotApplicable",
    "NotMeasured",
    "Point",
    "SweepFacts",
    "TrialFacts",
    "ask",
]
