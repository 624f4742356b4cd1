"""The energy of several ranks: all boards once over the window they share, or no total and the reason why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from perf_diagnostics.records import Gap, Outcome, Quantity, Settings, StepTable, Trial, TrialResult
from perf_diagnostics.records.energies import BoardUse, ClockReading, EnergyCurve, RankEnergy
from perf_diagnostics.store.ranks.energy_of_ranks import with_energy_of_ranks
from perf_diagnostics.store.ranks.rank_energy_file import energy_name, read_rank_energies, write_rank_energy
from perf_diagnostics.store.trial_folder import TrialFolder

S = 1_000_000_000
COUNTER, POWER = "total energy counter", "power averaged over 1 s, integrated"
#: What 1970 was when the hosts' clocks were at 0: they differ, as two machines' do.
EPOCH = 1_700_000_000 * S


def board(
    name: str, watts: float, began_s: float, ended_s: float, *, off_by: float | None = 10.0, **more: object
) -> BoardUse:
    """A board of constant power, with a knot each 0.1 s."""
    times = np.arange(round(began_s * 10), round(ended_s * 10) + 1, dtype=np.int64) * (S // 10)
    joules = watts * (times - times[0]) / S
    fields = {"method": COUNTER if off_by is not None else POWER, "least_window_s": 5.0, **more}
    return BoardUse(board=name, curve=EnergyCurve(times, joules), uncertainty_j=off_by, **fields)  # type: ignore[arg-type]


def rank(
    number: int,
    *boards: BoardUse,
    window_s: tuple[float, float] = (100, 120),
    host: str = "h1",
    offset_s: float = 0.0,
    gaps: tuple[Gap, ...] = (),
) -> RankEnergy:
    """A rank whose steps begin at 100 s of its host's clock; ``offset_s``: how far that clock is ahead of h1's."""
    began, ended = (round(t * S) for t in window_s)
    wall = EPOCH - round(offset_s * S)
    return RankEnergy(
        rank=number,
        host=host,
        clock=host,
        began=ClockReading(began, wall + began),
        ended=ClockReading(ended, wall + ended),
        origin_ns=round((100 + offset_s) * S),
        boards=boards,
        gaps=gaps,
        final=True,
    )


def steps(samples: int, *, count: int = 20, wall_s: float = 1.0) -> StepTable:
    wall_ns = round(wall_s * S)
    return StepTable(
        {
            "start_ns": np.arange(count) * wall_ns,
            "wall_ns": np.full(count, wall_ns),
            "samples": np.full(count, samples),
            "warmup": np.zeros(count, dtype=bool),
        }
    )


def joined(
    found: Mapping[int, RankEnergy | Gap],
    *tables: StepTable,
    ranks: int = 2,
    quantities: tuple[Quantity, ...] = (),
    gaps: tuple[Gap, ...] = (),
) -> TrialResult:
    result = TrialResult(
        trial=Trial(workload="w", settings=Settings(batch_size=8, device="cuda:0"), options={"ranks": ranks}),
        outcome=Outcome.COMPLETED,
        steps=tables or (steps(8), steps(8)),
        quantities=quantities,
        gaps=gaps,
        facts={"ranks": ranks},
    )
    return with_energy_of_ranks(result, found)


def why(result: TrialResult) -> str:
    """Why there is no total; and none of its numbers is there."""
    assert [q.name for q in result.quantities if q.name.startswith("energy_device")] == []
    gap = result.gap("energy_device")
    assert gap is not None
    return gap.why


A, B = "GPU-aaaa", "GPU-bbbb"


def test_two_boards_add_up_over_the_samples_of_both_ranks() -> None:
    result = joined({0: rank(0, board(A, 300, 100, 120)), 1: rank(1, board(B, 200, 100, 120))}, steps(8), steps(4))
    values = {q.name: q.value for q in result.quantities}
    assert values == {
        "energy_device": pytest.approx(500 * 20),
        "energy_device_uncertainty": pytest.approx(20),
        "energy_device_window_s": 20,
        "energy_device_steps": 20,
        "energy_device_samples": 20 * (8 + 4),
        "energy_device_boards": 2,
        "energy_device_ranks": 2,
    }
    assert result.quantities[0].source == (
        "NVML total energy counter, 2 boards of 2 ranks on 1 host (GPU-aaaa, GPU-bbbb)"
    )
    assert result.gap("energy_device") is None
    told = result.facts["energy_by_board"]
    assert [(b["board"], b["ranks"], b["joules"]) for b in told] == [  # type: ignore[union-attr,index,call-overload]
        (A, [0], pytest.approx(6000)),
        (B, [1], pytest.approx(4000)),
    ]


def test_all_boards_count_over_the_window_that_every_rank_has() -> None:
    # rank 0 from 100 to 120 s, rank 1 from 102.25 to 110: steps of 1 s are whole from 103 to 110
    found = {
        0: rank(0, board(A, 300, 100, 120)),
        1: rank(1, board(B, 200, 102.2, 110), window_s=(102.25, 110)),
    }
    result = joined(found)
    assert result.value("energy_device") == pytest.approx((300 + 200) * 7)
    assert result.value("energy_device_window_s") == 7
    assert result.value("energy_device_steps") == 7
    assert result.value("energy_device_samples") == 7 * 16


def test_the_ends_that_are_cut_add_to_the_uncertainty() -> None:
    # steps of 0.97 s: the first whole one after 102 s begins at 102.91, between knots at 102.9 and 103.0
    found = {0: rank(0, board(A, 100, 100, 120)), 1: rank(1, board(B, 100, 102, 120), window_s=(102, 120))}
    result = joined(found, steps(8, wall_s=0.97), steps(8, wall_s=0.97))
    assert result.value("energy_device_steps") == 17  # from 102.91 to 119.40, which is a knot
    # two boards of 10 J either way, and 9 of the 10 J between two knots
    assert result.value("energy_device_uncertainty") == pytest.approx(2 * (10 + 0.9 * 10), abs=0.01)
    assert result.value("energy_device") == pytest.approx(2 * 100 * 17 * 0.97)


def test_a_step_across_the_windows_end_counts_with_the_part_inside() -> None:
    # rank 1's steps of 1.5 s lie across the ends of rank 0's whole steps, 100 to 120 s: 20 / 1.5 of 6 samples
    found = {0: rank(0, board(A, 300, 100, 120)), 1: rank(1, board(B, 200, 100, 120))}
    result = joined(found, steps(8), steps(6, wall_s=1.5))
    assert result.value("energy_device_samples") == pytest.approx(20 * 8 + 20 / 1.5 * 6)


def test_two_ranks_that_share_a_board_are_counted_once_and_the_better_reading_is_taken() -> None:
    found = {
        0: rank(0, board(A, 310, 100, 120, off_by=None)),  # integrated power
        1: rank(1, board(A, 300, 100, 120, off_by=5.0)),  # the counter
    }
    result = joined(found)
    assert result.value("energy_device") == pytest.approx(6000)
    assert (result.value("energy_device_boards"), result.value("energy_device_ranks")) == (1, 2)
    assert result.value("energy_device_samples") == 20 * 16
    assert result.value("energy_device_uncertainty") == pytest.approx(5)
    assert "total energy counter, 1 board of 2 ranks on 1 host" in result.quantities[0].source
    assert result.gap("energy_cross_check") is None  # 3 % apart
    (told,) = result.facts["energy_by_board"]  # type: ignore[misc]
    assert told["ranks"] == [0, 1]  # type: ignore[index,call-overload]


def test_two_readings_of_one_board_that_contradict_each_other_are_told() -> None:
    found = {0: rank(0, board(A, 300, 100, 120)), 1: rank(1, board(A, 200, 100, 120, off_by=20.0))}
    gap = joined(found).gap("energy_cross_check")
    assert gap is not None
    assert gap.why == "GPU-aaaa: ranks 0-1 share it and read between 4000 J and 6000 J"


def test_what_a_rank_says_against_its_own_reading_is_told_with_its_number() -> None:
    doubts = (Gap("device_idle_power", "not made to rest"), Gap("energy_cross_check", "33 % apart"))
    result = joined({0: rank(0, board(A, 300, 100, 120)), 1: rank(1, board(B, 200, 100, 120), gaps=doubts)})
    assert result.value("energy_device") == pytest.approx(10_000)
    assert result.gaps == (Gap("energy_cross_check", "rank 1: 33 % apart"),)


def test_one_integrated_board_leaves_the_sum_without_an_uncertainty() -> None:
    found = {0: rank(0, board(A, 300, 100, 120)), 1: rank(1, board(B, 200, 100, 120, off_by=None))}
    result = joined(found)
    assert result.value("energy_device") == pytest.approx(10_000)
    assert result.value("energy_device_uncertainty") is None
    assert result.quantities[0].source.startswith(f"NVML {COUNTER} and {POWER}, 2 boards")


def test_energy_above_idle_takes_the_baseline_of_every_board() -> None:
    never = (Gap("device_idle_power", "it never rested"),)
    known = {0: rank(0, board(A, 300, 100, 120, idle_power_w=50.0)), 1: rank(1, board(B, 200, 100, 120), gaps=never)}
    assert joined(known).value("energy_device_net") is None
    why = "of 2 boards the idle power of 1 is not known. rank 1: it never rested"
    assert joined(known).gap("device_idle_power") == Gap("device_idle_power", why)
    known[1] = rank(1, board(B, 200, 100, 120, idle_power_w=30.0))
    result = joined(known)
    assert result.value("energy_device_net") == pytest.approx(10_000 - 80 * 20)
    assert result.value("device_idle_power") == pytest.approx(80)
    assert result.gap("device_idle_power") is None


# What is missing


def test_a_rank_that_has_written_nothing_leaves_no_total() -> None:
    rank_0s = (Quantity("energy_device", 6000.0, "J", "NVML"), Quantity("energy_device_steps", 20, "1", "NVML"))
    result = joined({0: rank(0, board(A, 300, 100, 120))}, quantities=rank_0s)
    assert why(result) == (
        "no total, for of 2 ranks the energy of 1 is missing. rank 1: it has left none in this record"
    )
    (told,) = result.facts["energy_by_board"]  # type: ignore[misc]
    assert (told["joules"], told["window_s"]) == (pytest.approx(6000), 20)  # type: ignore[index,call-overload]


def test_ranks_are_told_by_their_reasons() -> None:
    no_driver = Gap("energy_device", "no NVIDIA driver library")
    found: dict[int, RankEnergy | Gap] = {
        0: rank(0, board(A, 300, 100, 120)),
        1: rank(1, gaps=(no_driver,)),
        2: Gap("energy_device", "energy.rank2.json is not whole JSON"),
        4: rank(4, gaps=(no_driver,)),
        5: rank(5, gaps=(no_driver,)),
    }
    assert why(joined(found, ranks=8)) == (
        "no total, for of 8 ranks the energy of 7 is missing. rank 1, 4-5: no NVIDIA driver library; "
        "rank 2: energy.rank2.json is not whole JSON; rank 3, 6-7: it has left none in this record"
    )


def test_a_mig_instance_has_no_energy_of_its_own_and_so_there_is_no_total() -> None:
    mig = Gap("energy_device", "the device is a MIG instance, and NVML reports power … of whole boards only")
    assert "rank 1: the device is a MIG instance" in why(
        joined({0: rank(0, board(A, 300, 100, 120)), 1: rank(1, gaps=(mig,))})
    )


def test_a_window_of_all_ranks_that_is_too_short_is_no_total() -> None:
    # 100 to 106 and 103 to 109: 3 s in common
    found = {
        0: rank(0, board(A, 300, 100, 106), window_s=(100, 106)),
        1: rank(1, board(B, 200, 103, 109), window_s=(103, 109)),
    }
    assert why(joined(found)) == (
        "insufficient_window: the ranks share a window of 3 s, and GPU-aaaa (rank 0) asks for 5 s; measure longer"
    )


def test_windows_apart_are_no_total() -> None:
    found = {
        0: rank(0, board(A, 300, 100, 106), window_s=(100, 106)),
        1: rank(1, board(B, 200, 107, 113), window_s=(107, 113)),
    }
    assert why(joined(found)) == "no total, for the ranks' windows have no time in common"


def test_steps_without_times_are_no_total() -> None:
    found = {0: rank(0, board(A, 300, 100, 120)), 1: rank(1, board(B, 200, 100, 120))}
    untimed = StepTable({n: v for n, v in steps(8).columns.items() if n != "start_ns"})
    assert "when the steps of rank 1 began is not in the record" in why(joined(found, steps(8), untimed))
    assert "when the steps of rank 1 began is not in the record" in why(joined(found, steps(8)))


def test_no_whole_step_in_the_window_is_no_total() -> None:
    found = {0: rank(0, board(A, 300, 100, 120)), 1: rank(1, board(B, 200, 100, 120))}
    assert "no whole step of rank 0" in why(joined(found, steps(8, wall_s=30.0), steps(8)))


def test_where_nobody_has_written_the_result_stays_as_it_is() -> None:
    old = (Quantity("energy_device", 6000.0, "J", "NVML"),)
    result = joined({}, quantities=old, gaps=(Gap("energy_device", "x"),))
    assert result.quantities == old and result.gap("energy_device") == Gap("energy_device", "x")


def test_a_later_reading_replaces_what_was_not_known_yet() -> None:
    found = {0: rank(0, board(A, 300, 100, 120)), 1: rank(1, board(B, 200, 100, 120))}
    result = joined(found, gaps=(Gap("energy_device", "no total, for …"), Gap("loss", "not read")))
    assert [gap.signal for gap in result.gaps] == ["loss"]


# Several machines


def test_ranks_on_two_hosts_are_laid_together_by_the_time_of_day() -> None:
    # h2's clock is 5000 s ahead; rank 1 began a step later by the time of day: 101 to 120 s of h1's clock
    far = rank(1, board(B, 200, 5101, 5120), window_s=(5101, 5120), host="h2", offset_s=5000)
    result = joined({0: rank(0, board(A, 300, 100, 120)), 1: far})
    assert result.value("energy_device_window_s") == pytest.approx(19)
    assert result.value("energy_device") == pytest.approx(500 * 19)
    assert result.value("energy_device_samples") == pytest.approx(19 * 16)
    assert "2 boards of 2 ranks on 2 hosts" in result.quantities[0].source
    assert result.quantities[0].source.endswith("; windows matched by the hosts' time of day")


def test_a_clock_that_was_set_meanwhile_shortens_no_window() -> None:
    far = rank(1, board(B, 200, 5100, 5120), window_s=(5100, 5120), host="h2", offset_s=5000)
    ahead = dataclasses.replace(far.ended, wall_ns=far.ended.wall_ns + 30 * S)
    result = joined({0: rank(0, board(A, 300, 100, 120)), 1: dataclasses.replace(far, ended=ahead)})
    assert result.value("energy_device_window_s") == pytest.approx(20)
    assert result.value("energy_device") == pytest.approx(500 * 20)


def test_a_slewed_clock_is_followed() -> None:
    # The time of day of h2 ran 500 ppm fast: 20 s of its clock are 20.01 s of the day.
    far = rank(1, board(B, 200, 5100, 5120), window_s=(5100, 5120), host="h2", offset_s=5000)
    fast = dataclasses.replace(far.ended, wall_ns=far.ended.wall_ns + S // 100)
    result = joined({0: rank(0, board(A, 300, 100, 120)), 1: dataclasses.replace(far, ended=fast)})
    assert result.value("energy_device") == pytest.approx(300 * 20 + 200 * 20 / 1.0005, rel=1e-6)


# On disk


def test_a_ranks_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    gaps = (Gap("energy_cross_check", "…"),)
    written = rank(3, board(A, 300, 100, 110, idle_power_w=50.0, passed_over="why"), gaps=gaps)
    write_rank_energy(tmp_path, written)
    assert [path.name for path in tmp_path.iterdir()] == ["energy.rank3.json"]
    (read,) = read_rank_energies(tmp_path).values()
    assert read == written and isinstance(read, RankEnergy)
    assert read.boards[0].curve.times_ns.tolist() == written.boards[0].curve.times_ns.tolist()
    assert read.boards[0].curve.joules.tolist() == written.boards[0].curve.joules.tolist()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rank": 1}, "is of rank 1"),
        ({"schema": 99}, "has schema 99"),
        ({"boards": [{"board": A}]}, "'method'"),
        ({"boards": 3}, "should hold a list"),
        ({"steps_origin_ns": "x"}, "'steps_origin_ns'"),
        ({"steps_origin_ns": 10**30}, "is a time that no clock shows"),
    ],
)
def test_a_file_that_is_not_sound_is_a_gap_that_says_why(tmp_path: Path, change: dict[str, object], says: str) -> None:
    write_rank_energy(tmp_path, rank(0, board(A, 300, 100, 110)))
    path = tmp_path / energy_name(0)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    found = read_rank_energies(tmp_path)[0]
    assert isinstance(found, Gap) and says in found.why


@pytest.mark.parametrize(
    ("times", "joules"),
    [([1, 2, 3], [0.0, 2.0, 1.0]), ([3, 2, 1], [0.0, 1.0, 2.0]), ([1], [0.0]), ([1, 2], [0.0]), (["a", 2], [0, 1])],
)
def test_a_curve_that_falls_is_none(tmp_path: Path, times: list[object], joules: list[float]) -> None:
    write_rank_energy(tmp_path, rank(0, board(A, 300, 100, 110)))
    path = tmp_path / energy_name(0)
    content = json.loads(path.read_text())
    content["boards"][0]["curve"] = {"times_ns": times, "joules": joules}
    path.write_text(json.dumps(content))
    assert isinstance(read_rank_energies(tmp_path)[0], Gap)


def test_a_truncated_file_is_a_gap_and_the_others_are_read(tmp_path: Path) -> None:
    for number in (0, 1):
        write_rank_energy(tmp_path, rank(number, board(A, 300, 100, 110)))
    path = tmp_path / energy_name(0)
    path.write_bytes(path.read_bytes()[:-40])
    found = read_rank_energies(tmp_path)
    assert isinstance(found[0], Gap) and isinstance(found[1], RankEnergy)
    assert "energy.rank0.json is not whole JSON" in found[0].why.replace(str(tmp_path) + "/", "")


def trial_folder(path: Path) -> tuple[TrialFolder, TrialResult]:
    """A trial's folder in which both ranks have written their steps and their energy."""
    trial = Trial(workload="w", settings=Settings(batch_size=8, device="cuda:0"), options={"ranks": 2})
    folder = TrialFolder(path / trial.id)
    folder.path.mkdir()
    for number, name in enumerate((A, B)):
        folder.write_part(steps(8), rank=number)
        write_rank_energy(folder.path, rank(number, board(name, 300, 100, 120)))
    return folder, TrialResult(trial=trial, outcome=Outcome.COMPLETED, facts={"ranks": 2})


