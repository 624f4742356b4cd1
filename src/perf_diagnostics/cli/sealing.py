"""Seals a run's folder anew after a command wrote into it; what has changed otherwise goes on being told."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from perf_diagnostics.errors import ManifestError

#: More files than these are counted and not named.
_NAMED = 8


def seal(directory: Path, *, written: Callable[[str], bool]) -> tuple[str, ...]:
    """Seal a folder as it is, but for sealed files that have changed and were not ``written`` by the caller.

    Those keep their earlier checksums; they are returned, and told on standard error.

    Raises:
        ManifestError: the seal itself has been changed, or the folder holds what cannot be sealed.
    """
    from datetime import UTC, datetime

    from perf_diagnostics import __version__
    from perf_diagnostics.store.sealed.manifest import extend

    kept = extend(directory, tool=f"perf-diagnostics {__version__}", now=datetime.now(UTC), renewed=written)
    if kept:
        named = ", ".join(kept[:_NAMED]) + (f" and {len(kept) - _NAMED} more" if len(kept) > _NAMED else "")
        print(
            f"warning: {directory} stays NOT as it was sealed: the earlier checksums of {named} were kept. If the "
            f"change is meant, seal it as it is: perf-diagnostics manifest create {shlex.quote(str(directory))}",
            file=sys.stderr,
        )
    return kept


def sealed(directory: Path) -> bool:
    """Whether somebody has sealed the folder, whatever has become of it since."""
    from perf_diagnostics.store.sealed.listed_paths import MANIFEST, SUMS

    return any((directory / name).exists() for name in (MANIFEST, SUMS))


def broken_below(directory: Path, prefix: str) -> frozenset[str]:
    """The sealed files below ``prefix`` that are not as they were sealed; none where nothing is sealed.

    To be asked before a command writes there: what was broken by then, it may replace but not seal anew.
    """
    from perf_diagnostics.store.sealed.manifest import verify

    if not sealed(directory):
        return frozenset()
    try:
        found = verify(directory)
    except ManifestError:
        return frozenset()  # sealing again will meet it, too, and tell it
    broken = (*found.missing, *found.modified, *found.wrong_size)
    return frozenset(path for path in broken if path.startswith(prefix))


def seal_again(directory: Path, *, written: Callable[[str], bool], quiet: bool) -> None:
    """Seal a folder that was sealed with what the caller wrote since; one that never was stays without a seal."""
    if not sealed(directory):
        return
    try:
        kept = seal(directory, written=written)
    except ManifestError as error:
        print(f"warning: {error}", file=sys.stderr)
        return
    if not kept and not quiet:
        print(f"{directory} had been sealed, and is sealed again with what was written now.", file=sys.stderr)
