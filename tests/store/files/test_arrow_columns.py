"""Columns go to Arrow and back as pyarrow itself would take them, and nobody imports pandas for it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from perf_diagnostics.store.files.arrow_columns import arrow_of, arrow_words, numpy_of

# Lengths around a byte of bits.
ROWS = (0, 1, 7, 8, 9, 1000)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float64"])
def test_a_column_is_the_one_that_pyarrow_would_make_and_comes_back(rows: int, dtype: str) -> None:
    values = (np.arange(rows) % 3 - 1).astype(dtype)
    column = arrow_of(values)
    assert column.equals(pa.array(values)) and column.null_count == 0
    back = numpy_of(pa.chunked_array([column]), dtype)
    assert back.dtype == np.dtype(dtype) and back.tolist() == values.tolist()


def test_what_is_not_a_number_is_no_null() -> None:
    column = arrow_of(np.array([np.nan, np.inf, -0.0]))
    assert column.null_count == 0
    first, *others = numpy_of(pa.chunked_array([column]), "float64").tolist()
    assert first != first and others == [np.inf, 0.0] and np.signbit(others[1])


@pytest.mark.parametrize("dtype", ["bool", "int64"])
def test_every_other_row_of_an_array_is_taken_as_it_is_seen(dtype: str) -> None:
    values = (np.arange(40) % 3).astype(dtype)[::-2]
    assert arrow_of(values).to_pylist() == values.tolist()


@pytest.mark.parametrize("dtype", ["bool", "int64", "float64"])
def test_pieces_that_begin_inside_of_a_buffer_are_joined(dtype: str) -> None:
    values = (np.arange(50) % 3).astype(dtype)
    whole = pa.array(values)
    column = pa.chunked_array([whole.slice(3, 10), whole.slice(5, 0), whole.slice(17)])
    assert numpy_of(column, dtype).tolist() == [*values[3:13], *values[17:]]


def test_no_piece_at_all_is_no_row() -> None:
    none = numpy_of(pa.chunked_array([], pa.int64()), "int64")
    assert none.dtype == np.int64 and none.shape == (0,)


@pytest.mark.parametrize("words", [[], [""], ["W", "", "größer ⌀", "W"]])
def test_words_are_those_that_pyarrow_would_make(words: list[str]) -> None:
    column = arrow_words(words)
    assert column.equals(pa.array(words, pa.utf8())) and column.to_pylist() == words


def test_a_word_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        arrow_words(["\ud800"])


def test_writing_and_reading_tables_loads_no_pandas() -> None:
    code = (
        "import json, sys\n"
        "import numpy as np\n"
        "from perf_diagnostics.records import Series, StepTable\n"
        "from perf_diagnostics.store.files import tables\n"
        "table = StepTable({'wall_ns': np.arange(9), 'samples': np.ones(9), 'warmup': np.arange(9) < 3})\n"
        "series = (Series('gpu_power', 'W', 'NVML', np.array([1, 2]), np.array([0.5, 1.5])),)\n"
        "same = tables.steps_from_parquet(tables.steps_to_parquet(table), where='here') == table\n"
        "alike = tables.series_from_parquet(tables.series_to_parquet(series), where='here') == series\n"
        "print(json.dumps([same, alike, 'pyarrow.parquet' in sys.modules, 'pandas' in sys.modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [True, True, True, False]
