"""The facts a rule may ask for: of one trial, of a group of trials, of a whole sweep."""

from perf_diagnostics.diagnose.groups import Group, Knee, Point
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.own_shares import TREND_STEPS
from perf_diagnostics.diagnose.recorded import ask
from perf_diagnostics.diagnose.statistics import Interval
from perf_diagnostics.diagnose.sweep_facts import DevicePair, SweepFacts
from perf_diagnostics.diagnose.trial_facts import INDICATIVE_STEPS, LEAST_STEPS, TrialFacts

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
