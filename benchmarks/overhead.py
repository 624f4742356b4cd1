"""What measuring costs: bare loop, bare hooks, our probe and attach, torch.profiler, Lightning's profiler, traceml-ai.

    python benchmarks/overhead.py [--rounds N] [--lengths MS ...] [--seconds S] [--device D] [--json FILE]

Steps of a small real training (one thread) of about 0.3, 1, 5 and 50 ms. Every round runs each contender once, in a
process of its own and in random order. In a process short stretches of steps take turns: in each turn one under the
tool and two plain ones, in an order that is drawn anew, each after a few steps that are not looked at. What a step
takes longer is told in microseconds, with Student's 95 % interval over the processes: how the memory of one lies moves
all of its differences together, so that a process is one value. Four figures:

- **mean**: under the tool against the mean of the two plain stretches of its turn, the mean over the turns. Nothing is
  left out by its value. Left out, whichever stretch it befell, are turns in which somebody else had the thread's core
  for a thousandth of a stretch: another program, or the hypervisor (:func:`.overhead_worker.had_by_others_s`).
- **of CPU time**: the same of the CPU time that the loop's thread took, over all turns; other programs on the machine
  disturb it less. What a tool does in other threads is not in it.
- **by turns**: the differences of means as in the first figure, and over the turns their median instead of their mean:
  a turn that something came between moves it little, whoever's doing that was. Of what a tool does more seldom than in
  every second stretch it sees nothing.
- **typical**: median steps instead of means, and over the turns the median. What a tool does now and then (flushes,
  collections), it does not see.

``attach`` makes a training of each stretch, ``attached`` has one training in the process, out of which all that was put
into torch is taken for the plain stretches: many more turns fit into the same time, and the interval is narrower.

What ``attach`` does once in a training (models looked for, the first piece written after a second, then one step looked
through) is told as **once**, the median of all turns, and its stretches begin after that; but they lie in its first ten
seconds, in which it looks at the thread's lines four times as often as later.

**plain against plain**, of the two plain stretches of the same turns and processes, is the noise: its interval has to
hold 0, and no other figure is worth more digits than that one. ``bare`` is a contender that adds nothing, and ``hooks``
reads a clock at each border of a phase and does no more: what our own two take is also told as so many times that,
which depends less on the machine than microseconds do. Of them it is said as well whether their mean keeps within its
reach, and where the interval is too wide to tell, that.

The steps' own scatter is kept small, for plain and measured stretches alike: the thread of the loop stays on one
core (a tool's threads have the others), and glibc's allocator keeps the memory that it has; where it gives large
tensors back and gets them anew, page by page, a step of 5 ms scatters by a tenth.

With ``--device cuda`` the batches lie on the device, each stretch begins and ends with a wait for it, and of its steps
only the mean is of the device's time: the host runs ahead. ``hooks`` records no event there, which our own do at each
border, and its reach is not said.

What a tool costs at rest in its process is in its plain stretches too (traceml-ai cannot be turned off), so its
quickest stretch is also held against the quickest one of the bare processes. What is not installed is named and left
out. Take a quiet machine with two free cores.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import torch
from overhead_contenders import CONTENDERS, Work, steps_in
from overhead_worker import Length, Stretch, Took, Turn, keep_memory, on_one_core, timed
from scipy import special

WORKER = Path(__file__).with_name("overhead_worker.py")
SOURCES = Path(__file__).parents[1] / "src"
LENGTHS_MS = (0.3, 1.0, 5.0, 50.0)

#: A short stretch has its neighbours near; but each one is settled for some steps.
STRETCH_S = 0.02
LEAST_STRETCH = 3

#: For such a part of a stretch, 1 us in a step of 1 ms, others may have the core: kernel threads that look in.
MOST_LOST = 0.001

#: What a step may take longer under our own: seconds where it is shorter than this, and else a part of it.
REACH_S = {"probe": 10e-6, "attach": 15e-6, "attached": 15e-6}
SHORT_MS = 1.0
REACH_PART = 0.01

#: What a contender is imported as, and the command that installs it.
NEEDS = {
    "probe": ("numpy", "pip install perf-diagnostics"),
    "attach": ("pyarrow", "pip install perf-diagnostics"),
    "attached": ("pyarrow", "pip install perf-diagnostics"),
    "lightning": ("lightning", "pip install lightning"),
    "traceml-ai": ("traceml_ai", "pip install traceml-ai"),
}


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--lengths", type=float, nargs="+", default=LENGTHS_MS, help="of a step, in ms")
    parser.add_argument("--seconds", type=float, default=2.5, help="of turns of each length in each process")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--device", default="cpu", help="where the model is trained (default: cpu)")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    asked = parser.parse_args(arguments)
    there = [name for name in asked.contenders if installed(name)]
    lengths = [length_of(length_ms / 1e3, asked.device) for length_ms in asked.lengths]
    found = rounds(there, lengths, asked.rounds, asked.seconds, asked.device)
    rows = []
    for position, length_ms in enumerate(asked.lengths):
        bare = [process["lengths"][position] for process in found["bare"]]
        for name in there:
            ours = [process["lengths"][position] for process in found[name]]
            row = compared(ours, bare)
            most_s = reach_s(name, length_ms, row["plain_s"]) if asked.device == "cpu" else None
            rows.append({"length_ms": length_ms, "contender": name, **row, "reach_s": most_s})
            print(in_words(rows[-1]))
        for line in against_hooks([row for row in rows if row["length_ms"] == length_ms]):
            print(line)
        print(null_in_words(length_ms, nulls([one["lengths"][position] for name in there for one in found[name]])))
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
    contenders: Sequence[str], lengths: Sequence[Length], count: int, seconds: float, device: str = "cpu"
) -> dict[str, list[dict[str, Any]]]:
    """What every contender's processes brought, round by round; the bare loop is always among them."""
    order = list(dict.fromkeys(["bare", *contenders]))
    shuffle = random.Random(0).shuffle
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in order}
    for number in range(count):
        shuffle(order)
        for name in order:
            print(f"round {number + 1} of {count}: {name}", file=sys.stderr, flush=True)
            found[name].append(in_a_process(name, lengths, seconds, number, device))
    return found


