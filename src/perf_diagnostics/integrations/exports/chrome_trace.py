"""Our own phases as a trace for Perfetto and chrome://tracing: steps, phases and sampled counters, a few hundred kB.

A record holds the time of each phase in a step, not each of its intervals, so phases are drawn one after another in
the order of :class:`Phase`. With gradient accumulation, where they alternate, a slice is the sum of its phase.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from perf_diagnostics.integrations.exports.naming import configuration, full_label, sweep_results
from perf_diagnostics.records import ALL_PHASES, Json, Phase, Run, StepTable, TrialResult
from perf_diagnostics.store.files.whole_files import write_atomic

#: So many steps of each trial are drawn; the trace says how many were left out.
STEPS_PER_TRIAL = 500

#: Numbers of a process and its lanes: viewers take a thread of the process's own number for its main one, which comes
#: first and has the counters; and no two processes may have a thread of one number, for each is named by that alone.
_NUMBERS_A_PROCESS, _HOST, _DEVICE = 10, 0, 1
_NS_PER_US = 1000.0

#: Perfetto takes a slice that is neither inside of another one nor beside it off its lane, and makes whole ns of times
#: in µs, each by itself, so that what touches might overlap by one: up to version 51 it cut them down, and now it
#: rounds them (google/perfetto, src/trace_processor/importers/json/json_trace_tokenizer.cc). So a slice begins a
#: quarter of a ns late and is three quarters shorter: either way its beginning stays, and its end comes 1 ns early.
_LATE_NS, _SHORTER_NS = 0.25, 0.75


def write_chrome_trace(run: Run, path: Path, *, steps_per_trial: int = STEPS_PER_TRIAL) -> Path:
    """Write the trace, compressed if the name ends in ``.gz``.

    Returns:
        ``path``.
    """
    text = json.dumps(chrome_trace(run, steps_per_trial=steps_per_trial), separators=(",", ":"), allow_nan=False)
    # Without a time in its header the file is equal for equal input.
    content = gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode()
    write_atomic(path, content, fsync=False)
    return path


def chrome_trace(run: Run, *, steps_per_trial: int = STEPS_PER_TRIAL) -> dict[str, Json]:
    """The trace as the "JSON Object Format" of Chrome's trace event format: one process a trial, times in µs."""
    events: list[Json] = []
    omitted: dict[str, Json] = {}
    results = sweep_results(run)
    places = {result.trial.id: place for place, result in enumerate(sorted(results, key=_place))}
    for number, result in zip(itertools.count(_NUMBERS_A_PROCESS, _NUMBERS_A_PROCESS), results, strict=False):
        if not result.steps or not len(result.steps[0]):
            continue
        label = full_label(result.trial)
        table = result.steps[0]
        shown = table.where(np.arange(len(table)) < steps_per_trial)
        if len(shown) < len(table):
            omitted[label] = len(table) - len(shown)
        events += _names(number, label, shown, place=places[result.trial.id])
        events += _lane(number, _HOST, shown)
        if shown.device_ns(Phase.FORWARD) is not None:
            events += _lane(number, _DEVICE, shown)
        events += _counters(number, result, shown)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "run": run.name,
            "tool": f"perf-diagnostics {run.tool_version}",
            "phases": "one after another in a fixed order; with accumulation each is the sum over the step",
            "omitted_steps": omitted,
        },
    }


def _place(result: TrialResult) -> tuple[str, int, int]:
    """Trials of one configuration by their batch size: a viewer sorts by name, where 16 comes before 2."""
    trial = result.trial
    return configuration(trial), trial.settings.batch_size, trial.repeat


def _names(process: int, label: str, table: StepTable, *, place: int) -> Iterator[Json]:
    yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": label}}
    yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": place}}
    on_device = table.device_ns(Phase.FORWARD) is not None
    for lane, name in ((_HOST, "host"), (_DEVICE, "device"))[: 1 + on_device]:
        where: dict[str, Json] = {"ph": "M", "pid": process, "tid": process + lane}
        yield {**where, "name": "thread_name", "args": {"name": name}}
        yield {**where, "name": "thread_sort_index", "args": {"sort_index": lane}}


