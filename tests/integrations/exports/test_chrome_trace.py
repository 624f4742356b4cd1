"""The trace of our own phases: slices that add up, counters on the steps' clock, and a bound on its size."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.integrations.exports.chrome_trace import chrome_trace, write_chrome_trace
from perf_diagnostics.records import Phase, Series
from perf_diagnostics.testing import run_of, trial_of

#: Batch sizes and devices in the order in which they ran.
RAN = ((16, "cpu"), (128, "cuda:0"), (2, "cpu"), (16, "cuda:0"), (128, "cpu"))


def events(trace: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if all(e.get(key) == value for key, value in wanted.items())]


def test_a_steps_phases_fill_it() -> None:
    # 10 ms a step: 3 + 5 + 2; warm-up steps take five times as long
    trial = trial_of(data_wait=0.003, forward=0.005, other=0.002, steps=4, warmup_steps=1)
    trace: Any = chrome_trace(run_of(trial))
    steps = [e for e in events(trace, ph="X") if e["name"].startswith("step ")]
    assert [e["dur"] for e in steps] == pytest.approx([50_000] + [10_000] * 4)
    assert [e["args"]["warmup"] for e in steps] == [True] + [False] * 4
    last = steps[-1]
    inside = [e for e in events(trace, ph="X") if "args" not in e and last["ts"] <= e["ts"] < last["ts"] + last["dur"]]
    assert [(e["name"], round(e["dur"])) for e in inside] == [("data_wait", 3000), ("forward", 5000), ("other", 2000)]
    assert inside[0]["ts"] == pytest.approx(last["ts"])
    assert inside[-1]["ts"] + inside[-1]["dur"] == pytest.approx(last["ts"] + last["dur"])


def test_a_device_has_a_lane_of_its_own_and_a_cpu_has_none() -> None:
    on_gpu = trial_of(forward=0.01, device="cuda:0", host={Phase.FORWARD: 0.002}, steps=3)
    trace: Any = chrome_trace(run_of(on_gpu, trial_of(forward=0.01, steps=3)))
    lanes = {(e["pid"], e["args"]["name"]) for e in events(trace, name="thread_name")}
    assert lanes == {(10, "host"), (10, "device"), (20, "host")}
    device = [e["dur"] for e in events(trace, pid=10, tid=11, name="forward")]
    host = [e["dur"] for e in events(trace, pid=10, tid=10, name="forward")]
    assert device[-1] == pytest.approx(10_000) and host[-1] == pytest.approx(2_000)


def test_samples_stand_where_they_were_taken() -> None:
    # the steady steps began 1 s after the sampling; one warm-up step of 0.5 s lies before them
    power = Series("gpu_power", "W", "nvml", np.array([0.2e9, 1.05e9, 99e9]), np.array([50.0, 250.0, 60.0]))
    trial = trial_of(forward=0.1, steps=5, warmup_steps=1, series=(power,), quantities={"steps_began_s": 1.0})
    trace: Any = chrome_trace(run_of(trial))
    (sample,) = events(trace, ph="C", name="gpu_power")  # the others lie outside the drawn steps
    first_steady = events(trace, name="step 1")[0]
    assert sample["args"] == {"W": 250.0}
    assert sample["ts"] == pytest.approx(first_steady["ts"] + 0.05e6)


def test_without_a_common_clock_there_are_no_sampled_counters() -> None:
    power = Series("gpu_power", "W", "nvml", np.array([0.0, 1e9]), np.array([50.0, 250.0]))
    trace: Any = chrome_trace(run_of(trial_of(forward=0.1, steps=5, series=(power,))))
    assert not events(trace, ph="C", name="gpu_power")
    assert events(trace, ph="C", name="throughput")


def test_what_was_left_out_is_said_and_the_bytes_are_equal_for_equal_input(tmp_path: Path) -> None:
    run = run_of(trial_of(forward=0.001, steps=2000, warmup_steps=0))
    trace: Any = chrome_trace(run, steps_per_trial=300)
    assert len([e for e in events(trace, ph="X") if e["name"].startswith("step ")]) == 300
    assert list(trace["otherData"]["omitted_steps"].values()) == [1700]
    one = write_chrome_trace(run, tmp_path / "a.json.gz").read_bytes()
    assert one == write_chrome_trace(run, tmp_path / "b.json.gz").read_bytes()
    assert len(one) < 100_000
    assert json.loads(gzip.decompress(one))["displayTimeUnit"] == "ms"


def test_trials_are_sorted_by_their_batch_size_and_not_by_name() -> None:
    run = run_of(*(trial_of(forward=0.01, steps=3, batch_size=size, device=device) for size, device in RAN))
    trace: Any = chrome_trace(run)
    places = {e["pid"]: e["args"]["sort_index"] for e in events(trace, ph="M", name="process_sort_index")}
    names = {e["pid"]: e["args"]["name"] for e in events(trace, ph="M", name="process_name")}
    shown = [names[process] for process in sorted(places, key=lambda process: places[process])]
    assert [name.partition(" ")[2] for name in shown] == [
        *("cpu batch 2", "cpu batch 16", "cpu batch 128"),
        *("cuda:0 batch 16", "cuda:0 batch 128"),
    ]


def test_no_slice_overlaps_another_one_by_the_nanoseconds_that_a_viewer_cuts_off() -> None:
    """Perfetto reads µs as numbers and keeps whole ns of them; it drops what then crosses the end of another slice."""
    host = {Phase.DATA_WAIT: 0.0001234567, Phase.FORWARD: 0.000777777, Phase.BACKWARD: 0.0012345671}
    trial = trial_of(**{str(phase): seconds for phase, seconds in host.items()}, other=0.000001239, steps=400)
    trace: Any = chrome_trace(run_of(trial))
    slices = [(int(e["ts"] * 1000), int(e["dur"] * 1000)) for e in events(trace, ph="X")]
    open_until: list[int] = []
    for begin, long in slices:  # in the order in which they begin, outer ones first
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        assert not open_until or begin + long <= open_until[-1]
        open_until.append(begin + long)
    assert len(slices) > 5 * 400


def test_a_trial_without_steps_is_left_out() -> None:
    trace: Any = chrome_trace(run_of(trial_of(steps=0, warmup_steps=0)))
    assert trace["traceEvents"] == []