def length_of(step_s: float, device: str = "cpu") -> Length:
    """Steps of about so many seconds."""
    return Length(rows_for(step_s, device), max(LEAST_STRETCH, round(STRETCH_S / step_s)))


def rows_for(step_s: float, device: str = "cpu") -> int:
    """How many rows a batch needs for a step of about so many seconds, by the quickest of some short stretches."""
    keep_memory()
    work, rows = Work(1, torch.device(device)), 1
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
        return min(timed(work.plain, work, 5).typical_s(work) for _ in range(10))


def in_a_process(
    contender: str, lengths: Sequence[Length], seconds: float, seed: int = 0, device: str = "cpu"
) -> dict[str, Any]:
    """Run the worker.

    Raises:
        RuntimeError: it ended without a result; its last words are in the text.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        options = [f"--out={out}", f"--seconds={seconds}", f"--seed={seed}", f"--device={device}"]
        task = [contender, *options, "--lengths", *(str(length) for length in lengths)]
        command = [sys.executable, str(WORKER), *task]
        if contender == "traceml-ai":
            launch = "from traceml_ai.launcher.cli import main; main()"
            command = [sys.executable, "-c", launch, "run", "--logs-dir", folder, str(WORKER), "--args", *task]
        paths = [str(SOURCES), str(WORKER.parent), os.environ.get("PYTHONPATH", "")]
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
    """Added seconds a step: mean, by turns, of CPU time and typical, and plain against plain; one value a process.

    Args:
        ours: what the contender's processes brought for one length.
        bare: what the bare loop's did.
    """
    processes = [turns_of(one) for one in ours]
    every = [turn for turns in processes for turn in turns]
    plain_s = median(stretch.took.median_s for _, *plain in every for stretch in plain)
    means = [fmean(map(_added_mean, kept)) for kept in map(undisturbed, processes) if kept]
    by_turns = [median(map(_added_mean, kept)) for kept in map(undisturbed, processes) if kept]
    cpu = [fmean(map(_added_cpu, turns)) for turns in processes]
    typical = [median(map(_added_median, turns)) for turns in processes]
    return {
        "plain_s": plain_s,
        **_figure("added", means),
        "ratio": 1 + fmean(means) / plain_s if means else None,
        **_figure("by_turns_added", by_turns),
        **_figure("cpu_added", cpu),
        **_figure("typical_added", typical),
        **_figure("null", nulls(ours)),
        "once_s": median(once) if (once := [one for turns in processes for one in _once(turns)]) else None,
        "added_at_best_s": _quickest(ours) - _quickest(bare),
        "bytes_a_step": _growth(ours),
        "undisturbed": sum(len(undisturbed(turns)) for turns in processes),
        "turns": len(every),
        "processes": len(processes),
    }


def turns_of(process: dict[str, Any]) -> list[Turn]:
    """The turns of one length, as a worker wrote them down."""
    return [_turn(*(Stretch(Took(*took), *rest) for took, *rest in turn)) for turn in process["turns"]]


def _turn(tool: Stretch, plain: Stretch, again: Stretch) -> Turn:
    return tool, plain, again


def undisturbed(turns: Sequence[Turn]) -> list[Turn]:
    """The turns in none of whose stretches somebody else had the thread's core, but for moments."""
    return [turn for turn in turns if all(stretch.lost_part <= MOST_LOST for stretch in turn)]


def nulls(processes: Sequence[dict[str, Any]]) -> list[float]:
    """What plain steps take longer than plain steps of the same turns, in seconds; one value a process."""
    kept = [undisturbed(turns_of(one)) for one in processes]
    return [fmean(plain.took.mean_s - again.took.mean_s for _, plain, again in turns) for turns in kept if turns]


def _added_mean(turn: Turn) -> float:
    return _added(turn, lambda took: took.mean_s)


