"""What reading a profiler trace takes: ``perf-diagnostics trace`` and Holistic Trace Analysis on the same files.

    python benchmarks/trace_reading.py FILE ... [--hta PYTHON] [--rounds N]

FILE is a trace of torch.profiler with the events of a GPU. Each reading is a process of its own, from its start to its
answer, in alternation; for each file the medians of seconds and of peak resident memory, and the median ratio of the
pairs. HTA is asked for the least that comes near a waterfall: its temporal breakdown. It may live in another
environment, whose Python ``--hta`` names.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

OURS = ("-m", "perf_diagnostics", "trace", "--json")
THEIRS = """
import sys
from hta.trace_analysis import TraceAnalysis
print(TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="").get_temporal_breakdown(visualize=False))
"""


@dataclass(frozen=True)
class Cost:
    """What a process took: wall and processor seconds, and its peak resident memory in MiB."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def cost_of(command: Sequence[str]) -> Cost:
    """Of this command, run to its end; RuntimeError with what it said where it fails.

    Linux counts as the memory of a new process at least what its parent had: call this from a small one.
    """
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"{command[0]} … {command[-1]} ended with {process.returncode}: {said.read()[-400:]!r}")
    unit = 1024 if sys.platform != "darwin" else 1024**2  # ru_maxrss is in KiB, on macOS in bytes
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit)


def compare(file: Path, python: str, rounds: int) -> list[str]:
    """The lines on one file; the rounds alternate, and which of the two begins changes."""
    commands = {"ours": [sys.executable, *OURS, str(file)], "HTA": [python, "-c", THEIRS, str(file)]}
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(rounds):
        for name in commands if number % 2 == 0 else reversed(commands):
            costs[name].append(cost_of(commands[name]))
    lines = [f"{file.name} ({file.stat().st_size / 2**20:.1f} MiB):"]
    for what, unit in (("wall_s", "s"), ("cpu_s", "s of processor"), ("peak_mib", "MiB at most")):
        ours, theirs = ([getattr(cost, what) for cost in costs[name]] for name in commands)
        ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
        lines.append(f"  ours {median(ours):8.2f}, HTA {median(theirs):8.2f} {unit}, ratio {ratio:.2f}")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--hta", default=sys.executable, metavar="PYTHON", help="a Python that has HTA (default: this)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    given = parser.parse_args(arguments)
    if subprocess.run([given.hta, "-c", "import hta"], check=False, capture_output=True).returncode:
        raise SystemExit(f"{given.hta} cannot import hta; `pip install HolisticTraceAnalysis`, or name one with --hta.")
    for file in given.files:
        print(*compare(file.absolute(), given.hta, given.rounds), sep="\n", flush=True)


if __name__ == "__main__":
    main()
