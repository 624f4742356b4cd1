"""What was tried of the advice, for the report: one table, and a sentence on what was tried in vain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Diagnosis, Tried, Trying
from perf_diagnostics.diagnose.tried.outcomes import LEAST_PAIRS, shown, tells, where_of, won
from perf_diagnostics.report.arms import Arm, throughput
from perf_diagnostics.report.model import Basis, Cell, ReportTable, TableColumn, told_once
from perf_diagnostics.report.words import between, change_in_code, counted, figure, listing, number, plain

if TYPE_CHECKING:
    import pandas

#: The key of the table, for sentences that rest on it.
TRIED = "tried"

#: What stands behind the change where it is no advice, or more than a matter of speed.
_CEILING = "ceiling, no way to train"
_CHANGES = "changes the optimisation"

#: A base that ran faster or slower than in the run by less than this is the same to a reader.
_ANOTHER_PACE = 0.05


def tried_table(diagnosis: Diagnosis, arms: Sequence[Arm]) -> ReportTable:
    """One row a change that was tried or could have been, in the order in which it was."""
    devices = {arm.group.label: arm.group.device for arm in arms}
    columns = (
        TableColumn("Finding", numeric=False),
        TableColumn("Where", numeric=False),
        TableColumn("Change", numeric=False),
        TableColumn("Result", numeric=False),
        TableColumn("Predicted", "%", numeric=False),
        TableColumn("Gain", "%"),
        TableColumn("at least", "%"),
        TableColumn("at most", "%"),
        TableColumn("Base to changed", "samples/s", numeric=False),
        TableColumn("Pairs"),
        TableColumn("Note", numeric=False),
    )
    shared = _shared_reasons(diagnosis.tried)
    return ReportTable(
        key=TRIED,
        title="What was tried",
        columns=columns,
        rows=tuple(_row(one, shared, devices) for one in diagnosis.tried),
        note=" ".join(
            [*_NOTE, *_of_not_settled(diagnosis.tried), *(_not_tried(why, codes) for why, codes in shared.items())]
        ),
    )


_NOTE = (
    "Each change ran beside its base in pairs of trials, in alternating order. The gain is the part of the time a "
    "sample takes that the change saves (negative: it costs), with its 95 % interval over the pairs; “predicted” is "
    "what the finding promised before the first of them ran. Confirmed: the whole interval lies at or above 2 %; "
    f"refuted: below; with fewer than {LEAST_PAIRS} pairs it is too early to say.",
    "The base ran anew for this, so that it may be faster or slower here than elsewhere in the report; a pair compares "
    "trials that ran one after the other.",
    "A ceiling says what a perfect fix could win; it trains nothing useful.",
)


def _of_not_settled(tried: Sequence[Tried]) -> list[str]:
    """What is meant by it, where something had not settled."""
    if not any(one.verdict is Trying.NOT_SETTLED for one in tried):
        return []
    return ["Not settled: the warm-up was not over when the trials were measured, so that they say nothing about it."]


def tried_on_a_slide(table: ReportTable) -> ReportTable:
    """The same table in fewer columns, so that none is cut; what they say besides goes to the speaker's notes."""
    labels = [column.label for column in table.columns]
    changes = [row[labels.index("Change")] for row in table.rows]
    said = [f"{change}: {words}" for change, words in zip(changes, notes_of(table), strict=True) if words]
    brief = told_briefly(table)
    return replace(brief, note=" ".join([brief.note, *(f"{words}." for words in said)]))


def told_briefly(table: ReportTable) -> ReportTable:
    """The same table as wide as a page: the interval beside its gain, without the notes (:func:`notes_of`).

    Where all were tried in one place, that is told in the table's note.
    """
    labels = [column.label for column in table.columns]
    rows = [dict(zip(labels, row, strict=True)) for row in table.rows]
    kept = ("Finding", "Where", "Change", "Result", "Predicted", "Gain", "Base to changed", "Pairs")
    columns = tuple(table.columns[labels.index(name)] for name in kept)
    brief = replace(
        table,
        columns=tuple(replace(one, numeric=False) if one.label == "Gain" else one for one in columns),
        rows=tuple(tuple(_ends(row) if name == "Gain" else row[name] for name in kept) for row in rows),
    )
    return told_once(brief, "Where", words="All are about {}")


def notes_of(table: ReportTable) -> tuple[str, ...]:
    """What is said besides of each row, "" where nothing is."""
    column = [column.label for column in table.columns].index("Note")
    return tuple(str(row[column] or "") for row in table.rows)


def _ends(row: Mapping[str, Cell]) -> str | None:
    """``43.7 (25 to 58)``"""
    value, low, high = row["Gain"], row["at least"], row["at most"]
    if not isinstance(value, float):
        return None
    ends = f" ({between(low, high)})" if isinstance(low, float) and isinstance(high, float) else ""
    return f"{figure(value, '%')}{ends}"


def _shared_reasons(tried: Sequence[Tried]) -> dict[str, list[str]]:
    """Why several changes were not tried, where the reason is the same, with what they are."""
    reasons: dict[str, list[str]] = {}
    for one in tried:
        if one.verdict is Trying.NOT_TRIED and one.why:
            reasons.setdefault(one.why, []).append(change_in_code(one.change))
    return {why: changes for why, changes in reasons.items() if len(changes) > 1}


def _not_tried(why: str, changes: Sequence[str]) -> str:
    return f"{len(changes)} changes were not tried, for the same reason: {plain(why, 300).rstrip('.')}."


