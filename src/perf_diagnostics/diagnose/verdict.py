"""What is said first: a fault, else the largest saving that was seen, else where the time goes; or why nothing can be.

This is the one place that decides it. All outputs tell what stands in the verdict, with its line of code, in the words
of :mod:`~perf_diagnostics.diagnose.verdict_place`.
"""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.finding import Family, Finding, Severity, Share, Verdict
from perf_diagnostics.diagnose.rule_parts.gain import Tier
from perf_diagnostics.diagnose.wording import percent

#: A finding of less confidence is shown but makes no verdict: a share whose interval straddles its threshold (0.3)
#: still does, in a trial of very few steps (0.18) no more.
LEAST_CONFIDENCE = 0.25

#: The finding that says where the time goes when nothing is wrong.
HEALTHY = "CMP002"

#: The finding that says how trials ended that did not complete.
FAILED_TRIALS = "EXP002"

#: An info that may win this part of a step is said first where no rule found a fault; it is a judgement.
WORTH_TRYING = 0.15

#: An info is said first down to this confidence: half of what a setting alone gives (0.3), so that one doubt more
#: (times 0.6, as under other programs' load) does not silence it and two do.
LEAST_NAMED = Tier.CONFIGURATION.value / 2

#: A gain of less is none that is sure, and is not told as the lower end of one.
SURE = 0.005

#: Infos that tell of work or calls that may be for nothing, where nobody knows what a step without them would take.
UNPRICED = ("CMP018", "CMP023", "HST011")

NOTHING_FOUND = "No rule found a fault."

_NO_FAULT_SEEN = "no rule found a fault in the steps that were measured"


def verdict(
    ordered: Sequence[Placed],
    primary: str | None,
    *,
    opened: bool = False,
    inside: str = "",
    why_closed: str = "",
    broke_off: bool = False,
    ending: str = "",
    parts: str = "",
    why_no_work: str = "",
) -> tuple[Verdict | None, str]:
    """What to read first, or None and why there is nothing.

    It is the first fault about the primary group (or the whole run) that is sure enough. Without one it is the largest
    saving that an info promises, if that is considerable, and without that what takes the time; either is said to be no
    fault.

    Args:
        ordered: as :func:`~perf_diagnostics.diagnose.ranking.ranked` gives them.
        primary: label of the group that the verdict is about.
        opened: a profiler's trace shows what forward and backward do inside.
        inside: what it shows, in a sentence.
        why_closed: why there is none, where one was asked for.
        broke_off: no trial ended by itself; what has been found in its steps is there, and nothing is ruled out.
        ending: how the trials failed, where none completed; it stands first, for a crash comes before any slowness.
        parts: where the time of a step goes, in a clause for where that is not the verdict; empty if it is not known.
        why_no_work: why that forward and backward take the time is not said, in a clause; empty where it is.
    """
    about = _about(ordered, primary)
    faults = _faults(about)
    sure = [fault for fault in faults if fault.confidence >= LEAST_CONFIDENCE]
    healthy = [f for f in about if f.code == HEALTHY and f.confidence >= LEAST_CONFIDENCE]
    saving = _largest_saving(ordered, primary)
    if sure:
        says = f"{ending} Until then: {sure[0].summary}" if ending else sure[0].summary
        return Verdict(sure[0].code, sure[0].name, sure[0].family, says), ""
    if healthy and not faults and not broke_off:
        looked = inside if opened else _not_profiled(healthy[0], why_closed)
        return (
            _where_it_goes(healthy[0], looked) if saving is None else _saved(saving, healthy[0].summary, looked)
        ), ""
    if faults:
        return None, _after(ending, _sentences(_suspicion(faults[0]), parts))
    why = _NO_FAULT_SEEN if ending else _why_none(about, why_no_work, broke_off=broke_off)
    if saving is not None and saving.confidence >= LEAST_CONFIDENCE and not broke_off:
        return _saved(saving, f"{why[:1].upper()}{_joined(why[1:], parts)}."), ""
    return None, _after(ending, _sentences(*_leading(saving), _joined(why, parts)))


def suspected(ordered: Sequence[Placed], primary: str | None) -> str:
    """The code of the finding that is named where there is no verdict: a fault too unsure for one, else the largest
    saving; empty where there is neither.
    """
    faults = _faults(_about(ordered, primary))
    saving = _largest_saving(ordered, primary)
    return faults[0].code if faults else "" if saving is None else saving.code


def would_decide(ordered: Sequence[Placed], primary: str | None) -> str:
    """What would decide whether a suspected fault is one: to follow its advice and compare, or to measure without what
    takes the confidence; empty where none is suspected.
    """
    about = _about(ordered, primary)
    fault = next(iter(_faults(about)), None)
    if fault is None:
        return ""
    doubts = [f for f in about if f.family is Family.EXPERIMENT and f.severity is not Severity.INFO]
    ways = [f"try this: {fault.remedies[0].says.rstrip('.')}"] if fault.remedies else []
    if doubts:
        ways.append(f"measure it without “{doubts[0].name.replace('-', ' ')}” ({doubts[0].code})")
    return f"To decide it, {'; or '.join(ways or ['measure more steps'])}."


