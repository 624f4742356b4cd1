"""The report as one self-contained HTML file: it loads nothing, works without scripts, and prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perf_diagnostics.diagnose.code import code_words
from perf_diagnostics.diagnose.finding import Finding, Severity
from perf_diagnostics.diagnose.verdict_place import (
    verdict_finding,
    verdict_label,
    verdict_note,
    verdict_rule,
    verdict_seen,
)
from perf_diagnostics.records import Json
from perf_diagnostics.report import gains, words
from perf_diagnostics.report.changes import finding_key
from perf_diagnostics.report.drawing.palette import DARK, LIGHT, PRINTED, THEMED, Ink, css_variables
from perf_diagnostics.report.drawing.signs import gain_bar, severity_sign, share_bar, verdict_severity
from perf_diagnostics.report.drawing.svg import svg
from perf_diagnostics.report.formats.json import as_json
from perf_diagnostics.report.formats.templates import templates_dir
from perf_diagnostics.report.in_code import in_code
from perf_diagnostics.report.lead import about_verdict, lead_of
from perf_diagnostics.report.method import beside_not_checked
from perf_diagnostics.report.model import Basis, Chart, ChartKind, Report, ReportTable
from perf_diagnostics.report.reading_order import doubts_measuring
from perf_diagnostics.report.tables.code_table import CODE, code_rows
from perf_diagnostics.report.tables.sizes_table import SIZES
from perf_diagnostics.report.tried import TRIED, notes_of, told_briefly
from perf_diagnostics.report.where import SOURCES

Medium = Literal["screen", "print"]

#: A chart of more points than this gets no table of numbers; they stand in the embedded data. A lying bar shows its
#: number itself, and a roofline stands beside a table with its own.
_NUMBERS_SHOWN = 40

#: Up to so many findings none is folded away.
_FEW_FINDINGS = 3


def render_html(report: Report, medium: Medium = "screen") -> str:
    """The report as HTML; ``print`` leaves out scripts, opens what is folded and uses fixed, light colours."""
    report = words.clean(report)
    template = environment().get_template("report.html.j2")
    return template.render(_context(report, medium))


def environment() -> Environment:
    """Jinja with autoescape, no undefined names, and the filters the templates use."""
    jinja = Environment(
        loader=FileSystemLoader(templates_dir()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {
        "number": words.number,
        "evidence_number": words.evidence_number,
        "percent": words.percent,
        "between": words.between,
        "saving": gains.saving,
        "faster": gains.faster,
        "saved_time": gains.saved_time,
        "known": gains.known,
        "fix": gains.fix,
        "seen_at": code_words.seen_at,
        "explained": gains.explained_by,
        "cell": words.cell,
        "tie": words.tie,
        "in_code": in_code,
        "moment": words.moment,
        "beside": lambda why, signal: words.without_its_name(signal, why),
    }
    return jinja


#: Tables with a place of their own on the page, or none because a chart shows the same; all others stand in a grid.
_OF_THEIR_OWN = ("trials", "findings", TRIED, SIZES)


@dataclass(frozen=True)
class _Target:
    """A place in the page that a sentence may point at."""

    anchor: str
    title: str


@dataclass(frozen=True)
class _Placed:
    """A table with the anchor it is reached by."""

    anchor: str
    table: ReportTable


@dataclass(frozen=True)
class _Drawn:
    """A chart with its anchor, its drawing, its numbers as text, and whether it stands alone in its row."""

    anchor: str
    chart: Chart
    drawing: str
    numbers: list[list[str]]
    alone: bool


def _drawn(charts: tuple[Chart, ...], index: int, ink: Ink) -> _Drawn:
    """Charts of one family stand in pairs; the odd one out stands alone."""
    family = [_family(chart) for chart in charts]
    place, size = family[:index].count(family[index]), family.count(family[index])
    alone = size % 2 == 1 and place == size - 1
    return _Drawn(f"chart-{index + 1}", charts[index], svg(charts[index], ink), _numbers(charts[index]), alone)


@dataclass(frozen=True)
class _PlacedSection:
    """A section with its charts drawn and its tables where they can be reached."""

    anchor: str
    title: str
    charts: list[_Drawn]
    tables: list[_Placed]

    @property
    def is_code(self) -> bool:
        """Whether it is about the user's code, which stands right behind the findings."""
        return any(item.table.key == CODE for item in self.tables)


def _sections(report: Report, drawn: list[_Drawn], placed: list[_Placed], medium: Medium) -> list[_PlacedSection]:
    """The sections; on paper without charts of a single category, which say no more than the table below them."""
    shown = [item for item in drawn if medium == "screen" or not item.chart.is_one_group]
    return [
        _PlacedSection(
            f"section-{index + 1}",
            section.title,
            [item for item in shown if item.chart.section == section.title],
            [item for item in placed if item.table.section == section.title],
        )
        for index, section in enumerate(report.sections)
    ]


def _family(chart: Chart) -> str:
    if chart.section:
        return chart.section
    first = chart.key.split("_", 1)[0]
    return "resources" if first in ("memory", "energy") else first


