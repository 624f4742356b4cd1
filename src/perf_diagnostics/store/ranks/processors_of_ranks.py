"""The processors' energy of a training of several ranks: every RAPL domain of every host once, or a gap.

The counters know packages, not processes, and all ranks on a host read the same ones: of each host one rank's reading
counts, the lowest's. Where a host was read by none of its ranks there is no total.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from perf_diagnostics.records import Gap, Quantity, TrialResult
from perf_diagnostics.records.energies import RankEnergy
from perf_diagnostics.store.ranks.common_window import NoTotal, common_window, ranks_of, require_all

#: Numbers of a result that speak of one rank's host until those of all are known.
PROCESSORS_OWN = frozenset({"energy_cpu", "energy_cpu_window_s"})

#: A window shorter than this mostly measures its own two ends, as for the boards.
LEAST_WINDOW_S = 5.0


def with_processors_of_ranks(result: TrialResult, found: Mapping[int, RankEnergy | Gap]) -> TrialResult:
    """A result with the processors' energy of all its ranks' hosts in the place of that of one.

    Args:
        result: with the step table of each rank.
        found: what each rank has written, by rank; where none speaks of processors, the result stays as it is.
    """
    energies = {rank: one for rank, one in found.items() if isinstance(one, RankEnergy)}
    if not any(energy.processors for energy in energies.values()):
        return result
    quantities: tuple[Quantity, ...] = ()
    gaps: tuple[Gap, ...] = ()
    try:
        quantities = _total(result, found, energies)
    except NoTotal as refusal:
        gaps = (Gap("energy_cpu", str(refusal)),)
    return dataclasses.replace(
        result,
        quantities=(*(q for q in result.quantities if q.name not in PROCESSORS_OWN), *quantities),
        gaps=(*(gap for gap in result.gaps if gap.signal != "energy_cpu"), *gaps),
    )


def _total(
    result: TrialResult, found: Mapping[int, RankEnergy | Gap], energies: Mapping[int, RankEnergy]
) -> tuple[Quantity, ...]:
    """The energy of every domain of every host over the common window, and that window's length."""
    reads = _one_rank_a_host(energies)
    require_all(found, ranks_of(result, found), missing_in=lambda energy: _unread(energy, hosts=reads))
    window = common_window(energies, result.steps)
    if window.seconds < LEAST_WINDOW_S * (1 - 1e-6):
        raise NoTotal(
            f"insufficient_window: the ranks share a window of {window.seconds:.3g} s, and the processors' counters "
            f"ask for {LEAST_WINDOW_S:g} s; measure longer"
        )
    joules = 0.0
    for rank in reads.values():
        joules += sum(one.curve.between(*window.ends_ns[rank])[0] for one in energies[rank].processors)
    source = _source(energies, reads)
    return Quantity("energy_cpu", joules, "J", source), Quantity("energy_cpu_window_s", window.seconds, "s", source)


def _one_rank_a_host(energies: Mapping[int, RankEnergy]) -> dict[str, int]:
    """Who read each host's processors: the lowest rank of those that could."""
    reads: dict[str, int] = {}
    for rank in sorted(energies):
        if energies[rank].processors:
            reads.setdefault(energies[rank].host, rank)
    return reads


def _unread(energy: RankEnergy, *, hosts: Mapping[str, int]) -> str | None:
    """Why nobody has read the processors of a rank's host; None where somebody has."""
    if energy.host in hosts:
        return None
    told = next((gap.why for gap in energy.gaps if gap.signal == "energy_cpu"), "")
    return told or "nobody on its host has read the processors' counters"


def _source(energies: Mapping[int, RankEnergy], reads: Mapping[str, int]) -> str:
    """``RAPL package + dram, whole machines, 2 hosts of 4 ranks``."""
    names = {one.domain.split()[-1].partition("-")[0] for rank in reads.values() for one in energies[rank].processors}
    of = f"{len(reads)} host{'' if len(reads) == 1 else 's'} of {len(energies)} ranks"
    return f"RAPL {' + '.join(sorted(names, reverse=True))}, whole machine{'' if len(reads) == 1 else 's'}, {of}"
