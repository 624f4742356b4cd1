"""A comparison of two runs in words that every format shares: headline, table cells, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.diagnose.compare.comparison import Comparison, Missing, Row, Verdict
from perf_diagnostics.diagnose.compare.gates import Check, State
from perf_diagnostics.diagnose.compare.matching import in_words
from perf_diagnostics.diagnose.facts.asked_for import asked_for
from perf_diagnostics.records import Run
from perf_diagnostics.report.words import DASH, byte_unit, counted, listing, number, plain, time_unit

HEADINGS = ("Configuration", "Metric", "BASE", "NEW", "NEW/BASE", "95 % interval", "p", "Runs", "Verdict")

#: Which of these columns hold numbers, and are set to the right.
NUMERIC = (False, False, True, True, True, True, True, True, False)

#: Longer names are cut: a hostile one must not push the numbers off the screen.
_NAME_LIMIT = 80
_REASON_LIMIT = 300


def headline(comparison: Comparison) -> str:
    """What changed, in one or two sentences."""
    worse, better = (_told(comparison.with_verdict(verdict)) for verdict in (Verdict.WORSE, Verdict.BETTER))
    parts = [
        "BASE and NEW were measured under different conditions." if comparison.surroundings.mismatches else "",
        f"NEW is worse: {listing(worse)}." if worse else "",
        f"NEW is better: {listing(better)}." if better else "",
    ]
    undecided = comparison.with_verdict(Verdict.INCONCLUSIVE)
    too_few = comparison.with_verdict(Verdict.NOT_ENOUGH_RUNS)
    lost = [completion for completion in comparison.completions if completion.lost]
    if lost:
        parts.append(f"{counted(len(lost), 'configuration')} completed in BASE and not in NEW.")
    if not comparison.rows:
        parts.append("No configuration completed in both runs, so there is nothing to compare.")
    elif not worse and not better and not undecided and not too_few:
        parts.append(f"No difference beyond {100 * comparison.threshold:g} % anywhere.")
    elif not worse and not better:
        parts.append("No difference was shown.")
    if undecided:
        compared = counted(len(comparison.rows), "comparison")
        parts.append(f"{len(undecided)} of {compared} inconclusive: more repeats or a quieter machine would tell.")
    if too_few:
        parts.append(f"{too_few[0].why[0].upper()}{too_few[0].why[1:]}.")
    return " ".join(part for part in parts if part)


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table, by :data:`HEADINGS`; a quotient that is no evidence stands in brackets."""
    ratio = f"{row.ratio.value:.3f}"
    no_interval = row.ratio.low is None or row.ratio.high is None
    return (
        plain(row.configuration, _NAME_LIMIT),
        row.metric.title,
        value_in_unit(row.base, row),
        value_in_unit(row.new, row),
        f"({ratio})" if no_interval else ratio,
        interval(row),
        DASH if row.p_value is None else ("<0.001" if row.p_value < 0.001 else f"{row.p_value:.3f}"),
        f"{row.base_processes} / {row.new_processes}",
        row.word,
    )


def interval(row: Row) -> str:
    if row.ratio.low is None or row.ratio.high is None:
        return DASH
    return f"{row.ratio.low:.3f} to {row.ratio.high:.3f}"


def value_in_unit(value: float, row: Row) -> str:
    """``12.3 ms``; both sides of a row are shown in the same unit."""
    largest = max(row.base, row.new)
    if row.metric.unit == "s":
        unit = time_unit(largest)
    elif row.metric.unit == "bytes":
        unit = byte_unit(largest)
    else:
        return f"{number(value)} {row.metric.unit}"
    return f"{number(unit.of(value), 4 if row.metric.unit == 'bytes' else 3)} {unit.name}"


def method(comparison: Comparison) -> str:
    """How the numbers came to be."""
    threshold = f"{100 * comparison.threshold:g} %"
    return (
        "Each run of a configuration is one process and one value. NEW/BASE is the ratio of their geometric means, "
        "with its 95 % interval by Welch's method on logarithms; p allows for the number of questions asked (Holm). "
        f"Different: p below 0.05 and more than {threshold} apart. Same: the whole interval within {threshold}. "
        "A ratio in brackets is no evidence."
    )


def run_line(title: str, run: Run) -> str:
    """``BASE: before, made 2026-11-21 03:27, 6 of 6 trials completed``; a training of one's own is called one."""
    asked = asked_for(run)
    planned = counted(len(asked.results) + len(asked.pending), "training" if run.of_own_training else "trial")
    made = f"{plain(run.name, _NAME_LIMIT)}, made {plain(run.created_at[:16].replace('T', ' '))}"
    return f"{title}: {made}, {len(asked.completed)} of {planned} completed"


def varied_lines(comparison: Comparison) -> list[str]:
    return [
        plain(f"{one.name}: {_either(one.base)} in BASE, {_either(one.new)} in NEW", _REASON_LIMIT)
        for one in comparison.varied
    ]


def missing_lines(comparison: Comparison) -> list[str]:
    """What did not run or did not complete, on either side."""
    return [_missing_line(one) for one in comparison.missing]


def not_compared_lines(comparison: Comparison) -> list[str]:
    return [
        plain(f"{one.metric.title} of {plain(one.configuration, _NAME_LIMIT)}: {one.why}", _REASON_LIMIT)
        for one in comparison.not_compared
    ]


def surroundings_lines(comparison: Comparison) -> list[str]:
    found = comparison.surroundings
    return [
        *(plain(f"NOT COMPARABLE: {one.says}", _REASON_LIMIT) for one in found.mismatches),
        *(plain(one.says, _REASON_LIMIT) for one in found.notes),
    ]


def check_lines(checks: Sequence[Check]) -> list[str]:
    """One line for each check that did not hold, and one that counts those that did."""
    lines = [
        plain(f"{one.state}: {one.gate.says}{_of(one.configuration)}: {one.why}", _REASON_LIMIT)
        for state in (State.FAILED, State.UNDECIDED)
        for one in checks
        if one.state is state
    ]
    held = sum(one.state is State.HELD for one in checks)
    return [*lines, f"held: {held} of {counted(len(checks), 'check')}"] if checks else []


def sections(comparison: Comparison, checks: Sequence[Check]) -> list[tuple[str, list[str]]]:
    """All lists below the table that have something to say, in reading order."""
    found = [
        ("Gates", check_lines(checks)),
        ("Missing and failed", missing_lines(comparison)),
        ("Not compared", not_compared_lines(comparison)),
        ("Varied on purpose", varied_lines(comparison)),
        ("Other differences between the two runs", surroundings_lines(comparison)),
    ]
    return [(title, lines) for title, lines in found if lines]


def _told(rows: Sequence[Row]) -> list[str]:
    """Each change once: throughput is told only where step time is not."""
    spoken = {(row.configuration, row.metric.question): row for row in reversed(rows)}
    return [
        f"{plain(row.configuration, _NAME_LIMIT)} {row.word} ({row.metric.title} {100 * (row.ratio.value - 1):+.1f} %)"
        for row in rows
        if spoken[row.configuration, row.metric.question] is row
    ]


def _missing_line(one: Missing) -> str:
    name = plain(one.configuration, _NAME_LIMIT)
    if not one.of:
        return f"{name}: {one.why}"
    return plain(f"{name}: {one.count} of {counted(one.of, 'trial')} in {one.side}: {one.why}", _REASON_LIMIT)


def _of(configuration: str) -> str:
    return f", {plain(configuration, _NAME_LIMIT)}" if configuration else ""


def _either(values: Sequence[object]) -> str:
    return listing([in_words(value) for value in values])  # type: ignore[arg-type]
