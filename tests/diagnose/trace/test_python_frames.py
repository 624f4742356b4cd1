"""The user's functions in which the host spent its time, where the profiler recorded Python's stack."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.python_frames import own_functions
from perf_diagnostics.diagnose.trace.rules.hst004_host_work import HostWork
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated

STEP = 10_000


def frame(builder: TraceBuilder, name: str, start: float, end: float, **where: int) -> TraceBuilder:
    return builder.event("python_function", name, start, end - start, **where)


def pausing(*frames: tuple[str, float, float], **where: int) -> TraceBuilder:
    """Steps of 10 ms whose first 4 ms the device computes; ``frames`` lie in the rest of each step."""

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.kernel(start, start + 10, start + 4_000)
        for name, begins, ends in frames:
            frame(builder, name, start + begins, start + ends, **where)

    return repeated(STEP, 4, fill)


def remedy(builder: TraceBuilder, folder) -> str:
    finding = ask(HostWork(), builder.facts(folder))
    assert isinstance(finding, Finding)
    return finding.remedies[0].says


def test_the_innermost_own_function_has_the_time(tmp_path):
    builder = pausing(
        ("train.py(41): main", 3_000, 10_000),
        ("metrics/log.py(112): write", 5_000, 9_000),
        ("json/__init__.py(183): dumps", 5_500, 8_500),
        ("torch/nn/modules/module.py(1511): _call_impl", 5_600, 8_400),
        ("<built-in method sleep>", 5_700, 8_300),
        ("/usr/lib/python3.11/threading.py(320): wait", 5_700, 8_200),
    )
    facts = builder.facts(tmp_path)

    # The device idles from 4 to 10 ms: 4 of it in write, 2 in main outside of write.
    assert own_functions(facts, facts.split.parts[Part.HOST]) == (
        ("metrics/log.py:112 (write)", 4 * 4_000_000),
        ("train.py:41 (main)", 4 * 2_000_000),
    )
    says = remedy(builder, tmp_path)
    assert "Begin with metrics/log.py:112 (write), 40 % of each step and train.py:41 (main), 20 % of each step" in says


@pytest.mark.parametrize(
    ("frames", "where"),
    [
        ((("torch/nn/modules/module.py(1511): _call_impl", 4_000, 9_000),), {}),
        ((("nn.Module: Linear_0", 4_000, 9_000),), {}),
        ((("train.py(41): main", 4_000, 9_000),), {"tid": 777}),  # another thread's
        ((("train.py(41): main", 4_000, 4_200), ("torch/serialization.py(1): save", 4_000, 9_000)), {}),  # too short
    ],
)
def test_frames_that_do_not_help(tmp_path, frames, where):
    builder = pausing(*frames, **where)
    facts = builder.facts(tmp_path)

    assert own_functions(facts, facts.split.parts[Part.HOST]) == ()
    assert remedy(builder, tmp_path).startswith("The trace has Python's stack, but no function of your own")


def test_without_frames_it_says_how_to_record_them(tmp_path):
    assert "with_stack=True" in remedy(pausing(), tmp_path)


def test_frames_neither_stretch_the_trace_nor_fill_it(tmp_path):
    builder = pausing(*((f"train.py({line}): small", 4_000, 4_900) for line in range(50)))
    frame(builder, "train.py(1): <module>", -5_000, 90_000)
    trace = builder.facts(tmp_path).trace

    assert trace.events.start_ns[0] == 0
    assert trace.events.end_ns.max() == 40_000_000
    assert trace.frames is not None
    assert len(trace.frames) == 1  # those below a millisecond are dropped
    assert trace.frames.start_ns[0] == -5_000_000
