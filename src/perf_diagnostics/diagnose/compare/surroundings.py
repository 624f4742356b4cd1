"""Where two runs were measured: what must be equal for a comparison to mean anything, and what else differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from perf_diagnostics.diagnose.compare.matching import Configuration, Side
from perf_diagnostics.diagnose.wording import listing
from perf_diagnostics.records import Environment, Json, Run, TrialResult

#: Sections and names of an environment in which a difference is worth a note. Loads and counters change all the time.
_NOTED: Mapping[str, tuple[str, ...]] = {
    "host": (
        "cpu_model",
        "cores_physical",
        "cores_logical",
        "architecture",
        "memory_bytes",
        "os_release",
        "kernel",
        "governor",
        "virtualised",
    ),
    "limits": ("cores_affinity", "cores_usable", "cgroup_cpu_quota_cores", "memory_limit_bytes"),
    "threads": ("torch_intra_op", "torch_inter_op"),
    "git": ("commit", "dirty"),
}
#: Facts about the course of a trial, not about where it ran; and the device's name, which must agree.
_NOT_SURROUNDINGS = ("device_name", "warmup_ended", "passes", "backwards_looked_into")
_NOTED_OF_DEVICES = ("driver", "power_limit_w", "memory_bytes", "capability")


@dataclass(frozen=True)
class Difference:
    """One thing about the surroundings and its values on either side."""

    what: str
    base: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def says(self) -> str:
        return f"{self.what}: {_either(self.base)} in BASE, {_either(self.new)} in NEW"


@dataclass(frozen=True)
class Surroundings:
    """``mismatches`` forbid a comparison unless it is asked for all the same; ``notes`` are to be known about."""

    mismatches: tuple[Difference, ...] = ()
    notes: tuple[Difference, ...] = ()


def surroundings(
    base: Run, new: Run, configurations: Iterable[Configuration], *, vary: Collection[str] = ()
) -> Surroundings:
    """Compare where the trials of each shared configuration ran.

    Device kind, device name and torch version must agree. The name of the device of a trial on the CPU is the model
    of the processor. What nobody recorded on one of the sides is no mismatch, but a note. With the device among
    ``vary`` its kind and name differ by request and become notes.
    """
    mismatches: dict[str, Difference] = {}
    notes: dict[str, Difference] = {}
    by_request = {"device kind", "device name"} if "device" in vary else set()
    for configuration in configurations:
        sides = (_seen(base, configuration.base), _seen(new, configuration.new))
        if not all(sides):
            continue
        for difference in _differences(sides, _must_agree):
            known = difference.base and difference.new and difference.what not in by_request
            (mismatches if known else notes).setdefault(difference.says, difference)
        for difference in _differences(sides, _worth_a_note):
            if difference.what not in vary:
                notes.setdefault(difference.says, difference)
    return Surroundings(tuple(mismatches.values()), tuple(notes.values()))


def refusal(mismatches: Iterable[Difference]) -> str:
    """Why two runs are not compared, with the values that differ."""
    told = "; ".join(difference.says for difference in mismatches)
    return (
        f"BASE and NEW were not measured under the same conditions ({told}), so a difference would say nothing about "
        "the change between them. Measure both on one machine, or give --allow-mismatch."
    )


Seen: TypeAlias = tuple[TrialResult, Environment]


def _seen(run: Run, side: Side) -> list[Seen]:
    """Each completed trial (each at all, where none completed) with its environment, or the run's if it has none.

    A trial in the user's own process knows its devices, and leaves the rest to the run.
    """
    results = [trial.result for trial in side.completed] or side.results
    theirs = [(one, one.environment.devices or run.environment.devices) for one in results]
    return [
        (one, one.environment if one.environment.python else dataclasses.replace(run.environment, devices=devices))
        for one, devices in theirs
    ]


def _differences(
    sides: tuple[list[Seen], list[Seen]], question: Callable[[TrialResult, Environment], Mapping[str, Json]]
) -> Iterable[Difference]:
    """What the trials of one side say otherwise than those of the other; what nobody recorded says nothing."""
    base, new = ([question(*seen) for seen in side] for side in sides)
    for what in dict.fromkeys(name for told in (*base, *new) for name in told):
        one, other = (_values(told.get(what) for told in side) for side in (base, new))
        if one != other:
            yield Difference(what, one, other)


def _values(values: Iterable[Json]) -> tuple[str, ...]:
    return tuple(sorted({str(value) for value in values if value is not None}))


def _must_agree(result: TrialResult, environment: Environment) -> Mapping[str, Json]:
    kind = result.trial.settings.device.split(":")[0]
    return {
        "device kind": kind,
        "device name": environment.host.get("cpu_model") if kind == "cpu" else result.facts.get("device_name"),
        "torch version": environment.python.get("torch"),
    }


def _worth_a_note(result: TrialResult, environment: Environment) -> Mapping[str, Json]:
    sections = {
        "host": environment.host,
        "limits": environment.limits,
        "threads": environment.threads,
        "git": environment.git,
    }
    found = {name: section[name] for title, section in sections.items() for name in _NOTED[title] if name in section}
    if result.trial.settings.device.startswith("cpu"):
        found.pop("cpu_model", None)  # it is the device's name, which must agree
    libraries = {name: version for name, version in environment.python.items() if name != "torch"}
    found |= {("Python" if name == "version" else name): version for name, version in libraries.items()}
    found |= {f"variable {name}": value for name, value in environment.variables.items()}
    found |= {f"device {name}": device.get(name) for device in environment.devices for name in _NOTED_OF_DEVICES}
    found |= {name: value for name, value in result.facts.items() if name not in _NOT_SURROUNDINGS and _chosen(value)}
    return found | {"least steps": result.trial.length.min_steps}


def _chosen(value: Json) -> bool:
    """Whether a fact can be a choice; numbers with a fraction and tables were measured, and always differ."""
    return value is None or isinstance(value, str | int)  # a truth value is an int


def _either(values: tuple[str, ...]) -> str:
    return listing(values) if values else "not recorded"