def _context(report: Report, medium: Medium) -> dict[str, Any]:
    ink = THEMED if medium == "screen" else PRINTED
    tables = {table.key: table for table in report.tables}
    others = [t for t in report.tables if t.key not in _OF_THEIR_OWN]
    placed = [_Placed(f"table-{index + 1}", table) for index, table in enumerate(others)]
    drawn = [_drawn(report.charts, index, ink) for index in range(len(report.charts))]
    folder = templates_dir()
    findings = [(f"finding-{index + 1}", finding) for index, finding in enumerate(report.diagnosis.findings)]
    about = [pair for pair in findings if not doubts_measuring(pair[1])]
    return {
        "report": report,
        "findings": [pair for pair in about if _in_front(report, pair[1])],
        "observations": [pair for pair in about if not _in_front(report, pair[1])],
        "doubts": [pair for pair in findings if doubts_measuring(pair[1])],
        "medium": medium,
        "css": _css(medium),
        "js": (folder / "report.js").read_text(encoding="utf-8"),
        "data": embedded_json(as_json(report)),
        "tables": {key: tables.get(key) for key in _OF_THEIR_OWN},
        "tried_briefly": told_briefly(tables[TRIED]) if TRIED in tables else None,
        "tried_notes": notes_of(tables[TRIED]) if TRIED in tables else (),
        "other_tables": [item for item in placed if not item.table.section],
        "sections": _sections(report, drawn, placed, medium),
        "sources_title": SOURCES,
        "sentences": list(_sentences(report)),
        "targets": _targets(report, placed),
        "charts": [item for item in drawn if not item.chart.section],
        # What only a rule lacked stands under “Not checked”.
        "not_measured": beside_not_checked(report),
        "verdict_severity": verdict_severity(report),
        "lead": lead_of(report),
        "in_brackets": gains.IN_BRACKETS,
        "about_verdict": lambda change: about_verdict(change, report.diagnosis),
        "verdict_finding": verdict_finding(report.diagnosis),
        "verdict_label": verdict_label(report.diagnosis),
        "verdict_rule": verdict_rule(report.diagnosis),
        "verdict_note": verdict_note(report.diagnosis),
        "icon": lambda severity: severity_sign(str(severity), ink),
        "verdict_seen": verdict_seen(report.diagnosis),
        "code_key": CODE,
        "code_rows": code_rows(report.diagnosis),
        "gain_bar": lambda share: gain_bar(share, ink),
        "share_bar": lambda row: share_bar(row.line.phase, row.length, ink),
    }


def _in_front(report: Report, finding: Finding) -> bool:
    """Whether a finding is shown at once: it is more than information, it is the verdict, or there are few."""
    verdict, named = report.diagnosis.verdict, verdict_finding(report.diagnosis)
    is_verdict = finding is named or (verdict is not None and finding.code == verdict.code)
    few = len(report.diagnosis.findings) <= _FEW_FINDINGS
    return few or is_verdict or finding.severity is not Severity.INFO


def _css(medium: Medium) -> str:
    folder = templates_dir()
    screen = (folder / "report.css").read_text(encoding="utf-8")
    paper = (folder / "print.css").read_text(encoding="utf-8")
    light = f":root{{{css_variables(LIGHT)}}}"
    if medium == "print":
        return f"{light}\n{screen}\n{paper}"
    dark = f"@media screen and (prefers-color-scheme: dark){{:root{{{css_variables(DARK)}}}}}"
    # Page rules may not stand inside a media rule in older browsers, and they only matter on paper anyway.
    cut = paper.index("html {")
    return f"{light}\n{dark}\n{screen}\n{paper[:cut]}@media print{{\n{paper[cut:]}}}"


def _sentences(report: Report) -> Iterator[tuple[str, Basis | None]]:
    """Each sentence of the answer with what it rests on."""
    for index, sentence in enumerate(report.answer):
        yield sentence, report.answer_basis[index] if index < len(report.answer_basis) else None


def _targets(report: Report, placed: list[_Placed]) -> dict[str, _Target]:
    """Where the keys that sentences rest on are found in the page."""
    targets = {
        "incomplete": _Target("incomplete", "Incomplete"),
        "checks": _Target("checks", "What was checked"),
        "findings": _Target("findings", "Findings"),
        "trials": _Target("trials", "The trial" if _trials_of(report) == 1 else "All trials"),
        "tried": _Target("tried", "What was tried"),
    }
    for index, chart in enumerate(report.charts):
        targets[chart.key] = _Target(f"chart-{index + 1}", chart.title)
    targets |= {item.table.key: _Target(item.anchor, item.table.title) for item in placed}
    for index, finding in enumerate(report.diagnosis.findings):
        targets[finding_key(finding)] = _Target(f"finding-{index + 1}", f"Evidence of {finding.code}")
    return targets


def _trials_of(report: Report) -> int:
    return next((len(table.rows) for table in report.tables if table.key == "trials"), 0)


def _numbers(chart: Chart) -> list[list[str]]:
    if len(chart.categories) > _NUMBERS_SHOWN or chart.kind in (ChartKind.LYING_BAR, ChartKind.ROOFLINE):
        return []
    rows = []
    for index, category in enumerate(chart.categories):
        values = [s.values[index] if index < len(s.values) else None for s in chart.series]
        rows.append([category, *(words.figure(value, chart.unit) for value in values)])
    return rows


def embedded_json(value: Json) -> str:
    """JSON that may stand inside a script element: no ``<``, ``>`` or ``&``, and no line separators of JavaScript."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
