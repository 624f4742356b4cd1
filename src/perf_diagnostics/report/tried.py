"""What was tried of the advice, for the report: one table, and a sentence on what was tried in vain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perf_diagnostics.diagnose.finding import Diagnosis, Tried, Trying
from perf_diagnostics.diagnose.tried import LEAST_PAIRS, tells
from perf_diagnostics.report.model import Basis, Cell, ReportTable, TableColumn
from perf_diagnostics.report.words import between, change_in_code, counted, listing, percent, plain

if TYPE_CHECKING:
    import pandas

#: The key of the table, for sentences that rest on it.
TRIED = "tried"

#: What stands behind the change where it is no advice, or more than a matter of speed.
_CEILING = "ceiling, no way to train"
_CHANGES = "changes the optimisation"


def tried_table(diagnosis: Diagnosis) -> ReportTable:
    """One row a change that was tried or could have been, in the order in which it was."""
    columns = (
        TableColumn("Finding", numeric=False),
        TableColumn("Where", numeric=False),
        TableColumn("Change", numeric=False),
        TableColumn("Result", numeric=False),
        TableColumn("Gain", "%"),
        TableColumn("at least", "%"),
        TableColumn("at most", "%"),
        TableColumn("Predicted", "%", numeric=False),
        TableColumn("Pairs"),
        TableColumn("Note", numeric=False),
    )
    return ReportTable(
        key=TRIED,
        title="What was tried",
        columns=columns,
        rows=tuple(_row(one) for one in diagnosis.tried),
        note="The gain is the part of the time a sample takes that the change saves (negative: it costs), with its "
        "95 % interval over pairs of trials, base and change, in alternating order. Confirmed: the whole interval lies "
        f"at or above 2 %; refuted: below; with fewer than {LEAST_PAIRS} pairs it is too early to say. A ceiling says "
        "what a perfect fix could win; it trains nothing useful.",
    )


def _row(one: Tried) -> tuple[Cell, ...]:
    gain = None if one.verdict is Trying.TOO_EARLY else one.gain  # a number would be read as a result
    notes = [words for words, holds in ((_CEILING, one.ceiling), (_CHANGES, one.changes_training)) if holds]
    return (
        ", ".join(one.codes),
        one.where,
        change_in_code(one.change),
        result_words(one),
        *(None if end is None else 100 * end for end in ((gain.value, gain.low, gain.high) if gain else (None,) * 3)),
        None if one.predicted is None or one.ceiling else between(100 * one.predicted.low, 100 * one.predicted.high),
        one.pairs,
        "; ".join([*notes, *([plain(one.why, 200)] if one.why else [])]),
    )


def result_words(one: Tried) -> str:
    """The verdict; of a ceiling, whose point is its size and not a yes or no, that it was measured."""
    if one.ceiling and one.verdict not in (Trying.NOT_TRIED, Trying.TOO_EARLY):
        return "measured" if tells(one) else "not sure"
    if one.verdict is Trying.CONFIRMED and one.as_predicted is False:
        return "confirmed, not as predicted"
    return str(one.verdict)


def in_vain(tried: Sequence[Tried]) -> list[tuple[str, Basis]]:
    """The advice that was tried and wins nothing, in one sentence; none where there is none."""
    refuted = [one for one in tried if one.verdict is Trying.REFUTED and not one.ceiling and one.gain is not None]
    if not refuted:
        return []
    told = [f"{change_in_code(one.change)} ({percent(one.gain.value)})" for one in refuted if one.gain is not None]
    pairs = counted(sum(one.pairs for one in refuted), "pair")
    return [(f"Tried, and not worth doing: {listing(told)}.", Basis(f"{pairs} of trials", TRIED))]


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