def _about(ordered: Sequence[Placed], primary: str | None) -> list[Finding]:
    return [item.finding for item in ordered if item.group in (None, primary)]


def _faults(about: Sequence[Finding]) -> list[Finding]:
    return [f for f in about if f.family is not Family.EXPERIMENT and f.severity is not Severity.INFO]


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _after(ending: str, why: str) -> str:
    """``the training crashed after 30 recorded steps. The reason: …. Until then: …``"""
    return f"{ending[:1].lower()}{ending[1:]} Until then: {why}" if ending else why


def _where_it_goes(healthy: Finding, looked: str) -> Verdict:
    """The verdict where no rule found a fault, nor a saving worth trying."""
    says = f"{NOTHING_FOUND} {healthy.summary}"
    return Verdict(healthy.code, healthy.name, healthy.family, says, fault=False, opening=NOTHING_FOUND, note=looked)


def _saved(saving: Finding, *notes: str) -> Verdict:
    """The verdict where no rule found a fault, and something is worth trying."""
    says = f"Nothing was found broken; {_promised(saving)}. {saving.summary}"  # which often has a colon of its own
    note = " ".join(part for part in notes if part)
    return Verdict(saving.code, saving.name, saving.family, says, fault=False, note=note)


def _promised(saving: Finding) -> str:
    """``the largest saving seen is 6.0 % to 32 % of a step (predicted)``."""
    won = saving.recoverable
    if won is None:
        return "one thing is worth a look first, its gain unknown"
    how = "measured" if won.measured else "predicted"
    if won.low >= SURE:
        return f"the largest saving seen is {percent(won.low)} to {percent(won.high)} of a step ({how})"
    return f"the largest saving seen is up to {percent(won.high)} of a step ({how}, and none of it sure)"


def _not_profiled(healthy: Finding, why_closed: str) -> str:
    """Where no rule looked, in one clause."""
    inside = sum(healthy.claims.values())
    share = f" ({percent(inside)} of a step)" if inside else ""
    how = f": {why_closed}." if why_closed else " (--deep does)."
    return f"What forward and backward do inside{share} was not profiled{how}"


def _largest_saving(ordered: Sequence[Placed], primary: str | None) -> Finding | None:
    """The first info that may win a considerable part of a step; None without one.

    First is the one of which the most is sure, as in the order of findings. One of which nothing is sure counts if
    the best guess is considerable. Without either, an info that tells of work for nothing whose time nobody knows.
    Infos about the experiment and about other batches than one would train at do not count.
    """
    infos = [
        item.finding
        for item in ordered
        if item.group in (None, primary)
        and item.finding.severity is Severity.INFO
        and item.at_recommended
        and item.finding.family is not Family.EXPERIMENT
        and item.finding.code != HEALTHY
        and item.finding.confidence >= LEAST_NAMED
    ]
    priced = [info for info in infos if info.recoverable is not None and _considerable(info.recoverable)]
    unpriced = [info for info in infos if info.code in UNPRICED and info.recoverable is None]
    return next(iter([*priced, *unpriced]), None)


def _considerable(won: Share) -> bool:
    return (won.high if won.low > 0 else won.value) >= WORTH_TRYING


def _leading(saving: Finding | None) -> tuple[str, ...]:
    """The largest saving and what it is, in a sentence each; nothing without one."""
    return () if saving is None else (f"{_promised(saving)} [{saving.code}]", saving.summary)


def _why_none(about: Sequence[Finding], why_no_work: str, *, broke_off: bool) -> str:
    """Why there is no verdict where no rule found a fault."""
    if broke_off:
        return f"{_NO_FAULT_SEEN}, but the trial broke off before its end"
    unsure = next((finding for finding in about if finding.code == HEALTHY), None)
    if unsure is None:
        return _joined("no rule found a fault", why_no_work)
    return (
        f"no rule found a fault; that forward and backward work takes most of the step is likely, at a confidence of "
        f"{unsure.confidence:.2f} where a verdict needs {LEAST_CONFIDENCE} [{HEALTHY} {unsure.name}]"
    )


def _suspicion(fault: Finding) -> str:
    """The strongest fault of too little confidence, as what it is."""
    return (
        f"{fault.code} {fault.name} is suspected, at a confidence of {fault.confidence:.2f} where a verdict needs "
        f"{LEAST_CONFIDENCE}. {fault.summary}"
    )


def _sentences(*parts: str) -> str:
    """``the largest saving seen is … [MEM007]. 30 % of a step …. No rule found a fault``: the last one is left open."""
    first, *others = (part for part in parts if part)
    says = first
    for part in others:
        says = f"{says if says.endswith('.') else f'{says}.'} {part[:1].upper()}{part[1:]}"
    return says
