"""The formats a report can be written in, and the one place that writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perf_diagnostics.errors import FormatUnavailable, InvalidSettings, ReportError
from perf_diagnostics.report.model import Report
from perf_diagnostics.report.words import listing
from perf_diagnostics.store.files.whole_files import write_atomic


class Renderer(Protocol):
    """Turns a report into the bytes of one file; equal reports make equal bytes."""

    @property
    def file_name(self) -> str:
        """The name the file has in a folder of reports."""

    def render(self, report: Report) -> bytes:
        """The file's bytes.

        Raises:
            FormatUnavailable: a library of the format is missing; the text says how to get it.
        """


@dataclass(frozen=True)
class _File:
    """A renderer made of a function; it imports its library only when it is called."""

    file_name: str
    bytes_of: Callable[[Report], bytes]

    def render(self, report: Report) -> bytes:
        return self.bytes_of(report)


def _html(report: Report) -> bytes:
    from perf_diagnostics.report.formats.html import render_html

    return render_html(report).encode()


def _pdf(report: Report) -> bytes:
    from perf_diagnostics.report.formats.pdf import render_pdf

    return render_pdf(report)


def _pptx(report: Report) -> bytes:
    from perf_diagnostics.report.slides.pptx import render_pptx

    return render_pptx(report)


def _md(report: Report) -> bytes:
    from perf_diagnostics.report.formats.markdown import render_markdown

    return render_markdown(report).encode()


def _json(report: Report) -> bytes:
    from perf_diagnostics.report.formats.json import report_json

    return report_json(report).encode()


def _picture(file_name: str) -> _File:
    def bytes_of(report: Report) -> bytes:
        from perf_diagnostics.report.formats.plots import render_picture

        return render_picture(report, file_name)

    return _File(file_name, bytes_of)


#: Formats that are one file each, by name.
RENDERERS: Mapping[str, Renderer] = {
    "html": _File("report.html", _html),
    "pdf": _File("report.pdf", _pdf),
    "pptx": _File("report.pptx", _pptx),
    "md": _File("performance_report.md", _md),
    "json": _File("report.json", _json),
}

#: Every format and the files it writes.
FORMATS: Mapping[str, tuple[Renderer, ...]] = {
    **{name: (renderer,) for name, renderer in RENDERERS.items()},
    "plots": tuple(_picture(f"{name}.png") for name in ("throughput_vs_batch_size", "time_breakdown", "memory_usage")),
}


@dataclass(frozen=True)
class Written:
    """A file that was written."""

    format: str
    path: Path


@dataclass(frozen=True)
class Skipped:
    """A format that could not be written here, and why."""

    format: str
    why: str


def write_report(
    report: Report, directory: str | Path, formats: Sequence[str] = tuple(FORMATS)
) -> tuple[Written | Skipped, ...]:
    """Write a report into a folder, which is made if it is missing; file names never come from the report.

    A format whose library is missing is skipped and the others are written. A file that exists is replaced in one
    step: a reader sees the old report or the new one, never half of one.

    Raises:
        InvalidSettings: an unknown format.
        ReportError: the folder or a file cannot be written.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise InvalidSettings(f"Unknown report format {unknown[0]!r}; known formats are {', '.join(FORMATS)}.")
    outcomes: list[Written | Skipped] = []
    for name in dict.fromkeys(formats):
        for renderer in FORMATS[name]:
            try:
                content = renderer.render(report)
            except FormatUnavailable as error:
                outcomes.append(Skipped(name, str(error)))
                break
            try:
                outcomes.append(Written(name, write_file(Path(directory) / renderer.file_name, content)))
            except ReportError as error:
                before = listing([one.path.name for one in outcomes if isinstance(one, Written)])
                raise ReportError(f"{error} Written before: {before}." if before else str(error)) from error
    return tuple(outcomes)


def save_report(report: Report, path: str | Path, format_name: str) -> Path:
    """Write a report in one single-file format to a path of the caller's choice.

    Raises:
        InvalidSettings: an unknown format.
        FormatUnavailable: its library is missing.
        ReportError: the file cannot be written.
    """
    if format_name not in RENDERERS:
        raise InvalidSettings(f"Unknown report format {format_name!r}; single files are {', '.join(RENDERERS)}.")
    return write_file(Path(path), RENDERERS[format_name].render(report))


def write_file(path: Path, content: bytes | str) -> Path:
    """Write a file that a reader finds as it was or whole; its folder is made if it is missing.

    Raises:
        ReportError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content, fsync=False)
    except OSError as error:
        raise ReportError(f"{path} could not be written: {error.strerror or error}.") from error
    return path
