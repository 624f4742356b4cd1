"""A folder's files with their SHA-256, so that whoever receives the folder can tell that it is what was sent.

:func:`create` writes two files at the top of the folder:

* ``manifest.json`` lists every regular file below the folder with path, checksum and size, but neither itself nor
  ``SHA256SUMS``;
* ``SHA256SUMS`` lists the same files **and manifest.json**, not itself, in the format of ``sha256sum``:
  ``sha256sum -c SHA256SUMS`` passes in the folder, without this library, and tells when the manifest was changed.

Left out: lock files (``.lock``), temporary files of a write that was cut off, and empty folders. Links and special
files are refused, because what they lead to can change without the folder changing. Who may write both files can
still forge them together: a manifest proves that a copy is whole, not who made it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics.errors import ManifestError
from perf_diagnostics.records import Json
from perf_diagnostics.store.files.whole_files import is_temporary, to_json, write_atomic
from perf_diagnostics.store.sealed.listed_paths import MANIFEST, SUMS, danger_of, kind_of, unsafe_name
from perf_diagnostics.store.sealed.sums import parsed_sums, sums_line

_CHUNK_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Entry:
    """One file: its path relative to the folder with ``/`` between parts, SHA-256 in hexadecimal, size in bytes."""

    path: str
    checksum: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What differs between a folder and its manifest; each file stands in one list only.

    ``modified`` files have the size but not the content; ``unsafe`` holds ``path: reason`` for entries and files
    that were not followed (outside the folder, links, special files, listed twice).
    """

    missing: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    wrong_size: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()
    checked: int = 0

    @property
    def ok(self) -> bool:
        return not (self.missing or self.modified or self.wrong_size or self.extra or self.unsafe)


def create(directory: Path | str, *, tool: str, now: datetime) -> Path:
    """Write ``manifest.json`` and ``SHA256SUMS`` for all files below a folder, and return the manifest's path.

    ``tool`` is the name and version to record, such as ``perf-diagnostics 0.1.0``.

    Raises:
        ManifestError: The folder is none, or holds a link, a special file, an unreadable file, or a name that could
            not be verified elsewhere.
    """
    root = _folder(directory)
    return _written(root, [_entry(root, path, status) for path, status in _files(root)], tool=tool, now=now)


def extend(directory: Path | str, *, tool: str, now: datetime, renewed: Callable[[str], bool]) -> tuple[str, ...]:
    """Seal a folder anew, but keep the earlier checksums of sealed files that have changed or gone; returns those.

    So what has happened to a sealed file goes on being told until somebody calls :func:`create`. Without a manifest
    this is :func:`create`.

    Args:
        directory: the folder.
        tool: as for :func:`create`.
        now: as for :func:`create`.
        renewed: which paths are made anew from the others as often as somebody likes; those keep no earlier checksum.

    Raises:
        ManifestError: As of :func:`create`, or the seal itself has been changed, so that nothing in it can be kept.
    """
    root = _folder(directory)
    if not any((root / name).exists() for name in (MANIFEST, SUMS)):
        create(root, tool=tool, now=now)
        return ()
    found = verify(root)
    changed = {MANIFEST, SUMS} & {*found.missing, *found.modified}
    if changed or found.unsafe:
        what = f"{' and '.join(sorted(changed))} changed" if changed else f"it holds {found.unsafe[0]}"
        raise ManifestError(
            f"The seal of {root} was broken itself ({what}), so what was sealed cannot be kept. If that is meant, seal "
            f"it anew: perf-diagnostics manifest create {root.name}"
        )
    differing = {*found.missing, *found.modified, *found.wrong_size}
    kept = {e.path: e for e in _read_manifest(root / MANIFEST) if e.path in differing and not renewed(e.path)}
    there = [_entry(root, path, status) for path, status in _files(root) if path not in kept]
    _written(root, [*there, *kept.values()], tool=tool, now=now)
    return tuple(sorted(kept))


def _written(root: Path, entries: Iterable[Entry], *, tool: str, now: datetime) -> Path:
    entries = sorted(entries, key=lambda entry: entry.path)
    listed: list[Json] = [{"path": e.path, "checksum": e.checksum, "size": e.size} for e in entries]
    body: dict[str, Json] = {"generated_at": now.astimezone(UTC).isoformat(), "tool": tool, "files": listed}
    text = to_json(body)
    sums = {entry.path: entry.checksum for entry in entries} | {MANIFEST: hashlib.sha256(text.encode()).hexdigest()}
    lines = "".join(sums_line(path, checksum) for path, checksum in sorted(sums.items()))
    for path, content in ((root / MANIFEST, text), (root / SUMS, lines)):
        try:
            write_atomic(path, content, fsync=False)
        except OSError as error:
            raise ManifestError(f"{path} cannot be written: {error.strerror or error}.") from error
    return root / MANIFEST


