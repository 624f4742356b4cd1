"""The energy of a training of several ranks, joined from what each of them has written: all boards, or a gap.

A board that several ranks share counts once, by its UUID. All boards count over the one window that every rank has
measured, cut to whole steps of the first rank; the samples are those of all ranks in it. Where the energy of one rank
is missing there is no total, for a sum over some of the boards would be taken for one over all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.records import Float64, Gap, Json, Quantity, StepTable, TrialResult
from perf_diagnostics.records.energies import BoardUse, RankEnergy
from perf_diagnostics.store.ranks.common_window import (
    CommonWindow,
    NoTotal,
    common_window,
    listed,
    ranks_of,
    require_all,
    times,
)
from perf_diagnostics.store.ranks.processors_of_ranks import PROCESSORS_OWN, with_processors_of_ranks

#: Numbers of a result that speak of the boards of one rank until those of all are known.
_BOARDS_OWN = frozenset(
    {
        *(
            "energy_device",
            "device_idle_power",
            "energy_device_net",
            "energy_device_uncertainty",
            "energy_device_window_s",
        ),
        *("energy_device_steps", "energy_device_samples", "energy_device_boards", "energy_device_ranks"),
    }
)

#: Numbers of a result that speak of one rank, its boards or its host, until those of all are known.
RANKS_OWN = _BOARDS_OWN | PROCESSORS_OWN

#: Two sources of a board's energy contradict each other.
_CROSS_CHECK = "energy_cross_check"

#: So far two readings of one board may lie apart: what NVML states for a power reading, and as much again.
_LARGEST_DISAGREEMENT = 0.10

#: A source names so many boards, and says how many more there are.
_NAMED = 8


@dataclass(frozen=True)
class _Reading:
    """One rank's reading of one board over the common window."""

    rank: int
    host: str
    use: BoardUse
    joules: float
    uncertainty_j: float | None


def with_energy_of_ranks(result: TrialResult, found: Mapping[int, RankEnergy | Gap]) -> TrialResult:
    """A result with the energy of all its ranks in the place of that of one: that of boards and processors.

    Args:
        result: with the step table of each rank.
        found: what each rank has written, by rank; where nobody has, the result stays as it is.
    """
    return with_processors_of_ranks(_with_boards_of_ranks(result, found), found)


def _with_boards_of_ranks(result: TrialResult, found: Mapping[int, RankEnergy | Gap]) -> TrialResult:
    if not _speaks_of_boards(result, found):
        return result
    energies = {rank: one for rank, one in found.items() if isinstance(one, RankEnergy)}
    quantities: tuple[Quantity, ...] = ()
    gaps = [
        Gap(gap.signal, f"rank {energy.rank}: {gap.why}")
        for energy in energies.values()
        for gap in energy.gaps
        if gap.signal == _CROSS_CHECK
    ]
    try:
        require_all(found, ranks_of(result, found), missing_in=_no_board)
        window = common_window(energies, result.steps)
        readings = _readings(energies, window.ends_ns)
        gaps += _contradictions(readings)
        chosen = {board: _best(of_board) for board, of_board in readings.items()}
        samples = _samples(energies, result.steps, window.ends_ns)
        quantities = tuple(_quantities(chosen, window, samples, energies))
        if result.gap("device_idle_power") is None:  # else rank 0 has said why
            gaps += _without_baseline(chosen, energies)
        by_board = [
            _told(chosen[board], [one.rank for one in of_board], window.seconds) for board, of_board in readings.items()
        ]
    except NoTotal as refusal:
        gaps.append(Gap("energy_device", str(refusal)))
        by_board = _told_alone(energies.values())
    return dataclasses.replace(
        result,
        quantities=(*(q for q in result.quantities if q.name not in _BOARDS_OWN), *quantities),
        gaps=(*(gap for gap in result.gaps if gap.signal != "energy_device"), *gaps),
        facts={**result.facts, "energy_by_board": by_board} if by_board else result.facts,
    )


def _speaks_of_boards(result: TrialResult, found: Mapping[int, RankEnergy | Gap]) -> bool:
    """Whether boards are to be added up: ranks on the CPU tell their processors' energy only."""
    told = [one for one in found.values() if isinstance(one, RankEnergy)]
    if any(one.boards or any(gap.signal == "energy_device" for gap in one.gaps) for one in told):
        return True
    return len(told) < len(found) and not result.trial.settings.device.startswith("cpu")


def _no_board(energy: RankEnergy) -> str | None:
    """Why a rank has read no board; None where it has."""
    if energy.boards:
        return None
    return next((gap.why for gap in energy.gaps if gap.signal == "energy_device"), "it has read no board")


def _samples(
    energies: Mapping[int, RankEnergy], tables: Sequence[StepTable], ends: Mapping[int, tuple[int, int]]
) -> float:
    """Samples of all ranks in the window; of a step that lies across its end, the part that lies inside."""
    total = 0.0
    for rank, energy in energies.items():
        starts_ns, ends_ns = times(energy, tables)
        inside = np.minimum(ends_ns, ends[rank][1]) - np.maximum(starts_ns, ends[rank][0])
        part: Float64 = np.clip(inside, 0, None) / np.maximum(ends_ns - starts_ns, 1)
        total += float((part * tables[rank].samples).sum())
    return total


