"""A comparison in words: terminal, Markdown and JSON, and names that try to break them."""

from __future__ import annotations

import json

import pytest

from perf_diagnostics.diagnose.compare.comparing import compare
from perf_diagnostics.diagnose.compare.comparison import Comparison
from perf_diagnostics.diagnose.compare.gates import Check, check, parse_gates
from perf_diagnostics.records import Outcome
from perf_diagnostics.report.comparison.comparison_json import comparison_json
from perf_diagnostics.report.comparison.comparison_markdown import comparison_markdown
from perf_diagnostics.report.comparison.comparison_text import comparison_text
from perf_diagnostics.report.comparison.comparison_words import headline
from tests.diagnose.two_runs import ended, machine, named, on, processes, times


def slowed() -> Comparison:
    """Batch 8 slower by 10 %, batch 16 run once a side, batch 32 out of memory in NEW."""
    unread = {"gaps": {"host_memory_peak": "no /proc"}}
    base = named(
        "before", *times(0.01, **unread), *processes(0.02, batch_size=16, **unread), *processes(0.04, batch_size=32)
    )
    broken = ended(Outcome.OUT_OF_MEMORY_HOST, "40 GiB asked for", batch_size=32)
    new = named("after", *times(0.011, **unread), *processes(0.03, batch_size=16, **unread), broken)
    return compare(base, new)


def checks_of(comparison: Comparison) -> tuple[Check, ...]:
    return check(comparison, parse_gates(["step_time:5%"]))


TEXT = """\
NEW is worse: synthetic cpu batch 8 slower (step time +10.0 %). 1 configuration completed in BASE and not in
NEW. Not enough runs to compare (1 against 1): measure each several times (sweep --repeats 5).

BASE: before, made 2025-01-01 00:00, 7 of 7 trials completed
NEW : after, made 2025-01-01 00:00, 6 of 7 trials completed

Configuration           Metric               BASE            NEW  NEW/BASE   95 % interval       p   Runs  Verdict
synthetic cpu batch 8   step time         10.0 ms        11.0 ms     1.100  1.087 to 1.113  <0.001  5 / 5  slower
                        throughput  800 samples/s  727 samples/s     0.909  0.899 to 0.920  <0.001  5 / 5  slower
synthetic cpu batch 16  step time         20.0 ms        30.0 ms   (1.500)               –       –  1 / 1  not enough runs
                        throughput  800 samples/s  533 samples/s   (0.667)               –       –  1 / 1  not enough runs

Each run of a configuration is one process and one value. NEW/BASE is the ratio of their geometric means, with
its 95 % interval by Welch's method on logarithms; p allows for the number of questions asked (Holm).
Different: p below 0.05 and more than 2 % apart. Same: the whole interval within 2 %. A ratio in brackets is
no evidence.

Gates:
  failed: missing, synthetic cpu batch 32: 0 of 1 trial completed in NEW, 1 of 1 in BASE
  failed: step_time:5%, synthetic cpu batch 8: 10 % worse (8.7 % worse to 11 % worse), limit 5.0 %
  undecided: step_time:5%, synthetic cpu batch 16: not enough runs to compare (1 against 1): measure each
    several times (sweep --repeats 5)
  held: 2 of 5 checks

Missing and failed:
  synthetic cpu batch 32: 1 of 1 trial in NEW: out of memory host: 40 GiB asked for

Not compared:
  peak memory of synthetic cpu batch 8: not measured in BASE: no /proc
  peak memory of synthetic cpu batch 16: not measured in BASE: no /proc"""  # noqa: E501  a table as wide as it is


def test_the_text_a_person_reads():
    comparison = slowed()
    assert comparison_text(comparison, checks_of(comparison)) == TEXT


def test_headlines():
    equal = times(1.0)
    assert headline(compare(named("a", *equal), named("b", *equal))) == "No difference beyond 2 % anywhere."
    noisy = processes(0.5, 1.0, 2.0)
    assert headline(compare(named("a", *noisy), named("b", *noisy))) == (
        "No difference was shown. 2 of 2 comparisons inconclusive: more repeats or a quieter machine would tell."
    )
    broken = [ended(Outcome.CRASHED)]
    assert headline(compare(named("a", *broken), named("b", *broken))) == (
        "No configuration completed in both runs, so there is nothing to compare."
    )
    better = compare(named("a", *times(1.0)), named("b", *times(0.8)))
    assert headline(better) == "NEW is better: synthetic cpu batch 8 faster (step time -20.0 %)."


