"""Records as JSON, and back: one explicit function a type. The files around them are in :mod:`documents`.

JSON has no NaN and no infinity. In free mappings (facts, options, environment) NaN is written as ``null`` and
infinity as ``"Infinity"`` or ``"-Infinity"``. A quantity may be infinite; one that is NaN was not measured, so in
a result it becomes a gap.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from perf_diagnostics.errors import InvalidSettings, RecordError
from perf_diagnostics.records import (
    Environment,
    Gap,
    Json,
    Length,
    Outcome,
    Quantity,
    Run,
    Settings,
    Trial,
    TrialResult,
)
from perf_diagnostics.store.files.code_samples import decode_code, encode_code
from perf_diagnostics.store.files.fields import Fields, plain

Record: TypeAlias = "Settings | Length | Trial | Quantity | Gap | Environment | TrialResult | Run"
R = TypeVar("R", Settings, Length, Trial, Quantity, Gap, Environment, TrialResult, Run)


# --- encode ------------------------------------------------------------------------------------------------------


def encode(value: Record) -> dict[str, Json]:
    """A record as a JSON object. A result's step tables and series are not in it: they have files of their own."""
    match value:
        case Settings():
            return value.canonical()
        case Length():
            return dict(dataclasses.asdict(value))
        case Trial():
            return {"id": value.id, **value.canonical(), "options": plain(dict(value.options), "trial.options")}
        case Quantity():
            return _encode_quantity(value)
        case Gap():
            return {"signal": value.signal, "why": value.why}
        case Environment():
            return _encode_environment(value)
        case TrialResult():
            return _encode_result(value)
        case Run():
            return _encode_run(value)


def _encode_quantity(quantity: Quantity) -> dict[str, Json]:
    value = plain(quantity.value, quantity.name)
    if value is None:
        raise RecordError(f"Quantity {quantity.name!r} is NaN; what was not measured is a Gap.")
    return {
        "name": quantity.name,
        "value": value,
        "unit": quantity.unit,
        "source": quantity.source,
        "estimated": quantity.estimated,
    }


def _encode_environment(environment: Environment) -> dict[str, Json]:
    sections = {name: plain(dict(getattr(environment, name)), name) for name in ENVIRONMENT_SECTIONS}
    devices: list[Json] = [plain(dict(device), "devices") for device in environment.devices]
    return {**sections, "devices": devices, "gaps": _encode_all(environment.gaps)}


def _encode_result(result: TrialResult) -> dict[str, Json]:
    unmeasured = [quantity.name for quantity in result.quantities if math.isnan(quantity.value)]
    known = {gap.signal for gap in result.gaps}
    new_gaps = [Gap(name, "the value was not a number") for name in unmeasured if name not in known]
    return {
        "trial": encode(result.trial),
        "outcome": str(result.outcome),
        "reason": result.reason,
        "stop_reason": result.stop_reason,
        "steady": result.steady,
        "started_at": result.started_at,
        "finished_at": result.finished_at,
        "quantities": _encode_all(q for q in result.quantities if q.name not in unmeasured),
        "gaps": _encode_all([*result.gaps, *new_gaps]),
        "facts": plain(dict(result.facts), "facts"),
        "provenance": plain(dict(result.provenance), "provenance"),
        "environment": encode(result.environment),
        **({} if result.code is None else {"code": encode_code(result.code)}),
        **({} if result.worker_code is None else {"worker_code": encode_code(result.worker_code)}),
    }


def _encode_run(run: Run) -> dict[str, Json]:
    return {
        "name": run.name,
        "created_at": run.created_at,
        "tool_version": run.tool_version,
        "command": run.command,
        "environment": encode(run.environment),
        "notes": list(run.notes),
        "planned": _encode_all(run.planned),
    }


def _encode_all(values: Iterable[Trial | Quantity | Gap]) -> list[Json]:
    return [encode(value) for value in values]


# --- decode ------------------------------------------------------------------------------------------------------


def decode(kind: type[R], data: Json, *, where: str) -> R:
    """The record of that type in a JSON object; ``where`` (a file's path) opens every error.

    Raises:
        RecordError: A required key is missing or holds the wrong type. Unknown keys are ignored.
    """
    record = _DECODERS[kind](Fields.of(data, where))
    if not isinstance(record, kind):
        raise TypeError(f"The decoder of {kind.__name__} returned a {type(record).__name__}.")
    return record


