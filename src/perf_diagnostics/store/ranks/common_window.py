"""The one window over which energies of several ranks are joined: what all have measured, in whole steps of the first.

Where it does not exist, or where something of a rank is missing, there is no total, and :class:`NoTotal` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.records import Gap, Int64, StepTable, TrialResult
from perf_diagnostics.records.energies import RankEnergy
from perf_diagnostics.store.ranks.joint_time import JointTime


class NoTotal(Exception):
    """Why the energies that are there do not add up to one of the training."""


@dataclass(frozen=True)
class CommonWindow:
    """The common window: its ends as each rank's own clock shows them, and the first rank's whole steps in it."""

    ends_ns: Mapping[int, tuple[int, int]]
    steps: int
    seconds: float


def common_window(energies: Mapping[int, RankEnergy], tables: Sequence[StepTable]) -> CommonWindow:
    """The window that these ranks share.

    Raises:
        NoTotal: they share none, or no whole step of the first rank lies in it.
    """
    time = JointTime(energies)
    start_ns, end_ns = time.shared()
    if end_ns <= start_ns:
        raise NoTotal("no total, for the ranks' windows have no time in common")
    first = min(energies)
    began, ended = time.on_clock_of(first, start_ns), time.on_clock_of(first, end_ns)
    starts_ns, ends_ns = times(energies[first], tables)
    whole = np.flatnonzero((starts_ns >= began) & (ends_ns <= ended))
    if not whole.size:
        raise NoTotal(f"no total, for no whole step of rank {first} lies in the window that all ranks share")
    start_ns = time.joint(first, int(starts_ns[whole[0]]))
    end_ns = time.joint(first, int(ends_ns[whole[-1]]))
    ends = {rank: (time.on_clock_of(rank, start_ns), time.on_clock_of(rank, end_ns)) for rank in energies}
    return CommonWindow(ends, len(whole), (end_ns - start_ns) / 1e9)


def times(energy: RankEnergy, tables: Sequence[StepTable]) -> tuple[Int64, Int64]:
    """When each of a rank's steps began and ended, on its host clock; those of the warm-up are among them.

    Raises:
        NoTotal: the record does not say.
    """
    table = tables[energy.rank] if energy.rank < len(tables) else StepTable.empty()
    starts = table.get("start_ns")
    if starts is None or not len(table):
        raise NoTotal(f"no total, for when the steps of rank {energy.rank} began is not in the record")
    walls = table.get("host_wall_ns")
    began = starts + energy.origin_ns
    return began, began + (table.wall_ns if walls is None else walls)


def ranks_of(result: TrialResult, found: Mapping[int, object]) -> int:
    """How many ranks the training has, by whoever knows of the most."""
    option = result.trial.options.get("ranks")
    return max(result.ranks, option if isinstance(option, int) else 0, *(rank + 1 for rank in found))


def listed(ranks: Sequence[int]) -> str:
    """``1, 3-7``."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][-1] == rank - 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def require_all(
    found: Mapping[int, RankEnergy | Gap], ranks: int, *, missing_in: Callable[[RankEnergy], str | None]
) -> None:
    """Raise :class:`NoTotal` where the energy of a rank is missing, with the reasons and whose they are.

    Args:
        found: what each rank has written, by rank.
        ranks: how many the training has.
        missing_in: why what a rank has written does not tell its energy; None where it does.
    """
    why: dict[str, list[int]] = {}
    for rank in range(ranks):
        one = found.get(rank)
        reason: str | None = "it has left none in this record"
        if one is not None:
            reason = one.why if isinstance(one, Gap) else missing_in(one)
        if reason is not None:
            why.setdefault(reason, []).append(rank)
    if why:
        missing = sum(map(len, why.values()))
        reasons = "; ".join(f"rank {listed(those)}: {reason}" for reason, those in why.items())
        raise NoTotal(f"no total, for of {ranks} ranks the energy of {missing} is missing. {reasons}")
