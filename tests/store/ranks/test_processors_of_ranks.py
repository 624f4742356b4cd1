"""The processors' energy of several ranks: every domain of every host once, over the window that all ranks share."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from perf_diagnostics.records import Gap, Quantity
from perf_diagnostics.records.energies import DomainUse, EnergyCurve, RankEnergy
from perf_diagnostics.store.ranks.rank_energy_file import energy_name, read_rank_energies, write_rank_energy
from tests.store.ranks.test_energy_of_ranks import A, B, board, joined, rank, steps

S = 1_000_000_000
PACKAGE, MEMORY = "intel-rapl:0 package-0", "intel-rapl:0:0 dram"


def reading(
    number: int,
    watts: dict[str, float],
    *,
    host: str = "h1",
    window_s: tuple[float, float] = (100, 120),
    on_board: str = "",
    **more: object,
) -> RankEnergy:
    """A rank that has read its host's domains, with a knot each 0.2 s."""
    times = np.arange(round(window_s[0] * 5), round(window_s[1] * 5) + 1, dtype=np.int64) * (S // 5)
    domains = tuple(
        DomainUse(name, EnergyCurve(times, power * (times - times[0]) / S)) for name, power in watts.items()
    )
    boards = [board(on_board, 300, *window_s)] if on_board else []
    return dataclasses.replace(rank(number, *boards, host=host, window_s=window_s, **more), processors=domains)  # type: ignore[arg-type]


def test_ranks_on_one_host_count_its_processors_once() -> None:
    watts = {PACKAGE: 90.0, MEMORY: 10.0}
    of_rank_0 = (Quantity("energy_cpu", 1.0, "J", "RAPL"), Quantity("energy_cpu_window_s", 1.0, "s", "RAPL"))
    result = joined({0: reading(0, watts), 1: reading(1, watts)}, quantities=of_rank_0)
    assert {one.name: (one.value, one.source) for one in result.quantities} == {
        "energy_cpu": (pytest.approx(100 * 20), "RAPL package + dram, whole machine, 1 host of 2 ranks"),
        "energy_cpu_window_s": (20, "RAPL package + dram, whole machine, 1 host of 2 ranks"),
    }
    assert result.gaps == ()  # and a training on the CPU lacks no board


def test_hosts_add_up_over_the_window_that_all_ranks_share() -> None:
    # h1 has two packages; rank 2 on h2 measured from 102 s of h1's clock on, in steps of 1 s
    found: dict[int, RankEnergy | Gap] = {
        0: reading(0, {PACKAGE: 90.0, "intel-rapl:1 package-1": 70.0}),
        1: reading(1, {PACKAGE: 90.0, "intel-rapl:1 package-1": 70.0}),
        2: reading(2, {PACKAGE: 40.0}, host="h2", window_s=(5102, 5120), offset_s=5000),
    }
    result = joined(found, steps(8), steps(8), steps(8), ranks=3)
    assert result.value("energy_cpu_window_s") == pytest.approx(18)
    assert result.value("energy_cpu") == pytest.approx((90 + 70 + 40) * 18)
    assert result.quantities[0].source == "RAPL package, whole machines, 2 hosts of 3 ranks"


def test_one_rank_of_a_host_that_could_read_is_enough() -> None:
    refused = Gap("energy_cpu", "no permission to read energy_uj of intel-rapl:0")
    result = joined({0: rank(0, gaps=(refused,)), 1: reading(1, {PACKAGE: 90.0})}, gaps=(refused,))
    assert result.value("energy_cpu") == pytest.approx(90 * 20)
    assert result.gap("energy_cpu") is None


def test_a_host_that_nobody_read_leaves_no_total() -> None:
    refused = Gap("energy_cpu", "no permission to read energy_uj of intel-rapl:0")
    found = {
        0: reading(0, {PACKAGE: 90.0}),
        1: rank(1, host="h2", offset_s=5000, window_s=(5100, 5120), gaps=(Gap("energy_device", "no board"), refused)),
        2: rank(2, host="h3", offset_s=5000, window_s=(5100, 5120)),
    }
    result = joined(found, steps(8), steps(8), steps(8), ranks=4)
    assert result.value("energy_cpu") is None and result.value("energy_cpu_window_s") is None
    assert result.gap("energy_cpu") == Gap(
        "energy_cpu",
        "no total, for of 4 ranks the energy of 3 is missing. rank 1: no permission to read energy_uj of "
        "intel-rapl:0; rank 2: nobody on its host has read the processors' counters; rank 3: it has left none in this "
        "record",
    )


def test_a_window_that_is_too_short_is_no_total() -> None:
    found = {
        0: reading(0, {PACKAGE: 90.0}, window_s=(100, 106)),
        1: reading(1, {PACKAGE: 90.0}, window_s=(102, 108)),
    }
    gap = joined(found).gap("energy_cpu")
    assert gap is not None and gap.why == (
        "insufficient_window: the ranks share a window of 4 s, and the processors' counters ask for 5 s; measure longer"
    )


def test_boards_and_processors_are_joined_independently() -> None:
    found = {0: reading(0, {PACKAGE: 90.0}, on_board=A), 1: reading(1, {PACKAGE: 90.0}, on_board=B)}
    result = joined(found)
    assert result.value("energy_device") == pytest.approx(600 * 20)
    assert result.value("energy_cpu") == pytest.approx(90 * 20)
    without = joined({0: reading(0, {PACKAGE: 90.0}, on_board=A), 1: reading(1, {PACKAGE: 90.0})})
    assert without.value("energy_cpu") == pytest.approx(90 * 20)
    gap = without.gap("energy_device")
    assert gap is not None and gap.why.endswith("rank 1: it has read no board")


def test_records_from_before_processors_were_read_stay_as_they_are() -> None:
    old = (Quantity("energy_cpu", 5.0, "J", "RAPL"),)
    result = joined({0: rank(0, board(A, 300, 100, 120)), 1: rank(1, board(B, 200, 100, 120))}, quantities=old)
    assert result.value("energy_cpu") == 5.0 and result.gap("energy_cpu") is None


def test_a_ranks_processors_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = reading(1, {PACKAGE: 90.0, MEMORY: 10.0}, on_board=A)
    write_rank_energy(tmp_path, written)
    (read,) = read_rank_energies(tmp_path).values()
    assert read == written and isinstance(read, RankEnergy)
    for there, here in zip(read.processors, written.processors, strict=True):
        assert there.curve.times_ns.tolist() == here.curve.times_ns.tolist()
        assert there.curve.joules.tolist() == here.curve.joules.tolist()
    path = tmp_path / energy_name(1)
    content = json.loads(path.read_text())
    del content["processors"]  # as older versions wrote it
    path.write_text(json.dumps(content))
    (older,) = read_rank_energies(tmp_path).values()
    assert isinstance(older, RankEnergy) and older.processors == () and older.boards == written.boards
    path.write_text(json.dumps({**content, "processors": [{"domain": PACKAGE, "curve": {"times_ns": [1, 2]}}]}))
    (broken,) = read_rank_energies(tmp_path).values()
    assert isinstance(broken, Gap)
