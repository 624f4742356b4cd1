"""Where a run took place and what its numbers were read from, as sheets of named facts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from perf_diagnostics.records import Environment, Json, Run
from perf_diagnostics.report.model import FactSheet
from perf_diagnostics.report.words import number, plain

_SECTIONS = (
    ("host", "Machine"),
    ("limits", "Limits"),
    ("python", "Python and libraries"),
    ("threads", "Threads"),
    ("git", "Code"),
    ("command", "Command"),
    ("variables", "Environment variables"),
)

#: The title of the sheet that names the counters behind the numbers.
SOURCES = "Sources of the numbers"


def environment_of(run: Run) -> tuple[FactSheet, ...]:
    """Where the run took place; facts in which the trials differ are marked with how many have each value."""
    recorded = [env for env in (run.environment, *(r.environment for r in run.results)) if _filled(env)]
    sheets = []
    for section, title in _SECTIONS:
        facts = _facts([getattr(env, section) for env in recorded])
        if section == "command" and {words for _, words in facts} <= {plain(run.command)}:
            continue  # stands with the run below
        if facts:
            sheets.append(FactSheet(title=title, facts=facts))
    devices: dict[str, Mapping[str, Json]] = {}
    for env in recorded:
        for device in env.devices:
            devices.setdefault(json.dumps(device, sort_keys=True, default=str), device)
    for device in devices.values():
        name = plain(str(device.get("name", "device")), 60)
        sheets.append(FactSheet(title=f"Device: {name}", facts=_facts([device])))
    if sources := _sources(run):
        sheets.append(FactSheet(title=SOURCES, facts=sources))
    versions = (("perf-diagnostics", plain(run.tool_version)), ("created", plain(run.created_at)))
    sheets.append(FactSheet(title="Run", facts=(*versions, ("command", plain(run.command) or "not recorded"))))
    return tuple(sheets)


def _filled(env: Environment) -> bool:
    return bool(env.devices) or any(getattr(env, section) for section, _ in _SECTIONS)


def _facts(mappings: Sequence[Mapping[str, Json]]) -> tuple[tuple[str, str], ...]:
    """Each name with its value, or with its different values where the environments disagree (the load, say)."""
    values: dict[str, dict[str, Json]] = {}
    for mapping in mappings:
        for name, words, value in _flat(mapping):
            values.setdefault(name, {})[words] = value
    return tuple((name, _varying(found)) for name, found in values.items())


def _varying(found: Mapping[str, Json]) -> str:
    """Some different values in words, of each of which ``found`` has the value itself; of many the ends."""
    said = [words for words in found if words] or list(found)[:1]
    if len(said) <= 3:
        return " | ".join(said)
    numbers = {words: value for words, value in found.items() if isinstance(value, int | float)}
    if len(numbers) == len(said):
        said.sort(key=lambda words: numbers[words])
    return f"{said[0]} … {said[-1]} ({len(said)} different values)"


def _flat(mapping: Mapping[str, Json], before: str = "") -> Iterable[tuple[str, str, Json]]:
    """Names as they are shown, values in words, and the values."""
    for name, value in mapping.items():
        label = plain(f"{before}{name}", 80)
        if isinstance(value, Mapping):
            yield from _flat(value, f"{label} ")
        else:
            # A variable of the environment, in capitals, keeps its name.
            shown = label if name.isupper() else label.removesuffix("_bytes").replace("_", " ")
            yield shown, _fact(name, value), value


def _fact(name: str, value: Json) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("bytes") and isinstance(value, int | float):
        return f"{value / 2**30:,.2f} GiB"
    if isinstance(value, float):
        # The kernel's pressure is a share of the time in percent.
        return f"{number(value)} %" if name.startswith("psi_") else number(value)
    if isinstance(value, list):
        return plain(", ".join(map(str, value)), 300)
    return plain(str(value), 300)


def _sources(run: Run) -> tuple[tuple[str, str], ...]:
    """Which counter is behind each quantity, and which of them are estimates."""
    sources: dict[str, dict[str, Json]] = {}
    for result in run.results:
        for quantity in result.quantities:
            source = plain(quantity.source, 120) + (" (estimated)" if quantity.estimated else "")
            sources.setdefault(plain(quantity.name, 60), {})[source] = None
        for series in result.series:
            source = plain(series.source, 120) + (" (estimated)" if series.estimated else "")
            sources.setdefault(f"{plain(series.name, 60)} over time", {})[source] = None
    return tuple((name, _varying(found)) for name, found in sorted(sources.items()))