def _readings(energies: Mapping[int, RankEnergy], ends: Mapping[int, tuple[int, int]]) -> dict[str, list[_Reading]]:
    """What each rank read of each board over the common window, by board."""
    found: dict[str, list[_Reading]] = {}
    for rank, energy in energies.items():
        began_ns, ended_ns = ends[rank]
        for use in energy.boards:
            window_s = (ended_ns - began_ns) / 1e9
            if window_s < use.least_window_s * (1 - 1e-6):
                raise NoTotal(
                    f"insufficient_window: the ranks share a window of {window_s:.3g} s, and {use.board} (rank {rank}) "
                    f"asks for {use.least_window_s:.3g} s; measure longer"
                )
            joules, cut_j = use.curve.between(began_ns, ended_ns)
            off_by = None if use.uncertainty_j is None else use.uncertainty_j + cut_j
            found.setdefault(use.board, []).append(_Reading(rank, energy.host, use, joules, off_by))
    return found


def _best(readings: Iterable[_Reading]) -> _Reading:
    """Of several ranks' readings of one board the one that is known best: a counter's before integrated power."""
    return min(readings, key=lambda one: (one.uncertainty_j is None, one.uncertainty_j or 0.0, one.rank))


def _contradictions(readings: Mapping[str, Sequence[_Reading]]) -> list[Gap]:
    says = []
    for board, of_board in readings.items():
        least, most = min(one.joules for one in of_board), max(one.joules for one in of_board)
        if most - least > _LARGEST_DISAGREEMENT * most:
            ranks = listed([one.rank for one in of_board])
            says.append(f"{board}: ranks {ranks} share it and read between {least:.6g} J and {most:.6g} J")
    return [Gap(_CROSS_CHECK, "; ".join(says))] if says else []


def _without_baseline(chosen: Mapping[str, _Reading], energies: Mapping[int, RankEnergy]) -> list[Gap]:
    """Why there is no energy above idle where the idle power of some boards is known, and that of others is not."""
    lacking = [one.rank for one in chosen.values() if one.use.idle_power_w is None]
    if not lacking or len(lacking) == len(chosen):
        return []
    told = (gap.why for rank in lacking for gap in energies[rank].gaps if gap.signal == "device_idle_power")
    why = f"of {_counted(len(chosen), 'board')} the idle power of {len(lacking)} is not known"
    return [Gap("device_idle_power", f"{why}. rank {listed(lacking)}: {next(told, 'it gives no reason')}")]


def _quantities(
    chosen: Mapping[str, _Reading], window: CommonWindow, samples: float, energies: Mapping[int, RankEnergy]
) -> Iterable[Quantity]:
    readings = list(chosen.values())
    source = _source(chosen, energies)
    gross = sum(one.joules for one in readings)
    off_by = [one.uncertainty_j for one in readings if one.uncertainty_j is not None]
    idle_w = [one.use.idle_power_w for one in readings if one.use.idle_power_w is not None]
    yield Quantity("energy_device", gross, "J", source)
    if len(idle_w) == len(readings):
        yield Quantity("energy_device_net", gross - sum(idle_w) * window.seconds, "J", source)
        yield Quantity("device_idle_power", sum(idle_w), "W", source)
    if len(off_by) == len(readings):
        yield Quantity("energy_device_uncertainty", sum(off_by), "J", source)
    yield Quantity("energy_device_window_s", window.seconds, "s", source)
    yield Quantity("energy_device_steps", float(window.steps), "1", source)
    yield Quantity("energy_device_samples", samples, "1", source)
    yield Quantity("energy_device_boards", float(len(readings)), "1", source)
    yield Quantity("energy_device_ranks", float(len(energies)), "1", source)


def _source(chosen: Mapping[str, _Reading], energies: Mapping[int, RankEnergy]) -> str:
    """``NVML total energy counter, 2 boards of 2 ranks on 1 host (GPU-…, GPU-…)``."""
    methods = " and ".join(dict.fromkeys(one.use.method for one in chosen.values()))
    boards = list(chosen)
    named = ", ".join(boards[:_NAMED]) + (f" and {len(boards) - _NAMED} more" if len(boards) > _NAMED else "")
    hosts = len({energy.host for energy in energies.values()})
    of = f"{_counted(len(boards), 'board')} of {_counted(len(energies), 'rank')} on {_counted(hosts, 'host')}"
    several = len({energy.clock for energy in energies.values()}) > 1
    return f"NVML {methods}, {of} ({named})" + ("; windows matched by the hosts' time of day" if several else "")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _told(best: _Reading, ranks: Sequence[int], window_s: float) -> Json:
    """One board for a result's facts: what these ranks have read of it, over so long a window."""
    return {
        "board": best.use.board,
        "ranks": list(ranks),
        "host": best.host,
        "joules": best.joules,
        "uncertainty_j": best.uncertainty_j,
        "window_s": window_s,
        "idle_power_w": best.use.idle_power_w,
        "method": best.use.method,
    }


def _told_alone(energies: Iterable[RankEnergy]) -> list[Json]:
    """The boards that were read, each over the window of its own rank, where there is no common one."""
    return [
        _told(_Reading(e.rank, e.host, use, use.joules, use.uncertainty_j), [e.rank], e.window_s)
        for e in energies
        for use in e.boards
    ]
