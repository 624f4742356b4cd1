"""What a rank of several says about the energy of its boards and processors, in the file beside its steps."""

from __future__ import annotations

from perf_diagnostics.integrations.readings.board_sampling import Used
from perf_diagnostics.integrations.readings.processor_energy import ProcessorUse
from perf_diagnostics.measure.boards.power import BoardEnergy
from perf_diagnostics.measure.host.host_identity import HostIdentity
from perf_diagnostics.records import Gap
from perf_diagnostics.records.energies import BoardUse, DomainUse, RankEnergy


def rank_energy(boards: Used | None, processors: ProcessorUse | None, *, rank: int, origin_ns: int) -> RankEnergy:
    """The rank's file: its boards and its host's processors with their curves, or the reasons why there are none.

    Args:
        boards: what was read of its boards; None for a training on the CPU.
        processors: what was read of the processors; None where there are no counters, for which the record has a gap.
        rank: whose.
        origin_ns: host clock at 0 of the times of its steps.

    Raises:
        ValueError: there is neither.
    """
    window = boards or processors
    if window is None:
        raise ValueError(f"Rank {rank} has read neither boards nor processors, and has nothing to write.")
    identity = HostIdentity.here()
    uses: tuple[BoardUse, ...] = ()
    gaps: list[Gap] = []
    energy = None if boards is None else boards.energy
    if isinstance(energy, Gap):
        gaps.append(energy)
    elif boards is not None and energy is not None:
        uses = tuple(_use(board, energy.window_s) for board in energy.boards)
        gaps += [gap for gap in (energy.cross_check, boards.rest) if isinstance(gap, Gap)]
    domains = () if processors is None else processors.domains
    if isinstance(domains, Gap):
        gaps.append(domains)
        domains = ()
    return RankEnergy(
        rank=rank,
        host=identity.host,
        clock=identity.clock,
        began=window.began,
        ended=window.ended,
        origin_ns=origin_ns,
        boards=uses,
        processors=tuple(DomainUse(one.domain, one.curve.thinned()) for one in domains),
        gaps=tuple(gaps),
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
