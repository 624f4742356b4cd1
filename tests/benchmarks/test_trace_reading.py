"""Reading a trace beside a rival: what a process took, and what becomes of two columns of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import trace_reading
from benchmarks.trace_reading import Cost, compare, cost_of

ROOT = Path(__file__).parents[2]


def test_what_a_process_took_at_most():
    # from a small process, as the benchmark is one
    asks = (
        "import sys; from benchmarks.trace_reading import cost_of; "
        "print([cost_of([sys.executable, '-c', f'b\"a\" * {size}']).peak_mib for size in (0, 200 << 20)])"
    )
    said = subprocess.run([sys.executable, "-c", asks], check=True, capture_output=True, text=True, cwd=ROOT)
    empty, large = json.loads(said.stdout)
    assert large - empty == pytest.approx(200, abs=20)


def test_a_reading_that_fails_is_told():
    with pytest.raises(RuntimeError, match="ended with 3: b'no such event"):
        cost_of([sys.executable, "-c", "import sys; sys.stderr.write('no such event'); sys.exit(3)"])


def test_the_two_alternate_and_ratios_are_of_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "some.json"
    file.write_bytes(bytes(1 << 20))
    asked: list[str] = []
    ours, theirs = iter([Cost(1, 1, 10), Cost(9, 2, 10), Cost(2, 3, 10)]), iter([Cost(2, 4, 40)] * 3)

    def pretended(command: list[str]) -> Cost:
        asked.append("theirs" if command[0] == "other-python" else "ours")
        return next(theirs if command[0] == "other-python" else ours)

    monkeypatch.setattr(trace_reading, "cost_of", pretended)
    lines = compare(file, "other-python", 3)
    assert asked == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    # pairs of 0.5, 4.5 and 1: the middle one is 1
    assert lines[:2] == ["some.json (1.0 MiB):", "  ours     2.00, HTA     2.00 s, ratio 1.00"]
    assert lines[3] == "  ours    10.00, HTA    40.00 MiB at most, ratio 0.25"
