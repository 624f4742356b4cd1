"""The parts of a trial's step tables on disk: how they are called, which there are, and what can be read of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from perf_diagnostics.errors import RecordError
from perf_diagnostics.records import STEP_FILES, Gap, StepTable
from perf_diagnostics.records.steps import NOW_AND_THEN
from perf_diagnostics.store.files import tables

_PART = re.compile(r"steps\.rank(\d{1,5})-(\d{3,9})\.parquet")


def part_name(number: int, rank: int) -> str:
    """The file of a rank's part; the first is 0."""
    return f"steps.rank{rank}-{number:03d}.parquet"


def is_part(name: str) -> bool:
    """Whether a file of this name is such a part."""
    return _PART.fullmatch(name) is not None


def parts_in(folder: Path) -> dict[int, dict[int, Path]]:
    """The parts on disk by rank and number."""
    found: dict[int, dict[int, Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        matched = _PART.fullmatch(path.name)
        if matched is not None:
            found.setdefault(int(matched[1]), {})[int(matched[2])] = path
    return found


def missing_parts(folder: Path, expected: Mapping[int, int]) -> tuple[str, ...]:
    """The names of the parts that are not on disk, of so many that each rank had; by rank and number."""
    found = parts_in(folder)
    return tuple(
        part_name(number, rank)
        for rank in sorted(expected)
        for number in range(expected[rank])
        if number not in found.get(rank, {})
    )


def cut_off_parts(folder: Path) -> tuple[str, ...]:
    """The names of the parts whose end is missing, by rank and number."""
    found = parts_in(folder)
    return tuple(
        found[rank][number].name
        for rank in sorted(found)
        for number in sorted(found[rank])
        if not tables.ends_whole(found[rank][number])
    )


def read_steps(folder: Path, *, expected: Mapping[int, int]) -> tuple[tuple[StepTable, ...], tuple[Gap, ...]]:
    """One step table a rank, and a Gap for each part that is missing or cannot be read.

    ``expected`` is the number of parts each rank had when the trial became complete.
    """
    found = parts_in(folder)
    gaps: list[Gap] = []
    by_rank = [
        StepTable.concatenate(_read_parts(rank, found.get(rank, {}), expected.get(rank, 0), gaps))
        for rank in range(max([*found, *expected], default=-1) + 1)
    ]
    return tuple(by_rank), tuple(gaps)


def _read_parts(rank: int, parts: Mapping[int, Path], expected: int, gaps: list[Gap]) -> list[StepTable]:
    found: list[StepTable] = []
    for number in sorted(parts):
        try:
            found.append(tables.steps_from_parquet(bytes_of(parts[number]), where=parts[number].name))
        except RecordError as error:
            gaps.append(Gap(STEP_FILES, f"a part was left out: {error}"))
    whole = max(expected, max(parts, default=0) + 1)
    if len(parts) < whole:
        gaps.append(Gap(STEP_FILES, f"rank {rank}: {whole - len(parts)} of {whole} parts are not on disk"))
    filled = [table.columns.keys() for table in found if len(table)]
    uneven = {name for names in filled for name in names if any(name not in other for other in filled)} - NOW_AND_THEN
    gaps.extend(Gap(name, f"rank {rank}: only some parts of the step table have it") for name in sorted(uneven))
    return found


def bytes_of(path: Path) -> bytes:
    """A file's content.

    Raises:
        RecordError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}.") from error
