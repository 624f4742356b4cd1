"""Finds the run that a person means: by path, by name, or the newest one."""

from __future__ import annotations

import difflib
import os
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics.errors import RecordError, RunError
from perf_diagnostics.store.files.fields import Fields
from perf_diagnostics.store.files.whole_files import read_json
from perf_diagnostics.store.run_folder import HOW_TO_MAKE_ONE, RunFolder

#: The name that means "the newest run" to :func:`find_run`.
LATEST = "latest"


def list_runs(root: Path | str) -> tuple[RunFolder, ...]:
    """The runs in a results folder, the newest first by the ``created_at`` of their run.json, ties by name.

    Folders that are no runs are passed over. A run that cannot be read (its run.json is broken, or a newer version
    wrote it) is listed, and :attr:`RunFolder.unreadable` says why; one that does not tell when it was made counts by
    the time of its file.

    Raises:
        RunError: ``root`` is a file.
    """
    folder = Path(root)
    if folder.is_file():
        raise RunError(f"{folder} is a file; give the folder in which the runs lie.")
    paths = folder.iterdir() if folder.is_dir() else ()
    dated = [(created, path.name, path) for path in paths if (created := _created_at(path)) is not None]
    return tuple(RunFolder(path) for _, _, path in sorted(dated, reverse=True))


def find_run(spec: Path | str, results_root: Path | str) -> RunFolder:
    """The run that a person means.

    A :class:`~pathlib.Path` is always a path. A text is, in this order:

    1. ``latest``: the newest run in ``results_root``. A run whose folder really is called so is named by its path,
       ``results/latest`` or ``./latest``.
    2. With a separator in it, or starting with ``.`` or ``~``: a path to a run folder.
    3. The name of a run in ``results_root``; else a run folder of that name in the working folder.

    Raises:
        RunError: There is no such run, or it cannot be read.
    """
    root = Path(results_root)
    if isinstance(spec, Path):
        return RunFolder.open(spec)
    if spec == LATEST:
        runs = list_runs(root)
        if not runs:
            raise RunError(f"There is no run in {root} yet; {HOW_TO_MAKE_ONE}.")
        return RunFolder.open(runs[0].path)
    if not spec or "\0" in spec:
        raise RunError(f"{spec!r} names no run; give a run's name, the path of its folder, or {LATEST!r}.")
    if spec.startswith((".", "~")) or "/" in spec or os.sep in spec:
        return RunFolder.open(os.path.expanduser(spec))  # noqa: PTH111  Path's raises for an unknown user
    paths = (root / spec, Path(spec))
    for path in paths:
        if (path / "run.json").is_file():
            return RunFolder.open(path)
    names = [run.path.name for run in list_runs(root)]
    near = difflib.get_close_matches(spec, names, n=3, cutoff=0.5) or names[:3]
    there = f"there {'is' if len(near) == 1 else 'are'} {', '.join(near)}"
    there += f", and {len(names) - len(near)} more (`perf-diagnostics runs`)" if len(names) > len(near) else ""
    known = there if near else f"there is none yet; {HOW_TO_MAKE_ONE}"
    no_run = next((f" {path} is {_why_no_run(path)}." for path in paths if path.exists()), "")
    raise RunError(f"There is no run {spec!r} in {root}: {known}.{no_run}")


def _why_no_run(path: Path) -> str:
    return "a folder, but not a run: it holds no run.json" if path.is_dir() else "a file; a run is a folder"


def _created_at(path: Path) -> datetime | None:
    """When the run at a path was made; None if that is no run. No look at the schema: newer runs count as runs."""
    file = path / "run.json"
    try:
        written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        written = datetime.min.replace(tzinfo=UTC)  # it may be a run; opening it says what keeps it from being read
    try:
        fields = Fields.of(read_json(file), str(file))
        if fields.text("kind", "") != "run":
            return None  # another tool's
        created = datetime.fromisoformat(fields.text("created_at"))
    except (RecordError, ValueError):
        return written
    return created if created.tzinfo is not None else created.replace(tzinfo=UTC)
