"""Labelled sentences from a local file or folder: columns ``sentence`` (or ``text``) and ``label`` (0 or 1)."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.workloads.sentences import Sentences

_TEXT_COLUMNS = ("sentence", "text")


def sentences_in(path: Path) -> Sentences:
    """The labelled sentences of a .tsv, .csv, .jsonl or .parquet file, or of the training files in a folder.

    In a folder, the files named ``train.*`` or ``train-*.*`` of one of these kinds are read, in the order of their
    names (``train-00000-of-00002.parquet`` and so on). Tab-separated files are read as GLUE's are: a quotation mark
    in them is text.

    Raises:
        WorkloadError: No such file, a missing column, a label that is neither 0 nor 1, or no row at all.
    """
    texts: list[str] = []
    labels: list[int] = []
    for file in _files(path):
        try:
            for place, row in enumerate(_READERS[file.suffix.lower()](file), start=1):
                text, label = _text_and_label(row, place, file)
                texts.append(text)
                labels.append(label)
        except (OSError, ValueError, csv.Error) as error:
            raise WorkloadError(f"{file} cannot be read as a {file.suffix} file of sentences: {error}") from error
    if not texts:
        raise WorkloadError(f"{path} holds no sentence.")
    return Sentences(path.name, texts, labels)


def _files(path: Path) -> list[Path]:
    kinds = ", ".join(_READERS)
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.stem.split("-")[0] == "train" and f.suffix.lower() in _READERS)
        if not files:
            raise WorkloadError(f"The folder {path} holds no train.* or train-*.* file; known kinds are {kinds}.")
        return files
    if not path.is_file():
        raise WorkloadError(
            f"dataset={str(path)!r} is neither 'synthetic' nor 'glue/sst2' nor a file or folder that exists here."
        )
    if path.suffix.lower() not in _READERS:
        raise WorkloadError(f"{path} is of a kind that cannot be read; known kinds are {kinds}.")
    return [path]


def _text_and_label(row: Mapping[str, Any], place: int, file: Path) -> tuple[str, int]:
    column = next((name for name in _TEXT_COLUMNS if name in row), None)
    if column is None or "label" not in row:
        raise WorkloadError(
            f"Row {place} of {file} has the columns {', '.join(map(str, row))}; it needs 'sentence' (or 'text') "
            "and 'label'."
        )
    text, label = row[column], row["label"]
    if not isinstance(text, str):
        raise WorkloadError(f"Row {place} of {file}: {column} is {text!r}, which is no text.")
    if str(label) not in ("0", "1"):
        raise WorkloadError(f"Row {place} of {file}: label is {label!r}; training needs 0 (negative) or 1 (positive).")
    return text, int(label)


def _tab_separated(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)


def _comma_separated(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


def _json_lines(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError(f"line {number} is not a JSON object")
                yield row


def _parquet(file: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet

    # ArrowInvalid is a ValueError; a column that is missing shows in the rows.
    columns = [c for c in pyarrow.parquet.read_schema(file).names if c in (*_TEXT_COLUMNS, "label")]
    table = pyarrow.parquet.read_table(file, columns=columns)
    rows: Iterable[Mapping[str, Any]] = table.to_pylist()
    yield from rows


_READERS: Mapping[str, Callable[[Path], Iterator[Mapping[str, Any]]]] = {
    ".tsv": _tab_separated,
    ".csv": _comma_separated,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
