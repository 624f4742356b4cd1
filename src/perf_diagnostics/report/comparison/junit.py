"""A comparison of two runs as JUnit XML: one test case a configuration and metric, for whatever shows test results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree  # written only, never parsed
from xml.etree.ElementTree import Element, SubElement

from perf_diagnostics.diagnose.compare.comparison import Comparison, Row, Verdict
from perf_diagnostics.diagnose.compare.gates import MISSING, Check, State, failing
from perf_diagnostics.report.comparison.comparison_words import cells
from perf_diagnostics.report.words import counted, plain


def junit_xml(comparison: Comparison, checks: Sequence[Check], *, strict: bool) -> str:
    """The comparison as one test suite.

    A gate that failed is a failure; a row without enough runs, a metric without values and a gate that could not be
    decided are skipped (with ``strict`` such a gate fails too). Everything else passes, also what got worse without a
    gate: a test that nobody asked for must not fail a build. Beside the metrics each configuration has a case
    ``completed``.
    """
    suite = Element("testsuite", name=plain(f"compare {comparison.base.name} {comparison.new.name}"))
    for row in comparison.rows:
        case = _case(suite, row.configuration, row.metric.name)
        skipped = row.why if row.verdict is Verdict.NOT_ENOUGH_RUNS else ""
        _judge(case, _about(checks, row.configuration, row.metric.name), skipped, strict=strict)
        SubElement(case, "system-out").text = _says(row)
    for one in comparison.not_compared:
        case = _case(suite, one.configuration, one.metric.name)
        _judge(case, _about(checks, one.configuration, one.metric.name), one.why, strict=strict)
    for completion in comparison.completions:
        case = _case(suite, completion.configuration, "completed")
        told = (
            f"{completion.new} of {completion.new_planned} in NEW, "
            f"{completion.base} of {completion.base_planned} in BASE"
        )
        skipped = "" if completion.base and completion.new else f"nothing to compare: completed {told}"
        _judge(case, _about(checks, completion.configuration, MISSING), skipped, strict=strict)
        reasons = [f"{m.side}: {m.why}" for m in comparison.missing if m.configuration == completion.configuration]
        SubElement(case, "system-out").text = plain("; ".join([told, *reasons]))
    for one_check in (check for check in checks if not check.configuration):
        _judge(_case(suite, "all configurations", one_check.gate.metric), [one_check], "", strict=strict)
    counts = {
        "tests": str(len(suite)),
        "failures": str(len(suite.findall("testcase/failure"))),
        "errors": "0",
        "skipped": str(len(suite.findall("testcase/skipped"))),
    }
    suite.attrib |= counts
    suites = Element("testsuites", {"name": "perf-diagnostics", **counts})
    suites.append(suite)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _case(suite: Element, configuration: str, name: str) -> Element:
    return SubElement(suite, "testcase", classname=plain(configuration), name=name)


def _about(checks: Iterable[Check], configuration: str, metric: str) -> list[Check]:
    return [one for one in checks if one.configuration == configuration and one.gate.metric == metric]


def _judge(case: Element, checks: Sequence[Check], skipped: str, *, strict: bool) -> None:
    """Mark a case as failed or skipped; a case has one of the two at most."""
    failed = failing(checks, strict=strict)
    undecided = [one.why for one in checks if one.state is State.UNDECIDED]
    if failed:
        message = plain("; ".join(f"{one.gate.says} {one.state}: {one.why}" for one in failed))
        SubElement(case, "failure", message=message, type="gate").text = message
    elif skipped or undecided:
        SubElement(case, "skipped", message=plain(skipped or "; ".join(undecided)))


def _says(row: Row) -> str:
    _, title, base, new, ratio, interval, p_value, _, verdict = cells(row)
    runs = f"{counted(row.base_processes, 'run')} against {row.new_processes}"
    return plain(f"{title}: {base} in BASE, {new} in NEW, ratio {ratio} ({interval}), p {p_value}, {runs}: {verdict}")