def _lane(process: int, lane: int, table: StepTable) -> Iterator[Json]:
    """The steps of one clock, each with its phases inside."""
    on_device = lane == _DEVICE
    walls = table.wall_ns if on_device else table.columns.get("host_wall_ns", table.wall_ns)
    starts = _device_starts(table) if on_device else _starts(table, walls)
    phases = {phase: table.device_ns(phase) if on_device else table.host_ns(phase) for phase in ALL_PHASES}
    where: dict[str, Json] = {"pid": process, "tid": process + lane}
    for step in range(len(table)):
        begin, warmup = float(starts[step]), bool(table.columns["warmup"][step])
        arguments: dict[str, Json] = {"samples": int(table.samples[step]), "warmup": warmup}
        end = begin + float(walls[step])
        yield {**_slice(f"step {step}", begin, end), **where, "args": arguments}
        for phase, times in phases.items():
            if times is None or not np.isfinite(times[step]) or times[step] <= 0:
                continue
            until = min(begin + float(times[step]), end)  # a device's times are no whole ns, and their sum is one
            yield {**_slice(str(phase), begin, until), **where}
            begin = until


def _starts(table: StepTable, walls: Any) -> Any:
    """When each step began, in ns: as recorded, or one after another where nobody recorded it."""
    recorded = table.get("start_ns")
    return np.concatenate(([0], np.cumsum(walls)[:-1])) if recorded is None else recorded


def _device_starts(table: StepTable) -> Any:
    """When the device began each step, in ns: where it ended the one before, and with the host where a block begins.

    The host runs ahead of it and begins a step earlier, by its own clock.
    """
    starts, block = _starts(table, table.wall_ns), table.get("block")
    ended = np.cumsum(table.wall_ns)
    before = ended - table.wall_ns
    first = np.zeros(len(table), dtype=np.int64)
    if block is not None:
        borders = np.flatnonzero(np.diff(block)) + 1
        first[borders] = borders
        first = np.maximum.accumulate(first)
    return starts[first] + before - before[first]


def _slice(name: str, begin_ns: float, end_ns: float) -> dict[str, Json]:
    begin, end = round(begin_ns), round(end_ns)
    long = max(end - begin - _SHORTER_NS, 0.0)
    return {"ph": "X", "name": name, "ts": (begin + _LATE_NS) / _NS_PER_US, "dur": long / _NS_PER_US}


def _counters(process: int, result: TrialResult, table: StepTable) -> Iterator[Json]:
    """Samples/s of each step, and what was sampled while the drawn steps ran."""
    on_device = table.device_ns(Phase.FORWARD) is not None
    starts, walls = _device_starts(table) if on_device else _starts(table, table.wall_ns), table.wall_ns
    for step in range(len(table)):
        if walls[step] > 0:
            rate = int(table.samples[step]) / (int(walls[step]) / 1e9)
            yield _counter(process, "throughput", "samples/s", float(starts[step]), rate)
    offset_ns = _sampling_offset_ns(result)
    if offset_ns is None:
        return  # nobody recorded when, on the sampler's clock, the steps began
    first, last = float(starts[0]), float(starts[-1] + walls[-1])
    for series in result.series:
        for at, value in zip(series.times_ns - offset_ns, series.values, strict=True):
            if first <= at <= last and np.isfinite(value):
                yield _counter(process, series.name, series.unit, float(at), float(value))


def _sampling_offset_ns(result: TrialResult) -> float | None:
    """What to take off a series' times to be on the steps' clock."""
    began_s = result.value("steps_began_s")
    table = result.steps[0]
    steady = np.flatnonzero(~table.columns["warmup"])
    if began_s is None or not steady.size:
        return None
    return began_s * 1e9 - float(_starts(table, table.wall_ns)[steady[0]])


def _counter(process: int, name: str, unit: str, at_ns: float, value: float) -> Json:
    return {
        "ph": "C",
        "pid": process,
        "tid": process + _HOST,
        "name": name,
        "ts": at_ns / _NS_PER_US,
        "args": {unit or "value": value},
    }
