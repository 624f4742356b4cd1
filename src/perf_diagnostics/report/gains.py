"""What a change wins, in words: as a share of the time and as a factor of speed, predicted or measured."""

from __future__ import annotations

from perf_diagnostics.diagnose.finding import Diagnosis, Finding, Share
from perf_diagnostics.report.words import between, listing, percent

#: What the two numbers in brackets behind another one are, and the columns of the evidence.
IN_BRACKETS = (
    "Two numbers in brackets are the ends of a 95 % interval; behind a gain that is predicted, those of the range in "
    "which it is expected. That range may reach beyond the part of a step that a finding is about: on a CPU the rest "
    "gets faster, too, once it has caches and cores to itself. A limit is the value from which on a rule speaks, or up "
    "to which; n is how many steps, or other observations, a number rests on."
)


def gain(share: Share) -> str:
    """What a fix could win, and whether that is a prediction or was measured between two settings of the run.

    >>> gain(Share(0.031, 0.024, 0.036))
    "could win back 3.1 % of the step's time (2.4 to 3.6 %), predicted, not measured"
    """
    ends = between(100 * share.low, 100 * share.high)
    if share.measured and share.value <= 0:
        return f"wins nothing, at most {percent(share.high)} of the time a sample takes, measured in this run"
    if share.measured:
        says = "shows no gain:" if share.low <= 0 else "wins"
        return f"{says} {percent(share.value)} of the time a sample takes ({ends} %), measured in this run"
    return f"could win back {percent(share.value)} of the step's time ({ends} %), {known(share)}"


def fix(finding: Finding) -> str:
    """What a fix of a finding wins, and at which batch size where that is not what one would train at.

    A gain at a batch size that nobody should train at would else look larger than what the verdict promises.
    """
    if finding.recoverable is None:
        return ""
    words = f"A fix {gain(finding.recoverable)}."
    if finding.at_recommended or not finding.batch_sizes:
        return words
    first, *others = (str(size) for size in finding.batch_sizes)
    too = f" (what was found holds at {listing(others)} too)" if others else ""
    return f"{words} That is at batch size {first}{too}, not at the recommended one."


def faster(share: Share) -> str:
    """How much faster a training gets that saves a share of its time: ``1 / (1 - share)``, and its ends.

    >>> faster(Share(0.5, 0.2, 0.75)), faster(Share(0.5, 0.2, 1.0)), faster(Share(0.03, 0.03, 0.03))
    ('2.0 times as fast (1.2 to 4.0)', '2.0 times as fast (1.2 or more)', '1.03 times as fast')
    """
    places = 2 if share.low < 1 - 1 / 1.1 else 1  # what is sure at least is not rounded to nothing
    value, low, high = (_times(part, places) for part in (share.value, share.low, share.high))
    if not value or not low:
        return "many times as fast"
    ends = "" if low == high else f" ({low} to {high})" if high else f" ({low} or more)"
    return f"{value} times as fast{ends}"


def _times(share: float, places: int) -> str:
    """A factor of speed with so many decimals; empty where next to nothing would be left of the time."""
    if share > 0.99:
        return ""
    factor = 1 / (1 - share)
    return f"{factor:.{places if factor < 10 else 0}f}"


def saving(share: Share) -> str:
    """What a change saves, in time and in speed, and whether that was measured.

    >>> saving(Share(0.5, 0.2, 0.75))
    'a fix could save 50 % of the time (20 to 75 %): 2.0 times as fast (1.2 to 4.0); predicted, not measured'
    """
    if share.measured and share.low <= 0:
        return f"{saved_time(share)}; measured"
    return f"{saved_time(share)}: {faster(share)}; {known(share)}"


def saved_time(share: Share) -> str:
    """``saves 50 % of the time (20 to 75 %)`` if measured; a prediction is of a fix, which advice may help to find.

    >>> saved_time(Share(0.5, 0.2, 0.75))
    'a fix could save 50 % of the time (20 to 75 %)'
    """
    part = f"{100 * share.value:.0f} % of the time ({100 * share.low:.0f} to {100 * share.high:.0f} %)"
    if share.measured and share.low <= 0:
        return f"no saving is shown: {part}"
    return f"{'saves' if share.measured else 'a fix could save'} {part}"


def known(share: Share) -> str:
    """How a gain is known; one whose interval includes 0 is uncertain.

    >>> known(Share(0.2, 0.0, 0.4)), known(Share(0.2, 0.1, 0.3, measured=True))
    ('uncertain: predicted, not measured', 'measured')
    """
    how = "measured" if share.measured else "predicted, not measured"
    return f"uncertain: {how}" if share.low <= 0 else how


def explained_by(finding: Finding, diagnosis: Diagnosis) -> str:
    """That a finding is another's symptom, whose gain is not a second one; empty where none explains it."""
    causes = [one.code for one in diagnosis.findings if finding.code in one.explains and one.scope == finding.scope]
    if not causes:
        return ""
    once = ": one gain, not two" if finding.recoverable is not None else ""
    return f"Explained by {' and '.join(dict.fromkeys(causes))}{once}."
