"""Slides of findings: one each for what asks for a change, several on a slide for what is only to be known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perf_diagnostics.diagnose.code.code_words import seen_at
from perf_diagnostics.diagnose.finding import Diagnosis, Evidence, Finding
from perf_diagnostics.diagnose.verdict_place import verdict_finding
from perf_diagnostics.report.gains import explained_by, fix
from perf_diagnostics.report.in_code import in_code
from perf_diagnostics.report.slides.paged_slides import text_slides
from perf_diagnostics.report.slides.slide_layout import BODY, Box, Grid, Line, height_in, paged
from perf_diagnostics.report.slides.slides import Deck
from perf_diagnostics.report.words import (
    DASH,
    EVIDENCE_HEADS,
    EVIDENCE_NUMERIC,
    evidence_cells,
    plain,
)

_EVIDENCE_ROWS = 6
#: Letters of an observation on a slide that it shares with others.
_OBSERVATION = 420


def finding_slides(deck: Deck, finding: Finding, diagnosis: Diagnosis) -> None:
    """What was found, what a fix wins, what to try, and the evidence; of the verdict's finding its lines of code.

    These are left out where they would take another slide.
    """
    name = finding.name.replace("-", " ")
    title = f"{finding.code} {name} ({finding.severity})"
    lines = [Line(finding.scope, 14, "muted"), Line(finding.summary, 18, space_after=8)]
    if finding.recoverable is not None:
        lines.append(Line(fix(finding), 16, "accent", bold=True, space_after=8))
    if explained := explained_by(finding, diagnosis):
        lines.append(Line(explained, 15, space_after=8))
    for remedy in finding.remedies:
        code = in_code(remedy, diagnosis)
        change = f"  [{code}]" if code else ""
        lines.append(Line(f"{remedy.says}{change}", 15, bullet=True, space_after=4))
    lines = [
        Line(plain(line.text, 420), line.size, line.colour, line.bold, line.bullet, line.space_after) for line in lines
    ]
    shown = finding.evidence[:_EVIDENCE_ROWS]
    room = BODY.height - (0.4 + 0.34 * (len(shown) + 1) if shown else 0)
    box = Box(BODY.left, BODY.top, BODY.width, room)
    pages = _pages(lines, box)
    if finding is verdict_finding(diagnosis):
        seen = [Line(f"{one.words()}.", 15, space_after=8) for one in seen_at(finding, diagnosis)]
        longer = _pages([*lines[:2], *seen, *lines[2:]], box)
        pages = longer if len(longer) == len(pages) else pages
    for index, page in enumerate(pages):
        slide = deck.slide(title, _finding_notes(finding, diagnosis))
        severity = "accent" if finding.severity == "info" else str(finding.severity)
        deck.block(slide, Box(0.4, 0.55, 0.09, 0.65), severity)
        deck.text(slide, Box(BODY.left, BODY.top, BODY.width, room), page)
        if index == len(pages) - 1 and shown:
            used = sum(height_in(line, BODY.width) for line in page)
            box = Box(BODY.left, BODY.top + used + 0.25, BODY.width, 0)
            deck.table(slide, box, _grid(finding, shown))


def _grid(finding: Finding, shown: Sequence[Evidence]) -> Grid:
    """The evidence as a table, without a column that nothing stands in."""
    rows = [evidence_cells(item) for item in shown]
    kept = [i for i, head in enumerate(EVIDENCE_HEADS) if head != "Source" or any(row[i] for row in rows)]
    return Grid(
        [(EVIDENCE_HEADS[i], "") for i in kept],
        [[row[i] for i in kept] for row in rows],
        [EVIDENCE_NUMERIC[i] for i in kept],
        f"Evidence of {finding.code}",
    )


def _pages(lines: Sequence[Line], box: Box) -> list[list[Line]]:
    """On one slide, a little smaller where that is what it takes; else on as many as the full size needs."""
    for factor in (1.0, 0.92, 0.84):
        smaller = [replace(line, size=line.size * factor, space_after=line.space_after * factor) for line in lines]
        pages = paged(smaller, box)
        if len(pages) == 1:
            return pages
    return paged(lines, box)


def observation_slides(deck: Deck, findings: Sequence[Finding], diagnosis: Diagnosis) -> None:
    """Findings that ask for nothing, several on a slide; their evidence stands in the notes."""
    lines = []
    for finding in findings:
        name = finding.name.replace("-", " ")
        lines.append(Line(plain(f"{finding.code} {name}, {finding.scope}", 160), 14, bold=True, space_after=2))
        lines.append(Line(_with_advice(finding), 13, space_after=9))
    text_slides(deck, "Further observations", lines, "\n\n".join(_finding_notes(one, diagnosis) for one in findings))


def _with_advice(finding: Finding) -> str:
    """What was found, and of the advice what fits whole; all of it stands in the notes."""
    told = plain(finding.summary, _OBSERVATION)
    for remedy in finding.remedies:
        if len(told) + 1 + len(remedy.says) > _OBSERVATION:
            break
        told = f"{told} {remedy.says}"
    return told


def _finding_notes(finding: Finding, diagnosis: Diagnosis) -> str:
    lines = [finding.summary, f"Where: {finding.scope}. Confidence {100 * finding.confidence:.0f} %."]
    lines += [f"{seen.words()}." for seen in seen_at(finding, diagnosis)]
    lines.append("Evidence:")
    lines += ["; ".join(part for part in evidence_cells(item) if part and part != DASH) for item in finding.evidence]
    lines += [f"Try: {remedy.says}" for remedy in finding.remedies]
    return "\n".join(lines)
