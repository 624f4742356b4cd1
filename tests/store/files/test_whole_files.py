"""Files are whole or absent, and names stay inside their folder."""

from __future__ import annotations

import contextlib
import errno
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from perf_diagnostics.errors import InvalidSettings, RecordError
from perf_diagnostics.store.files.whole_files import (
    checked_name,
    is_temporary,
    new_run_name,
    read_json,
    sync_folder,
    to_json,
    write_atomic,
)

NOW = datetime(2026, 11, 21, 2, 31, 5, tzinfo=UTC)


@pytest.mark.parametrize("fsync", [True, False])
def test_a_write_replaces_the_old_file_and_leaves_nothing_else(tmp_path: Path, fsync: bool) -> None:
    write_atomic(tmp_path / "a", "old", fsync=fsync)
    write_atomic(tmp_path / "a", b"new", fsync=fsync)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"new"}


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomic(tmp_path / "a", "old", fsync=True)

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(tmp_path / "a", "new", fsync=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"old"}


def test_what_a_killed_write_leaves_behind_is_known_as_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _handle: seen.extend(p.name for p in tmp_path.iterdir()))
    write_atomic(tmp_path / "run.json", "x", fsync=True)
    assert is_temporary(seen[0])
    assert not is_temporary("run.json")
    assert not is_temporary(".hidden.tmp")


def test_json_text_survives_lone_surrogates_and_other_scripts(tmp_path: Path) -> None:
    value = {"reason": "caf\u00e9 \udc80 \u6f22"}
    write_atomic(tmp_path / "a.json", to_json(value), fsync=False)  # type: ignore[arg-type]
    assert read_json(tmp_path / "a.json") == value
    assert "café".encode() in (tmp_path / "a.json").read_bytes()


@pytest.mark.parametrize(
    "content", [b"", b'{"a": 1', b'{"a": NaN}', b"\xff\xfe{}", b"[" * 100_000, b"1 2", b"\x00" * 64]
)
def test_what_is_not_whole_json_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"broken\.json is not whole JSON"):
        read_json(path)


def test_a_missing_file_and_a_folder_are_refused_with_their_paths(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"absent\.json does not exist"):
        read_json(tmp_path / "absent.json")
    with pytest.raises(RecordError, match="cannot be read"):
        read_json(tmp_path)


@pytest.mark.parametrize("name", ["a", "2026-11-21-0231-05-mlp", "latest", "test", "A_b.c-9", "-x", "9" * 100])
def test_plain_names_are_taken_as_they_are(name: str) -> None:
    assert checked_name(name) == name


HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "/etc",
    "a/b",
    "a\\b",
    "a\nb",
    "a\n",
    "=cmd()",
    ".hidden",
    "a b",
    "naïve",
    "a\0",
    "C:x",
]


@pytest.mark.parametrize("name", [*HOSTILE, "a" * 101])
def test_a_hostile_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettings):
        checked_name(name)


def test_a_new_name_is_the_time_in_utc_and_the_workload() -> None:
    in_india = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert new_run_name(in_india, set()) == "2026-11-21-0231-05"
    assert new_run_name(NOW, set(), suffix="distilbert-sst2") == "2026-11-21-0231-05-distilbert-sst2"


def test_a_taken_name_gets_the_next_number() -> None:
    taken = {"2026-11-21-0231-05-mlp", "2026-11-21-0231-05-mlp-2"}
    assert new_run_name(NOW, taken, suffix="mlp") == "2026-11-21-0231-05-mlp-3"


@pytest.mark.parametrize("suffix", [*HOSTILE, "x" * 300, "my.module:function", "../../etc/passwd"])
def test_whatever_the_workload_is_called_the_new_name_is_plain(suffix: str) -> None:
    name = new_run_name(NOW, set(), suffix=suffix)
    assert checked_name(name) == name
    assert ".." not in name


@pytest.mark.parametrize(("number", "harmless"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_only_a_file_system_that_knows_no_fsync_of_folders_is_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, harmless: bool
) -> None:
    def refuse(_handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with contextlib.nullcontext() if harmless else pytest.raises(OSError, match=os.strerror(number)):
        sync_folder(tmp_path)