def _decode_settings(fields: Fields) -> Settings:
    known = {f.name for f in dataclasses.fields(Settings)}
    for name in ("batch_size", "device", "precision"):
        fields.need(name)
    chosen: dict[str, Any] = {name: value for name, value in fields.values.items() if name in known}
    for name in ("pin_memory", "persistent_workers", "gradient_checkpointing"):
        if chosen.get(name) is not None:
            fields.flag(name)
    try:
        return Settings(**chosen)
    except (InvalidSettings, TypeError) as error:  # TypeError: a list where a name is looked up
        raise RecordError(f"{fields.where}: {error}") from error


def _decode_length(fields: Fields) -> Length:
    try:
        return Length(
            warmup_steps=fields.whole("warmup_steps"),
            min_steps=fields.whole("min_steps"),
            max_steps=fields.whole("max_steps"),
            floor_steps=fields.whole("floor_steps"),
            half_width=fields.number("half_width"),
        )
    except InvalidSettings as error:
        raise RecordError(f"{fields.where}: {error}") from error


def _decode_trial(fields: Fields) -> Trial:
    fields.need("options")
    return Trial(
        workload=fields.text("workload"),
        settings=_decode_settings(fields.part("settings")),
        options=fields.mapping("options"),
        length=_decode_length(fields.part("length")),
        seed=fields.whole("seed"),
        repeat=fields.whole("repeat"),
        role="sentinel" if fields.values.get("role") == "sentinel" else "",
    )


def _decode_quantity(fields: Fields) -> Quantity:
    return Quantity(
        name=fields.text("name"),
        value=fields.number("value"),
        unit=fields.text("unit"),
        source=fields.text("source"),
        estimated=fields.flag("estimated", default=False),
    )


def _decode_gap(fields: Fields) -> Gap:
    return Gap(fields.text("signal"), fields.text("why"))


def _decode_environment(fields: Fields) -> Environment:
    sections = {name: fields.mapping(name) for name in ENVIRONMENT_SECTIONS}
    return Environment(
        **sections,
        devices=tuple(dict(device.values) for device in fields.parts("devices")),
        gaps=tuple(_decode_gap(gap) for gap in fields.parts("gaps")),
    )


def _decode_result(fields: Fields) -> TrialResult:
    try:
        outcome = Outcome(fields.text("outcome"))
    except ValueError as error:
        raise RecordError(f"{fields.where}: {error}; known are {', '.join(Outcome)}.") from error
    return TrialResult(
        trial=_decode_trial(fields.part("trial")),
        outcome=outcome,
        reason=fields.text("reason", ""),
        quantities=tuple(_decode_quantity(quantity) for quantity in fields.parts("quantities")),
        gaps=tuple(_decode_gap(gap) for gap in fields.parts("gaps")),
        facts=fields.mapping("facts"),
        provenance=fields.texts("provenance"),
        environment=_environment_of(fields),
        started_at=fields.text("started_at", ""),
        finished_at=fields.text("finished_at", ""),
        stop_reason=fields.text("stop_reason", ""),
        steady=fields.flag("steady", default=True),
        code=decode_code(fields.part("code")) if "code" in fields.values else None,
        worker_code=decode_code(fields.part("worker_code")) if "worker_code" in fields.values else None,
    )


def _decode_run(fields: Fields) -> Run:
    fields.need("planned")
    notes = fields.values.get("notes", [])
    if not isinstance(notes, list):
        raise RecordError(f"{fields.where}: the key 'notes' should hold a list, not {notes!r:.80}.")
    return Run(
        name=fields.text("name"),
        created_at=fields.text("created_at"),
        tool_version=fields.text("tool_version"),
        planned=tuple(_decode_trial(trial) for trial in fields.parts("planned")),
        results=(),
        command=fields.text("command", ""),
        environment=_environment_of(fields),
        notes=tuple(str(note) for note in notes),
    )


def _environment_of(fields: Fields) -> Environment:
    return _decode_environment(fields.part("environment")) if "environment" in fields.values else Environment()


ENVIRONMENT_SECTIONS = ("host", "python", "limits", "threads", "variables", "git", "command")

_DECODERS: Mapping[type, Callable[[Fields], object]] = {
    Settings: _decode_settings,
    Length: _decode_length,
    Trial: _decode_trial,
    Quantity: _decode_quantity,
    Gap: _decode_gap,
    Environment: _decode_environment,
    TrialResult: _decode_result,
    Run: _decode_run,
}
