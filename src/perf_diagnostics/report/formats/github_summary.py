"""Markdown for the summary page of a GitHub Actions job, cut to what that page may hold."""

from __future__ import annotations

from pathlib import Path

from perf_diagnostics.errors import ReportError

#: GitHub drops a step's whole summary if it is larger (its documentation: 1 MiB a step).
LIMIT_BYTES = 1024 * 1024

_CUT = "\n\n*Cut here: the summary of a step may hold 1024 kB.*\n"


def append_summary(path: Path, markdown: str) -> None:
    """Append to the file that ``GITHUB_STEP_SUMMARY`` names, whatever other tools of the step have put there.

    Raises:
        ReportError: it cannot be written.
    """
    try:
        taken = path.stat().st_size if path.exists() else 0
        # A table needs an empty line before it to be one.
        text = fitted(("\n" if taken else "") + markdown, LIMIT_BYTES - taken)
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise ReportError(f"GITHUB_STEP_SUMMARY {path} could not be written: {error.strerror or error}.") from error


def fitted(markdown: str, room_bytes: int) -> str:
    """The Markdown itself, or as many whole lines as there is room for, and a line that says so; never more bytes."""
    data = markdown.encode("utf-8", errors="replace")
    if len(data) <= room_bytes:
        return data.decode("utf-8")
    room = room_bytes - len(_CUT.encode())
    if room <= 0:
        return ""
    end = data.rfind(b"\n", 0, room + 1)
    return data[:end].decode("utf-8") + _CUT if end > 0 else ""