def verify(directory: Path | str) -> Verification:
    """Compare a folder with its manifest, wherever the folder lies now. Nothing is written, no link is followed.

    Raises:
        ManifestError: The manifest is missing, or is not the JSON that :func:`create` writes.
    """
    root = _folder(directory)
    for name in (MANIFEST, SUMS):
        path = root / name
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise ManifestError(f"{path} is {kind_of(path.lstat())}; a manifest is a file of the folder it describes.")
    entries = _read_manifest(root / MANIFEST)
    found: dict[str, list[str]] = {name: [] for name in ("missing", "modified", "wrong_size", "extra", "unsafe")}
    seen: set[str] = set()
    for entry in entries:
        danger = f"{entry.path!r}: listed twice" if entry.path in seen else danger_of(root, entry.path)
        seen.add(entry.path)
        if danger is not None:
            found["unsafe"].append(danger)
        else:
            problem = _compare(root, entry)
            if problem is not None:
                found[problem].append(entry.path)
    for unlisted, status in ((path, status) for path, status in _files(root) if path not in seen):
        if stat.S_ISREG(status.st_mode):
            found["extra"].append(unlisted)
        else:
            found["unsafe"].append(f"{unlisted!r}: it is {kind_of(status)}")
    _check_sums(root, {entry.path: entry.checksum for entry in entries}, found)
    return Verification(**{name: tuple(sorted(paths)) for name, paths in found.items()}, checked=len(entries))


def _folder(directory: Path | str) -> Path:
    root = Path(directory)
    if not root.is_dir():
        raise ManifestError(f"{root} is not a folder.")
    return root.resolve()


def _files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below the folder that is not a folder, links included and not followed."""
    pending = [root]
    while pending:
        folder = pending.pop()
        try:
            found = sorted(os.scandir(folder), key=lambda item: item.name)
        except OSError as error:
            raise ManifestError(f"{folder} cannot be read: {error.strerror}.") from error
        for item in found:
            path = Path(item.path).relative_to(root).as_posix()
            if item.is_dir(follow_symlinks=False):
                pending.append(Path(item.path))
            elif not (path in (MANIFEST, SUMS) or item.name == ".lock" or is_temporary(item.name)):
                yield path, item.stat(follow_symlinks=False)


def _entry(root: Path, path: str, status: os.stat_result) -> Entry:
    if not stat.S_ISREG(status.st_mode):
        raise ManifestError(f"{root / path} is {kind_of(status)}; put a copy of the file there, or remove it.")
    reason = unsafe_name(path)
    if reason is not None:
        raise ManifestError(f"{path!r} cannot stand in a manifest: {reason}. Rename it.")
    checksum, size = _digest(root / path)
    return Entry(path, checksum, size)


def _digest(path: Path) -> tuple[str, int]:
    digest = hashlib.sha256()
    size = 0
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror}.") from error
    return digest.hexdigest(), size


def _compare(root: Path, entry: Entry) -> str | None:
    """Which list of the verification a safe entry belongs in, None if the file is as it was."""
    try:
        size = (root / entry.path).lstat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    if size != entry.size:
        return "wrong_size"
    return None if _digest(root / entry.path)[0] == entry.checksum else "modified"


def _read_manifest(path: Path) -> list[Entry]:
    try:
        data = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_unique)
    except FileNotFoundError as error:
        raise ManifestError(f"{path} does not exist; `perf-diagnostics manifest create` writes one.") from error
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path} is not a manifest: {error}.") from error
    files = data.get("files") if isinstance(data, dict) else None
    if not isinstance(files, list):
        raise ManifestError(f"{path} is not a manifest: it has no list 'files'.")
    return [_entry_from(path, number, item) for number, item in enumerate(files)]


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object, so that readers would disagree")
    return found


def _entry_from(manifest: Path, number: int, item: Json) -> Entry:
    values: Mapping[str, Json] = item if isinstance(item, dict) else {}
    path, checksum, size = (values.get(key) for key in ("path", "checksum", "size"))
    if not isinstance(path, str):
        raise ManifestError(f"{manifest}: files[{number}].path should be text, not {path!r:.80}.")
    if not isinstance(checksum, str) or _SHA256.fullmatch(checksum) is None:
        raise ManifestError(
            f"{manifest}: files[{number}].checksum should be 64 hexadecimal digits, not {checksum!r:.80}."
        )
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ManifestError(f"{manifest}: files[{number}].size should be a number of bytes, not {size!r:.80}.")
    return Entry(path, checksum, size)


def _check_sums(root: Path, listed: Mapping[str, str], found: dict[str, list[str]]) -> None:
    """Hold SHA256SUMS against the manifest's own checksum and against its list."""
    try:
        text = (root / SUMS).read_bytes().decode("utf-8")
    except FileNotFoundError:
        found["missing"].append(SUMS)
        return
    except (OSError, UnicodeDecodeError):
        found["modified"].append(SUMS)
        return
    sums = parsed_sums(text)
    if sums is None or {path: sums[path] for path in sums if path != MANIFEST} != listed or MANIFEST not in sums:
        found["modified"].append(SUMS)
    if sums is not None and MANIFEST in sums and _digest(root / MANIFEST)[0] != sums[MANIFEST]:
        found["modified"].append(MANIFEST)
