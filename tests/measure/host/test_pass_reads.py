"""Bytes read by pass: from pretended kernel files, and really from this machine's disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perf_diagnostics.measure.host.pass_reads import PassReads
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import QUANTITIES
from tests.measure.kernel_files import machine

TRIAL, WORKER = 50, 61
NAMES = ["read_bytes_first_pass", "read_bytes_later_passes"]


class Trial:
    """A trial with a worker whose counts are set by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workers: tuple[int, ...] = (WORKER,)
        self.reads = PassReads(TRIAL, root=root, workers=lambda _pid: self.workers)
        self.observations = Observations()

    def has_read(self, own: int, worker: int = 0) -> None:
        counts = {f"/proc/{TRIAL}/io": f"rchar: 5\nread_bytes: {own}\n"}
        machine(self.root, counts | {f"/proc/{WORKER}/io": f"read_bytes: {worker}\n"})

    def values(self) -> list[float]:
        return [one.value for one in self.reads.quantities(self.observations)]

    def gaps(self) -> list[tuple[str, str]]:
        return [(gap.signal, gap.why) for gap in self.observations.gaps]


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_the_first_pass_and_all_later_ones_with_their_workers(trial: Trial) -> None:
    trial.has_read(1000, 10)  # what was read before the steady steps is nobody's
    trial.reads.pass_begins()
    trial.has_read(3000, 40)
    trial.reads.begin()
    trial.has_read(4000, 540)
    trial.reads.pass_begins()
    trial.has_read(4100, 550)
    trial.reads.pass_begins()  # of later ones none is told from the others
    trial.has_read(4200, 560)
    found = trial.reads.quantities(trial.observations)
    assert [one.name for one in found] == NAMES and [one.value for one in found] == [1500, 220]
    assert {(one.unit, one.source) for one in found} == {("bytes", "/proc/<pid>/io of the process tree")}
    assert {QUANTITIES[name][0] for name in NAMES} == {"bytes"} and trial.gaps() == []


def test_an_evaluation_within_the_first_pass_does_not_end_it(trial: Trial) -> None:
    trial.has_read(1000)
    trial.reads.pass_begins()
    trial.reads.begin()
    trial.has_read(2000)
    trial.reads.pass_begins()
    trial.reads.take_back()
    trial.has_read(4000)
    trial.reads.pass_ended()
    trial.reads.pass_begins()
    trial.has_read(4500)
    assert trial.values() == [3000, 500]


def test_what_is_read_between_two_passes_is_not_the_first_ones(trial: Trial) -> None:
    trial.reads.pass_begins()
    trial.has_read(0)
    trial.reads.begin()
    trial.has_read(100)
    trial.reads.pass_ended()
    trial.has_read(900)  # an evaluation
    trial.reads.pass_begins()
    trial.reads.pass_ended()
    assert trial.values() == [100, 800]


def test_a_pass_that_read_nothing_is_a_measured_zero(trial: Trial) -> None:
    trial.has_read(7)
    trial.reads.pass_begins()
    trial.reads.begin()
    trial.reads.pass_begins()
    assert trial.values() == [0, 0]


def test_of_one_pass_there_is_nothing_to_tell_nor_missing(trial: Trial) -> None:
    trial.has_read(0)
    trial.reads.pass_begins()
    trial.reads.begin()
    trial.reads.pass_ended()
    assert trial.values() == [] and trial.gaps() == []


def test_a_first_pass_that_was_over_in_the_warm_up_is_a_gap(trial: Trial) -> None:
    trial.has_read(0)
    for _ in range(3):
        trial.reads.pass_begins()
    trial.reads.begin()
    why = "the first pass over the data had ended before the steady steps began"
    assert trial.values() == [] and trial.gaps() == [(name, why) for name in NAMES]


def test_a_kernel_that_does_not_say_is_a_gap(trial: Trial) -> None:
    trial.reads.pass_begins()
    trial.reads.begin()
    trial.reads.pass_begins()
    assert trial.values() == [] and trial.gaps() == [(name, "/proc/<pid>/io cannot be read") for name in NAMES]


def test_counts_of_a_worker_that_nobody_took_over_are_no_negative_number(trial: Trial) -> None:
    trial.reads.pass_begins()
    trial.has_read(0, 500)
    trial.reads.begin()
    trial.workers = ()
    trial.reads.pass_begins()
    assert trial.values() == []
    assert trial.gaps() == [(name, "a worker ended whose count nobody took over") for name in NAMES]


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="nothing here takes a file out of the page cache")
def test_a_file_outside_of_the_page_cache_counts_and_one_inside_does_not(tmp_path: Path) -> None:
    file, size = tmp_path / "data", 2_000_000
    file.write_bytes(os.urandom(size))
    reads = PassReads()
    reads.pass_begins()
    reads.begin()
    with file.open("rb") as data:
        os.fdatasync(data.fileno())  # here fsync waits for nothing (tests/conftest.py)
        os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        data.read()
        reads.pass_begins()
        data.seek(0)
        data.read()
    found = [one.value for one in reads.quantities(Observations())]
    if not found or found[0] == 0:
        pytest.skip("this file system's reads are not counted, or stay cached (tmpfs)")
    assert found[0] >= size > 10 * found[1]
