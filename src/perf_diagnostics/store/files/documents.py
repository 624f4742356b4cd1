"""What every JSON file of a run carries: a schema number, its kind, and the version that wrote it.

History of the schema:

1. The first: ``run.json``, ``started.json``, ``measured.json`` and ``result.json`` as objects that carry
   ``schema``, ``kind`` and ``tool_version``; step tables and series as Parquet.

Within one schema keys may be added: a reader ignores what it does not know. A key that is renamed, removed or
given another meaning needs the next number, and a reader refuses a file with a greater number than its own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import metadata

from perf_diagnostics.errors import RecordError
from perf_diagnostics.records import Json
from perf_diagnostics.store.files.fields import Fields

SCHEMA = 1


class NewerSchema(RecordError):
    """A record that a newer version wrote: whole, but not for this version to read or replace."""


def document(kind: str, body: Mapping[str, Json]) -> dict[str, Json]:
    """A file's whole content: the body under a schema number, the kind of file and the version that wrote it."""
    return {"schema": SCHEMA, "kind": kind, "tool_version": _tool_version(), **body}


def open_document(kind: str, data: Json, *, where: str) -> Fields:
    """The fields of a file's content, after a look at its schema number and kind.

    Raises:
        NewerSchema: A newer version wrote it.
        RecordError: It is not such a file.
    """
    fields = Fields.of(data, where)
    schema = fields.whole("schema")
    if schema > SCHEMA:
        writer = fields.text("tool_version", "")
        remedy = f"perf-diagnostics {writer} or later" if writer else "the perf-diagnostics version that wrote it"
        raise NewerSchema(
            f"{where} has schema {schema}; this version ({_tool_version()}) reads up to {SCHEMA}. "
            f"Read it with {remedy}."
        )
    if schema < 1:
        raise RecordError(f"{where} has schema {schema}; the first one is 1.")
    if fields.text("kind") != kind:
        raise RecordError(f"{where} holds a {fields.text('kind')!r} record where {kind!r} was expected.")
    return fields


@functools.cache
def _tool_version() -> str:
    """This version's number; asked once, for the answer takes a look through the installed distributions."""
    try:
        return metadata.version("perf-diagnostics")
    except metadata.PackageNotFoundError:
        return "not installed"
