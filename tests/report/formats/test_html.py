"""The report as one HTML file."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.records import Run
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.html import embedded_json, render_html
from perf_diagnostics.report.words import cell, tie
from tests.report.conftest import cpu_result

VOID = {"meta", "link", "br", "input", "img", "hr", "path", "circle", "rect"}


class Page(HTMLParser):
    """Reads a page: elements with attributes, the text of each element, and whether all are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def html(report) -> str:
    return render_html(report)


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


def plain(html: str) -> str:
    """What a reader sees, with ordinary blanks."""
    body = re.sub(r"<(style|script)\b.*?</\1>", "", html, flags=re.S)
    text = re.sub(r"<[^>]+>", " ", body).replace("\N{NO-BREAK SPACE}", " ")
    for entity, sign in (("&#39;", "'"), ("&#34;", '"'), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(entity, sign)
    return " ".join(text.split())


def test_every_element_is_closed_and_every_name_is_unique(page):
    assert page.open == []
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))


def test_it_loads_nothing(html, page):
    assert not re.search(r"(?:src|href|action|data|srcset)\s*=\s*[\"']?(?:https?:)?//", html)
    assert "url(" not in html
    assert "@import" not in html
    for tag in ("img", "iframe", "object", "embed", "audio", "video", "source", "base", "form"):
        assert page.all(tag) == []
    assert {a.get("href") for a in page.all("link")} == {"data:,"}
    assert all(a["href"].startswith("#") for a in page.all("a"))


def test_its_policy_forbids_loading(page):
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:")


def test_it_is_small(html):
    assert len(html.encode()) < 300_000


def test_links_lead_somewhere(page):
    names = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert {a["href"][1:] for a in page.all("a")} <= names
    labels = {a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a}
    assert {name for label in labels for name in label.split()} <= names


def test_the_answer_and_every_trial_are_in_it(html, report):
    text = plain(html)
    assert report.headline in text
    for sentence in report.answer:
        assert " ".join(sentence.split()) in text
    trials = next(table for table in report.tables if table.key == "trials")
    for row in trials.rows:
        shown = [cell(v, c) + (" not measured" if v is None else "") for v, c in zip(row, trials.columns, strict=True)]
        assert " ".join(shown) in text


def test_a_value_nobody_measured_is_a_dash_that_explains_itself_and_zero_is_zero(html):
    assert '<td class="number absent" title="not measured">' in html
    row = re.search(
        r'<th scope="row" class="word short">cpu</th>\s*<td[^>]*>512</td>\s*(<td[^>]*>.*?</td>)', html, re.S
    )
    assert row is not None
    assert ">0<" in row[1]
    assert "absent" not in row[1]


def test_tables_are_readable_to_screen_readers(page):
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(a.get("scope") in ("col", "row") for a in page.all("th"))
    assert ("lang", "en") in page.all("html")[0].items()
    assert page.elements[[tag for tag, _ in page.elements].index("body") + 1] == (
        "a",
        {"class": "skip", "href": "#answer"},
    )


def test_findings_have_a_sign_a_word_and_their_evidence(html, report):
    text = plain(html)
    for finding in report.diagnosis.findings:
        assert f"{finding.severity} {finding.code} {finding.name.replace('-', ' ')}" in text
        assert finding.summary in text
        for item in finding.evidence:
            assert item.metric in text
    assert "optimizer_implementation='fused'" in text
    assert "batch_size=32, accumulation_steps=4" in text
    assert "could win back 3.1 % of the step's time (2.4 to 3.6 %), predicted, not measured" in text
    assert "share of optimizer 0.0480 0.04780 to 0.04830 0.0300 of the step 40 host clock" in text


def test_what_was_cleared_and_what_could_not_be_checked_is_there_but_folded(html):
    assert "Cleared: 2 rules looked and found nothing wrong" in html
    assert "Not checked: 2 rules could not look, and why" in html
    assert "<details>" in html
    assert "<details open>" not in html


def test_the_data_in_it_is_the_report(html, report):
    text = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', html, re.S)
    assert text is not None
    data = json.loads(text[1])
    assert data["headline"] == report.headline
    assert len(data["data"]["trials"]) == 15


def test_embedded_data_cannot_end_its_element():
    text = embedded_json({"a": "</script><!-- &\u2028"})
    assert "<" not in text
    assert ">" not in text
    assert "&" not in text
    assert json.loads(text) == {"a": "</script><!-- &\u2028"}


def test_both_colour_schemes_and_paper_are_styled(html):
    assert "@media screen and (prefers-color-scheme: dark)" in html
    assert "@media print" in html
    assert "prefers-reduced-motion" in html


def test_the_printed_page_has_no_scripts_and_folds_nothing(report):
    printed = render_html(report, "print")
    assert "<script" not in printed
    assert "<nav" not in printed
    assert "<details>" not in printed
    assert "var(--mark" not in re.sub(r"<style>.*?</style>", "", printed, flags=re.S)


def test_without_a_completed_trial(empty_report):
    text = plain(render_html(empty_report))
    assert "No verdict No trial completed." in text
    assert "planned, not run" in text
    Page(render_html(empty_report))


def test_equal_reports_make_equal_pages(report, html):
    assert render_html(report) == html


def test_numbers_are_tied_to_their_units():
    assert tie("12 ms of 95 % at 3 samples/s, 3 models") == "12\xa0ms of 95\xa0% at 3\xa0samples/s, 3 models"


def test_what_to_change_stands_before_the_findings_with_its_gain_in_time_and_in_speed(report, html):
    text = " ".join(plain(html).split())
    change = report.changes[0]
    assert text.index("What to change") < text.index(change.says) < text.index("Findings", text.index(change.says))
    assert "1.03 times as fast (1.02 to 1.04)" in text and "a fix could save 3 % of the time (2 to 4 %)" in text
    anchor = next(f"finding-{i + 1}" for i, f in enumerate(report.diagnosis.findings) if change.key.endswith(f.scope))
    assert f'href="#{anchor}"' in html


def test_the_first_screen_says_what_is_slow_how_sure_that_is_what_to_change_and_what_it_wins(report, html):
    text = plain(html[html.index('id="answer"') :]).replace("&nbsp;", " ")
    verdict = report.diagnosis.verdict
    sure = next(f.confidence for f in report.diagnosis.findings if f.code == verdict.code)
    told = [report.headline, report.changes[0].says, "times as fast", report.key_figures[0].label]
    places = [text.index(tie(words).replace("\xa0", " ")) for words in told]
    assert places == sorted(places)
    assert f"{verdict.name} confidence {100 * sure:.0f} %" in text[: places[0]]


def test_without_a_verdict_nothing_is_sure(empty_report):
    assert 'class="sure"' not in render_html(empty_report)


def test_a_single_trial_is_told_from_the_top_down():
    result = cpu_result(8)
    run = Run(name="r", created_at="", tool_version="0", planned=(result.trial,), results=(result,))
    alone = render_html(build_report(run, Diagnosis(verdict=None), generated_at=""))
    section = alone[alone.index('id="trials"') : alone.index('id="not-measured"')]
    assert "The trial" in section and section.count('scope="row"') >= 10  # one a column of the table
    assert "<th" in section and 'scope="col"' in section
