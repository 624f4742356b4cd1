"""What Perfetto and chrome://tracing demand of a trace in JSON, as far as ours makes use of the format.

The rules are those of the Trace Event Format and of Perfetto's importer (json_trace_tokenizer, json_trace_parser,
slice_tracker, stats): it reads µs, makes whole ns of them (cut down before version 52, rounded since), sorts by time
and otherwise keeps the order of the file; it drops what has a negative time or duration, and drops or moves a slice
that crosses the end of another one on its thread; it knows a thread by its number; it makes a counter of each argument
of a counter event, which must be a number.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

#: Events that our traces are made of, and what each must have.
REQUIRED = {"X": {"name", "pid", "tid", "ts", "dur"}, "C": {"name", "pid", "ts", "args"}, "M": {"name", "pid", "args"}}
ALLOWED = {"X": {*REQUIRED["X"], "args", "cat"}, "C": {*REQUIRED["C"], "tid"}, "M": {*REQUIRED["M"], "tid"}}
NAMES = {
    "process_name": "name",
    "thread_name": "name",
    "process_sort_index": "sort_index",
    "thread_sort_index": "sort_index",
}
MOST_NUMBER = 2**32

#: How µs become whole ns; C++'s llround takes halves away from zero.
WHOLE_NS: tuple[Callable[[float], int], ...] = (lambda us: int(us * 1000), lambda us: math.floor(us * 1000 + 0.5))


def problems_of(text: str) -> list[str]:
    """What is wrong with a trace, in words; nothing where it keeps the rules."""
    try:
        trace = json.loads(text, parse_constant=_refuse)
    except ValueError as problem:
        return [f"no JSON: {problem}"]
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["no object with a list of traceEvents"]
    found = [] if trace.get("displayTimeUnit", "ms") in ("ms", "ns") else ["displayTimeUnit is neither ms nor ns"]
    events = trace["traceEvents"]
    told = [problem for event in events for problem in _of_one(event)]
    if told:
        return found + told
    for whole_ns in WHOLE_NS:
        found += _of_slices(events, whole_ns) + _of_counters(events, whole_ns)
    return list(dict.fromkeys(found + _of_names(events)))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _of_one(event: Any) -> list[str]:
    """What is wrong with one event by itself."""
    if not isinstance(event, dict) or event.get("ph") not in REQUIRED:
        return [f"not an event of a known kind: {event!r:.80}"]
    kind, keys = event["ph"], set(event) - {"ph"}
    found = []
    if not REQUIRED[kind] <= keys <= ALLOWED[kind]:
        found.append(f"{kind} has the fields {sorted(keys)}")
    if not isinstance(event.get("name"), str) or not event["name"]:
        found.append(f"{kind} has no name")
    for name in ("pid", "tid"):
        value = event.get(name, 0)
        if type(value) is not int or not 0 <= value < MOST_NUMBER:
            found.append(f"{name} {value!r} is no number of 32 bits")
    for name in ("ts", "dur"):
        if name in event and (not _number(event[name]) or event[name] < 0):
            found.append(f"{name} {event[name]!r} is no time from 0 on")
    arguments = event.get("args", {})
    if not isinstance(arguments, dict) or not all(isinstance(key, str) and key for key in arguments):
        found.append(f"arguments without names: {arguments!r:.80}")
    elif kind == "C" and (not arguments or not all(_number(value) for value in arguments.values())):
        found.append(f"a counter of {arguments!r:.80}")
    elif kind == "M" and (event["name"] not in NAMES or set(arguments) != {NAMES[event["name"]]}):
        found.append(f"metadata {event['name']!r} with {arguments!r:.80}")
    elif kind == "M" and event["name"].startswith("thread_") != ("tid" in event):
        found.append(f"{event['name']} of the wrong thing")
    return found


def _of_names(events: list[dict[str, Any]]) -> list[str]:
    """Each process and each thread with slices has one name, told before; no thread's number is another process's."""
    names = Counter((event["name"], event["pid"], event.get("tid")) for event in events if event["ph"] == "M")
    found = [f"{name} of {pid}, {tid} is told {times} times" for (name, pid, tid), times in names.items() if times > 1]
    processes: dict[int, set[int]] = {}
    told: set[tuple[Any, ...]] = set()
    for event in events:
        pid, tid = event["pid"], event.get("tid", event["pid"])
        if event["ph"] == "M":
            told.add((event["name"], pid, event.get("tid")))
        else:
            if ("process_name", pid, None) not in told:
                found.append(f"process {pid} has no name by then")
            if event["ph"] == "X" and ("thread_name", pid, tid) not in told:
                found.append(f"thread {tid} of process {pid} has no name by then")
        if event["ph"] != "M" or "tid" in event:
            processes.setdefault(tid, set()).add(pid)
    return found + [f"thread {tid} is in {sorted(pids)}" for tid, pids in processes.items() if len(pids) > 1]


def _of_slices(events: list[dict[str, Any]], whole_ns: Callable[[float], int]) -> list[str]:
    """Slices of one thread lie inside of each other or beside, in whole ns, in the order in which they are read."""
    found = []
    threads: dict[int, list[tuple[int, int, str]]] = {}
    for event in events:
        if event["ph"] == "X":
            threads.setdefault(event["tid"], []).append((whole_ns(event["ts"]), whole_ns(event["dur"]), event["name"]))
    for tid, slices in threads.items():
        open_: list[tuple[int, int]] = []
        for begin, long, name in sorted(slices, key=lambda one: one[0]):  # equal times stay in the file's order
            while open_ and (open_[-1][1] < begin or (open_[-1][1] == begin and not open_[-1][0] == long == 0)):
                open_.pop()
            if open_ and begin + long > open_[-1][1]:
                found.append(f"{name!r} of thread {tid} at {begin} ns crosses the end of the slice around it")
                continue
            open_.append((long, begin + long))
    return found


def _of_counters(events: list[dict[str, Any]], whole_ns: Callable[[float], int]) -> list[str]:
    """Each counter's times rise: of two at one time only one is seen."""
    found = []
    last_ns: dict[tuple[int, str, str], int] = {}
    for event in events:
        if event["ph"] != "C":
            continue
        for argument in event["args"]:
            key, at_ns = (event["pid"], event["name"], argument), whole_ns(event["ts"])
            if at_ns <= last_ns.get(key, -1):
                found.append(f"counter {event['name']!r} goes back or stands still at {at_ns} ns")
            last_ns[key] = at_ns
    return found