def test_a_mismatch_that_was_allowed_is_said_first():
    comparison = compare(
        named("a", *on(machine(torch="2.12"), times(1.0))), named("b", *on(machine(torch="2.13"), times(1.0)))
    )
    text = comparison_text(comparison)
    assert text.startswith("BASE and NEW were measured under different conditions.")
    assert "NOT COMPARABLE: torch version: 2.12 in BASE, 2.13 in NEW" in text


def test_what_is_varied_is_told():
    base, new = named("a", *times(1.0, settings={"threads": 1})), named("b", *times(1.0))
    text = comparison_text(compare(base, new, vary=["threads"]))
    assert "Varied on purpose:\n  threads: 1 in BASE, left to the workload in NEW" in text


def test_markdown_holds_the_same_table():
    comparison = slowed()
    text = comparison_markdown(comparison, checks_of(comparison))
    assert "\n| synthetic cpu batch 8 | step time | 10.0 ms | 11.0 ms | 1.100 | 1.087 to 1.113 |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 4
    assert {line.count("|") for line in rows} == {10}
    assert "- synthetic cpu batch 32: 1 of 1 trial in NEW: out of memory host: 40 GiB asked for" in text


def test_json_holds_every_number_and_null_where_there_is_none():
    comparison = slowed()
    document = json.loads(json.dumps(comparison_json(comparison, checks_of(comparison)), allow_nan=False))
    first, _, third, _ = document["rows"]
    assert first["ratio"] == pytest.approx(1.1)
    assert first["ratio_low"] < 1.1 < first["ratio_high"]
    assert (first["metric"], first["unit"], first["verdict"], first["says"]) == ("step_time", "s", "worse", "slower")
    assert (third["ratio_low"], third["p_value_adjusted"], third["verdict"]) == (None, None, "not enough runs")
    assert document["missing"] == [
        {
            "configuration": "synthetic cpu batch 32",
            "side": "NEW",
            "count": 1,
            "planned": 1,
            "why": "out of memory host: 40 GiB asked for",
        }
    ]
    assert [gate["state"] for gate in document["gates"]] == ["held", "held", "failed", "failed", "undecided"]
    assert (document["base"]["name"], document["new"]["completed"], document["threshold"]) == ("before", 6, 0.02)


HOSTILE = "x|y<script>alert(1)</script>\n# heading\n\x1b[31mred\u202e `code` ]]> &amp; [a](http://b)"


def hostile() -> Comparison:
    base = named(HOSTILE, *times(1.0, workload=HOSTILE, options={HOSTILE: HOSTILE}))
    broken = ended(Outcome.CRASHED, HOSTILE, repeat=5, workload=HOSTILE, options={HOSTILE: HOSTILE})
    return compare(base, named("new", *times(1.1, workload=HOSTILE, options={HOSTILE: HOSTILE}), broken))


def test_hostile_names_change_no_line_of_the_terminal():
    text = comparison_text(hostile())
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not [line for line in text.splitlines() if line.lstrip().startswith("# heading")]


def test_hostile_names_are_inert_in_markdown():
    comparison = hostile()
    text = comparison_markdown(comparison, checks_of(comparison))
    assert "<script" not in text
    assert "](http" not in text.replace("\\](", "")
    assert not [line for line in text.splitlines() if line.startswith("# heading")]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    # Nine cells have ten bars; those of a name are escaped.
    assert {line.replace("\\|", "").count("|") for line in rows} == {10}


def test_long_names_are_cut():
    comparison = compare(*(named("r" * 5000, *times(1.0, workload="w" * 5000)) for _ in range(2)))
    assert max(len(line) for line in comparison_text(comparison).splitlines()) < 250
    assert len(comparison_markdown(comparison)) < 5000
