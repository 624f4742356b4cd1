"""What a file is that is no trace of the PyTorch profiler, from its first bytes, for whoever gave it by mistake."""

from __future__ import annotations

from collections.abc import Collection

#: What a trace is, and where one comes from.
EXPECTED = (
    "Give the JSON (also packed with gzip) that torch.profiler writes: by export_chrome_trace, or by "
    "tensorboard_trace_handler"
)

#: First bytes that are enough to tell.
HEAD = 64

#: First bytes of kinds of files that are taken for a trace, or lie beside one.
_KINDS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive, such as torch.save writes; a trace in one has to be taken out first"),
    (b"\x80", "a pickle, such as a snapshot of the CUDA allocator"),
    (b"SQLite format 3\0", "a SQLite database, such as Nsight Systems exports"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd: unpack it first"),
    (b"\xfd7zXZ\0", "packed with xz: unpack it first"),
    (b"BZh", "packed with bzip2: unpack it first"),
    (b"\xff\xfe", "text in UTF-16: save it as UTF-8"),
    (b"\xfe\xff", "text in UTF-16: save it as UTF-8"),
    (b"PAR1", "a Parquet file"),
    (b"%PDF", "a PDF"),
    (b"\x7fELF", "a program"),
    (b"<", "HTML or XML"),
)


def what_it_is(head: bytes) -> str:
    """What a file is that starts with these bytes (:data:`HEAD` of them, or all): ``a PDF``, ``a binary file``.

    Only JSON objects and lists may be traces; of them nothing is said here.
    """
    for start, kind in _KINDS:
        if head.startswith(start):
            return kind
    readable = all(byte >= 0x20 or byte in b"\t\n\r\f" for byte in head)
    return "text that is no JSON object or list" if readable else "a binary file"


#: Entries that another program's JSON has, all of them, and what it is.
_BY_ENTRIES: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset(("schema", "nodes")),
        "an execution trace (of torch.profiler's ExecutionTraceObserver, or of Chakra), which has operators, and "
        "nothing of when a device worked",
    ),
    (frozenset(("workload_graph",)), "a graph of Chakra's"),
    (frozenset(("profiles", "$schema")), "a profile for speedscope, such as py-spy writes"),
    (frozenset(("rocprofiler-sdk-tool",)), "what rocprofv3 writes"),
)

#: How the processes of another program's trace are called, and whose trace it is.
_BY_PROCESS: tuple[tuple[str, str], ...] = (
    ("CPU functions", "torch.autograd.profiler's own, of before PyTorch 1.8.1 or with use_kineto=False"),
    ("CUDA functions", "torch.autograd.profiler's own, of before PyTorch 1.8.1 or with use_kineto=False"),
    ("Ascend Hardware", "torch_npu's, of an Ascend device, which is not known here"),
    ("CANN", "torch_npu's, of an Ascend device, which is not known here"),
    ("/device:", "that of TensorFlow's or JAX's profiler"),
    ("/host:", "that of TensorFlow's or JAX's profiler"),
)


def by_entries(names: Collection[str]) -> str:
    """What a JSON object with entries of these names is; empty where they tell nothing."""
    return next((kind for entries, kind in _BY_ENTRIES if entries.issubset(names)), "")


def by_processes(names: Collection[str]) -> str:
    """Whose trace it is that has processes of these names, as ``torch_npu's``; empty where they tell nothing."""
    return next((whose for begins, whose in _BY_PROCESS if any(name.startswith(begins) for name in names)), "")
