"""Reading traces: every form that is written, at every chunk size, and every way in which a file can be broken."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from perf_diagnostics.diagnose.trace import json_stream
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.reader import read_trace
from perf_diagnostics.errors import RecordError
from tests.diagnose.trace.builder import BACKWARD, BASE_US, LOADER, TraceBuilder


def small():
    return (
        TraceBuilder(distributedInfo={"rank": 3, "world_size": 8}, traceName="/secret/path")
        .step(1, 0, 100)
        .operator("aten::mm", 10, 30)
        .kernel(12, 40, 60)
        .event("python_function", "train.py(3): main", 0, 100)
        .event("cpu_op", 'a "quoted", [bracketed] {braced} überlanger Name', 70, 5, tid=BACKWARD)
    )


def rows(trace):
    events = trace.events
    names = [trace.names[i] for i in events.name]
    return list(zip(events.kind, names, events.start_ns, events.end_ns, events.correlation, strict=True))


EXPECTED = [
    (Kind.ANNOTATION, "ProfilerStep#1", 0, 100_000, -1),
    (Kind.OPERATOR, "aten::mm", 10_000, 30_000, -1),
    (Kind.RUNTIME, "cudaLaunchKernel", 12_000, 17_000, 1),
    (Kind.KERNEL, "volta_sgemm_128x64_nn", 40_000, 60_000, 1),
    (Kind.OPERATOR, 'a "quoted", [bracketed] {braced} überlanger Name', 70_000, 75_000, -1),
]


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1 << 20])
def test_columns_do_not_depend_on_where_the_file_is_cut_into_pieces(tmp_path, chunk):
    trace = read_trace(small().write(tmp_path / "t.json"), chunk=chunk)

    assert rows(trace) == EXPECTED
    assert (trace.rank, trace.world_size, trace.label) == (3, 8, "rank 3")
    assert "traceName" not in trace.about  # names of hosts, jobs and paths are not kept


@pytest.mark.parametrize("name", ["t.json.gz", "named_otherwise"])
def test_gzip_is_told_by_its_content(tmp_path, name):
    path = small().write(tmp_path / "t.json.gz")

    assert rows(read_trace(path.rename(tmp_path / name))) == EXPECTED


def test_a_bare_list_and_indented_json_are_read(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("\n" + json.dumps(small().events, indent=3), encoding="utf-8")

    trace = read_trace(path, chunk=50)

    assert rows(trace) == EXPECTED
    assert (trace.rank, trace.label) == (None, "t.json")


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = small().write(tmp_path / "t.json")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert rows(read_trace(path)) == EXPECTED


def test_entries_after_the_events_are_read_too(tmp_path):
    path = tmp_path / "t.json"
    text = json.dumps({"traceEvents": small().events, "empty": {}, "distributedInfo": {"rank": 5}})
    path.write_text(text, encoding="utf-8")

    assert read_trace(path).rank == 5


def test_old_categories_and_annotations_among_operators_are_known(tmp_path):
    builder = TraceBuilder()
    builder.event("Operator", "ProfilerStep#5", 0, 10, tid="77").event("Operator", "aten::add", 1, 2, tid=77)
    builder.event("Operator", LOADER, 3, 4).event("Runtime", "cudaLaunchKernel", 5, 1, correlation=9)
    builder.event("Kernel", "k", 7, 1, correlation=9).event("Memcpy", "Memcpy HtoD", 8, 1, correlation=10)
    trace = read_trace(builder.write(tmp_path / "t.json"))

    assert list(trace.events.kind) == [
        Kind.ANNOTATION, Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME, Kind.KERNEL, Kind.COPY,
    ]  # fmt: skip
    # The same thread is written as a number and as a text.
    assert trace.events.track[0] == trace.events.track[1]


def test_nanoseconds_survive_times_since_1970(tmp_path):
    path = tmp_path / "t.json"
    quarter = f'{{"ph": "X", "cat": "kernel", "name": "k", "ts": {BASE_US}.25, "dur": 4.928, "args": {{}}}}'
    whole = f'{{"ph": "X", "cat": "kernel", "name": "k", "ts": {BASE_US}, "dur": 1, "args": {{}}}}'
    path.write_text(f"[{whole}, {quarter}]", encoding="utf-8")

    trace = read_trace(path)

    assert list(trace.events.start_ns) == [0, 250]
    assert list(trace.events.end_ns) == [1000, 5178]


def test_negative_durations_are_counted_and_not_kept(tmp_path):
    trace = read_trace(small().event("cpu_op", "aten::add", 20, -3).write(tmp_path / "t.json"))

    assert (trace.backwards, trace.seen, len(trace.events)) == (1, 6, 5)


def test_a_few_unreadable_events_are_dropped(tmp_path):
    builder = small()
    builder.events += [
        {"ph": "X", "cat": "kernel", "name": "no time", "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "text", "ts": "soon", "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "endless", "ts": BASE_US, "dur": float("inf")},
        {"ph": "X", "cat": "kernel", "name": "far", "ts": 10**400, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "in 1970", "ts": 0, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "odd", "ts": BASE_US, "dur": 1, "args": {"correlation": "x"}},
        {"ph": "X", "cat": ["kernel"], "name": "listed", "ts": BASE_US, "dur": 1},
    ]

    assert rows(read_trace(builder.write(tmp_path / "t.json"))) == EXPECTED


@pytest.mark.parametrize("time", ["soon", float("nan"), float("inf"), None, 10**400])
def test_a_first_event_without_a_time_does_not_spoil_the_others(tmp_path, time):
    builder = small()
    builder.events.insert(0, {"ph": "X", "cat": "kernel", "name": "k", "ts": time, "dur": 1})

    assert rows(read_trace(builder.write(tmp_path / "t.json"))) == EXPECTED


@pytest.mark.parametrize("number", ["12", 1.5, None, [1], -3, 2**70, True])
def test_an_operators_number_that_is_none_is_left_out_and_the_operator_is_not(tmp_path, number):
    builder = TraceBuilder().operator("aten::mm", 0, 5, **{"Sequence number": 7})
    for at in range(1, 50):
        builder.operator("aten::mm", 10 * at, 10 * at + 5, **{"Sequence number": number})
    trace = read_trace(builder.write(tmp_path / "trace.json"))
    assert trace.events.correlation.tolist() == [7, *[-1] * 49]


@pytest.mark.parametrize("told", ["text", [1], 5])
def test_an_operators_arguments_may_be_anything(tmp_path, told):
    builder = TraceBuilder()
    for at in range(50):
        builder.operator("aten::mm", 10 * at, 10 * at + 5)
        builder.events[-1]["args"] = told
    assert len(read_trace(builder.write(tmp_path / "trace.json")).events) == 50


def test_a_trace_whose_times_are_all_texts_is_an_unknown_form(tmp_path):
    builder = TraceBuilder().operator("aten::mm", 0, 1)
    builder.events[0]["ts"] = str(builder.events[0]["ts"])

    with pytest.raises(RecordError, match="1 events lack a name, a time"):
        read_trace(builder.write(tmp_path / "t.json"))


def test_mostly_unreadable_events_are_an_unknown_form(tmp_path):
    builder = small()
    builder.events += [{"ph": "X", "cat": "kernel", "name": "k", "begin": i} for i in range(11)]

    with pytest.raises(RecordError, match="11 events lack a name"):
        read_trace(builder.write(tmp_path / "t.json"))


BROKEN = {
    "empty": ("", "it is empty. Give the JSON"),
    "only space": (" \n" * 5000, "it is empty. Give the JSON"),
    "text": ("hello", "it is text that is no JSON object or list. Give the JSON"),
    "other JSON": ('{"a": [1, 2]}', "without a list 'traceEvents'"),
    "events are an object": ('{"traceEvents": {"a": 1}}', "without a list 'traceEvents'"),
    "list of numbers": ("[1, 2, 3]", "it holds no complete event"),
    "other program's trace": (
        '[{"ph": "X", "cat": "v8", "name": "GC", "ts": 1, "dur": 2}]',
        "of 1 complete events none has a category",
    ),
    "cut in an event": ('{"traceEvents": [{"ph": "X", "cat": "ker', "in the middle of an event"),
    "cut after an event": ('{"traceEvents": [{"ph": "M"},', "in the middle of an event"),
    "cut before the end": ('{"traceEvents": []', "before its end"),
    "broken inside": ('{"traceEvents": [{"ph": X}, {"ph": "M"}]}', "character 17"),
    "no colon": ('{"traceEvents" []}', "':' is missing"),
    "deep list": ("[" * 100_000, "nested too deeply"),
    "deep event": ('{"traceEvents": [' + '{"args":' * 100_000, "nested too deeply"),
    "deep entry": ('{"a": ' + "[" * 100_000, "nested too deeply"),
    "endless number": ('{"traceEvents": [{"ts": ' + "1" * 5000 + "}]}", "cannot be read from character 17"),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("chunk", [1 << 12, 1 << 20])
def test_a_broken_file_is_refused_with_what_is_wrong(tmp_path, kind, chunk):
    text, says = BROKEN[kind]
    path = tmp_path / "t.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(RecordError, match=says) as caught:
        read_trace(path, chunk=chunk)
    assert "t.json" in str(caught.value)


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"PK\x03\x04\x14\0", "a zip archive, such as torch.save writes"),
        (b"\x80\x04\x95", "a pickle"),
        (b"\x7fELF\x02\x01", "a program"),
        (b"\0\1\2\xff", "a binary file"),
        (b"\xff\xfe{\0", "text in UTF-16"),
        (b"<!DOCTYPE html>", "HTML or XML"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_of_another_kind_is_named_and_its_bytes_are_not_printed(tmp_path, start, kind, pack):
    path = tmp_path / "t.json"
    path.write_bytes(pack(start + b"\x1b[31m\0 rest" * 9))

    with pytest.raises(RecordError, match=f"t.json is not a profiler trace: it is {kind}.*Give the JSON") as caught:
        read_trace(path)
    assert str(caught.value).isprintable() and "rest" not in str(caught.value)


def test_a_truncated_gzip_is_refused(tmp_path):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps(small().events * 500).encode())[:-2000])

    with pytest.raises(RecordError, match="cut off"):
        read_trace(path)


def test_a_damaged_gzip_is_refused(tmp_path):
    data = bytearray(gzip.compress(np.random.default_rng(1).bytes(5000)))
    data[200:300] = b"\0" * 100
    path = tmp_path / "t.json.gz"
    path.write_bytes(data)

    with pytest.raises(RecordError, match=r"gzip|not a profiler trace"):
        read_trace(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(RecordError, match="No such file"):
        read_trace(tmp_path / "nothing.json")
    with pytest.raises(RecordError, match="is a folder; name the traces in it"):
        read_trace(tmp_path)


def test_a_value_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "LONGEST_VALUE", 1 << 20)
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"name": "' + "x" * (4 << 20), encoding="utf-8")

    with pytest.raises(RecordError, match="no value ends within"):
        read_trace(path, chunk=1 << 18)


def test_a_long_value_is_not_decoded_once_a_chunk(tmp_path, monkeypatch):
    # 64 chunks long: windows of 1, 2, 4 … 64 chunks make 7 tries; one more chunk each time would make 64.
    tries = []
    more = json_stream._Reader._more
    monkeypatch.setattr(json_stream._Reader, "_more", lambda self, where: (tries.append(where), more(self, where))[1])
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [[' + "[]," * (64 << 10) + "1]]}", encoding="utf-8")

    with pytest.raises(RecordError, match="a list of lists"):
        read_trace(path, chunk=3 << 10)
    assert len(tries) <= 12


OTHERS = {
    '{"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": [': "it is an execution trace",
    '{"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": [': "it is a profile for speedscope",
    '{"rocprofiler-sdk-tool": [': "it is what rocprofv3 writes",
    '{"workload_graph": [': "it is a graph of Chakra",
    "[[-1, 1, 37888, 7], [-1, 1, 512, 7]]": "it is a list of lists, such as a memory timeline",
    '[{"name": "aten::add", "ph": "X", "ts": 1.0, "dur": 2.0, "tid": 1, "pid": "CPU functions", "args": {}}]': (
        "it looks like torch.autograd.profiler's own"
    ),
    '{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}}, '
    '{"ph": "X", "name": "fusion", "pid": 1, "tid": 2, "ts": 1, "dur": 2}]}': "TensorFlow's or JAX's profiler",
    '[{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Ascend Hardware"}}, '
    '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 2, "ts": "17.5", "dur": 2}]': "torch_npu's",
}


@pytest.mark.parametrize("text", OTHERS)
def test_a_file_of_another_profiler_is_named(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(RecordError, match=OTHERS[text]):
        read_trace(path)
