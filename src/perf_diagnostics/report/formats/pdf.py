"""The report as a tagged PDF, typeset by WeasyPrint from the same pages as the HTML, with the print style."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any, NoReturn

from perf_diagnostics.errors import FormatUnavailable, ReportError
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.model import Report

_NATIVE = (
    "Debian and Ubuntu: apt install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0; macOS: brew install pango; "
    "conda: conda install -c conda-forge weasyprint. Or print report.html from a browser."
)


def render_pdf(report: Report) -> bytes:
    """The report as PDF/UA-1: A4, tagged, with page numbers; equal reports make equal bytes.

    Raises:
        FormatUnavailable: WeasyPrint or one of its native libraries is missing.
    """
    weasyprint = weasyprint_module()
    document = weasyprint.HTML(string=render_html(report, "print"), url_fetcher=_refuse)
    written = document.write_pdf(pdf_variant="pdf/ua-1")
    return bytes(written)


def weasyprint_module() -> Any:
    """The library, without the banner it prints and the warnings it gives while it looks for native libraries."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import weasyprint
    except ImportError as error:
        raise FormatUnavailable("WeasyPrint is not installed; pip install weasyprint.") from error
    except OSError as error:  # a native library, by dlopen while importing
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FormatUnavailable(f"A native library of WeasyPrint is missing ({reason}). {_NATIVE}") from error
    return weasyprint


def _refuse(url: str, *_: Any, **__: Any) -> NoReturn:
    """Whatever a report might ask to be loaded, nothing is."""
    raise ReportError(f"A report loads nothing, but its page asked for {url[:80]!r}.")
