"""Our trace keeps the rules of the format and of its readers; and who broke one would be told so."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics.integrations import OwnLoop
from perf_diagnostics.integrations.exports.chrome_trace import chrome_trace, write_chrome_trace
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import Phase, Run, Series, StepTable
from perf_diagnostics.testing import run_of, trial_of
from tests.integrations.exports.trace_rules import problems_of
from tests.measure.simulated_device import HostClock, SimulatedDevice


def made_up() -> Run:
    """Odd times on two lanes, samples beside them, two trials."""
    power = Series("gpu_power", "W", "nvml", np.array([1.05e9, 1.05e9 + 7, 1.2e9]), np.array([50.0, 250.0, 60.0]))
    times = {Phase.DATA_WAIT: 0.0001234567, Phase.FORWARD: 0.000777777, Phase.BACKWARD: 0.0012345671}
    odd = {str(phase): seconds for phase, seconds in times.items()}
    return run_of(
        trial_of(**odd, other=0.000001239, steps=400, series=(power,), quantities={"steps_began_s": 1.0}),
        trial_of(**odd, other=0.0, device="cuda:0", host={Phase.FORWARD: 0.0002}, steps=50),
        trial_of(forward=1e-9, backward=2e-9, steps=50, batch_size=4),
    )


def marked(folder: Path) -> Run:
    """A real training."""
    model = torch.nn.Linear(4, 1)
    loader = DataLoader(TensorDataset(torch.randn(200, 4)), batch_size=4)
    with OwnLoop(model=model, results_dir=folder, quiet=True) as loop:
        for (x,) in loop.batches(loader):
            with loop.step():
                with loop.forward():
                    loss = model(x).mean()
                with loop.backward():
                    loss.backward()
    assert loop.run is not None
    return loop.run


def ahead() -> Run:
    """A host that queues steps of 3 ms while the device takes 10 to 30 ms for them, in three blocks."""
    host = HostClock()
    device = SimulatedDevice(host)
    probe = Probe(clock=host, events=device, thread_cpu=lambda: 0)
    tables = []
    for _ in range(3):
        probe.start()
        for step in range(8):
            for span, took_ms in ((probe.forward(), 3.3333333 + step), (probe.backward(), 6.6666667 + 2 * step)):
                with span:
                    device.launch(took_ms, enqueue_ms=1.2345678)
            host.spend(0.5)
            probe.end_step(samples=4)
        probe.end_block()
        tables.append(probe.take())
        host.spend(2)
    result = trial_of(forward=0.01, device="cuda:0", host={Phase.FORWARD: 0.002}, steps=3)
    return run_of(dataclasses.replace(result, steps=(StepTable.concatenate(tables),)))


def test_on_a_device_steps_follow_one_another_however_far_the_host_is_ahead() -> None:
    trace: Any = chrome_trace(ahead())
    steps = {10: [], 11: []}  # type: dict[int, list[tuple[float, float]]]
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["name"].startswith("step "):
            steps[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    host, device = steps[10], steps[11]
    assert len(host) == len(device) == 24
    for first in (0, 8, 16):  # a block begins when the device has nothing left to do
        assert device[first][0] == pytest.approx(host[first][0], abs=1)
        for before, after in itertools.pairwise(device[first : first + 8]):
            assert after[0] == pytest.approx(before[1], abs=0.01)
        assert device[first + 7][1] - device[first][0] == pytest.approx(
            sum(10_000 + 3_000 * step for step in range(8)), rel=0.02
        )
    rates = [event["ts"] for event in trace["traceEvents"] if event["ph"] == "C"]
    assert rates == pytest.approx([begin for begin, _ in device], abs=0.01)


def test_what_we_write_keeps_the_rules(tmp_path: Path) -> None:
    for number, run in enumerate((made_up(), marked(tmp_path), ahead())):
        text = write_chrome_trace(run, tmp_path / f"{number}.json").read_text(encoding="utf-8")
        assert problems_of(text) == []
        kinds = {event["ph"] for event in json.loads(text)["traceEvents"]}
        assert kinds == {"X", "C", "M"}


def broken(**changes: Any) -> list[str]:
    """What is told of a trace whose last slice is changed so."""
    trace: Any = chrome_trace(run_of(trial_of(forward=0.01, backward=0.02, steps=3)))
    last = next(event for event in reversed(trace["traceEvents"]) if event["ph"] == "X")
    last |= changes
    return problems_of(json.dumps(trace))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ""),
        ({"dur": -1.0}, "dur -1.0 is no time"),
        ({"ts": -0.001}, "ts -0.001 is no time"),
        ({"ts": "12"}, "ts '12' is no time"),
        ({"dur": 1e9}, "crosses the end"),
        ({"dur": float("nan")}, "NaN is no number"),
        ({"ph": "Q"}, "known kind"),
        ({"name": ""}, "has no name"),
        ({"pid": 2**32}, "no number of 32 bits"),
        ({"tid": 77}, "thread 77 of process 10 has no name"),
        ({"pid": 5}, "process 5 has no name"),
        ({"args": {"": 1}}, "arguments without names"),
        ({"id": "0x1"}, "has the fields"),
        ({"ph": "C", "dur": 0.0, "args": {"W": "7"}}, "C has the fields"),
    ],
)
def test_a_broken_rule_is_told(changes: dict[str, Any], told: str) -> None:
    found = broken(**changes)
    assert bool(found) == bool(told)
    assert told in " ".join(found)


def test_broken_counters_and_names_are_told() -> None:
    name = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "one"}}
    at = {"ph": "C", "pid": 1, "name": "power", "ts": 1.0, "args": {"W": 5}}

    def of(*events: Any) -> str:
        return " ".join(problems_of(json.dumps({"traceEvents": events})))

    assert not of(name, at, {**at, "ts": 2.0})
    assert "stands still" in of(name, at, at)
    assert "a counter of" in of(name, {**at, "args": {"W": None}}) and "a counter of" in of(name, {**at, "args": {}})
    assert "has no name by then" in of(at, name)
    assert "told 2 times" in of(name, name, at)
    assert "metadata" in of({**name, "name": "process_labels"}, at)
    assert "is in [1, 2]" in of(name, {**name, "pid": 2}, {**at, "tid": 9}, {**at, "pid": 2, "tid": 9})
    assert "no object" in " ".join(problems_of("[]"))
