"""Whether the records behind a report are as they were sealed; a run without a seal is nothing to worry about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perf_diagnostics.errors import ManifestError
from perf_diagnostics.report.formats.renderer import FORMATS
from perf_diagnostics.report.words import counted, plain
from perf_diagnostics.store.sealed.listed_paths import MANIFEST
from perf_diagnostics.store.sealed.manifest import verify

#: More files than these are counted and not named.
_NAMED = 8

#: What is made from the records, and made anew as often as somebody likes.
_MADE_FROM_RECORDS = ("exports/",)


def broken_seal(directory: Path) -> tuple[str, ...]:
    """What has changed since a run was sealed, in one sentence; empty where nothing has, or there is no seal.

    Files that ``report`` and ``export`` write are left out: they are made from the records and hold none.
    """
    if not (directory / MANIFEST).exists():
        return ()
    try:
        found = verify(directory)
    except ManifestError as error:
        return (f"This run was sealed, but its seal cannot be checked: {plain(str(error), 300)}",)
    broken = [
        _files(words, _records(paths))
        for words, paths in (
            ("changed", sorted({*found.modified, *found.wrong_size})),
            ("missing", found.missing),
            ("not to be trusted", found.unsafe),
        )
    ]
    broken, added = [words for words in broken if words], _files("added", _records(found.extra))
    every = f"All differences: perf-diagnostics manifest verify {plain(directory.resolve().name, 120)}"
    if broken:
        told = "; ".join([*broken, *filter(None, [added])])
        doubt = "The numbers in this report may not be the ones that were measured."
        return (f"The records are not as they were sealed: {told}. {doubt} {every}",)
    if added:
        return (f"Since the run was sealed: {added}. What was sealed is unchanged. {every}",)
    return ()


def made_from_records(path: str) -> bool:
    """Whether a file of a run folder is one that ``report`` or ``export`` writes, and may write again."""
    made = {renderer.file_name for renderers in FORMATS.values() for renderer in renderers}
    return path in made or path.startswith(_MADE_FROM_RECORDS)


def _records(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if not made_from_records(path)]


def _files(words: str, paths: Sequence[str]) -> str:
    """``2 files changed (run.json, trials/ab/steps.npz)``; empty without a file."""
    if not paths:
        return ""
    named = [plain(path, 90) for path in paths[:_NAMED]]
    more = [f"and {len(paths) - _NAMED} more"] if len(paths) > _NAMED else []
    return f"{counted(len(paths), 'file')} {words} ({', '.join([*named, *more])})"