def _row(one: Tried, shared: Mapping[str, object], devices: Mapping[str, str]) -> tuple[Cell, ...]:
    gain = None if one.verdict is Trying.TOO_EARLY else one.gain  # a number would be read as a result
    notes = [words for words, holds in ((_CEILING, one.ceiling), (_CHANGES, one.changes_training)) if holds]
    notes += [plain(one.why, 200)] if one.why and one.why not in shared else []
    return (
        ", ".join(one.codes),
        _where(one, devices),
        change_in_code(one.change),
        _result(one),
        None if one.predicted is None or one.ceiling else between(100 * one.predicted.low, 100 * one.predicted.high),
        *(None if end is None else 100 * end for end in ((gain.value, gain.low, gain.high) if gain else (None,) * 3)),
        None if gain is None else _speeds(one),
        one.pairs,
        "; ".join(notes),
    )


def _where(one: Tried, devices: Mapping[str, str]) -> str:
    """``cpu, batch 8``; older records of what was left out do not hold the device: there it is that of the findings."""
    device = next((devices[group] for group in one.groups if group in devices), "")
    return f"{device}, {one.where}" if device and one.where.startswith("batch ") else one.where


def _speeds(one: Tried) -> str | None:
    """``12.8 to 22.8``"""
    if not one.base_s or not one.new_s:
        return None
    return f"{number(1 / one.base_s)} to {number(1 / one.new_s)}"


def _result(one: Tried) -> str:
    """The verdict, and whether the gain lies where it was predicted."""
    if one.ceiling or one.as_predicted is None or one.verdict not in (Trying.CONFIRMED, Trying.REFUTED):
        return result_words(one)
    return f"{one.verdict}, {'as predicted' if one.as_predicted else 'not as predicted'}"


def result_words(one: Tried) -> str:
    """The verdict; of a ceiling, whose point is its size, that it was measured, or that no gain is shown."""
    if one.ceiling and one.verdict not in (Trying.NOT_TRIED, Trying.TOO_EARLY, Trying.NOT_SETTLED):
        if not tells(one):
            return "not sure"
        return "measured" if one.gain is not None and shown(one.gain) else "no gain shown"
    if one.verdict is Trying.CONFIRMED and one.as_predicted is False:
        return "confirmed, not as predicted"
    return str(one.verdict)


def in_vain(tried: Sequence[Tried]) -> list[tuple[str, Basis]]:
    """The advice that was tried and wins nothing, in one sentence; none where there is none."""
    refuted = [one for one in tried if one.verdict is Trying.REFUTED and not one.ceiling and one.gain is not None]
    if not refuted:
        return []
    told = [f"{change_in_code(one.change)} {won(one.gain)}" for one in refuted if one.gain is not None]
    pairs = counted(sum(one.pairs for one in refuted), "pair")
    return [(f"Tried, and not worth doing: {listing(told)}.", Basis(f"{pairs} of trials", TRIED))]


def another_pace(arms: Sequence[Arm], tried: Sequence[Tried]) -> list[tuple[str, Basis]]:
    """That the base ran faster or slower beside its change than in the run, where that is more than its interval."""
    for one in tried:
        measured = _in_the_run(arms, one)
        if one.verdict is not Trying.CONFIRMED or one.ceiling or not one.base_s or measured is None:
            continue
        rate = 1 / one.base_s
        if measured.low is None or measured.high is None or measured.low <= rate <= measured.high:
            continue
        if abs(rate / measured.value - 1) < _ANOTHER_PACE:
            continue
        words = (
            f"Tried beside its change, the base trained {number(rate)} samples/s ({one.where}), against "
            f"{number(measured.value)} in the run itself: the machine was "
            f"{'slower' if rate < measured.value else 'faster'} when the change was tried. Base and change of a pair "
            "ran one after the other, so that both were measured at one pace."
        )
        return [(words, Basis(f"{counted(one.pairs, 'pair')} of trials", TRIED))]
    return []


def _in_the_run(arms: Sequence[Arm], one: Tried) -> Interval | None:
    """The throughput that the run itself has for the base of an experiment."""
    for arm in arms:
        for point in arm.rated:
            if arm.group.label in one.groups and one.where == where_of(point.trials[0].result.trial):
                return throughput(point)
    return None


def tried_frame(tried: Sequence[Tried]) -> pandas.DataFrame:
    """One row a change: shares in 0…1 (a negative gain costs time), missing where nothing was measured."""
    import pandas as pd

    columns = ["finding", "where", "change", "result", "gain", "gain_low", "gain_high"]
    columns += ["predicted_low", "predicted_high", "as_predicted", "pairs", "changes_training", "ceiling", "why"]
    rows = [
        (
            ", ".join(one.codes),
            one.where,
            change_in_code(one.change),
            result_words(one),
            *((one.gain.value, one.gain.low, one.gain.high) if one.gain else (None,) * 3),
            *((one.predicted.low, one.predicted.high) if one.predicted else (None,) * 2),
            one.as_predicted,
            one.pairs,
            one.changes_training,
            one.ceiling,
            one.why,
        )
        for one in tried
    ]
    table = pd.DataFrame(rows, columns=columns)
    numeric = ["gain", "gain_low", "gain_high", "predicted_low", "predicted_high"]
    table[numeric] = table[numeric].apply(pd.to_numeric)
    return table
