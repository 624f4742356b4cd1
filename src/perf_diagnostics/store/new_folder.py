"""Makes the folder of a new run; of two sweeps that want the same name the file system decides which one gets it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from perf_diagnostics.errors import RunError
from perf_diagnostics.store.files.whole_files import checked_name, new_run_name, sync_folder


def make_folder(root: Path, name: str | None, *, now: datetime, suffix: str) -> Path:
    """A new, empty folder under ``root``: called ``name``, or by the time and the ``suffix``.

    Raises:
        InvalidSettings: The name is not safe.
        RunError: It is taken, or the folder cannot be made.
    """
    taken: set[str] = set()
    while True:
        path = root / (new_run_name(now, taken, suffix=suffix) if name is None else checked_name(name))
        try:
            root.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        except FileExistsError as error:
            if name is None and root.is_dir():
                taken.add(path.name)  # mkdir is atomic: whoever made it first has the name
                continue
            raise RunError(_why_taken(root, path)) from error
        except OSError as error:
            raise RunError(f"{path} cannot be made: {error.strerror or error}.") from error
        sync_folder(root)
        return path


def _why_taken(root: Path, path: Path) -> str:
    if not root.is_dir():
        return f"{root} is a file; give a folder for the results."
    if (path / "run.json").is_file():
        return f"{path} is already a run; resume it, or choose another name."
    return f"{path} already exists and is no run; choose another name, or remove it."
