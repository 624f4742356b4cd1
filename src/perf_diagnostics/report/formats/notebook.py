"""The report as the result of a notebook's cell: static, without scripts, and styled for itself alone."""

from __future__ import annotations

import hashlib

from perf_diagnostics.diagnose.verdict_place import verdict_note, verdict_seen
from perf_diagnostics.report import words
from perf_diagnostics.report.drawing.palette import PRINTED
from perf_diagnostics.report.drawing.svg import svg
from perf_diagnostics.report.formats.html import environment
from perf_diagnostics.report.lead import lead_of
from perf_diagnostics.report.model import Report
from perf_diagnostics.report.tables.sizes_table import SIZES

#: A cell shows the first charts only; the saved report has them all.
_CHARTS = 2


def notebook_html(report: Report) -> str:
    """The answer on one screen as an HTML fragment that survives saving and sanitising; findings are folded away.

    Saved notebooks and their viewers strip scripts, so there are none. Colours are fixed and light on a light card,
    because a notebook's theme cannot be asked for.
    """
    report = words.clean(report)
    # A class of its own for each report, so that two in one notebook do not style each other.
    scope = "perfdiag-" + hashlib.sha256(f"{report.run_name}{report.generated_at}".encode()).hexdigest()[:8]
    charts = [
        (chart, svg(chart, PRINTED, name=f"{scope}-{index}")) for index, chart in enumerate(report.charts[:_CHARTS])
    ]
    sizes = next((table for table in report.tables if table.key == SIZES), None)
    template = environment().get_template("notebook.html.j2")
    seen = verdict_seen(report.diagnosis)
    note = verdict_note(report.diagnosis)
    return template.render(
        report=report,
        scope=scope,
        charts=charts,
        sizes=sizes,
        lead=lead_of(report),
        verdict_seen=seen,
        verdict_note=note,
    )
