"""In which order findings are told: the verdict's own first, doubts about the measuring in a place of their own."""

from __future__ import annotations

import dataclasses
import io
import json

import pptx
import pytest

from perf_diagnostics.cli.diagnosis_text import diagnosis_text
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Diagnosis, Evidence, Family, Finding, Remedy, Severity, Share, Verdict
from perf_diagnostics.diagnose.verdict_place import verdict_finding
from perf_diagnostics.records import Outcome
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.formats.json import report_json
from perf_diagnostics.report.formats.markdown import render_markdown
from perf_diagnostics.report.formats.notebook import notebook_html
from perf_diagnostics.report.model import Report
from perf_diagnostics.report.reading_order import doubts_measuring, in_reading_order, less_sure
from perf_diagnostics.report.slides.pptx import render_pptx
from perf_diagnostics.testing import run_of, trial_of
from tests.report.conftest import GENERATED_AT


def finding(code: str, severity: Severity, *, low: float | None = None, scope: str = "w on cpu") -> Finding:
    return Finding(
        code=code,
        name=f"fault-{code.lower()}",
        family=Family(code[:3]),
        severity=severity,
        summary=f"{code} was found in {scope}.",
        scope=scope,
        evidence=(Evidence(metric="share", value=30.0, unit="%", limit=20.0),),
        remedies=(Remedy(f"Mend {code}."),),
        recoverable=None if low is None else Share(low + 0.1, low, low + 0.2),
    )


DRIFT = finding("EXP008", Severity.CRITICAL)
NOISE = finding("EXP007", Severity.WARNING)
FEW = finding("EXP001", Severity.INFO)
WAITS = finding("INP001", Severity.CRITICAL, low=0.4)
SLOW = finding("OPT001", Severity.WARNING, low=0.1)
KNEE = finding("SWP002", Severity.INFO)

#: As the engine gives them: what is wrong with the measuring, faults, infos.
FOUND = (DRIFT, NOISE, WAITS, SLOW, FEW, KNEE)
ORDER = ["INP001", "OPT001", "EXP008", "EXP007", "EXP001", "SWP002"]


def verdict_of(one: Finding) -> Verdict:
    return Verdict(one.code, one.name, one.family, one.summary)


def diagnosis(of: Finding | None = WAITS, found: tuple[Finding, ...] = FOUND) -> Diagnosis:
    return Diagnosis(verdict=None if of is None else verdict_of(of), findings=found)


def codes(of: Diagnosis) -> list[str]:
    return [one.code for one in of.findings]


@pytest.fixture(scope="module")
def report() -> Report:
    return build_report(run_of(trial_of(forward=1.0)), diagnosis(), generated_at=GENERATED_AT)


def test_the_verdicts_finding_then_faults_doubts_and_observations() -> None:
    assert codes(in_reading_order(diagnosis())) == ORDER
    assert codes(in_reading_order(diagnosis(SLOW)))[:2] == ["OPT001", "INP001"]
    assert codes(in_reading_order(diagnosis(None))) == ORDER


def test_a_verdict_that_nothing_is_wrong_comes_first_too() -> None:
    busy = finding("CMP002", Severity.INFO)
    said = dataclasses.replace(verdict_of(busy), summary=f"No rule found a fault. {busy.summary}")
    healthy = Diagnosis(verdict=said, findings=(NOISE, FEW, busy))
    assert codes(in_reading_order(healthy)) == ["CMP002", "EXP007", "EXP001"]


def test_of_two_findings_of_the_verdicts_rule_the_one_it_quotes_is_meant() -> None:
    here, there = finding("INP001", Severity.WARNING, scope="here"), finding("INP001", Severity.WARNING, scope="there")
    assert verdict_finding(diagnosis(there, (here, there))) is there
    assert [one.scope for one in in_reading_order(diagnosis(there, (here, there))).findings] == ["there", "here"]


