"""Every rule is documented in the same form, and docs/rules.md is made from that."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from perf_diagnostics.diagnose import RULES, explain, rules_page
from perf_diagnostics.diagnose.finding import Family
from perf_diagnostics.diagnose.rule import SECTIONS, thresholds_of
from perf_diagnostics.diagnose.rule_pages import sections_of
from perf_diagnostics.errors import InvalidSettings

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


def test_codes_and_names_are_unique():
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


@each_rule
def test_a_code_is_its_family_and_three_digits(rule):
    assert isinstance(rule.family, Family)
    assert re.fullmatch(rf"{rule.family}\d{{3}}", rule.code)
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z]+)*", rule.name)
    assert rule.looks_at in ("trial", "group", "run")


@each_rule
def test_a_rule_lives_in_the_file_of_its_code(rule):
    assert type(rule).__module__.rpartition(".")[2] == f"{rule.code.lower()}_{rule.name.replace('-', '_')}"


@each_rule
def test_a_rule_is_frozen_and_says_what_each_threshold_means(rule):
    assert type(rule).__dataclass_params__.frozen
    for threshold in thresholds_of(rule):
        assert threshold.type in ("float", "int")
        assert isinstance(threshold.default, float if threshold.type == "float" else int)
        assert threshold.metadata["says"]
        assert threshold.metadata["source"]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(rule, threshold.name, 0)


@each_rule
def test_a_docstring_has_its_sections_in_order(rule):
    head, body = sections_of(rule)
    assert head.endswith(".")
    assert tuple(body) == SECTIONS
    assert all(len(text) > 40 for text in body.values())


def test_explain_gives_the_sections_and_thresholds_as_markdown():
    text = explain("inp001")
    assert text.startswith("# INP001 input-bound\n\nThe training waits for its next batch.")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        *(f"## {title}" for title in SECTIONS),
        "## Thresholds",
    ]
    assert "| `warn_share` | 0.1 |" in text


def test_explain_of_a_rule_without_thresholds_has_no_empty_table():
    assert "Thresholds" not in explain("EXP002")


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("INP01", ["INP001"]),
        ("inp1", ["INP001"]),
        ("XFR999", ["XFR001", "XFR002", "XFR003"]),  # the family
        ("input", ["INP001"]),  # input-bound
        ("slow batch", ["INP002"]),  # slow-batches
    ],
)
def test_explain_of_an_unknown_rule_names_the_nearest(asked: str, near: list[str]):
    with pytest.raises(InvalidSettings, match=f"There is no rule '{asked}'; the nearest are {near[0]} ") as told:
        explain(asked)
    assert all(code in str(told.value) for code in near)


@pytest.mark.parametrize("asked", ["XYZ999", "", "?"])
def test_explain_of_what_is_like_no_rule_says_where_they_are_listed(asked: str):
    with pytest.raises(InvalidSettings, match="`perf-diagnostics explain` lists all") as told:
        explain(asked)
    assert "nearest" not in str(told.value)


def test_explain_takes_a_rules_name_too():
    assert explain("input-bound") == explain(" inp001 ")


def test_the_page_in_docs_is_up_to_date():
    """If this fails: write rules_page() to docs/rules.md again."""
    assert PAGE.read_text(encoding="utf-8") == rules_page()


def test_the_page_links_to_every_rule():
    text = rules_page()
    headings = {line[3:].lower().replace(" ", "-") for line in text.splitlines() if line.startswith("## ")}
    for rule in RULES:
        assert f"(#{rule.code.lower()}-{rule.name})" in text
        assert f"{rule.code.lower()}-{rule.name}" in headings
