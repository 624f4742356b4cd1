"""What all profiler windows share: what the profiler watches, and how its trace gets to disk."""

from __future__ import annotations

import gzip
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from perf_diagnostics.measure.observation import Unreadable

#: Three steps are the least from which a share has an interval.
MOST_STEPS, LEAST_STEPS = 5, 3

#: A trace of more than this is not kept: half a million events have about 150 MB, and 10 as gzip.
LARGEST_BYTES = 2**30

#: The machine's name and the file's place, which are nobody's business who gets the run.
_NAMES = re.compile(rb'("(?:host_name|traceName)": *)"[^"]*"')


#: What the steps of a window are called while a profiler of the training's own may name its steps as all profilers do.
OUR_STEP = "perf_diagnostics.step#"
_STEP = "ProfilerStep#"


def with_our_steps(line: bytes) -> bytes:
    """A line of a trace in which :data:`OUR_STEP` has become the usual name, and the usual name another one."""
    if OUR_STEP.encode() not in line and _STEP.encode() not in line:
        return line
    line = line.replace(f'"{_STEP}'.encode(), f"\"another profiler's {_STEP}".encode())
    return line.replace(f'"{OUR_STEP}'.encode(), f'"{_STEP}'.encode())


def _as_it_is(line: bytes) -> bytes:
    return line


def write_trace(
    export: Callable[[str], object], target: Path, *, changed: Callable[[bytes], bytes] = _as_it_is
) -> None:
    """Have the profiler write its JSON, and put it compressed and whole into a file, or not at all.

    The names of machine and folder are left out.

    Args:
        export: writes the JSON to the path that it is given.
        target: the file, whose name ends in ``.gz``.
        changed: what becomes of each line.

    Raises:
        Unreadable: the trace is larger than :data:`LARGEST_BYTES`.
        OSError: it cannot be written there.
    """
    # The form of a temporary file's name tells a later attempt that it may be cleared away.
    plain, packed = (target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp" for _ in range(2))
    try:
        export(str(plain))
        size = plain.stat().st_size
        if size > LARGEST_BYTES:
            raise Unreadable(f"the trace has {size / 2**20:.0f} MiB, more than {LARGEST_BYTES / 2**20:.0f}")
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=5) as written:
            written.writelines(changed(_NAMES.sub(rb'\1""', line)) for line in source)
        packed.replace(target)
    finally:
        plain.unlink(missing_ok=True)
        packed.unlink(missing_ok=True)


def activities(device: torch.device) -> list[Any]:
    """The host's side, and the device's where the training runs on one that the profiler can watch.

    Raises:
        Unreadable: it cannot watch devices of this type.
    """
    kinds = torch.profiler.ProfilerActivity
    chosen = [kinds.CPU]
    if device.type != "cpu":
        wanted = getattr(kinds, device.type.upper(), None)
        if wanted is None or wanted not in torch.profiler.supported_activities():  # type: ignore[no-untyped-call]
            raise Unreadable(f"this torch's profiler cannot watch {device.type} devices", lasting=True)
        chosen.append(wanted)
    return chosen
