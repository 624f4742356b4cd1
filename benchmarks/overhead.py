"""What measuring costs: bare loop, our probe, our attach, torch.profiler, Lightning's SimpleProfiler, traceml-ai.

    python benchmarks/overhead.py [--rounds N] [--lengths MS ...] [--seconds S] [--json FILE]

Steps of a small real training (one thread) of about 0.3, 1, 5 and 50 ms. Every round runs each contender once, in a
process of its own and in random order; in a process, blocks of steps under the tool and without it take turns, and the
round's figure is the median of the differences between neighbours. Printed are the added microseconds a step (mean over
the rounds, Student's 95 % interval), the ratio, the bytes a step of growth, and the steps that the tool dropped.
``bare`` is compared with itself: what it "adds" is the noise. What a tool costs at rest in its process is in its plain
blocks too (traceml-ai cannot be turned off), so its best block is also held against the best one of the bare processes.
What is not installed is named and left out.
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
from statistics import mean, median, stdev
from typing import Any

from overhead_worker import CONTENDERS, Work, steps_in

WORKER = Path(__file__).with_name("overhead_worker.py")
SOURCES = Path(__file__).parents[1] / "src"
LENGTHS_MS = (0.3, 1.0, 5.0, 50.0)
BLOCK_S = 0.05

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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--lengths", type=float, nargs="+", default=LENGTHS_MS, help="of a step, in ms")
    parser.add_argument("--seconds", type=float, default=2.0, help="of steps in each process")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    asked = parser.parse_args(arguments)
    there = [name for name in asked.contenders if installed(name)]
    rows = []
    for length_ms in asked.lengths:
        found = rounds(there, length_ms / 1e3, asked.rounds, asked.seconds)
        for name in there:
            row = {"length_ms": length_ms, "contender": name, **compared(found[name], found["bare"])}
            rows.append(row)
            print(in_words(row), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return rows


def installed(contender: str) -> bool:
    """Whether a contender can be run here; says how to install it where not."""
    module, command = NEEDS.get(contender, ("torch", "pip install torch"))
    if importlib.util.find_spec(module) is not None:
        return True
    print(f"{contender}: left out, it is not installed; {command}")
    return False


def rounds(contenders: Sequence[str], step_s: float, count: int, seconds: float) -> dict[str, list[dict[str, Any]]]:
    """What every contender's processes brought, round by round; the bare loop is always among them."""
    size = rows_for(step_s)
    block = max(2, round(BLOCK_S / step_s))
    blocks = max(4, round(seconds / (2 * block * step_s)))
    order = list(dict.fromkeys(["bare", *contenders]))
    shuffle = random.Random(0).shuffle
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in order}
    for _ in range(count):
        shuffle(order)
        for name in order:
            found[name].append(in_a_process(name, size, block, blocks))
    return found


def rows_for(step_s: float) -> int:
    """How many rows a batch needs for a step of about so many seconds, by the fastest of some steps."""
    rows = 1
    while rows < 2**24 and _fastest_s(rows) < step_s:
        rows *= 2
    low, high = rows // 2, rows
    while high - low > max(1, high // 20):
        middle = (low + high) // 2
        low, high = (middle, high) if _fastest_s(middle) < step_s else (low, middle)
    return max(1, high)


def _fastest_s(rows: int) -> float:
    import time

    work, best = Work(rows), math.inf
    work.plain(3)
    for _ in range(5):
        began = time.perf_counter()
        work.plain(10)
        best = min(best, (time.perf_counter() - began) / 10)
    return best


def in_a_process(contender: str, rows: int, block: int, blocks: int) -> dict[str, Any]:
    """Run the worker.

    Raises:
        RuntimeError: it ended without a result; its last words are in the text.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        task = [contender, f"--rows={rows}", f"--block={block}", f"--blocks={blocks}", f"--out={out}"]
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
    """Added seconds a step with their interval, and the ratio, from neighbouring blocks of the same processes."""
    pairs = [list(zip(one["block_s"], one["plain_s"], strict=True)) for one in ours]
    added = [median(a - b for a, b in blocks) for blocks in pairs]
    kept = [(one["steps"], one["recorded"]) for one in ours if one["recorded"] is not None]
    grown = [one["bytes_a_step"] for one in ours if one["bytes_a_step"] is not None]
    return {
        "plain_s": median(b for blocks in pairs for _, b in blocks),
        "added_s": mean(added),
        "half_width_s": half_width(added),
        "ratio": median(a / b for blocks in pairs for a, b in blocks),
        "added_at_best_s": min(min(one["block_s"]) for one in ours) - min(min(one["block_s"]) for one in bare),
        "dropped": sum(steps - recorded for steps, recorded in kept) if kept else None,
        "bytes_a_step": median(grown) if grown else None,
        "rounds": len(pairs),
    }


def half_width(values: Sequence[float]) -> float | None:
    """Of Student's 95 % interval of the mean; None for a single value."""
    if len(values) < 2:
        return None
    degrees = len(values) - 1
    quantile = _STUDENT[degrees - 1] if degrees <= len(_STUDENT) else 1.96
    return quantile * stdev(values) / math.sqrt(len(values))


def in_words(row: dict[str, Any]) -> str:
    width = "not known" if row["half_width_s"] is None else f"± {row['half_width_s'] * 1e6:.1f}"
    dropped = "not known" if row["dropped"] is None else f"{row['dropped']}"
    grown = "not known" if row["bytes_a_step"] is None else f"{row['bytes_a_step']:.0f}"
    return (
        f"{row['length_ms']:g} ms, {row['contender']}: plain {row['plain_s'] * 1e3:.3f} ms, "
        f"added {row['added_s'] * 1e6:.1f} {width} us a step (best against best {row['added_at_best_s'] * 1e6:.1f}), "
        f"ratio {row['ratio']:.4f}, dropped {dropped}, {grown} bytes a step ({row['rounds']} rounds)"
    )


if __name__ == "__main__":
    main()
