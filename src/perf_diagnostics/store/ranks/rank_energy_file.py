"""The file in which a rank of several says what its boards used, beside its parts of the step table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perf_diagnostics.errors import RecordError
from perf_diagnostics.records import Gap, Json
from perf_diagnostics.records.energies import BoardUse, ClockReading, DomainUse, EnergyCurve, RankEnergy
from perf_diagnostics.store.files.documents import document, open_document
from perf_diagnostics.store.files.fields import Fields
from perf_diagnostics.store.files.whole_files import read_json, to_json, write_atomic

_KIND = "rank_energy"
_NAME = re.compile(r"energy\.rank(\d{1,5})\.json")

#: More than any clock shows, and little enough to be added up in 64 bits.
_CENTURIES_NS = 2**61


def energy_name(rank: int) -> str:
    """The file of a rank's energy."""
    return f"energy.rank{rank}.json"


def is_rank_energy(name: str) -> bool:
    """Whether a file of this name is such a file."""
    return _NAME.fullmatch(name) is not None


def write_rank_energy(folder: Path, energy: RankEnergy) -> None:
    """Put a rank's file into a folder, in the place of the one it has written before."""
    write_atomic(folder / energy_name(energy.rank), to_json(document(_KIND, _encode(energy))), fsync=False)


def read_rank_energies(folder: Path) -> dict[int, RankEnergy | Gap]:
    """What each rank has written so far, by rank; a gap for a file that cannot be read."""
    found: dict[int, RankEnergy | Gap] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        matched = _NAME.fullmatch(path.name)
        if matched is None:
            continue
        try:
            fields = open_document(_KIND, read_json(path), where=path.name)
            found[int(matched[1])] = _decode(fields, int(matched[1]))
        except RecordError as error:
            found[int(matched[1])] = Gap("energy_device", str(error))
    return found


def _encode(energy: RankEnergy) -> dict[str, Json]:
    return {
        "rank": energy.rank,
        "host": energy.host,
        "clock": energy.clock,
        "window": {"began": _moment(energy.began), "ended": _moment(energy.ended)},
        "steps_origin_ns": energy.origin_ns,
        "boards": [_encode_board(board) for board in energy.boards],
        "processors": [{"domain": one.domain, "curve": _encode_curve(one.curve)} for one in energy.processors],
        "gaps": [{"signal": gap.signal, "why": gap.why} for gap in energy.gaps],
        "final": energy.final,
    }


def _moment(reading: ClockReading) -> dict[str, Json]:
    return {"host_ns": reading.host_ns, "wall_ns": reading.wall_ns}


def _encode_board(board: BoardUse) -> dict[str, Json]:
    return {
        "board": board.board,
        "method": board.method,
        "joules": board.joules,
        "uncertainty_j": board.uncertainty_j,
        "idle_power_w": board.idle_power_w,
        "least_window_s": board.least_window_s,
        "passed_over": board.passed_over,
        "curve": _encode_curve(board.curve),
    }


def _encode_curve(curve: EnergyCurve) -> dict[str, Json]:
    return {"times_ns": curve.times_ns.tolist(), "joules": curve.joules.tolist()}


def _decode(fields: Fields, rank: int) -> RankEnergy:
    window = fields.part("window")
    if fields.whole("rank") != rank:
        raise RecordError(f"{fields.where} is of rank {fields.whole('rank')}: it was copied here from another file.")
    return RankEnergy(
        rank=rank,
        host=fields.text("host"),
        clock=fields.text("clock"),
        began=_decode_moment(window.part("began")),
        ended=_decode_moment(window.part("ended")),
        origin_ns=_time_ns(fields, "steps_origin_ns"),
        boards=tuple(_decode_board(board) for board in fields.parts("boards")),
        processors=tuple(
            DomainUse(one.text("domain"), _decode_curve(one.part("curve"))) for one in fields.parts("processors")
        ),
        gaps=tuple(Gap(gap.text("signal"), gap.text("why")) for gap in fields.parts("gaps")),
        final=fields.flag("final"),
    )


def _decode_moment(fields: Fields) -> ClockReading:
    return ClockReading(_time_ns(fields, "host_ns"), _time_ns(fields, "wall_ns"))


def _time_ns(fields: Fields, key: str) -> int:
    time_ns = fields.whole(key)
    if abs(time_ns) > _CENTURIES_NS:
        raise RecordError(f"{fields.where}: {time_ns} ns is a time that no clock shows.")
    return time_ns


def _decode_board(fields: Fields) -> BoardUse:
    return BoardUse(
        board=fields.text("board"),
        method=fields.text("method"),
        curve=_decode_curve(fields.part("curve")),
        least_window_s=fields.number("least_window_s"),
        uncertainty_j=_number_or_none(fields, "uncertainty_j"),
        idle_power_w=_number_or_none(fields, "idle_power_w"),
        passed_over=fields.text("passed_over", ""),
    )


def _decode_curve(fields: Fields) -> EnergyCurve:
    times, joules = _column(fields.values, "times_ns", np.int64), _column(fields.values, "joules", np.float64)
    sound = times.ndim == joules.ndim == 1 and len(times) == len(joules) >= 2
    if not sound or np.any(np.diff(times) < 0) or np.any(np.diff(joules) < 0) or not np.all(np.isfinite(joules)):
        raise RecordError(f"{fields.where} is no curve that rises over time.")
    return EnergyCurve(times, joules)


def _column(values: Mapping[str, Json], key: str, kind: type) -> Any:
    try:
        return np.asarray(values.get(key), dtype=kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"{key} of an energy curve holds what is no number: {error}.") from error


def _number_or_none(fields: Fields, key: str) -> float | None:
    return None if fields.values.get(key) is None else fields.number(key)
