"""The small drawings beside words: a sign for each severity, told apart by shape and colour, and the bars of a gain."""

from __future__ import annotations

from perf_diagnostics.diagnose.finding import Severity, Share
from perf_diagnostics.diagnose.verdict_place import crash_of
from perf_diagnostics.report.drawing.palette import Ink, series_mark
from perf_diagnostics.report.model import Report

_SHAPES = {
    "critical": ("M5 1h6l4 4v6l-4 4H5l-4-4V5z", "M8 4v5M8 11v1.5"),
    "warning": ("M8 1l7.5 13.5H.5z", "M8 5.5v4.5M8 11.5v1.5"),
    "info": ("M8 .5a7.5 7.5 0 1 1 0 15a7.5 7.5 0 1 1 0-15z", "M8 3.5v1.8M8 7v5.5"),
    "good": ("M8 .5a7.5 7.5 0 1 1 0 15a7.5 7.5 0 1 1 0-15z", "M4.5 8.3l2.4 2.4 4.6-5"),
    "none": ("M8 .5a7.5 7.5 0 1 1 0 15a7.5 7.5 0 1 1 0-15z", "M4.5 8h7"),
}


def severity_sign(severity: str, ink: Ink) -> str:
    """The sign of a severity, of ``good`` or of ``none``; decoration only, since the word always stands beside it."""
    shape, stroke = _SHAPES[severity]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">'
        f'<path d="{shape}" fill="{ink.role("muted" if severity == "none" else severity)}"/>'
        f'<path d="{stroke}" fill="none" stroke="{ink.role("surface")}" stroke-width="1.8"/></svg>'
    )


def gain_bar(share: Share, ink: Ink) -> str:
    """The time that is taken now and what a recoverable share leaves of it, with its 95 % interval as a whisker."""
    low, value, high = (min(1.0, max(0.0, part)) for part in (share.low, share.value, share.high))
    left, full = 44, 196
    least, then, most = (left + full * (1 - part) for part in (high, value, low))
    muted, accent, text = ink.role("muted"), ink.role("accent"), ink.role("text")
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 44" width="300" height="44" aria-hidden="true" '
        f'font-size="13" fill="{text}">'
        f'<text x="0" y="15">now</text><path d="M{left} 10.5h{full}" stroke="{muted}" stroke-width="13"/>'
        f'<text x="{left + full + 8}" y="15">100 %</text>'
        f'<text x="0" y="37">then</text><path d="M{left} 32.5H{max(then, left + 1):.1f}" stroke="{accent}" '
        'stroke-width="13"/>'
        f'<path d="M{least:.1f} 32.5H{most:.1f}M{least:.1f} 28v9M{most:.1f} 28v9" stroke="{text}" '
        'stroke-width="1.4" fill="none"/>'
        f'<text x="{left + full + 8}" y="37">{100 * (1 - value):.0f} %</text></svg>'
    )


def share_bar(phase: str, length: float, ink: Ink) -> str:
    """A bar of a length in 0…1 in a phase's colour; the number always stands beside it."""
    width = max(1.5, 120 * min(1.0, max(0.0, length)))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 120 8" width="120" height="8" aria-hidden="true">'
        f'<rect x="0" y="0" width="{width:.1f}" height="8" rx="1.5" fill="{ink.mark(series_mark(phase, 0))}"/></svg>'
    )


def verdict_severity(report: Report) -> str:
    """The severity of the finding that is the verdict, or of the crash it begins with.

    ``good`` where nothing is wrong, ``none`` without a verdict.
    """
    verdict = report.diagnosis.verdict
    if verdict is None:
        return "none"
    if (crash := crash_of(report.diagnosis)) is not None:
        return str(crash.severity)
    found = [finding.severity for finding in report.diagnosis.findings if finding.code == verdict.code]
    if found:
        return str(found[0])
    return "good" if not report.diagnosis.findings else str(Severity.INFO)
