"""Files that are whole or absent, and names that stay inside their folder."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics.errors import InvalidSettings, RecordError
from perf_diagnostics.records import Json

#: Long enough for a timestamp and a sentence, short enough for every file system beside a file's own name.
LONGEST_NAME = 100

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")


def write_atomic(path: Path, content: bytes | str, *, fsync: bool) -> None:
    """Put ``content`` at ``path`` so that a reader finds the old file or the new one, never a part of it.

    Args:
        path: Where the file shall lie; its folder must exist, because the temporary file lies in the same one.
        content: Bytes, or text that is written as UTF-8 (a lone surrogate as its escape).
        fsync: Whether file and folder entry must have reached the disk on return. Without it the file survives
            the death of the process but not necessarily that of the machine.
    """
    data = content.encode("utf-8", errors="backslashreplace") if isinstance(content, str) else content
    with made_whole(path) as temporary, temporary.open("xb") as file:
        file.write(data)
        if fsync:
            file.flush()
            os.fsync(file.fileno())
    if fsync:
        sync_folder(path.parent)


@contextlib.contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """Where to write what shall lie at ``path`` once the block is over; where that fails nothing of it is left."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)  # noqa: PTH105  one spelling for the tests that cut the power here
    finally:
        temporary.unlink(missing_ok=True)


def is_temporary(name: str) -> bool:
    """Whether a file of this name is what a killed :func:`made_whole` leaves behind."""
    return _TEMPORARY.fullmatch(name) is not None


def sync_file(path: Path) -> None:
    """Return when the file's content has reached the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Return when the folder's entries have reached the disk, where the file system can promise that."""
    if os.name == "nt":  # Windows opens no folder as a file
        return
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems know no fsync of a folder; their renames are as durable as they get.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def to_json(value: Json) -> str:
    """JSON text for a file people may open: indented, UTF-8 as it is, and never NaN."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path) -> Json:
    """The JSON value in a file.

    Raises:
        RecordError: The file is missing, cannot be read, is not UTF-8 or is not one whole strict JSON value.
    """
    try:
        value: Json = json.loads(path.read_bytes().decode("utf-8"), parse_constant=_refuse_constant)
    except FileNotFoundError as error:
        raise RecordError(f"{path} does not exist.") from error
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is not whole JSON: {error}. Restore it from a copy, or delete it.") from error
    return value


def _refuse_constant(constant: str) -> Json:
    raise ValueError(f"{constant} is no JSON number")


def checked_name(name: str) -> str:
    """The name itself, if it can name a run on every file system and in every spreadsheet.

    Raises:
        InvalidSettings: It is empty, longer than 100 characters, starts with a dot, or holds anything but
            ASCII letters, digits, dot, underscore and hyphen.
    """
    if len(name) > LONGEST_NAME:
        raise InvalidSettings(f"The run name has {len(name)} characters; use at most {LONGEST_NAME}.")
    if _NAME.fullmatch(name) is None:
        raise InvalidSettings(
            f"Run name {name!r}: use letters, digits, '.', '_' and '-' only, and do not start with a dot."
        )
    return name


def new_run_name(now: datetime, taken: Collection[str], *, suffix: str = "") -> str:
    """A name that sorts by time, ``2026-11-21-0231-05-distilbert``, with ``-2``, ``-3`` … if it is taken.

    ``suffix`` may be any text; what a run name cannot hold becomes a hyphen.
    """
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", suffix).strip("-.")[:40].strip("-.")
    stem = now.astimezone(UTC).strftime("%Y-%m-%d-%H%M-%S") + (f"-{plain}" if plain else "")
    if stem not in taken:
        return stem
    number = 2
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"
