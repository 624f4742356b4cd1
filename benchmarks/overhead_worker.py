"""Trains a small model in this process, in turns under one measuring tool and without it, and notes the steps' times.

    python benchmarks/overhead_worker.py CONTENDER --lengths ROWS:STEPS ... --seconds S --seed N --device D --out FILE

``overhead.py`` runs this, each contender in processes of its own; ``traceml-ai`` runs it through its launcher. A step
is timed from the moment at which it asks for its batch to the next step's: the data set notes the clock, which costs
the same under every tool and without one. The plain loop has the same lines in the same order as the measured ones, for
how long a loop holds its last loss alone is seen in steps of a third of a millisecond.

All stretches go through the same lines (:meth:`_Turns.stretch`), and nothing but a step comes right before one that is
timed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple, TypeAlias

import torch
from overhead_contenders import CONTENDERS, Bench, Work

#: Imports, first allocations, the tools' own warm-up.
WARM_UP_STEPS = 50
#: Before each stretch, at most: what a tool does in the first steps after it was turned on. One that begins for longer
#: says so itself (:attr:`overhead_contenders.Bench.beginning_s`), and what its beginning takes is told apart.
SETTLING_STEPS = 10
#: Of stretches, whatever time they take.
LEAST_TURNS = 4
#: A tool that takes long to be turned on and off gets longer stretches: so large a part of that time.
SWITCHING_PART = 0.25

#: Of mallopt, in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

#: Of a core's numbers in /proc/stat, the one of ticks that the hypervisor gave to others (proc_stat(5)).
_STEAL = 7


@dataclass(frozen=True)
class Length:
    """Steps of one length: the rows of their batches, and how many of them are a stretch."""

    rows: int
    stretch: int

    @classmethod
    def of(cls, text: str) -> Length:
        """Reads ROWS:STEPS."""
        return cls(*(int(part) for part in text.split(":")))

    def __str__(self) -> str:
        return f"{self.rows}:{self.stretch}"


class Took(NamedTuple):
    """Seconds a step of some steps: mean and median by the wall's clock, and CPU time of the thread."""

    mean_s: float
    median_s: float
    cpu_s: float

    def typical_s(self, work: Work) -> float:
        """A step's length: the median, or where the host only queues what a device does, the mean."""
        return self.median_s if work.device.type == "cpu" else self.mean_s


class Stretch(NamedTuple):
    """What steps took, the part of that in which somebody else had the thread's core, and growth of the process.

    ``once_s``: of a tool that begins for longer, by how many seconds the steps of its beginning took longer than as
    many of these.
    """

    took: Took
    lost_part: float
    grown_bytes: int | None
    once_s: float | None = None


#: The stretches of one turn: under the tool, plain, and plain again.
Turn: TypeAlias = tuple[Stretch, Stretch, Stretch]


def measure(
    contender: str, lengths: Sequence[Length], seconds: float, seed: int, device: str = "cpu"
) -> dict[str, Any]:
    """What each length brought, and over all of them the steps run under the tool and those that it recorded.

    For each length as many turns are run as fit into these seconds, and at least four: a tool that is slow to turn on
    and off has fewer.
    """
    keep_memory()
    work = Work(lengths[0].rows, torch.device(device))
    work.plain(WARM_UP_STEPS)
    shuffle = random.Random(seed).shuffle
    with CONTENDERS[contender](work) as bench:
        found = [_Turns(bench, work, length).run(seconds, shuffle) for length in lengths]
    return {
        "contender": contender,
        "lengths": found,
        "steps": sum(one["steps"] for one in found),
        "recorded": bench.recorded(),
    }


