"""Which paths of a manifest may be followed: plain names inside the folder that lead to regular files."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PureWindowsPath

#: The two files that list the others.
MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"


def unsafe_name(path: str) -> str | None:
    """Why a path may not be followed, on this system or on the one the folder is moved to."""
    windows = PureWindowsPath(path)
    reasons = {
        "it is empty": not path,
        "it is absolute": path.startswith("/") or bool(windows.drive or windows.root),
        "it leads out of the folder": ".." in path.split("/") or ".." in windows.parts,
        "its spelling is not plain": any(part in ("", ".") for part in path.split("/")),
        "it holds a NUL": "\0" in path,
        "it is not valid Unicode": any("\ud800" <= sign <= "\udfff" for sign in path),
        "sha256sum reads standard input under that name": path == "-",
        "a manifest does not list itself": path in (MANIFEST, SUMS),
        "a backslash separates folders here": os.sep == "\\" and "\\" in path,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def danger_of(root: Path, path: str) -> str | None:
    """Why an entry must not be read: its spelling, or a link or special file on the way."""
    reason = unsafe_name(path)
    if reason is not None:
        return f"{path!r}: {reason}"
    place = root
    parts = path.split("/")
    for number, part in enumerate(parts, start=1):
        place = place / part
        try:
            status = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None  # missing, which the comparison reports
        except OSError as error:
            return f"{path!r}: {error.strerror}"
        last = number == len(parts)
        if not (stat.S_ISREG(status.st_mode) if last else stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
            return f"{path!r}: {'/'.join(parts[:number])!r} is {kind_of(status)}"
    return None


def kind_of(status: os.stat_result) -> str:
    """What a file is that is no regular one, in words."""
    if stat.S_ISLNK(status.st_mode):
        return "a link"
    return "a folder" if stat.S_ISDIR(status.st_mode) else "a special file"
