"""What a rank of several says about the energy of its boards: the words for the file beside its steps."""

from __future__ import annotations

from perf_diagnostics.integrations.board_sampling import NO_REST, Used
from perf_diagnostics.measure.host_identity import HostIdentity
from perf_diagnostics.measure.power import BoardEnergy
from perf_diagnostics.records import Gap
from perf_diagnostics.records.energies import BoardUse, RankEnergy


def rank_energy(used: Used, *, rank: int, origin_ns: int) -> RankEnergy:
    """The rank's file: its boards with their curves, or the reason why there are none.

    Args:
        used: what was read of its boards.
        rank: whose.
        origin_ns: host clock at 0 of the times of its steps.
    """
    identity = HostIdentity.here()
    boards: tuple[BoardUse, ...] = ()
    gaps: tuple[Gap, ...] = ()
    if isinstance(used.energy, Gap):
        gaps = (used.energy,)
    else:
        boards = tuple(_use(board, used.energy.window_s) for board in used.energy.boards)
        gaps = () if used.energy.cross_check is None else (used.energy.cross_check,)
        if any(board.idle_power_w is None for board in boards):
            gaps = (*gaps, Gap("device_idle_power", NO_REST))
    return RankEnergy(
        rank=rank,
        host=identity.host,
        clock=identity.clock,
        began=used.began,
        ended=used.ended,
        origin_ns=origin_ns,
        boards=boards,
        gaps=gaps,
    )


def _use(board: BoardEnergy, window_s: float) -> BoardUse:
    idle_w = None if board.net_joules is None else (board.joules - board.net_joules) / window_s
    return BoardUse(
        board=board.board,
        method=str(board.method),
        curve=board.curve.thinned(),
        least_window_s=board.least_window_s,
        uncertainty_j=board.uncertainty_j,
        idle_power_w=idle_w,
        passed_over=board.passed_over,
    )
