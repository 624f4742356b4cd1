"""JUnit XML: failures, skips and passes as tools that read it count them."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from perf_diagnostics.diagnose.compare.comparing import compare
from perf_diagnostics.diagnose.compare.comparison import Comparison
from perf_diagnostics.diagnose.compare.gates import check, parse_gates
from perf_diagnostics.records import Outcome
from perf_diagnostics.report.comparison.junit import junit_xml
from tests.diagnose.two_runs import ended, named, processes
from tests.report.comparison.test_comparison import HOSTILE, hostile, slowed


def cases(comparison: Comparison, *gates: str, strict: bool = False) -> tuple[Element, dict[tuple[str, str], str]]:
    """The suite, and what became of each test case: ``passed``, or the tag that says otherwise."""
    text = junit_xml(comparison, check(comparison, parse_gates(gates)), strict=strict)
    suites = ElementTree.fromstring(text)
    (suite,) = suites
    assert suites.attrib.items() >= {(name, suite.attrib[name]) for name in ("tests", "failures", "skipped")}
    endings: dict[tuple[str, str], str] = {}
    for case in suite:
        tags = [child.tag for child in case if child.tag != "system-out"]
        assert len(tags) < 2
        endings[case.attrib["classname"].removeprefix("synthetic cpu "), case.attrib["name"]] = (tags or ["passed"])[0]
    return suite, endings


def test_without_gates_nothing_fails():
    suite, endings = cases(slowed())
    assert endings == {
        ("batch 8", "step_time"): "passed",
        ("batch 8", "throughput"): "passed",
        ("batch 16", "step_time"): "skipped",  # one run a side
        ("batch 16", "throughput"): "skipped",
        ("batch 8", "peak_memory"): "skipped",  # not measured
        ("batch 16", "peak_memory"): "skipped",
        ("batch 8", "completed"): "passed",
        ("batch 16", "completed"): "passed",
        ("batch 32", "completed"): "skipped",  # out of memory in NEW
    }
    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["skipped"]) == ("9", "0", "5")


def test_a_gate_that_failed_is_a_failure_with_its_numbers():
    suite, endings = cases(slowed(), "step_time:5%")
    assert [name for name, ending in endings.items() if ending == "failure"] == [
        ("batch 8", "step_time"),
        ("batch 32", "completed"),
    ]
    assert suite.attrib["failures"] == "2"
    (failure, *_) = suite.iter("failure")
    assert failure.attrib["message"] == "step_time:5% failed: 10 % worse (8.7 % worse to 11 % worse), limit 5.0 %"


def test_a_gate_that_could_not_be_decided_is_skipped_or_with_strict_a_failure():
    assert cases(slowed(), "step_time:5%")[1]["batch 16", "step_time"] == "skipped"
    assert cases(slowed(), "step_time:5%", strict=True)[1]["batch 16", "step_time"] == "failure"


def test_a_gate_with_nothing_to_compare_has_a_case_of_its_own():
    comparison = compare(*(named(name, ended(Outcome.CRASHED)) for name in ("a", "b")))
    assert cases(comparison, "step_time:5%")[1]["all configurations", "step_time"] == "skipped"
    assert cases(comparison, "step_time:5%", strict=True)[1]["all configurations", "step_time"] == "failure"


def test_each_case_says_its_numbers():
    suite, _ = cases(slowed())
    assert next(out.text for out in suite.iter("system-out")) == (
        "step time: 10.0 ms in BASE, 11.0 ms in NEW, ratio 1.100 (1.087 to 1.113), p <0.001, 5 runs against 5: slower"
    )
    assert [out.text for out in suite.iter("system-out")][-1] == (
        "0 of 1 in NEW, 1 of 1 in BASE; NEW: out of memory host: 40 GiB asked for"
    )


def test_hostile_names_are_inert():
    suite, _ = cases(hostile(), "step_time:5%", "missing")
    assert {child.tag for child in suite.iter()} == {"testsuite", "testcase", "failure", "skipped", "system-out"}
    names = {case.attrib["classname"] for case in suite}
    assert any("<script>alert(1)</script> # heading" in name for name in names)
    assert not any("\x1b" in name for name in names)
    assert "\x1b" in HOSTILE


@pytest.mark.parametrize("character", ["\x00", "\x0b", "\ud800", "\ufffe", "\uffff"])
def test_characters_that_xml_forbids_do_not_break_it(character: str):
    trials = processes(1.0, 1.0, workload=f"a{character}b")
    suite, _ = cases(compare(named("a", *trials), named("b", *trials)))
    assert suite[0].attrib["classname"] == "a\N{REPLACEMENT CHARACTER}b cpu batch 8"