def test_a_rank_that_writes_after_the_result_is_in_the_next_reading(tmp_path: Path) -> None:
    folder, result = trial_folder(tmp_path)
    late = (folder.path / energy_name(1)).read_bytes()
    (folder.path / energy_name(1)).unlink()
    folder.finish(folder.with_energy_of_ranks(result))
    assert "rank 1: it has left none" in why(folder.read_result())
    assert "rank 1: it has left none" in why(folder.decode_result())  # as rank 0 has written it
    (folder.path / energy_name(1)).write_bytes(late)
    assert folder.read_result().value("energy_device") == pytest.approx(12_000)


def test_the_result_that_rank_0_writes_has_the_total(tmp_path: Path) -> None:
    folder, result = trial_folder(tmp_path)
    folder.finish(folder.with_energy_of_ranks(result))
    assert folder.decode_result().value("energy_device") == pytest.approx(12_000)
    assert folder.decode_result().value("energy_device_boards") == 2


def test_after_rank_0_was_killed_the_energies_are_joined_all_the_same(tmp_path: Path) -> None:
    folder, result = trial_folder(tmp_path)
    salvaged = folder.salvage(result.trial)
    assert salvaged is not None and salvaged.outcome is Outcome.INTERRUPTED
    assert salvaged.value("energy_device") == pytest.approx(12_000)


def test_another_attempt_begins_without_the_energy_of_the_last_one(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    folder, result = trial_folder(tmp_path)
    folder.begin(result.trial, now=datetime(2026, 1, 1, tzinfo=UTC), pid=1)
    assert [path.name for path in folder.path.iterdir()] == ["started.json"]
