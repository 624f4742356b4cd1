"""From axes to trials: which configurations a sweep runs, in which order, and how its time is shared out."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Json, Length, Settings, Trial

#: Batch sizes to try when none are given: what a laptop can step through in minutes, and what a GPU needs to be filled.
CPU_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
GPU_BATCH_SIZES = (8, 16, 32, 64, 128, 256)

#: Seconds that a sweep on one device may take when nothing is said.
TIME_BUDGET_S = 240.0

#: A step of batch B is taken to cost about as much as B + 8 samples when time is shared out before anything has been
#: measured. It only steers the sharing: what one trial leaves over goes to those after it.
_FIXED_COST_SAMPLES = 8

#: The part of what is left that a trial may take for its least number of steps.
_BORROWED = 0.5

#: What is kept for the sentinel at the end: its set-up and a few steps, and never more than this part of what is left.
_LAST_SENTINEL_S = 8.0
_LAST_SENTINEL_SHARE = 0.2

#: A sentinel only has to show whether the same steps take as long as before: so many steps at most, and half of the
#: time that a trial of its batch size would get.
SENTINEL_STEPS = 40
_SENTINEL_PART = 0.5

#: Fewer configurations are over before a machine has drifted, and a shorter budget has no seconds to spare for starting
#: further processes.
_LEAST_CONFIGURATIONS = 4
_LEAST_BUDGET_S = 60.0


#: More trials than this are a slip of the finger: they would take a day at a few seconds each.
MOST_TRIALS = 10_000


def default_batch_sizes(device: str) -> tuple[int, ...]:
    return CPU_BATCH_SIZES if device == "cpu" else GPU_BATCH_SIZES


@dataclass(frozen=True, kw_only=True)
class Axes:
    """What a sweep varies. ``others`` maps names of further settings to the values to try.

    ``batch_sizes`` empty means the defaults of each device. With ``sentinel`` one cheap configuration a device is run
    at the start of each block and at the end, so that a drift of the machine over the sweep shows.
    """

    workload: str
    devices: Sequence[str] = ("cpu",)
    batch_sizes: Sequence[int] = ()
    others: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    options: Mapping[str, Json] = field(default_factory=dict)
    length: Length = field(default_factory=Length)
    seed: int = 0
    repeats: int = 1
    sentinel: bool = False


def worth_a_sentinel(axes: Axes, budget_s: float | None) -> bool:
    """Whether a sweep is long enough for a drift over it to matter: at least four configurations and a minute."""
    return len(_configurations(axes)) >= _LEAST_CONFIGURATIONS and (budget_s is None or budget_s >= _LEAST_BUDGET_S)


def plan(axes: Axes) -> tuple[Trial, ...]:
    """All trials of a sweep in the order in which they run: randomised complete blocks.

    Each block runs every configuration once in an order drawn from the seed, so that a machine that grows slower (or
    warmer) does not make large batches look slow. The order is recorded with the run.

    Raises:
        InvalidSettings: an axis is empty, repeats a value, or holds one that cannot be run, or all axes together make
            more than 10,000 trials.
    """
    if axes.repeats < 1:
        raise InvalidSettings(f"repeats={axes.repeats} must be at least 1.")
    configurations = _configurations(axes)
    if (number := axes.repeats * len(configurations)) > MOST_TRIALS:
        raise InvalidSettings(
            f"repeats={axes.repeats} of {len(configurations)} configurations are {number:,} trials; ask for at most "
            f"{MOST_TRIALS:,}, in several sweeps if need be."
        )
    sentinels = _sentinels(configurations) if axes.sentinel else []
    order = random.Random(axes.seed)  # noqa: S311 - an experiment's order, not a secret
    trials: list[Trial] = []
    for repeat in range(axes.repeats):
        block = list(configurations)
        order.shuffle(block)
        trials.extend(_sentinel(axes, settings, repeat) for settings in sentinels)
        trials.extend(_trial(axes, settings, repeat) for settings in block)
    trials.extend(_sentinel(axes, settings, axes.repeats) for settings in sentinels)
    return tuple(trials)


def _configurations(axes: Axes) -> list[Settings]:
    each = sum(len(axes.batch_sizes or default_batch_sizes(device)) for device in axes.devices)
    number = math.prod(map(len, axes.others.values()), start=each)
    if number > MOST_TRIALS:
        raise InvalidSettings(f"These values make {number:,} configurations; give fewer, at most {MOST_TRIALS:,}.")
    return [
        Settings(batch_size=batch_size, device=device).replace(**dict(zip(axes.others, values, strict=True)))
        for device in _distinct("devices", axes.devices)
        for batch_size in _distinct("batch_sizes", axes.batch_sizes or default_batch_sizes(device))
        for values in itertools.product(*(_distinct(name, choices) for name, choices in axes.others.items()))
    ]


def _trial(axes: Axes, settings: Settings, repeat: int) -> Trial:
    return Trial(
        workload=axes.workload,
        settings=settings,
        options=axes.options,
        length=axes.length,
        seed=axes.seed,
        repeat=repeat,
    )


def _sentinels(configurations: Sequence[Settings]) -> list[Settings]:
    """For each device the configuration a third up its batch sizes: cheap, and not only the fixed cost of a step.

    Of further settings it takes the first values.
    """
    chosen: dict[str, Settings] = {}
    for device in dict.fromkeys(settings.device for settings in configurations):
        there = [settings for settings in configurations if settings.device == device]
        sizes = sorted({settings.batch_size for settings in there})
        size = sizes[(len(sizes) - 1) // 3]
        chosen[device] = next(settings for settings in there if settings.batch_size == size)
    return list(chosen.values())


def _sentinel(axes: Axes, settings: Settings, repeat: int) -> Trial:
    """The sentinel before block ``repeat`` (of that number: after the last block)."""
    length = axes.length
    most = min(length.max_steps, SENTINEL_STEPS)
    short = dataclasses.replace(
        length, max_steps=most, min_steps=min(length.min_steps, most), floor_steps=min(length.floor_steps, most)
    )
    return dataclasses.replace(_trial(axes, settings, repeat), length=short, role="sentinel")


def _distinct(name: str, values: Sequence[Any]) -> Sequence[Any]:
    if not values:
        raise InvalidSettings(f"{name} is empty; give at least one value.")
    twice = [value for index, value in enumerate(values) if value in values[:index]]
    if twice:
        raise InvalidSettings(f"{name} names {twice[0]!r} twice; use repeats to run a configuration more than once.")
    return values


def share_of_time(trial: Trial, remaining: Iterable[Trial], left_s: float) -> float:
    """Seconds for the next trial of those that remain (itself included), out of what is left of the sweep's budget."""
    total = sum(_weight(other) for other in remaining)
    return left_s * _weight(trial) / total if total else left_s


def time_for(trial: Trial, remaining: Sequence[Trial], left_s: float | None) -> tuple[float | None, float | None]:
    """Seconds for the next trial, and seconds that its least number of steps may take; None without a budget.

    Slow steps may borrow from the trials after them, up to half of all that is left: a few steps of each size say
    more than many of some.
    """
    if left_s is None:
        return None, None
    left_s -= _kept_for_the_last(remaining, left_s)
    share_s = share_of_time(trial, remaining, left_s)
    return share_s, max(share_s, left_s * _BORROWED)


def _kept_for_the_last(remaining: Sequence[Trial], left_s: float) -> float:
    """Seconds that a sentinel at the end must find: large batches outrun their share by a step, which is all of its."""
    if len(remaining) < 2 or remaining[-1].role != "sentinel":
        return 0.0
    return min(_LAST_SENTINEL_S, left_s * _LAST_SENTINEL_SHARE)


def _weight(trial: Trial) -> float:
    weight = _FIXED_COST_SAMPLES + trial.settings.batch_size * (trial.settings.accumulation_steps or 1)
    return weight * _SENTINEL_PART if trial.role == "sentinel" else weight
