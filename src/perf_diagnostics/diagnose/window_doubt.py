"""What a profiler window cannot tell from a fault: what the profiler itself adds, and what other programs take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.gain import Tier

#: Where evidence from a window says that it is from.
WINDOW = "profiler window"

#: What the profiler itself adds to.
_OF_THE_HOST = (Family.HOST, Family.INPUT)

#: And of the others what is time of the host's own: between a wait, or a launch, and the next launch.
_OF_ITS_CALLS = ("XFR003", "XFR005", "OPT001", "OPT003")

#: No rule's critical limit is less than so many times its warning limit, so that this part of it warns in any case.
CRITICAL_OVER_WARNING = 2.0

#: The rule that finds other programs on the processors.
_CONTENTION = "EXP010"


def allowing_for_the_profiler(finding: Finding, slower: float | None) -> Finding:
    """A finding with what the profiler cost beside it (``slower``: profiled over undisturbed step); an info where that
    alone could have made it, and a warning where it could have made it critical.

    The profiler slows the host. Of a share h of a window that is s times as long as the undisturbed steps, at least
    ``h s - (s - 1)`` of an undisturbed step remains if all that was added went into this share.
    """
    if slower is None:
        return finding
    finding = dataclasses.replace(
        finding,
        evidence=(
            *finding.evidence,
            Evidence(metric="profiled step over undisturbed step", value=slower, unit="×", source=WINDOW),
        ),
    )
    limit = finding.evidence[0].limit
    if not _of_the_host(finding) or limit is None or not finding.claims:
        return finding
    share = sum(finding.claims.values())
    least = max(0.0, share * slower - max(0.0, slower - 1))
    won = finding.recoverable
    if won is not None and least < share:
        # Sure to be won is only what the profiler did not add.
        low = min(won.low, won.low * least / share)
        finding = dataclasses.replace(finding, recoverable=dataclasses.replace(won, low=low))
    if least >= limit / 100:
        return finding
    still = finding.severity is Severity.CRITICAL and least >= limit / 100 / CRITICAL_OVER_WARNING
    return dataclasses.replace(finding, severity=Severity.WARNING if still else Severity.INFO)


def allowing_for_others(deep: Placed, own: Sequence[Placed]) -> Placed:
    """An info of what is about the host's time where others had its processors: a window does not tell them apart."""
    finding = deep.finding
    busy = any(
        item.finding.code == _CONTENTION
        and item.finding.severity is not Severity.INFO
        and item.group == deep.group
        and (not item.finding.batch_sizes or bool(set(item.finding.batch_sizes) & set(finding.batch_sizes)))
        for item in own
    )
    if not busy or finding.severity is Severity.INFO or not _of_the_host(finding):
        return deep
    says = f"While other programs used the processors, too: {finding.summary}"
    return dataclasses.replace(deep, finding=dataclasses.replace(finding, severity=Severity.INFO, summary=says))


def _of_the_host(finding: Finding) -> bool:
    """Whether it is about time of the host's, to which the profiler and other programs add."""
    return finding.family in _OF_THE_HOST or finding.code in _OF_ITS_CALLS


def beside(deep: Placed) -> Placed:
    """What only the window shows, although the undisturbed steps were asked: the profiler may have made it."""
    finding = deep.finding
    slows = ", which slows the host" if _of_the_host(finding) else ""
    says = f"In the profiler window only{slows}: {finding.summary}"
    changed = dataclasses.replace(
        finding, severity=Severity.INFO, summary=says, confidence=min(finding.confidence, Tier.CONFIGURATION.value)
    )
    return dataclasses.replace(deep, finding=changed)
