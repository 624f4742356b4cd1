"""From records to findings: facts, rules, and the engine that weighs their answers.

::

    from perf_diagnostics.diagnose import diagnose

    diagnosis = diagnose(run)
    print(diagnosis.verdict or diagnosis.no_verdict_because)
"""

from perf_diagnostics.diagnose.diagnosis_json import diagnosis_to_json
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotMeasured, SweepFacts, TrialFacts
from perf_diagnostics.diagnose.rule_pages import explain, rules_page
from perf_diagnostics.diagnose.rules import RULES

__all__ = [
    "RULES",
    "NotMeasured",
    "SweepFacts",
    "TrialFacts",
    "diagnose",
    "diagnosis_to_json",
    "explain",
    "rules_page",
]