def test_what_is_only_to_be_known_about_the_measuring_is_no_doubt() -> None:
    assert [one.code for one in FOUND if doubts_measuring(one)] == ["EXP008", "EXP007"]


def test_that_nothing_completed_is_a_failure_and_no_doubt_about_numbers() -> None:
    lost = [trial_of(outcome=Outcome.CRASHED, reason="no data", steps=0, warmup_steps=0)]
    for results, doubted in ((lost, []), ([*lost, trial_of(batch_size=16)], ["EXP002"])):
        found = diagnose(run_of(*results)).findings
        assert "EXP002" in codes(Diagnosis(verdict=None, findings=found))
        assert [one.code for one in found if one.code == "EXP002" and doubts_measuring(one)] == doubted


def places(text: str) -> list[str]:
    """The findings in the order in which a text first tells what each found."""
    return sorted(ORDER, key=lambda code: text.index(f"{code} was found in"))


def test_every_format_tells_them_in_this_order(report: Report) -> None:
    assert codes(report.diagnosis) == ORDER
    assert [one["code"] for one in json.loads(report_json(report))["diagnosis"]["findings"]] == ORDER
    findings = next(table for table in report.tables if table.key == "findings")
    assert [row[0] for row in findings.rows] == ORDER
    assert places(diagnosis_text(diagnosis())) == ORDER
    assert places(notebook_html(report).partition("with their evidence")[2]) == ORDER
    slides = [slide.shapes.title.text_frame.text for slide in pptx.Presentation(io.BytesIO(render_pptx(report))).slides]
    assert [title[:6] for title in slides if title[:6] in ORDER] == ORDER[:4]


def test_doubts_have_a_section_of_their_own_behind_the_findings(report: Report) -> None:
    text = render_markdown(report)
    before, _, after = text.partition("## Doubts about the measuring\n")
    assert "### INP001" in before and "### EXP001" in before and "### EXP008" not in before
    assert after.index("### EXP008") < after.index("### EXP007") and "### OPT001" not in after
    page = render_html(report)
    found, doubts = page.index('id="findings"'), page.index('id="doubts"')
    assert found < page.index('<article class="finding critical" id="finding-1"') < doubts
    assert doubts < page.index('id="finding-3"')  # EXP008
    assert '<a href="#doubts">Doubts</a>' in page


def test_without_doubts_there_is_no_such_section() -> None:
    calm = build_report(run_of(trial_of(forward=1.0)), diagnosis(found=(WAITS,)), generated_at=GENERATED_AT)
    assert "Doubts" not in render_markdown(calm) and 'id="doubts"' not in render_html(calm)


def test_with_doubts_alone_it_is_said_that_no_fault_was_found() -> None:
    unsure = build_report(run_of(trial_of(forward=1.0)), diagnosis(None, (DRIFT,)), generated_at=GENERATED_AT)
    for text in (render_markdown(unsure), render_html(unsure)):
        assert "No rule found a fault in the training itself." in text


def test_what_makes_all_less_sure_is_told_in_a_clause_each() -> None:
    robbed = dataclasses.replace(
        finding("EXP010", Severity.WARNING), summary="Others had the cores; the loop waited. They used 47 %."
    )
    few = dataclasses.replace(finding("EXP001", Severity.INFO), summary="Only 5 steady steps were measured; ±203 %.")
    elsewhere = dataclasses.replace(finding("EXP009", Severity.WARNING), at_recommended=False)
    failed = finding("EXP002", Severity.WARNING)
    others = (finding("EXP007", Severity.INFO), finding("INP001", Severity.CRITICAL), elsewhere, failed)
    diagnosis = dataclasses.replace(diagnose(run_of(trial_of())), findings=(few, *others, robbed, robbed))
    assert less_sure(diagnosis) == "Only 5 steady steps were measured. Others had the cores."
    assert less_sure(dataclasses.replace(diagnosis, findings=others)) == ""
