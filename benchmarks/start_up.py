"""How long people wait beside what they asked for: a trial's process, the command line, a script that is watched.

    python benchmarks/start_up.py [ROUNDS]

Alternates, in one run, a trial forked from the warm server with one in a fresh interpreter, ``perf-diagnostics
--help`` with a Python that does nothing, and a short training under ``perf-diagnostics run`` with the same one alone;
prints medians and the ratio of each pair, of the training also CPU time, which other programs disturb less.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from perf_diagnostics.trials.launch.launcher import ForkServer, FreshInterpreter, Launcher, Request

#: A training of some 1.5 s. Prints the process' CPU time when training begins, the longest step in s, from the tenth
#: on, the process' CPU time after the last step, and the time of day then.
TRAINING = """
import time
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(2048, 64), torch.randint(0, 10, (2048,)))
began, began_cpu = time.perf_counter(), time.process_time()
ends = []
while time.perf_counter() - began < 1.5:
    for x, y in torch.utils.data.DataLoader(data, batch_size=64):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.perf_counter())
longest = max(later - earlier for earlier, later in zip(ends[9:], ends[10:]))
print(began_cpu, longest, time.process_time(), time.time(), flush=True)
"""


class Waits(NamedTuple):
    """What a training's process needs around and between its steps, in s."""

    first_cpu_s: float
    longest_s: float
    last_cpu_s: float
    last_s: float


RUN = ("-m", "perf_diagnostics", "run")

#: What each of :class:`Waits` is called.
OF_A_TRAINING = (
    "CPU time until the training begins",
    "its longest step from the tenth on",
    "CPU time from the script's last line to the end",
    "time from the script's last line to the end",
)


def main(rounds: int) -> None:
    warm, fresh = ForkServer(), FreshInterpreter()
    try:
        _empty_trial(warm)  # the first trial also starts the server
        _pairs("a trial's process", "forked", lambda: _empty_trial(warm), "fresh", lambda: _empty_trial(fresh), rounds)
    finally:
        warm.close()
    helps = [sys.executable, "-m", "perf_diagnostics", "--help"]
    _pairs("--help", "ours", lambda: _run(helps), "python", lambda: _run([sys.executable, "-c", "pass"]), rounds)
    trained = [(_training(*RUN), _training(*RUN, "--quiet"), _training()) for _ in range(rounds)]
    for index, what in enumerate(OF_A_TRAINING):
        _say(what, "run", "python", [(told[index], alone[index]) for told, _, alone in trained])
        _say(what, "run --quiet", "python", [(quiet[index], alone[index]) for _, quiet, alone in trained])


def _pairs(
    what: str, name: str, ours: Callable[[], float], other_name: str, other: Callable[[], float], rounds: int
) -> None:
    _say(what, name, other_name, [(ours(), other()) for _ in range(rounds)])


def _say(what: str, name: str, other_name: str, pairs: list[tuple[float, float]]) -> None:
    ratio = median(a / b for a, b in pairs)
    print(
        f"{what}: {name} {median(a for a, _ in pairs):.3f} s, {other_name} {median(b for _, b in pairs):.3f} s, "
        f"ratio {ratio:.3f} (median of {len(pairs)} alternating pairs)"
    )


def _empty_trial(launch: Launcher) -> float:
    """Seconds from the request to the end of a trial that fails at its first instruction: there is no trial in it."""
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        process = launch.start(Request({}, str(Path(directory))))
        while process.wait(60) is None:
            pass
        return time.perf_counter() - began


def _run(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _training(*under: str) -> Waits:
    """The short training in a process of its own, run by these words after ``python``."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "training.py"
        script.write_text(TRAINING, encoding="utf-8")
        before_s = _cpu_of_children()
        done = subprocess.run(
            [sys.executable, *under, str(script)], check=True, capture_output=True, text=True, cwd=directory
        )
        ended_s, used_s = time.time(), _cpu_of_children() - before_s
    first_cpu_s, longest_s, last_cpu_s, last_s = map(float, done.stdout.split())
    return Waits(first_cpu_s, longest_s, used_s - last_cpu_s, ended_s - last_s)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
