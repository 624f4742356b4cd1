"""How long people wait before anything is measured: a trial's process, and the command line.

    python benchmarks/start_up.py [ROUNDS]

Alternates, in one run, a trial forked from the warm server with one in a fresh interpreter, and ``perf-diagnostics
--help`` with a Python that does nothing; prints medians and the ratio of each pair.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from perf_diagnostics.trials.launch.launcher import ForkServer, FreshInterpreter, Launcher, Request


def main(rounds: int) -> None:
    warm, fresh = ForkServer(), FreshInterpreter()
    try:
        _empty_trial(warm)  # the first trial also starts the server
        _pairs("a trial's process", "forked", lambda: _empty_trial(warm), "fresh", lambda: _empty_trial(fresh), rounds)
    finally:
        warm.close()
    helps = [sys.executable, "-m", "perf_diagnostics", "--help"]
    _pairs("--help", "ours", lambda: _run(helps), "python", lambda: _run([sys.executable, "-c", "pass"]), rounds)


def _pairs(
    what: str, name: str, ours: Callable[[], float], other_name: str, other: Callable[[], float], rounds: int
) -> None:
    pairs = [(ours(), other()) for _ in range(rounds)]
    ratio = median(a / b for a, b in pairs)
    print(
        f"{what}: {name} {median(a for a, _ in pairs):.3f} s, {other_name} {median(b for _, b in pairs):.3f} s, "
        f"ratio {ratio:.3f} (median of {rounds} alternating pairs)"
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


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