def _added_cpu(turn: Turn) -> float:
    return _added(turn, lambda took: took.cpu_s)


def _added_median(turn: Turn) -> float:
    return _added(turn, lambda took: took.median_s)


def _once(turns: Sequence[Turn]) -> list[float]:
    return [turn[0].once_s for turn in turns if turn[0].once_s is not None]


def _added(turn: Turn, of: Callable[[Took], float]) -> float:
    tool, plain, again = (of(stretch.took) for stretch in turn)
    return tool - (plain + again) / 2


def _figure(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """The mean of the processes' values and its half width; None for what there is not."""
    return {f"{name}_s": fmean(values) if values else None, f"{name}_half_width_s": half_width(values)}


def _growth(processes: Sequence[dict[str, Any]]) -> float | None:
    """Bytes a step that a process grows by more under the tool; memory comes in pages, so over many stretches.

    Of the later half of each process's turns: what is made once (modules read, buffers that stay) is in the first.
    """
    grown = []
    for one in processes:
        turns = turns_of(one)
        for turn in turns[len(turns) // 2 :]:
            under_tool, plain, again = (stretch.grown_bytes for stretch in turn)
            if under_tool is None or plain is None or again is None:
                return None
            grown.append((under_tool - (plain + again) / 2) / one["stretch"])
    return fmean(grown)


def _quickest(processes: Sequence[dict[str, Any]]) -> float:
    return min(turn[0].took.median_s for one in processes for turn in turns_of(one))


def within_reach(added_s: float | None, half_width_s: float | None, most_s: float) -> bool | None:
    """Whether what is added is at most so much; None where the interval holds that, or is not known."""
    if added_s is None or half_width_s is None or abs(added_s - most_s) <= half_width_s:
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
    """Of Student's 95 % interval of the mean; None for less than two values."""
    if len(values) < 2:
        return None
    return float(special.stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))


def in_words(row: dict[str, Any]) -> str:
    grown = "not known" if row["bytes_a_step"] is None else f"{row['bytes_a_step']:.0f}"
    ratio = "" if row["ratio"] is None else f" (x{row['ratio']:.4f})"
    once = "" if row["once_s"] is None else f"once {row['once_s'] * 1e3:.0f} ms; "
    return (
        f"{row['length_ms']:g} ms, {row['contender']}: plain {row['plain_s'] * 1e3:.3f} ms, "
        f"{_us(row['added_s'], row['added_half_width_s'])} us a step more{ratio}, "
        f"by turns {_us(row['by_turns_added_s'], row['by_turns_added_half_width_s'])}, "
        f"of CPU time {_us(row['cpu_added_s'], row['cpu_added_half_width_s'])}, "
        f"typically {_us(row['typical_added_s'], row['typical_added_half_width_s'])}; {once}"
        f"plain against plain {_us(row['null_s'], row['null_half_width_s'])}, "
        f"best against best {_us(row['added_at_best_s'])}; {grown} bytes a step "
        f"({row['undisturbed']} of {row['turns']} turns undisturbed, {row['processes']} processes)"
        f"{_reach_in_words(row)}"
    )


def _reach_in_words(row: dict[str, Any]) -> str:
    most_s = row["reach_s"]
    if most_s is None:
        return ""
    wide = "the interval is too wide to tell"
    if row["added_half_width_s"] is None:
        wide = "no interval without undisturbed turns in two processes"
    words = {True: "yes", False: "no", None: wide}
    return f"; at most {most_s * 1e6:.1f} us: {words[within_reach(row['added_s'], row['added_half_width_s'], most_s)]}"


def against_hooks(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What our own add by turns, as so many times what bare hooks do; for the rows of one length."""
    least_s = {row["contender"]: row["by_turns_added_s"] for row in rows}.get("hooks")
    if least_s is None or least_s <= 0:
        return []
    added_s = {row["contender"]: row["by_turns_added_s"] for row in rows if row["contender"] in REACH_S}
    return [
        f"{rows[0]['length_ms']:g} ms: {name} adds {own_s / least_s:.2f} times what bare hooks do, by turns"
        for name, own_s in added_s.items()
        if own_s is not None
    ]


def null_in_words(length_ms: float, values: Sequence[float]) -> str:
    """Plain against plain in all processes: what the comparison itself brings."""
    null = _figure("null", values)
    return (
        f"{length_ms:g} ms: plain against plain in all {len(values)} processes "
        f"{_us(null['null_s'], null['null_half_width_s'])} us a step"
    )


def _us(value_s: float | None, *half_width_s: float | None) -> str:
    if value_s is None:
        return "not known"
    widths = ("± not known" if width is None else f"± {width * 1e6:.1f}" for width in half_width_s)
    return " ".join([f"{value_s * 1e6:+.1f}", *widths])


def kept_in_words(kept: dict[str, Any]) -> str:
    lost = "not known how many" if kept["dropped"] is None else f"{kept['dropped']:,}"
    return f"{kept['contender']}: {lost} of {kept['steps']:,} steps dropped"


if __name__ == "__main__":
    main()
