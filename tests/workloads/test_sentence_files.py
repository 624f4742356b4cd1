"""Sentences from local files of four kinds and from folders, and what is wrong with the others."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.workloads.sentence_files import sentences_in

ROWS = [('a "fine" film', 1), ("dull , dull", 0)]


def write(file: Path, rows=ROWS, *, text: str = "sentence") -> Path:
    if file.suffix == ".tsv":
        file.write_text(f"{text}\tlabel\n" + "".join(f"{t}\t{n}\n" for t, n in rows), encoding="utf-8")
    elif file.suffix == ".csv":
        quoted = ((t.replace('"', '""'), n) for t, n in rows)
        file.write_text(f"label,{text}\n" + "".join(f'{n},"{t}"\n' for t, n in quoted), encoding="utf-8")
    elif file.suffix == ".jsonl":
        file.write_text("\n".join(json.dumps({text: t, "label": n, "idx": 7}) for t, n in rows) + "\n\n")
    else:
        columns = {text: [t for t, _ in rows], "label": [n for _, n in rows], "idx": [0] * len(rows)}
        pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet"])
@pytest.mark.parametrize("column", ["sentence", "text"])
def test_every_kind_of_file_reads_the_same(tmp_path, kind: str, column: str) -> None:
    sentences = sentences_in(write(tmp_path / f"reviews.{kind}", text=column))
    assert [sentences[i] for i in range(len(sentences))] == ROWS
    assert sentences.name == f"reviews.{kind}"


def test_a_folder_gives_its_training_files_in_the_order_of_their_names(tmp_path) -> None:
    write(tmp_path / "train-00001-of-00002.parquet", [("last", 0)])
    write(tmp_path / "train-00000-of-00002.parquet", [("first", 1)])
    write(tmp_path / "validation-00000-of-00001.parquet", [("never", 1)])
    (tmp_path / "train.md").write_text("not data")
    assert sentences_in(tmp_path).texts == ["first", "last"]


def test_a_folder_without_training_files_is_told(tmp_path) -> None:
    write(tmp_path / "dev.tsv")
    with pytest.raises(WorkloadError, match=r"holds no train\.\* or train-\*\.\* file; known kinds are \.tsv, \.csv"):
        sentences_in(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("x.tsv", "sentence\tscore\nfine\t1\n", "Row 1 of .*x.tsv has the columns sentence, score; it needs"),
        ("x.tsv", "sentence\tlabel\nfine\t1\nso so\t-1\n", "Row 2 of .*: label is '-1'; training needs 0"),
        ("x.tsv", "sentence\tlabel\nfine\n", "Row 1 of .*: label is None"),
        ("x.csv", "sentence,label\n", "holds no sentence"),
        ("x.csv", "", "holds no sentence"),
        ("x.jsonl", '{"sentence": "fine", "label": 1}\n{oops\n', r"x.jsonl cannot be read as a \.jsonl file"),
        ("x.jsonl", "[1, 2]\n", "line 1 is not a JSON object"),
        ("x.jsonl", '{"sentence": 3, "label": 1}\n', "Row 1 of .*: sentence is 3, which is no text"),
        ("x.parquet", "not parquet", r"x.parquet cannot be read as a \.parquet file"),
        ("x.xlsx", "?", "is of a kind that cannot be read; known kinds are"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_place(tmp_path, name: str, content: str, text: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(WorkloadError, match=text):
        sentences_in(tmp_path / name)


def test_bytes_that_are_no_text_are_told(tmp_path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"sentence\tlabel\n\xff\xfe\t1\n")
    with pytest.raises(WorkloadError, match="cannot be read"):
        sentences_in(tmp_path / "x.tsv")


def test_a_file_that_is_not_there_is_told_with_the_built_in_names(tmp_path) -> None:
    with pytest.raises(WorkloadError, match="neither 'synthetic' nor 'glue/sst2' nor a file"):
        sentences_in(tmp_path / "absent.tsv")
