"""numpy's columns as Arrow's and back, through their buffers.

``pyarrow.array`` and ``to_numpy`` look for pandas, and import it where it is installed: 0.25 s and 40 MB (pandas 3.0,
pyarrow 26), in the midst of a training that may never use it. Buffers are handed over as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np


def arrow_of(values: np.ndarray[Any, Any]) -> Any:
    """A column of numbers or truth values, without nulls: NaN stays NaN.

    Args:
        values: shape (rows,), of a dtype in the machine's byte order; copied only where it is no contiguous block, and
            of truth values, which Arrow keeps as bits.
    """
    import pyarrow as pa

    dense = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    return _without_nulls(pa.from_numpy_dtype(values.dtype), len(values), pa.py_buffer(dense))


def arrow_words(words: Sequence[str]) -> Any:
    """A column of text.

    Raises:
        UnicodeEncodeError: a word is no Unicode (a lone surrogate).
    """
    import pyarrow as pa

    encoded = [word.encode() for word in words]
    ends = np.fromiter(itertools.accumulate(map(len, encoded), initial=0), dtype=np.int32, count=len(encoded) + 1)
    return _without_nulls(pa.utf8(), len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def numpy_of(column: Any, dtype: str) -> np.ndarray[Any, Any]:
    """The values of an Arrow column without nulls, shape (rows,); they may be read-only.

    Args:
        column: a ``pyarrow.ChunkedArray`` whose type is that of ``dtype``.
        dtype: ``bool``, or a number's.
    """
    chunks = [_chunk(chunk, np.dtype(dtype)) for chunk in column.chunks if len(chunk)]
    if not chunks:
        return np.empty(0, dtype)
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def _chunk(chunk: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    values = chunk.buffers()[1]
    if dtype == np.bool_:
        bits = np.unpackbits(np.frombuffer(values, np.uint8), count=chunk.offset + len(chunk), bitorder="little")
        return bits[chunk.offset :].view(np.bool_)
    return np.frombuffer(values, dtype, count=len(chunk), offset=chunk.offset * dtype.itemsize)


def _without_nulls(kind: Any, rows: int, *buffers: Any) -> Any:
    import pyarrow as pa

    return pa.Array.from_buffers(kind, rows, [None, *buffers], null_count=0)
