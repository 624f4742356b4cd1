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

from perf_diagnostics.records import Float64, Gap, Int64, Json, Quantity, StepTable, TrialResult
from perf_diagnostics.records.energies import BoardUse, RankEnergy
from perf_diagnostics.store.joint_time import JointTime

#: Numbers of a result that speak of the boards of one rank until those of all are known.
RANKS_OWN = frozenset(
    {
        *("energy_device", "energy_device_net", "energy_device_uncertainty", "energy_device_window_s"),
        *("energy_device_steps", "energy_device_samples", "energy_device_boards", "energy_device_ranks"),
    }
)

#: Two sources of a board's energy contradict each other.
_CROSS_CHECK = "energy_cross_check"

#: So far two readings of one board may lie apart: what NVML states for a power reading, and as much again.
_LARGEST_DISAGREEMENT = 0.10

#: A source names so many boards, and says how many more there are.
_NAMED = 8


class _NoTotal(Exception):
    """Why the energies that are there do not add up to one of the training."""


@dataclass(frozen=True)
class _Reading:
    """One rank's reading of one board over the common window."""

    rank: int
    host: str
    use: BoardUse
    joules: float
    uncertainty_j: float | None


@dataclass(frozen=True)
class _Window:
    """The common window: its ends as each rank's own clock shows them, and the first rank's whole steps in it."""

    ends_ns: Mapping[int, tuple[int, int]]
    steps: int
    seconds: float


def with_energy_of_ranks(result: TrialResult, found: Mapping[int, RankEnergy | Gap]) -> TrialResult:
    """A result with the energy of all its ranks in the place of that of one.

    Args:
        result: with the step table of each rank.
        found: what each rank has written, by rank; where nobody has, the result stays as it is.
    """
    if not found:
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
        _require_all(found, _count(result, found))
        window = _common_window(energies, result.steps)
        readings = _readings(energies, window.ends_ns)
        gaps += _contradictions(readings)
        chosen = {board: _best(of_board) for board, of_board in readings.items()}
        samples = _samples(energies, result.steps, window.ends_ns)
        quantities = tuple(_quantities(chosen, window, samples, energies))
        by_board = [
            _told(chosen[board], [one.rank for one in of_board], window.seconds) for board, of_board in readings.items()
        ]
    except _NoTotal as refusal:
        gaps.append(Gap("energy_device", str(refusal)))
        by_board = _told_alone(energies.values())
    return dataclasses.replace(
        result,
        quantities=(*(q for q in result.quantities if q.name not in RANKS_OWN), *quantities),
        gaps=(*(gap for gap in result.gaps if gap.signal != "energy_device"), *gaps),
        facts={**result.facts, "energy_by_board": by_board} if by_board else result.facts,
    )


def _count(result: TrialResult, found: Mapping[int, object]) -> int:
    """How many ranks the training has, by whoever knows of the most."""
    told = [result.facts.get("ranks"), result.trial.options.get("ranks")]
    return max(len(result.steps), *(rank + 1 for rank in found), *(n for n in told if isinstance(n, int)))


def _require_all(found: Mapping[int, RankEnergy | Gap], ranks: int) -> None:
    """Raise where the energy of a rank is missing, with the reasons and whose they are."""
    why: dict[str, list[int]] = {}
    for rank in range(ranks):
        one = found.get(rank)
        if one is None:
            why.setdefault("it has left none in this record", []).append(rank)
        elif isinstance(one, Gap):
            why.setdefault(one.why, []).append(rank)
        elif not one.boards:
            why.setdefault(one.gaps[0].why if one.gaps else "it has read no board", []).append(rank)
    if why:
        missing = sum(map(len, why.values()))
        reasons = "; ".join(f"rank {_listed(those)}: {reason}" for reason, those in why.items())
        raise _NoTotal(f"no total, for of {ranks} ranks the energy of {missing} is missing. {reasons}")


def _listed(ranks: Sequence[int]) -> str:
    """``1, 3-7``."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][-1] == rank - 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _common_window(energies: Mapping[int, RankEnergy], tables: Sequence[StepTable]) -> _Window:
    time = JointTime(energies)
    start_ns, end_ns = time.shared()
    if end_ns <= start_ns:
        raise _NoTotal("no total, for the ranks' windows have no time in common")
    first = min(energies)
    began, ended = time.on_clock_of(first, start_ns), time.on_clock_of(first, end_ns)
    starts_ns, ends_ns = _times(energies[first], tables)
    whole = np.flatnonzero((starts_ns >= began) & (ends_ns <= ended))
    if not whole.size:
        raise _NoTotal(f"no total, for no whole step of rank {first} lies in the window that all ranks share")
    start_ns = time.joint(first, int(starts_ns[whole[0]]))
    end_ns = time.joint(first, int(ends_ns[whole[-1]]))
    ends = {rank: (time.on_clock_of(rank, start_ns), time.on_clock_of(rank, end_ns)) for rank in energies}
    return _Window(ends, len(whole), (end_ns - start_ns) / 1e9)


def _times(energy: RankEnergy, tables: Sequence[StepTable]) -> tuple[Int64, Int64]:
    """When each of a rank's steps began and ended, on its host clock; those of the warm-up are among them."""
    table = tables[energy.rank] if energy.rank < len(tables) else StepTable.empty()
    starts = table.get("start_ns")
    if starts is None or not len(table):
        raise _NoTotal(f"no total, for when the steps of rank {energy.rank} began is not in the record")
    walls = table.get("host_wall_ns")
    began = starts + energy.origin_ns
    return began, began + (table.wall_ns if walls is None else walls)


def _samples(
    energies: Mapping[int, RankEnergy], tables: Sequence[StepTable], ends: Mapping[int, tuple[int, int]]
) -> float:
    """Samples of all ranks in the window; of a step that lies across its end, the part that lies inside."""
    total = 0.0
    for rank, energy in energies.items():
        starts_ns, ends_ns = _times(energy, tables)
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
                raise _NoTotal(
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
            ranks = _listed([one.rank for one in of_board])
            says.append(f"{board}: ranks {ranks} share it and read between {least:.6g} J and {most:.6g} J")
    return [Gap(_CROSS_CHECK, "; ".join(says))] if says else []


def _quantities(
    chosen: Mapping[str, _Reading], window: _Window, samples: float, energies: Mapping[int, RankEnergy]
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
