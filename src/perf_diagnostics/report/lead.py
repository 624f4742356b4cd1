"""The verdict in two parts: the sentence that is read at a glance, and what is said besides."""

from __future__ import annotations

import re

from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.diagnose.verdict_place import verdict_finding
from perf_diagnostics.report.changes import finding_key
from perf_diagnostics.report.model import Change, Report
from perf_diagnostics.report.words import below_its_label

#: A sentence ends at a stop before a capital, or behind a word before a number.
_NEXT_SENTENCE = re.compile(r"(?<=[\w%)\]”`’][.?!]) (?=[A-Z“])|(?<=[a-z]{2}\.) (?=\d)")
_OF_A_TRIAL = re.compile(r"(?:^| )Tried: .*? pairs? of trials\.(?: It changes the optimisation\.)?")


def lead(headline: str) -> tuple[str, str]:
    """The first sentence of a headline and the rest, which is empty where there is none.

    >>> lead("No rule found a fault. 84 % of a step is the CPU's own work.")
    ('No rule found a fault.', "84 % of a step is the CPU's own work.")
    >>> lead("Batch 32: 66 % of the tokens are padding. The same holds at batch 4.")
    ('Batch 32: 66 % of the tokens are padding.', 'The same holds at batch 4.')
    """
    found = _NEXT_SENTENCE.search(headline)
    return (headline, "") if found is None else (headline[: found.start()], headline[found.end() :])


def lead_of(report: Report) -> tuple[str, str]:
    """A report's headline in two, without what the change below it says of its trial."""
    first, rest = lead(below_its_label(report.headline))
    first = first if first.endswith((".", "!", "?", "…")) else f"{first}."
    if any(change.tried and about_verdict(change, report.diagnosis) for change in report.changes):
        rest = _OF_A_TRIAL.sub("", rest).strip()
    return first, rest


def about_verdict(change: Change, diagnosis: Diagnosis) -> bool:
    """Whether a change is that of the verdict's finding, whose place and confidence the verdict tells."""
    found = verdict_finding(diagnosis)
    return found is not None and change.key == finding_key(found)
