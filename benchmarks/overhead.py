"""What measuring costs: bare loop, our probe, our attach, torch.profiler, Lightning's SimpleProfiler, traceml-ai.

    python benchmarks/overhead.py [--rounds N] [--lengths MS ...] [--seconds S] [--json FILE]

Steps of a small real training (one thread) of about 0.3, 1, 5 and 50 ms. Every round runs each contender once, in a
process of its own and in random order; in a process, short blocks of steps under the tool and without it take turns
(ABBA), after a few steps each that are not looked at. Three figures are told, in microseconds that a step takes
longer, with Student's 95 % interval over the rounds, for a process is one value:

- **typical**: in each block the median step; of the differences between neighbouring blocks the median. A machine's
  interruptions fall into few steps, and its drift is the same in neighbours, so that this resolves a microsecond where
  means of the same steps scatter by hundreds. What a tool does now and then, it does not see. (The median of paired
  differences: Hollander & Wolfe, "Nonparametric Statistical Methods", 3rd ed. 2014, chapter 3.)
- **of CPU time**: the same of the CPU time that the loop's thread took for a step of each block, rare dear moments
  included; other programs on the machine disturb it less. What a tool does in other threads is not in it.
- **mean**: the mean over all steps of all blocks, nothing left out: it has the tool's rare dear moments (flushes,
  collections) and also the machine's.

``bare`` is compared with itself: what it "adds" is the noise, and no other figure is worth more digits than that one.
Of our own two it is said whether they keep within their reach, and where the interval is too wide to tell, that.

The steps' own scatter is kept small, for the bare loop and for everybody alike: the thread of the loop stays on one
core (a tool's threads have the others), and glibc's allocator keeps the memory that it has; where it gives large
tensors back and gets them anew, page by page, a step of 5 ms scatters by a tenth.

What a tool costs at rest in its process is in its plain blocks too (traceml-ai cannot be turned off), so its quickest
block is also held against the quickest one of the bare processes. What is not installed is named and left out. Take a
quiet machine with two free cores.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from overhead_worker import CONTENDERS, Length, Took, Work, keep_memory, on_one_core, steps_in, timed

WORKER = Path(__file__).with_name("overhead_worker.py")
SOURCES = Path(__file__).parents[1] / "src"
LENGTHS_MS = (0.3, 1.0, 5.0, 50.0)

#: A short block has its neighbour near; for a median it takes some steps.
BLOCK_S = 0.01
LEAST_BLOCK = 3

#: What a step may take longer under our own: seconds where it is shorter than this, and else a part of it.
REACH_S = {"probe": 10e-6, "attach": 15e-6}
SHORT_MS = 1.0
REACH_PART = 0.01

#: What a contender is imported as, and the command that installs it.
NEEDS = {
    "probe": ("numpy", "pip install perf-diagnostics"),
    "attach": ("pyarrow", "pip install perf-diagnostics"),
    "lightning": ("lightning", "pip install lightning"),
    "traceml-ai": ("traceml_ai", "pip install traceml-ai"),
}

#: Student's quantiles at 97.5 % for 1 to 10 degrees of freedom; beyond, the normal one is near enough.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--lengths", type=float, nargs="+", default=LENGTHS_MS, help="of a step, in ms")
    parser.add_argument("--seconds", type=float, default=1.5, help="of blocks of each length in each process")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    asked = parser.parse_args(arguments)
    there = [name for name in asked.contenders if installed(name)]
    lengths = [length_of(length_ms / 1e3) for length_ms in asked.lengths]
    found = rounds(there, lengths, asked.rounds, asked.seconds)
    rows = []
    for position, length_ms in enumerate(asked.lengths):
        bare = [process["lengths"][position] for process in found["bare"]]
        for name in there:
            ours = [process["lengths"][position] for process in found[name]]
            row = compared(ours, bare)
            most_s = reach_s(name, length_ms, row["plain_s"])
            rows.append({"length_ms": length_ms, "contender": name, **row, "reach_s": most_s})
            print(in_words(rows[-1]))
    kept = [{"contender": name, **dropped(found[name])} for name in there if name != "bare"]
    for one in kept:
        print(kept_in_words(one))
    if asked.json is not None:
        asked.json.write_text(json.dumps({"added": rows, "kept": kept}, indent=1), encoding="utf-8")
    return rows


def installed(contender: str) -> bool:
    """Whether a contender can be run here; says how to install it where not."""
    module, command = NEEDS.get(contender, ("torch", "pip install torch"))
    if importlib.util.find_spec(module) is not None:
        return True
    print(f"{contender}: left out, it is not installed; {command}")
    return False


def rounds(
    contenders: Sequence[str], lengths: Sequence[Length], count: int, seconds: float
) -> dict[str, list[dict[str, Any]]]:
    """What every contender's processes brought, round by round; the bare loop is always among them."""
    order = list(dict.fromkeys(["bare", *contenders]))
    shuffle = random.Random(0).shuffle
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in order}
    for number in range(count):
        shuffle(order)
        for name in order:
            print(f"round {number + 1} of {count}: {name}", file=sys.stderr, flush=True)
            found[name].append(in_a_process(name, lengths, seconds))
    return found


