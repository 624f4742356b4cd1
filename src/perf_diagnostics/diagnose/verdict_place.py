"""The finding that a verdict rests on, the line of the user's own code it is about, and the whole in one paragraph."""

from __future__ import annotations

import re

from perf_diagnostics.diagnose.code.code_words import SeenAt, called_from, called_of_several, seen, step_share, why_slow
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.finding import Diagnosis, Finding
from perf_diagnostics.diagnose.verdict import FAILED_TRIALS, HEALTHY
from perf_diagnostics.diagnose.wording import percent

#: A line is where a finding's time goes if it has at least this part of what the finding claims.
_HALF = 0.5


def verdict_finding(diagnosis: Diagnosis) -> Finding | None:
    """The finding that makes the verdict, which says where it holds and how sure it is; None where none does.

    Without a verdict it is the one that is suspected, if any is.
    """
    verdict = diagnosis.verdict
    code = diagnosis.suspected if verdict is None else verdict.code
    says = diagnosis.no_verdict_because if verdict is None else verdict.summary
    found = [finding for finding in diagnosis.findings if code and finding.code == code]
    same = [finding for finding in found if finding.summary in says]
    return next(iter([*same, *found]), None)


def verdict_seen(diagnosis: Diagnosis) -> SeenAt | None:
    """The line at which the verdict's time was seen most; None where no line was, or the verdict itself names it and
    nothing is known of why it is slow.

    A line of a function that the loop calls is told with the line of the loop that leads there. What it calls is told
    only of a framework's loop, which has several parts of a step and says nothing itself. Where no rule found a fault
    it is told how much of the step, and of its phase, is seen there: forward's lines speak for the backward, too; that
    everything is in the call of a framework's loop is not worth telling there.
    """
    finding = verdict_finding(diagnosis)
    if finding is None or not finding.lines:
        return None
    line = finding.lines[0]
    named = re.search(rf"{re.escape(line.place.file)}:{line.place.line}(?!\d)", finding.summary)
    if named and not why_slow(line):
        return None
    called = called_of_several(line, diagnosis)
    parts = [called_from(line, diagnosis), f"in {called}" if called else ""]
    beside = "".join(f", {part}" for part in parts if part)
    if finding.code == HEALTHY:
        phases = {one.phase for one in diagnosis.lines if one.place == line.place}
        return None if len(phases) > 1 else _most_of_a_phase(line, beside)
    claimed = sum(finding.claims.values())
    return seen(line, "At" if line.share.value >= _HALF * claimed else "The largest part at", beside)


def _most_of_a_phase(line: CodeShare, beside: str) -> SeenAt:
    """``Most of forward at train.py:28-31 …``, with its share of the step and of the phase."""
    part = "" if line.of_phase is None else f", {percent(line.of_phase)} of {line.phase}"
    lead = "Most of" if line.of_phase is not None and line.of_phase >= _HALF else "The largest part of"
    return seen(line, f"{lead} {line.phase} at", f" ({step_share(line)}{part}){beside}")


def verdict_label(diagnosis: Diagnosis) -> str:
    """What the verdict is: that of a fault, a saving where nothing is wrong, or none."""
    verdict = diagnosis.verdict
    if verdict is None:
        return "No verdict"
    return "Verdict" if verdict.fault or verdict.code == HEALTHY else "No fault, but worth trying first"


def verdict_rule(diagnosis: Diagnosis) -> str:
    """The verdict's code and name, ``INP001 input-bound``, behind those of a crash that it begins with; empty without.

    What the verdict says first stands first here, too.
    """
    verdict = diagnosis.verdict
    if verdict is None:
        return ""
    named = f"{verdict.code} {verdict.name}"
    crash = crash_of(diagnosis)
    return named if crash is None else f"{crash.code} {crash.name}; until then {named}"


def crash_of(diagnosis: Diagnosis) -> Finding | None:
    """The finding that tells how the trials failed, where the verdict begins with it; else None."""
    verdict = diagnosis.verdict
    if verdict is None or verdict.code == FAILED_TRIALS:
        return None
    failed = (finding for finding in diagnosis.findings if finding.code == FAILED_TRIALS)
    return next((finding for finding in failed if verdict.summary.startswith(finding.summary)), None)


def verdict_place(diagnosis: Diagnosis) -> str:
    """``At train.py:9 in Data.__getitem__: `x = x * 1.01`, called from train.py:41.``; empty where no line was seen."""
    told = verdict_seen(diagnosis)
    return "" if told is None else f"{told.at()}{told.beside}."


def verdict_note(diagnosis: Diagnosis) -> str:
    """What stands behind the answer and its line: what else there is to know, or how a suspicion could be decided."""
    return diagnosis.would_decide if diagnosis.verdict is None else diagnosis.verdict.note


def verdict_words(diagnosis: Diagnosis, tag: str = "") -> str:
    """The verdict with its line of code as one paragraph of plain text; without a verdict the reason, and its line.

    Where nothing is wrong the line stands first, for what else is said there is known of every training; what was not
    looked at stands last.

    Args:
        diagnosis: whose verdict.
        tag: what stands in brackets behind the answer; default: the code of the verdict.
    """
    verdict, place = diagnosis.verdict, verdict_place(diagnosis)
    if verdict is None:
        why = diagnosis.no_verdict_because or "the evidence is too thin."
        note = verdict_note(diagnosis)
        parts = [why if why.endswith(".") else f"{why}.", place, note]
    elif verdict.opening and place:
        parts = [verdict.opening, place, verdict.summary.removeprefix(verdict.opening).strip()]
    else:
        parts = [verdict.summary, place]
    if verdict is not None:
        parts += [f"[{tag or verdict.code}]", verdict_note(diagnosis)]
    return " ".join(part for part in parts if part)
