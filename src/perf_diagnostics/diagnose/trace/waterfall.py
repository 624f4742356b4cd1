"""Where a rank's steps went, part by part, as values that a table or a program can show."""

from __future__ import annotations

from dataclasses import dataclass

from perf_diagnostics.diagnose.facts.facts import NotMeasured, ask
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.devices import Devices
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.kernels import Row, top_kernels, top_operators
from perf_diagnostics.diagnose.trace.phases import phase_rows
from perf_diagnostics.records import Json

#: The parts that a step has without a device as well.
ON_CPU = (Part.COMPUTE, Part.INPUT, Part.LAUNCH, Part.HOST)


@dataclass(frozen=True)
class Waterfall:
    """One rank's parts, which add up to the steps' wall time, and what has the most time by name.

    ``parts`` gives each part's time over all steps in ns and its share; ``prompt_share`` and ``delay_s`` are None where
    nothing ran on a device. Without ``loader_seen`` the wait for input was not measured: what there is of it is other
    host work. ``told_by`` says by what the steps are told apart, where not by the profiler's marks alone,
    ``devices`` is None unless several compute. ``forward_only``: no step has a backward pass or an update.
    """

    label: str
    file: str
    rank: int | None
    marked: bool
    steps: int
    warm_up: int
    on_device: bool
    forward_only: bool
    loader_seen: bool
    wall_ns: int
    told_by: str
    devices: Devices | None
    parts: tuple[tuple[Part, int, Interval], ...]
    overlap: float | None
    prompt_share: float | None
    delay_s: float | None
    kernels: tuple[Row, ...]
    operators: tuple[Row, ...]
    phases: tuple[Row, ...]

    def measured(self, part: Part) -> bool:
        """Whether a time of zero is one: without a device, or a loader's range, some parts cannot be seen."""
        if part is Part.INPUT:
            return self.loader_seen
        if part is Part.COMMUNICATION and not self.on_device:
            return self.overlap is not None
        return self.on_device or part in ON_CPU


def waterfall_of(facts: TraceFacts) -> Waterfall | None:
    """The waterfall of a rank; None where its trace cannot be trusted, or is a cold start."""
    try:
        facts.require_sound()
        split = facts.split
    except NotMeasured:
        return None
    windows, on_host = facts.steps.windows, facts.steps.on_host
    communicating = int(split.communicating.within(windows).sum())
    exposed = int(facts.per_step_ns(Part.COMMUNICATION).sum())
    return Waterfall(
        label=facts.label,
        file=facts.trace.path.name,
        rank=facts.trace.rank,
        marked=facts.steps.marked,
        steps=len(facts.steps),
        warm_up=facts.steps.warm_up,
        on_device=facts.on_device,
        forward_only=facts.forward_only,
        loader_seen=facts.loader_seen,
        wall_ns=int(facts.wall_ns.sum()),
        told_by=facts.steps.told_by,
        devices=ask(Devices.of, facts),
        parts=tuple((part, int(facts.per_step_ns(part).sum()), facts.share(part)) for part in Part),
        overlap=1 - exposed / communicating if communicating else None,
        prompt_share=ask(lambda: facts.prompt_share),
        delay_s=ask(lambda: facts.delay_s),
        kernels=top_kernels(facts.launches, windows),
        operators=top_operators(facts.launches, on_host),
        phases=phase_rows(facts),
    )


def waterfall_json(waterfall: Waterfall) -> dict[str, Json]:
    """A waterfall as plain JSON values: times in ms a step, shares in 0…1."""
    each = 1e6 * waterfall.steps
    return {
        "file": waterfall.file,
        "rank": waterfall.rank,
        "steps": waterfall.steps if waterfall.marked else None,
        "steps_marked": waterfall.marked,
        "steps_told_by": waterfall.told_by or None,
        "warm_up_steps": waterfall.warm_up,
        "on_device": waterfall.on_device,
        "forward_only": waterfall.forward_only,
        "step_ms": waterfall.wall_ns / each,
        "parts": [
            {
                "part": str(part),
                "ms": ns / each,
                "share": share.value,
                "low": share.low,
                "high": share.high,
                "measured": waterfall.measured(part),
            }
            for part, ns, share in waterfall.parts
        ],
        "devices": None if waterfall.devices is None else _devices(waterfall.devices),
        "communication_overlap": waterfall.overlap,
        "f20": waterfall.prompt_share,
        "launch_delay_us": None if waterfall.delay_s is None else waterfall.delay_s * 1e6,
        "kernels": [_row(row, each) for row in waterfall.kernels],
        "operators": [_row(row, each) for row in waterfall.operators],
        "phases": [_row(row, each) for row in waterfall.phases],
    }


def _devices(devices: Devices) -> dict[str, Json]:
    """The shares in 0…1 of the steps' time in which each device, and more than one of them, computes."""
    return {
        "computing": {name: share.value for name, share in devices.shares},
        "together": devices.together.value,
    }


def _row(row: Row, each: float) -> dict[str, Json]:
    host = None if row.host_ns is None else row.host_ns / each
    return {"name": row.name, "count": row.count, "device_ms": row.device_ns / each, "host_ms": host}