def length_of(step_s: float) -> Length:
    """Steps of about so many seconds."""
    return Length(rows_for(step_s), max(LEAST_BLOCK, round(BLOCK_S / step_s)))


def rows_for(step_s: float) -> int:
    """How many rows a batch needs for a step of about so many seconds, by the quickest of some short blocks."""
    keep_memory()
    work, rows = Work(1), 1
    while rows < 2**24 and _quickest_step_s(work, rows) < step_s:
        rows *= 2
    low, high = rows // 2, rows
    while high - low > max(1, high // 20):
        middle = (low + high) // 2
        low, high = (middle, high) if _quickest_step_s(work, middle) < step_s else (low, middle)
    return max(1, high)


def _quickest_step_s(work: Work, rows: int) -> float:
    work.resize(rows)
    work.plain(3)
    with on_one_core():
        return min(timed(work.plain, work, 5).median_s for _ in range(10))


def in_a_process(contender: str, lengths: Sequence[Length], seconds: float) -> dict[str, Any]:
    """Run the worker.

    Raises:
        RuntimeError: it ended without a result; its last words are in the text.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        task = [contender, f"--out={out}", f"--seconds={seconds}", "--lengths", *(str(length) for length in lengths)]
        command = [sys.executable, str(WORKER), *task]
        if contender == "traceml-ai":
            launch = "from traceml_ai.launcher.cli import main; main()"
            command = [sys.executable, "-c", launch, "run", "--logs-dir", folder, str(WORKER), "--args", *task]
        paths = [str(SOURCES), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
        if not out.exists():
            words = (done.stderr.strip() or done.stdout.strip())[-800:]
            raise RuntimeError(f"{contender} ended with status {done.returncode} and no result: {words}")
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        if contender == "traceml-ai":
            found["recorded"] = steps_in(Path(folder))
        return found


def compared(ours: Sequence[dict[str, Any]], bare: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Added seconds a step, typical, of CPU time and mean, and the typical ratio: one value a process, from neighbours.

    Args:
        ours: what the contender's processes brought for one length.
        bare: what the bare loop's did.
    """
    pairs = [[(Took(*a), Took(*b)) for a, b in zip(one["block"], one["plain"], strict=True)] for one in ours]
    typical = [median(a.median_s - b.median_s for a, b in blocks) for blocks in pairs]
    cpu = [median(a.cpu_s - b.cpu_s for a, b in blocks) for blocks in pairs]
    means = [fmean(a.mean_s - b.mean_s for a, b in blocks) for blocks in pairs]
    grown = [one["bytes_a_step"] for one in ours if one["bytes_a_step"] is not None]
    plain_s = median(b.median_s for blocks in pairs for _, b in blocks)
    return {
        "plain_s": plain_s,
        "added_s": fmean(typical),
        "half_width_s": half_width(typical),
        "ratio": 1 + fmean(typical) / plain_s,
        "cpu_added_s": fmean(cpu),
        "cpu_half_width_s": half_width(cpu),
        "mean_added_s": fmean(means),
        "mean_half_width_s": half_width(means),
        "added_at_best_s": _quickest(ours) - _quickest(bare),
        "bytes_a_step": median(grown) if grown else None,
        "pairs": sum(len(blocks) for blocks in pairs),
        "rounds": len(pairs),
    }


def _quickest(processes: Sequence[dict[str, Any]]) -> float:
    return min(Took(*block).median_s for one in processes for block in one["block"])


def within_reach(added_s: float, half_width_s: float | None, most_s: float) -> bool | None:
    """Whether what is added is at most so much; None where the interval holds that, or is not known."""
    if half_width_s is None or abs(added_s - most_s) <= half_width_s:
        return None
    return added_s < most_s


def reach_s(contender: str, length_ms: float, plain_s: float) -> float | None:
    """The seconds that one of our own may add to a step of this length; None for the others."""
    most_s = REACH_S.get(contender)
    return most_s if most_s is None or length_ms < SHORT_MS else REACH_PART * plain_s


def dropped(processes: Sequence[dict[str, Any]]) -> dict[str, int | None]:
    """Steps that were run under the tool, and those of them that it did not record; None where that is not known."""
    steps = sum(one["steps"] for one in processes)
    known = all(one["recorded"] is not None for one in processes)
    return {"steps": steps, "dropped": steps - sum(one["recorded"] for one in processes) if known else None}


def half_width(values: Sequence[float]) -> float | None:
    """Of Student's 95 % interval of the mean; None for a single value."""
    if len(values) < 2:
        return None
    degrees = len(values) - 1
    quantile = _STUDENT[degrees - 1] if degrees <= len(_STUDENT) else 1.96
    return quantile * stdev(values) / math.sqrt(len(values))


def in_words(row: dict[str, Any]) -> str:
    grown = "not known" if row["bytes_a_step"] is None else f"{row['bytes_a_step']:.0f}"
    return (
        f"{row['length_ms']:g} ms, {row['contender']}: plain {row['plain_s'] * 1e3:.3f} ms, "
        f"typically {_us(row['added_s'], row['half_width_s'])} us a step more (x{row['ratio']:.4f}), "
        f"of CPU time {_us(row['cpu_added_s'], row['cpu_half_width_s'])}, "
        f"in the mean {_us(row['mean_added_s'], row['mean_half_width_s'])}, "
        f"best against best {_us(row['added_at_best_s'])}; "
        f"{grown} bytes a step ({row['pairs']} pairs in {row['rounds']} processes){_reach_in_words(row)}"
    )


def _reach_in_words(row: dict[str, Any]) -> str:
    most_s = row["reach_s"]
    if most_s is None:
        return ""
    wide = "one process alone has no interval" if row["rounds"] < 2 else "the interval is too wide to tell"
    words = {True: "yes", False: "no", None: wide}
    typical = words[within_reach(row["added_s"], row["half_width_s"], most_s)]
    cpu = words[within_reach(row["cpu_added_s"], row["cpu_half_width_s"], most_s)]
    return f"; at most {most_s * 1e6:.1f} us typically: {typical}; of CPU time: {cpu}"


def _us(value_s: float, *half_width_s: float | None) -> str:
    widths = ("± not known" if width is None else f"± {width * 1e6:.1f}" for width in half_width_s)
    return " ".join([f"{value_s * 1e6:+.1f}", *widths])


def kept_in_words(kept: dict[str, Any]) -> str:
    lost = "not known how many" if kept["dropped"] is None else f"{kept['dropped']:,}"
    return f"{kept['contender']}: {lost} of {kept['steps']:,} steps dropped"


if __name__ == "__main__":
    main()
