"""Step tables and series as Parquet, and back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perf_diagnostics.errors import RecordError
from perf_diagnostics.records import (
    COLUMNS,
    Series,
    StepTable,
)
from perf_diagnostics.store.files.arrow_columns import arrow_of, arrow_words, numpy_of


def steps_to_parquet(table: StepTable) -> bytes:
    """A step table as Parquet: the dtypes of ``COLUMNS``, each field's unit and meaning in its metadata."""
    import pyarrow as pa

    fields = [
        pa.field(
            name,
            pa.from_numpy_dtype(values.dtype),
            nullable=False,
            metadata={"unit": COLUMNS[name].unit, "says": COLUMNS[name].says},
        )
        for name, values in table.columns.items()
    ]
    return _parquet(pa.Table.from_arrays([arrow_of(v) for v in table.columns.values()], schema=pa.schema(fields)))


def steps_from_parquet(data: bytes, *, where: str) -> StepTable:
    """The step table in a Parquet file's bytes; columns this version does not know are left out.

    Raises:
        RecordError: The bytes are truncated, damaged or not a step table.
    """
    table = _read_parquet(data, where)
    columns = {name: _column(table, name, COLUMNS[name].dtype, where) for name in table.column_names if name in COLUMNS}
    try:
        return StepTable(columns)
    except RecordError as error:
        raise RecordError(f"{where}: {error}") from error


def series_to_parquet(series: Sequence[Series]) -> bytes:
    """All series of a trial as one long table, a row a sample; ``series`` counts them, so that none is merged.

    A series without a sample leaves no row: what was never sampled is a gap, not an empty series.
    """
    import pyarrow as pa

    which = np.repeat(np.arange(len(series), dtype=np.int32), [len(one.values) for one in series])
    words = {
        key: pa.DictionaryArray.from_arrays(arrow_of(which), arrow_words([getattr(one, key) for one in series]))
        for key in ("name", "unit", "source")
    }
    estimated = np.array([one.estimated for one in series], dtype=bool)[which]
    return _parquet(
        pa.table(
            {
                "series": arrow_of(which),
                **words,
                "estimated": arrow_of(estimated),
                "time_ns": arrow_of(np.concatenate([np.empty(0, np.int64), *(one.times_ns for one in series)])),
                "value": arrow_of(np.concatenate([np.empty(0), *(one.values for one in series)])),
            }
        )
    )


def series_from_parquet(data: bytes, *, where: str) -> tuple[Series, ...]:
    """The series in a Parquet file's bytes, in the order they were written.

    Raises:
        RecordError: The bytes are truncated, damaged or not such a table.
    """
    table = _read_parquet(data, where)
    which = _column(table, "series", "int32", where)
    times_ns = _column(table, "time_ns", "int64", where)
    values = _column(table, "value", "float64", where)
    estimated = _column(table, "estimated", "bool", where)
    words = {key: _words(table, key, where) for key in ("name", "unit", "source")}
    found: list[Series] = []
    borders = [*np.flatnonzero(np.diff(which, prepend=-1)), len(which)]
    for start, stop in itertools.pairwise(borders):
        found.append(
            Series(
                name=words["name"][start],
                unit=words["unit"][start],
                source=words["source"][start],
                times_ns=times_ns[start:stop],
                values=values[start:stop],
                estimated=bool(estimated[start]),
            )
        )
    return tuple(found)


def _parquet(table: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def ends_whole(path: Path) -> bool:
    """Whether a Parquet file has its end, where it says what it holds: one that was cut off has none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError, ValueError):
        return False
    return True


def _read_parquet(data: bytes, where: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Page checksums: without them a flipped bit inside a page would come back as a measurement.
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            return file.read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as error:
        raise RecordError(f"{where} is not a whole Parquet file: {str(error) or type(error).__name__}") from error


def _column(table: Any, name: str, dtype: str, where: str) -> Any:
    column = _present(table, name, where)
    if str(column.type) != {"float64": "double"}.get(dtype, dtype) or column.null_count:
        raise RecordError(f"{where}: column {name!r} is {column.type} with {column.null_count} nulls, not {dtype}.")
    return numpy_of(column, dtype)


def _words(table: Any, name: str, where: str) -> list[str]:
    words = _present(table, name, where).to_pylist()
    if not all(isinstance(word, str) for word in words):
        raise RecordError(f"{where}: column {name!r} should hold text in every row.")
    return words  # type: ignore[no-any-return]


def _present(table: Any, name: str, where: str) -> Any:
    if name not in table.column_names:
        raise RecordError(f"{where}: the column {name!r} is missing.")
    return table.column(name)