class _Turns:
    """Stretches of steps of one length: in each turn one under the tool and two without it."""

    def __init__(self, bench: Bench, work: Work, length: Length) -> None:
        work.resize(length.rows)
        self._bench = bench
        self._work = work
        self._steps = length.stretch
        self._settling = max(3, min(max(SETTLING_STEPS, bench.settling), length.stretch))
        self._beginning = 0
        self._ran = 0
        self._switching_s = 0.0

    def run(self, seconds: float, shuffle: Callable[[list[int]], None]) -> dict[str, Any]:
        """The turns that fit into these seconds, and the steps run under the tool."""
        # The first stretches of a new length find everything cold, and may import something.
        step_s = self.stretch(under_tool=False).took.typical_s(self._work)
        self._beginning = round(self._bench.beginning_s / step_s)
        first = self.stretch(under_tool=True)
        self._steps = max(self._steps, round(SWITCHING_PART * self._switching_s / first.took.typical_s(self._work)))
        turns: list[Turn] = []
        end = time.perf_counter() + seconds
        while len(turns) < LEAST_TURNS or time.perf_counter() < end:
            order = [0, 1, 2]
            shuffle(order)
            came = {place: self.stretch(under_tool=place == 0) for place in order}
            turns.append((came[0], came[1], came[2]))
        return {"turns": turns, "stretch": self._steps, "steps": self._ran}

    def stretch(self, *, under_tool: bool) -> Stretch:
        """Settle, and time the steps that follow."""
        bench, run = self._bench, self._bench.run if under_tool else self._work.plain
        beginning = self._beginning if under_tool else 0
        began = time.perf_counter()
        if under_tool:
            bench.on()
        on_s = time.perf_counter() - began
        with on_one_core():
            began = time.perf_counter()
            if beginning:
                run(beginning)
            beginning_s = time.perf_counter() - began
            bytes_before, others_before_s = resident_bytes(), had_by_others_s()
            took = timed(run, self._work, self._steps, settling=self._settling)
            others_s, bytes_after = had_by_others_s() - others_before_s, resident_bytes()
        began = time.perf_counter()
        if under_tool:
            bench.off()
            self._ran += beginning + self._settling + self._steps
            self._switching_s = on_s + beginning_s + time.perf_counter() - began
        known = bytes_before is not None and bytes_after is not None
        grown_bytes = bytes_after - bytes_before if known else None
        once_s = beginning_s - beginning * took.mean_s if beginning else None
        return Stretch(took, others_s / (took.mean_s * self._steps), grown_bytes, once_s)


def timed(run: Callable[[int], None], work: Work, steps: int, *, settling: int = 0) -> Took:
    """Run some steps after some that are not timed; the last one ends when they are all done."""
    del work.asked_ns[:]
    work.data.settling = settling
    run(settling + steps)
    work.wait()
    work.asked_ns.append(time.perf_counter_ns())
    cpu_ns = time.thread_time_ns() - work.data.cpu_began_ns
    if len(work.asked_ns) != steps + 1:
        raise RuntimeError(f"{steps} steps asked for {len(work.asked_ns) - 1} batches; their times cannot be told.")
    took = [(after - before) / 1e9 for before, after in itertools.pairwise(work.asked_ns)]
    return Took(fmean(took), median(took), cpu_ns / 1e9 / steps)


def keep_memory() -> None:
    """From now on glibc's allocator keeps what it has; other allocators stay as they are.

    A tensor that is mapped by itself, or at the heap's end when it is given back, is zeroed page by page for the next
    step: that scatters more than any tool costs.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, 32 << 20)  # the largest that it takes
        set_option(_TRIM_THRESHOLD, (1 << 31) - 1)


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """Keep the calling thread on one core (Linux): elsewhere its caches are cold.

    A tool's own threads have all cores, also those that it starts meanwhile: a thread begins where its maker may run.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    start, thread = threading.Thread.start, threading.get_ident()

    def start_on_all(self: threading.Thread) -> None:
        if threading.get_ident() != thread:
            start(self)
            return
        os.sched_setaffinity(0, cores)
        try:
            start(self)
        finally:
            os.sched_setaffinity(0, {max(cores)})

    threading.Thread.start = start_on_all  # type: ignore[method-assign]
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        threading.Thread.start = start  # type: ignore[method-assign]


def had_by_others_s() -> float:
    """Seconds so far in which somebody else had the core while the calling thread was ready to run on it.

    Another program, by the scheduler's count of the thread's waits (:mod:`perf_diagnostics.measure.host.run_delay`), or
    the hypervisor, by the steal of the core in /proc/stat, which comes in ticks (Linux; elsewhere 0). Where the thread
    itself waits, for a lock that a tool holds, that is not counted.
    """
    if not hasattr(os, "sched_getaffinity"):
        return 0.0
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    lost_s = 0.0
    with contextlib.suppress(OSError):
        lost_s += int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    with contextlib.suppress(OSError):
        lines = (line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines())
        lost_s += sum(int(line[1 + _STEAL]) for line in lines if line[0] in cores) / os.sysconf("SC_CLK_TCK")
    return lost_s


def resident_bytes() -> int | None:
    """Memory of this process (Linux), or None."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("--lengths", type=Length.of, nargs="+", required=True, metavar="ROWS:STEPS")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0, help="of the order in each turn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found = measure(asked.contender, asked.lengths, asked.seconds, asked.seed, asked.device)
    asked.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
