"""What each board of a training of several ranks used, also where the energy of another one is missing."""

from __future__ import annotations

from collections.abc import Mapping

from perf_diagnostics.records import Json, TrialResult
from perf_diagnostics.report.arms import Arm
from perf_diagnostics.report.memory_and_energy import ENERGY
from perf_diagnostics.report.model import Cell, ReportTable, TableColumn, filled
from perf_diagnostics.report.words import listing, plain

_COLUMNS = (
    TableColumn("Board", numeric=False),
    TableColumn("Ranks", numeric=False),
    TableColumn("Host"),
    TableColumn("Energy", "J"),
    TableColumn("±", "J"),
    TableColumn("Window", "s"),
    TableColumn("Power", "W"),
    TableColumn("Idle power", "W"),
    TableColumn("Read from", numeric=False),
)


def board_table(arm: Arm, index: int) -> ReportTable | None:
    """One row a board of the first trial that tells them, the recommended batch size's first; None where none does."""
    chosen = arm.recommended
    points = [*([] if chosen is None else [chosen]), *arm.points]
    results = (trial.result for point in points for trial in point.trials)
    result, boards = next(((r, found) for r in results if (found := _boards(r))), (None, []))
    if result is None:
        return None
    hosts = list(dict.fromkeys(str(board.get("host")) for board in boards))
    table = ReportTable(
        key=f"energy_boards_{index + 1}",
        title=f"Energy of each board of {arm.label}, batch size {result.trial.settings.batch_size}",
        columns=_COLUMNS,
        rows=tuple(_row(board, hosts) for board in boards),
        note=_note(result, len(hosts)),
        section=ENERGY,
    )
    return filled(table)


def _boards(result: TrialResult) -> list[Mapping[str, Json]]:
    told = result.facts.get("energy_by_board")
    return [board for board in told if isinstance(board, dict)] if isinstance(told, list) else []


def _row(board: Mapping[str, Json], hosts: list[str]) -> tuple[Cell, ...]:
    ranks = board.get("ranks")
    joules, window_s = _number(board, "joules"), _number(board, "window_s")
    return (
        plain(str(board.get("board")), 60),
        listing([plain(str(rank), 10) for rank in ranks]) if isinstance(ranks, list) else None,
        hosts.index(str(board.get("host"))) + 1,
        joules,
        _number(board, "uncertainty_j"),
        window_s,
        joules / window_s if joules is not None and window_s is not None and window_s > 0 else None,
        _number(board, "idle_power_w"),
        plain(str(board.get("method")), 60),
    )


def _number(board: Mapping[str, Json], name: str) -> float | None:
    value = board.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _note(result: TrialResult, hosts: int) -> str:
    if result.value("energy_device") is not None:
        words = "All over the one window that every rank has measured; a board that ranks share counts once."
    else:
        gap = result.gap("energy_device")
        why = "" if gap is None else f": {plain(gap.why, 300)}"
        words = f"Each over its own rank's window. They do not add up to the training's energy{why}"
    if hosts > 1:
        words += " Machines are numbered; their windows are matched by the time of day."
    return words
