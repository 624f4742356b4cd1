"""The right to write a run: a lock on a file, which ends with the process that holds it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from perf_diagnostics.errors import RunError


@contextlib.contextmanager
def locked(path: Path, *, whose: Path) -> Iterator[None]:
    """Hold the lock on a file, which is made if need be and names its holder; ``whose`` is the run, for the errors.

    Raises:
        RunError: Another process holds it (the text says which), or the file cannot be opened or locked.
    """
    import fcntl  # POSIX only, and readers do not need it

    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise RunError(f"{path} cannot be opened for writing: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or "another process"
            raise RunError(f"{whose} is being written by {holder}; wait for that sweep to end, or stop it.") from error
        except OSError as error:
            raise RunError(f"{path} cannot be locked: {error.strerror}. Use a local results folder.") from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether some process holds :func:`locked` on the file now; false where nobody can tell."""
    import fcntl

    try:
        with path.open("rb") as file:
            # A shared lock is refused while the writer's is held, and given back at once where it is not.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
