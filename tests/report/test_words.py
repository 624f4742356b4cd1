"""Numbers and foreign text as words."""

from __future__ import annotations

import dataclasses
import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf_diagnostics.diagnose.finding import Evidence
from perf_diagnostics.report import words
from perf_diagnostics.report.charts import course
from perf_diagnostics.report.drawing import scale
from perf_diagnostics.report.formats import markdown_text
from perf_diagnostics.report.model import ReportTable, TableColumn
from perf_diagnostics.report.words import (
    between,
    byte_unit,
    cell,
    clean,
    evidence_cells,
    moment,
    number,
    percent,
    plain,
    time_unit,
)


@pytest.mark.parametrize("module", [words, scale, markdown_text, course])
def test_examples_in_docstrings_hold(module):
    result = doctest.testmod(module)
    assert result.failed == 0
    assert result.attempted > 0


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        (0, "0"),
        (0.0, "0"),
        (1234567, "1,234,567"),
        (1234.56, "1,235"),
        (0.000123, "0.000123"),
        (1.5e-7, "1.50e-07"),
        (9.999, "10.0"),
        (-2.5, "-2.50"),
        ("text", "text"),
        (True, "yes"),
    ],
)
def test_numbers_keep_their_significant_digits(value, shown):
    assert number(value) == shown


def test_a_small_share_is_not_shown_as_none_at_all():
    assert percent(0.0004) == "<0.1 %"
    assert percent(0.0) == "0 %"
    assert percent(None) == "–"
    assert percent(0.00051) == "0.1 %"


def test_percentages_in_a_table_have_one_decimal_and_other_numbers_three_digits():
    assert cell(52.349, TableColumn("Share", "%")) == "52.3"
    assert cell(0.0, TableColumn("Share", "%")) == "0"
    assert cell(52.349, TableColumn("Time", "ms", digits=4)) == "52.35"
    assert cell(None, TableColumn("Share", "%")) == "–"


def test_the_ends_of_an_interval_stay_apart():
    assert between(1999.2, 2001.9) == "1,999.2 to 2,001.9"
    assert between(0.0478, 0.0483) == "0.04780 to 0.04830"


def test_bytes_of_a_finding_are_shown_in_a_unit_that_reads_well():
    many = Evidence(metric="read", value=3 * 2**20, low=2**20, high=5 * 2**20, limit=2**19, unit="bytes")
    assert evidence_cells(many)[1:5] == ("3.00", "1.0 to 5.0", "0.500", "MiB")
    assert evidence_cells(Evidence(metric="read", value=1000.0, unit="bytes"))[1:5] == ("1,000", "–", "–", "bytes")


def test_units_follow_the_largest_value():
    assert byte_unit(3 * 2**30).name == "GiB"
    assert byte_unit(5 * 2**20).of(2.5 * 2**20) == 2.5
    assert byte_unit(2**20).of(None) is None
    assert (time_unit(12.0).name, time_unit(1.2).name, time_unit(2e-5).name) == ("s", "ms", "µs")


def test_a_moment_is_shown_in_utc_and_other_text_is_left_alone():
    assert moment("2026-11-21T09:30:00Z") == "2026-11-21 09:30 UTC"
    assert moment("2026-11-21T09:30:00+00:00") == "2026-11-21 09:30 UTC"
    assert moment("yesterday") == "yesterday"


def test_plain_text_is_one_line_without_hidden_signs():
    assert plain("a\nb\tc") == "a b c"
    assert plain("bell\x07 \u202egpj.exe \ud800") == "bell� �gpj.exe �"
    assert plain("x" * 5000, 10) == "x" * 9 + "…"
    assert plain("One step. Two steps", 10) == "One step…"  # no full stop before it
    assert plain("שלום 世界 é") == "שלום 世界 é"  # foreign scripts are no threat


@given(st.text(st.characters(), max_size=300))
def test_plain_text_is_legal_in_xml_and_stays_as_it_is(text):
    once = plain(text)
    assert plain(once) == once
    assert all(sign >= " " and not 0xD800 <= ord(sign) <= 0xDFFF and sign not in "\x7f\ufffe\uffff" for sign in once)
    once.encode()


def test_clean_reaches_every_text_and_no_number(report):
    table = ReportTable(key="k", title="bad\x00", columns=(TableColumn("c\x07"),), rows=(("r\x1b", 1.5, None),))
    cleaned = clean(dataclasses.replace(report, tables=(table,), data={"n\x00": {"deep": ["v\x00"]}}))
    assert cleaned.tables[0].title == "bad�"
    assert cleaned.tables[0].rows == (("r�", 1.5, None),)
    assert cleaned.data == {"n�": {"deep": ["v�"]}}
    assert cleaned.diagnosis.findings[0].severity is report.diagnosis.findings[0].severity
    assert clean(cleaned) == cleaned
