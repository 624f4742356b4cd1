"""What is to be run: the settings of a trial, how long it measures, and the trial."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records.types import Json

#: What a training computes its products in; float64 is recorded of loops that do, and no sweep trains in it.
PRECISIONS = ("float32", "tf32", "bfloat16", "float16", "float64")
OPTIMIZER_IMPLEMENTATIONS = ("single", "foreach", "fused")
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune")

#: What a ceiling experiment leaves out, to measure what a perfect fix of it could win.
CEILINGS = ("cached_batches", "no_transfer", "no_optimizer")

_SWITCHES = (
    *("persistent_workers", "pin_memory", "gradient_checkpointing"),
    *("length_bucketing", "channels_last", "freeze_gc", "keep_freed_memory", "masks_from_bits"),
    "flush_denormals",
)
Precision: TypeAlias = Literal["float32", "tf32", "bfloat16", "float16", "float64"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What can be tuned about a trial. ``None`` leaves the choice to the workload.

    Only the workload and the training loop know what a setting means; everything else carries them along.
    The canonical form leaves out what is ``None``, so a new setting never changes the id of an old trial.
    """

    batch_size: int
    device: str = "cpu"
    precision: Precision = "float32"
    accumulation_steps: int | None = None
    sequence_length: int | None = None
    num_workers: int | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None
    pin_memory: bool | None = None
    threads: int | None = None
    compile_mode: str | None = None
    optimizer_implementation: str | None = None
    gradient_checkpointing: bool | None = None
    length_bucketing: bool | None = None
    channels_last: bool | None = None
    freeze_gc: bool | None = None
    keep_freed_memory: bool | None = None
    masks_from_bits: bool | None = None
    flush_denormals: bool | None = None
    ceiling: str | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("batch_size", 1),
            ("accumulation_steps", 1),
            ("sequence_length", 3),
            ("num_workers", 0),
            ("prefetch_factor", 1),
            ("threads", 1),
        ):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise InvalidSettings(f"{name}={value!r} must be a whole number of at least {least}.")
        for name, allowed in (
            ("precision", PRECISIONS),
            ("compile_mode", COMPILE_MODES),
            ("optimizer_implementation", OPTIMIZER_IMPLEMENTATIONS),
            ("ceiling", CEILINGS),
        ):
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise InvalidSettings(f"{name}={value!r} is not one of {', '.join(allowed)}.")
        for name in _SWITCHES:
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise InvalidSettings(f"{name}={value!r} must be true or false.")
        if not isinstance(self.device, str) or not self.device:
            raise InvalidSettings(f"device={self.device!r} must be a device name such as 'cpu' or 'cuda:0'.")

    def canonical(self) -> dict[str, Json]:
        """The settings that were chosen, by name; settings left to the workload are absent."""
        chosen = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in chosen if value is not None}

    def replace(self, **change: Any) -> Settings:
        """These settings with some of them changed; unknown names raise InvalidSettings."""
        known = {f.name for f in dataclasses.fields(self)}
        unknown = sorted(set(change) - known)
        if unknown:
            raise InvalidSettings(f"Unknown setting {unknown[0]!r}; known settings are {', '.join(sorted(known))}.")
        return dataclasses.replace(self, **change)


@dataclass(frozen=True, kw_only=True)
class Length:
    """How long a trial measures.

    It warms up for at least ``warmup_steps``, then measures until the half-width of the 95 % interval of the
    mean step time is below ``half_width`` of the mean, between ``min_steps`` and ``max_steps``. A time budget,
    given when the trial is run, may end it earlier, but not before ``floor_steps``.
    """

    warmup_steps: int = 3
    min_steps: int = 20
    max_steps: int = 1000
    floor_steps: int = 3
    half_width: float = 0.02

    def __post_init__(self) -> None:
        for name in ("warmup_steps", "min_steps", "max_steps", "floor_steps"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise InvalidSettings(f"{name}={value!r} must be a whole number of steps.")
        if self.warmup_steps < 1:
            raise InvalidSettings(
                f"warmup_steps={self.warmup_steps} must be at least 1: the first step also allocates and initialises."
            )
        if self.floor_steps < 1 or not self.floor_steps <= self.min_steps <= self.max_steps:
            raise InvalidSettings(
                f"floor_steps={self.floor_steps}, min_steps={self.min_steps}, max_steps={self.max_steps} "
                "must rise from at least 1."
            )
        if not 0 <= self.half_width < 1:
            raise InvalidSettings(f"half_width={self.half_width} must lie between 0 (measure max_steps) and 1.")

    @classmethod
    def exactly(cls, steps: int, *, warmup_steps: int = 3) -> Length:
        """Measure this many steps, whatever their spread, and count every one of them."""
        if not isinstance(steps, int) or isinstance(steps, bool):
            raise InvalidSettings(f"{steps!r} is no whole number of steps to measure; ask for at least 1.")
        if steps < 1:
            raise InvalidSettings(f"{steps} steps leave nothing to measure; ask for at least 1.")
        return cls(
            warmup_steps=warmup_steps, min_steps=steps, max_steps=steps, floor_steps=min(3, steps), half_width=0.0
        )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What is to be run: one workload under one choice of settings, once.

    ``role`` is empty for a trial of the sweep itself; a ``sentinel`` is run once a block to show whether the machine
    drifts, and belongs to no group of the sweep.
    """

    workload: str
    settings: Settings
    options: Mapping[str, Json] = field(default_factory=dict)
    length: Length = field(default_factory=Length)
    seed: int = 0
    repeat: int = 0
    role: Literal["", "sentinel"] = ""

    def canonical(self) -> dict[str, Json]:
        """A JSON object that is equal for equal trials; its hash is the trial's id."""
        return {
            "workload": self.workload,
            "options": dict(sorted(self.options.items())),
            "settings": self.settings.canonical(),
            "length": dict(dataclasses.asdict(self.length)),
            "seed": self.seed,
            "repeat": self.repeat,
            **({"role": self.role} if self.role else {}),
        }

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits of the SHA-256 of the canonical form; safe as a folder name."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """A short name for people: ``distilbert-sst2 cpu batch 8``."""
        parts = [self.workload, self.settings.device, f"batch {self.settings.batch_size}"]
        if self.settings.precision != "float32":
            parts.append(self.settings.precision)
        if self.settings.ceiling is not None:
            parts.append(f"ceiling {self.settings.ceiling}")
        return " ".join(parts)
